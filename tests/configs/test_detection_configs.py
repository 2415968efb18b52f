"""Every config loads and builds; the full-size one trains and evaluates on a folder laid out like COCO."""
import json
import re
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from mmkcla.checkpoint import read_checkpoint

ROOT = Path(__file__).parents[2]
FOLDERS = ('cascade_rcnn', 'demo', 'faster_rcnn', 'mask_rcnn', 'retinanet')
CONFIGS = sorted(path for folder in FOLDERS for path in (ROOT / 'configs' / folder).glob('*.py')
                 if 'psmnet' not in path.stem)  # it has no backbone; see tests/stereo
ids = lambda path: path.stem  # noqa: E731


def backbone_of(config):
    return config.model.backbone


@pytest.mark.parametrize('path', CONFIGS, ids=ids)
def test_builds(path):
    config = Config.fromfile(path)
    init_default_scope(config.default_scope)
    model = MODELS.build(config.model)
    options = backbone_of(config).get('layer_attention')
    kcla = re.search(r'_r\d+-kcla|kcla-(?:small|resnet)', path.stem) is not None
    attends = kcla or re.match(r'(?:mrla|softmax|dla)-', path.stem) is not None
    assert (model.backbone.layer_attentions is not None) is attends
    if config.get('auto_scale_lr') is None or not config.auto_scale_lr.base_batch_size:
        pytest.fail('auto_scale_lr is not filled in')
    if path.parent.name == 'demo':
        return
    # the converted checkpoints are in the paper's form, the plain ones start from the plain network
    if kcla:
        assert options.get('layer_scale_init') == (None if 'in1k' in path.stem else 0.)
    depth = int(re.search(r'_r(\d+)', path.stem).group(1))
    assert model.backbone.depth == depth and model.backbone.out_channels == (256, 512, 1024, 2048)
    checkpoint = backbone_of(config).init_cfg.checkpoint
    assert checkpoint == (f'checkpoints/kcla-resnet{depth}_in1k.pth' if 'in1k' in path.stem else
                          f'torchvision://resnet{depth}')
    expected_lr = 0.01 if 'retinanet' in path.stem else 0.02
    assert config.optim_wrapper.optimizer.lr == expected_lr and config.auto_scale_lr.base_batch_size == 16
    assert config.train_dataloader.batch_size == 2 and config.train_cfg.max_epochs == 12
    for loader in (config.train_dataloader, config.val_dataloader, config.test_dataloader):
        assert loader.dataset.pipeline[0] == dict(type='LoadImageFromFile', _scope_='mmkcla', backend_args=None)
        assert len(loader.dataset.pipeline) == len(set(str(step) for step in loader.dataset.pipeline))
    assert 'custom_imports' not in config and config.default_scope == 'mmdet'


@pytest.mark.parametrize('path', [path for path in CONFIGS if '-kcla_' in path.stem and path.parent.name != 'demo'],
                         ids=ids)
def test_kcla_is_one_line_from_its_plain_twin(path):
    ours, plain = (Config.fromfile(p) for p in (path, path.with_name(path.name.replace('-kcla', ''))))
    assert backbone_of(ours).pop('layer_attention').type == 'KCLA'
    assert ours.to_dict() == plain.to_dict()


def coco_folder(root, sizes=((64, 48), (48, 64), (64, 64))):
    """A folder laid out like COCO 2017: an image with a crowd, one without annotations, and an ordinary one."""
    import numpy as np
    from PIL import Image
    rng = np.random.default_rng(0)
    rle = dict(size=[64, 48], counts=[0, 100, 64 * 48 - 100])
    for split in ('train2017', 'val2017'):
        (root / split).mkdir(parents=True)
        images = []
        for i, (height, width) in enumerate(sizes):
            name = f'{i:012d}.jpg'
            Image.fromarray(rng.integers(0, 255, (height, width, 3), dtype=np.uint8)).save(root / split / name)
            images.append(dict(id=i, file_name=name, height=height, width=width))
        polygon = [[4., 4., 40., 4., 40., 40., 4., 40.]]
        annotations = [
            dict(id=1, image_id=0, category_id=1, bbox=[4, 4, 36, 36], area=1296, iscrowd=0, segmentation=polygon),
            dict(id=2, image_id=0, category_id=1, bbox=[0, 0, 2, 64], area=100, iscrowd=1, segmentation=rle),
            dict(id=3, image_id=2, category_id=90, bbox=[4, 4, 36, 36], area=1296, iscrowd=0, segmentation=polygon)]
        from mmdet.datasets import CocoDataset
        ids = [i for i in range(1, 91) if i not in (12, 26, 29, 30, 45, 66, 68, 69, 71, 83)]
        categories = [dict(id=i, name=name) for i, name in
                      zip(ids, CocoDataset.METAINFO['classes'], strict=True)]
        (root / 'annotations').mkdir(exist_ok=True)
        (root / 'annotations' / f'instances_{split}.json').write_text(
            json.dumps(dict(images=images, annotations=annotations, categories=categories)))
    return root


def test_full_size_config_trains_on_coco_layout(tmp_path, monkeypatch):
    """`faster-rcnn_r50-kcla_fpn_1x_coco.py` itself, two iterations and an evaluation; only sizes of images shrink."""
    from mmkcla.cli import main
    coco_folder(tmp_path / 'data' / 'coco')
    monkeypatch.chdir(tmp_path)
    plain = tmp_path / 'resnet50.pth'
    from torchvision.models import resnet50
    torch.save(resnet50(zero_init_residual=True).state_dict(), plain)
    options = [f'model.backbone.init_cfg.checkpoint={plain}', 'train_dataloader.batch_size=1',
               'train_dataloader.num_workers=0', 'train_dataloader.persistent_workers=False',
               'val_dataloader.num_workers=0', 'val_dataloader.persistent_workers=False', 'train_cfg.max_epochs=1',
               'train_dataloader.dataset.pipeline.2.scale=(96,96)', 'val_dataloader.dataset.pipeline.1.scale=(96,96)',
               'model.train_cfg.rpn_proposal.max_per_img=100', 'model.test_cfg.rpn.max_per_img=50',
               'model.test_cfg.rcnn.score_thr=0.']
    assert main(['train', 'faster_rcnn/faster-rcnn_r50-kcla_fpn_1x_coco.py', '--work-dir', 'out', '--cfg-options',
                 *options]) == 0
    log = next((tmp_path / 'out').glob('*/*.log')).read_text()
    assert 'layer-attention entries are missing and keep their initial values' in log
    assert "the batch norms of the layer attentions are trained (no weights were loaded for them)" in log
    assert 'coco/bbox_mAP: ' in log
    state = read_checkpoint(tmp_path / 'out' / 'epoch_1.pth')['state_dict']
    assert sum(value.numel() for name, value in state.items() if name.endswith('layer_scale')) == 15104
    assert (state['backbone.layer_attentions.1.0.layer_scale'] != 0).any()
    assert (state['backbone.layer_attentions.0.0.layer_scale'] == 0).all()  # frozen_stages=1
