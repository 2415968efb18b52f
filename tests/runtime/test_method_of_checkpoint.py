"""Commands refuse the checkpoint of another method although all of its weights match by name and shape."""
from pathlib import Path

import pytest
from seed_machine import TINY, write_pairs
from tiny import error_of

from mmkcla.cli import main
from mmkcla.weights.reading import read_checkpoint

UNET = "backbone=dict(type='UNet', base_channels=4, norm_cfg=_norm)"
RESNET = ("backbone=dict(type='mmkcla.LayerAttentionResNet', depth=18, stem_channels=4, base_channels=4, "
          "out_indices=(0, 1, 2, 3), norm_cfg=_norm, layer_attention={attention})")
MRLA = "dict(type='MRLABase', head_channels=4)"


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('method')
    root = write_pairs(folder / 'data')
    assert UNET in TINY
    text = TINY.replace('{root}', str(root)).replace('in_channels=4, in_index=4,', 'in_channels=4, in_index=0,')
    for name, attention in (('mrla', MRLA), ('other', MRLA.replace('MRLABase', 'SoftmaxLayerAttention')),
                            ('heads', MRLA.replace('head_channels=4', 'head_channels=2')),
                            ('kcla', "dict(type='KCLA', head_channels=4)"), ('plain', None)):
        (folder / f'method_{name}.py').write_text(text.replace(UNET, RESNET.format(attention=attention)))
    assert main(['train', str(folder / 'method_mrla.py'), '--work-dir', str(folder / 'w'), '--cfg-options',
                 'train_cfg.max_iters=1']) == 0
    return folder


def test_what_is_saved(folder):
    saved = read_checkpoint(folder / 'w' / 'iter_1.pth')['meta']['mmkcla']
    assert saved['classes'] == ['background', 'polyp']
    assert saved['methods'] == {f'backbone.layer_attentions.{stage}.{block}': dict(
        type='MRLABase', options=dict(head_channels=4)) for stage in range(4) for block in range(2)}


@pytest.mark.parametrize(('name', 'reason'), [
    ('other', 'was made with MRLABase, the config has SoftmaxLayerAttention (backbone.layer_attentions.0.0 and 7 '
              'more); use the config of MRLABase or '),
    ('kcla', 'was made with MRLABase, the config has KCLA (backbone.layer_attentions.0.0 and 7 more); use '),
    ('plain', 'was made with MRLABase, the config has no layer attention (backbone.layer_attentions.0.0 and 7 more)'),
    ('heads', 'was made with head_channels=4, the config has head_channels=2 in backbone.layer_attentions.0.0')])
def test_test_infer_and_resume_refuse(folder, tmp_path, capsys, name, reason):
    config, checkpoint = folder / f'method_{name}.py', folder / 'w' / 'iter_1.pth'
    image = next((folder / 'data' / 'images' / 'test').iterdir())
    for command in (['test', config, checkpoint, '--work-dir', tmp_path / 't'],
                    ['infer', config, checkpoint, image, '--out-dir', tmp_path / 'p'],
                    ['export', config, checkpoint, '--out', tmp_path / 'e.onnx'],
                    ['train', config, '--work-dir', tmp_path / 'r', '--resume', checkpoint]):
        line = error_of(capsys, *command)
        assert line.startswith(f'checkpoint {checkpoint} {reason}'), command[0]
        assert name == 'heads' or '--allow-partial' not in line
    assert not (tmp_path / 't' / 'metrics.json').exists()
    assert main(['test', str(config), str(checkpoint), '--work-dir', str(tmp_path / 'a'), '--allow-partial']) == 0


def test_fine_tuning_refuses_the_method_and_takes_other_options(folder, tmp_path, capsys):
    options = ['--cfg-options', f'load_from={folder / "w" / "iter_1.pth"}', 'train_cfg.max_iters=1']
    run = [str(folder / 'method_other.py'), '--work-dir', str(tmp_path / 'a'), *options]
    assert 'was made with MRLABase, the config has SoftmaxLayerAttention' in error_of(capsys, 'train', *run)
    assert main(['train', str(folder / 'method_heads.py'), '--work-dir', str(tmp_path / 'b'), *options]) == 0
    log = next(Path(tmp_path / 'b').glob('*/*.log')).read_text()
    assert 'was made with head_channels 4, the config has 2' in log


def test_fine_tuning_from_a_plain_network_and_back(folder, tmp_path, capsys):
    """Weights without layer attention are the usual start of a training with it."""
    def train(name, start, out):
        return ['train', str(folder / f'method_{name}.py'), '--work-dir', str(tmp_path / out), '--cfg-options',
                'train_cfg.max_iters=1', *([f'load_from={start}'] if start else [])]
    plain = tmp_path / 'a' / 'iter_1.pth'
    assert main(train('plain', None, 'a')) == main(train('kcla', plain, 'b')) == 0
    assert 'entries of the model are not in it' in capsys.readouterr().err
    assert main(train('plain', tmp_path / 'b' / 'iter_1.pth', 'c')) == 0
    assert 'was made with KCLA, the config has no layer attention; the weights of KCLA are not used' in \
        capsys.readouterr().err
    assert error_of(capsys, 'test', folder / 'method_kcla.py', plain, '--work-dir', tmp_path / 't').startswith(
        f'checkpoint {plain} was made without layer attention, the config has KCLA (')


def test_the_same_config_loads(folder, tmp_path):
    config, checkpoint = str(folder / 'method_mrla.py'), str(folder / 'w' / 'iter_1.pth')
    assert main(['test', config, checkpoint, '--work-dir', str(tmp_path)]) == 0


def test_the_classes_of_the_checkpoint_decide(folder, tmp_path, capsys):
    """A test set, or a resumed training, with the classes in another order is refused."""
    checkpoint = folder / 'w' / 'iter_1.pth'
    text = (folder / 'method_mrla.py').read_text()
    config = tmp_path / 'swapped.py'
    order = "_order = dict(metainfo=dict(classes=('polyp', 'background')))\n_steps = ["
    config.write_text(text.replace('_steps = [', order).replace('pipeline=_steps)', 'pipeline=_steps, **_order)'))
    for command in (['test', config, checkpoint, '--work-dir', tmp_path / 't'],
                    ['train', config, '--work-dir', tmp_path / 'r', '--resume', checkpoint]):
        assert error_of(capsys, *command).startswith(
            f'checkpoint {checkpoint} learned other classes than {command[0]}_dataloader.dataset has: another order '
            '(polyp, background instead of background, polyp), so labels would be swapped; the checkpoint decides')
    assert main(['test', str(config), str(checkpoint), '--work-dir', str(tmp_path / 'n'), '--no-checks']) == 0
