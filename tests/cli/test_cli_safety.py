"""What a person may get wrong, or a stranger plant, between a config and a run: each a line, and no code run."""
import pickle

import pytest
import torch
from tiny import write_coco

from mmkcla.cli import main
from mmkcla.errors import UserError
from mmkcla.layers import KCLA
from mmkcla.models.backbones import KCLAResNet
from mmkcla.weights.safe_loading import load_safely


class Payload:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (open, (str(self.marker), 'w'))


def test_init_cfg_of_any_module_runs_no_code(tmp_path):
    from mmengine.model import BaseModule
    load_safely()
    marker, evil = tmp_path / 'marker', tmp_path / 'evil.pth'
    torch.save(dict(state_dict=Payload(marker)), evil)
    module = BaseModule(init_cfg=dict(type='Pretrained', checkpoint=str(evil)))
    with pytest.raises(UserError, match='it is refused, since loading it could run code'):
        module.init_weights()
    assert not marker.exists()
    pickle.dumps(Payload(marker))  # the payload itself is harmless until it is loaded


@pytest.mark.parametrize(('options', 'message'), [
    (dict(frozen_stages=9), 'frozen_stages=9 does not fit 4 stages; choose -1'),
    (dict(out_indices=(0, 7)), r'out_indices=\(0, 7\) does not fit 4 stages'),
    (dict(layer_attention='KCLA'), "layer_attention='KCLA' must be a dict"),
    (dict(layer_attention=dict(head_channels='abc')), "not divisible by head_channels='abc'"),
    (dict(layer_attention=dict(temperature_range=0.7)), 'temperature_range=0.7 must be two positive numbers'),
    (dict(layer_attention=dict(drop_path='abc')), "drop_path='abc' is not a probability"),
    (dict(layer_attention=dict(layer_scale_init='abc')), "layer_scale_init='abc' is not a number"),
    (dict(layer_attention=dict(carry_blocks=1)), 'carry_blocks=1 must be a tuple of block indices'),
])
def test_backbone_options(options, message):
    with pytest.raises(UserError, match=message):
        KCLAResNet(18, **options)


def test_channels_of_nothing():
    with pytest.raises(UserError, match='0 channels are not divisible'):
        KCLA(0)


@pytest.mark.parametrize(('option', 'message'), [
    ('train_dataloader.batch_size=0', 'train_dataloader.batch_size=0 must be an integer of at least 1'),
    ('train_dataloader.num_workers=-1', 'train_dataloader.num_workers=-1 must be an integer of at least 0'),
    ('train_cfg.max_iters=2.5', 'train_cfg.max_iters=2.5 must be an integer of at least 1'),
    ('train_cfg.val_interval=0', 'train_cfg.val_interval=0 must be an integer of at least 1'),
])
def test_run_settings(tmp_path, monkeypatch, capsys, option, message):
    monkeypatch.chdir(tmp_path)
    assert main(['train', 'faster-rcnn_r18-kcla_fpn_coins', '--cfg-options', option]) == 2
    assert capsys.readouterr().err.strip().splitlines()[-1] == f'error: {message}'


def test_unreadable_image_of_the_hosts_own_loader_is_named(tmp_path, monkeypatch, capsys):
    """A config that inherits mmdet's pipelines as they are."""
    monkeypatch.chdir(tmp_path)
    root = write_coco(tmp_path / 'coco', images=3)
    (root / 'images' / '002.jpg').write_bytes(b'')
    (tmp_path / 'own.py').write_text(f'''
_base_ = 'mmdet::faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py'
model = dict(
    backbone=dict(type='mmkcla.KCLAResNet', depth=18, base_channels=16, stem_channels=16,
                  layer_attention=dict(head_channels=16), init_cfg=None, frozen_stages=-1),
    neck=dict(in_channels=[16, 32, 64, 128]), roi_head=dict(bbox_head=dict(num_classes=2)))
data = dict(data_root='{root}', ann_file='ann.json', data_prefix=dict(img='images/'),
            metainfo=dict(classes=('blue', 'green')))
train_dataloader = dict(batch_size=3, num_workers=0, dataset=data)
val_dataloader = dict(num_workers=0, dataset=data)
val_evaluator = dict(ann_file='{root}/ann.json')
''')
    assert main(['train', 'own.py']) == 2
    assert 'images that cannot be opened: 1 (002.jpg: the file is empty)' in capsys.readouterr().err
    assert main(['train', 'own.py', '--no-checks']) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith('error: cannot read the image') and error.endswith('002.jpg: the file is empty')


def test_config_may_import_a_module_that_imports_mmdet(tmp_path, monkeypatch, capsys):
    """The stand-in for mmcv's operators is in place before a config is read; a failing import shows its cause."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / 'broken_module_of_mine.py').write_text('import not_a_package_at_all\n')
    (tmp_path / 'own.py').write_text("custom_imports = dict(imports=['broken_module_of_mine'])\n")
    assert main(['train', 'own.py']) == 2
    assert "No module named 'not_a_package_at_all'" in capsys.readouterr().err
