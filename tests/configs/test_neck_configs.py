"""Configs with Efficient Attention and the necks: they build, start as their plain counterparts, and run."""
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from segmentation_recipe import DATASETS, check_recipe

from mmkcla.layers import DotProductAttention2d, EfficientAttention
from mmkcla.models.necks import KCLAFPN, EfficientAttentionNeck, LayerAttentionNeck

ROOT = Path(__file__).parents[2] / 'configs'
PARTS = {'efficient_attention': {'r50-ea_fpn', 'r50_fpn-ea', 'r50-ea_fpn-ea', 'r50-nl_fpn'},
         'layer_attention_neck': {'r50_fpn-kcla'}, 'kcla_fpn': {'r50_kclafpn', 'r50-kcla_kclafpn'}}
DETECTORS = sorted(path for folder in PARTS for path in (ROOT / folder).glob('*.py'))
SEGMENTORS = sorted(path for folder in ('semantic_fpn', 'upernet') for path in (ROOT / folder).glob('*.py'))
DEMOS = sorted(path for path in (ROOT / 'demo').glob('faster-rcnn_*_coins.py')
               if path.stem not in ('faster-rcnn_r18_fpn_coins', 'faster-rcnn_r18-kcla_fpn_coins'))
ids = lambda path: path.stem  # noqa: E731


def build(path, scope='mmdet'):
    config = Config.fromfile(path)
    init_default_scope(scope)
    if config.model.backbone.get('init_cfg'):
        config.model.backbone.init_cfg = None
    torch.manual_seed(0)
    model = MODELS.build(config.model)
    model.init_weights()
    return model.eval()


def kinds(model):
    """What of ours is in it, by number."""
    classes = (EfficientAttention, DotProductAttention2d, EfficientAttentionNeck, LayerAttentionNeck, KCLAFPN)
    return {kind.__name__: count for kind in classes
            if (count := sum(type(module) is kind for module in model.modules()))}


EXPECTED = {
    'r50-ea_fpn': dict(EfficientAttention=10), 'r50_fpn-ea': dict(EfficientAttention=5, EfficientAttentionNeck=1),
    'r50-ea_fpn-ea': dict(EfficientAttention=15, EfficientAttentionNeck=1), 'r50-nl_fpn': dict(DotProductAttention2d=6),
    'r50_fpn-kcla': dict(LayerAttentionNeck=1), 'r50_kclafpn': dict(KCLAFPN=1), 'r50-kcla_kclafpn': dict(KCLAFPN=1)}


def test_each_detector_has_each_part():
    for folder, parts in PARTS.items():
        names = {f'{detector}_{part}_1x_coco' for detector in ('faster-rcnn', 'mask-rcnn') for part in parts}
        names |= {'retinanet_r50_kclafpn_1x_coco'} if folder == 'kcla_fpn' else set()
        assert {path.stem for path in (ROOT / folder).glob('*.py')} == names


def same_weights(ours, plain):
    """Take over the plain counterpart's weights; ours must have all of them, and more only for what is new."""
    state = ours.state_dict()
    taken = {}
    for name, value in plain.state_dict().items():
        own = next(own for own in (name, name.replace('neck.', 'neck.0.'), name.replace('neck.', 'neck.1.'))
                   if own in state and state[own].shape == value.shape)
        taken[own] = value
    missing, unexpected = ours.load_state_dict(taken, strict=False)
    assert not unexpected
    new = ('attention', 'top_down', 'passes')
    assert all(any(part in name for part in new) for name in missing), missing


@pytest.mark.parametrize('path', DETECTORS, ids=ids)
@torch.no_grad()
def test_detector_starts_as_its_plain_twin(path):
    """Every output of the heads, bit for bit."""
    detector, part = path.stem.removesuffix('_1x_coco').split('_', 1)
    ours = build(path)
    assert kinds(ours) == EXPECTED[part]
    folder = {'faster-rcnn': 'faster_rcnn', 'mask-rcnn': 'mask_rcnn', 'retinanet': 'retinanet'}[detector]
    plain = build(ROOT / folder / f'{detector}_r50_fpn_1x_coco.py')
    same_weights(ours, plain)
    x = torch.randn(1, 3, 64, 96)
    maps, theirs = ours.extract_feat(x), plain.extract_feat(x)
    assert len(maps) == 5 and all(torch.equal(a, b) for a, b in zip(maps, theirs, strict=True))
    head = 'bbox_head' if detector == 'retinanet' else 'rpn_head'
    for a, b in zip(getattr(ours, head)(maps), getattr(plain, head)(theirs), strict=True):
        assert all(torch.equal(one, other) for one, other in zip(a, b, strict=True))


@pytest.mark.parametrize('path', SEGMENTORS, ids=ids)
def test_segmentor_recipe(path):
    check_recipe(path)


def test_each_data_set_has_each_segmentor():
    parts = {'fpn_r50', 'fpn_r50_kclafpn', 'fpn_r50-kcla_kclafpn', 'fpn_r50_fpn-kcla', 'fpn_r50_fpn-ea', 'upernet_r50',
             'upernet_r50-ea'}
    assert {path.stem for path in SEGMENTORS} == {f'{part}_1xb8-300e_{data}-256x256' for part in parts
                                                  for data in DATASETS}


@pytest.mark.parametrize('path', [path for path in SEGMENTORS if 'isic2017' in path.stem], ids=ids)
@torch.no_grad()
def test_segmentor_starts_as_its_plain_twin(path):
    part = path.stem.removesuffix('_1xb8-300e_isic2017-256x256')
    ours = build(path, 'mmseg')
    assert sum(kinds(ours).values()) == {'fpn_r50_fpn-ea': 5, 'upernet_r50-ea': 3}.get(part, int('_kcla' in part or
                                                                                                   '-kcla' in part))
    plain = build(path.with_name(f'{part.split("_")[0]}_r50_1xb8-300e_isic2017-256x256.py'), 'mmseg')
    same_weights(ours, plain)
    x = torch.randn(1, 3, 64, 64)
    out = ours(x, mode='tensor')
    assert out.shape == (1, 1, 16, 16) and torch.equal(out, plain(x, mode='tensor'))


def two_images():
    from mmdet.testing import demo_mm_inputs
    data = demo_mm_inputs(2, [[3, 96, 128], [3, 128, 96]], num_classes=2)
    for sample in data['data_samples']:
        sample.gt_instances.labels.zero_()  # the one class
    return data


@pytest.mark.parametrize('path', DEMOS, ids=ids)
def test_demo_detector_starts_as_its_plain_twin_and_everything_learns(path):
    """The predictions of the whole detector; then a step of training, in which every parameter has a gradient."""
    ours = build(path)
    kcla = 'r18-kcla' in path.stem
    plain = build(ROOT / 'demo' / f'faster-rcnn_r18{"-kcla" if kcla else ""}_fpn_coins.py')
    same_weights(ours, plain)
    data = ours.data_preprocessor(two_images())
    with torch.no_grad():
        results = [model(**data, mode='predict') for model in (ours, plain)]
    for one, other in zip(*results, strict=True):
        assert torch.equal(one.pred_instances.bboxes, other.pred_instances.bboxes) and len(one.pred_instances)
        assert torch.equal(one.pred_instances.scores, other.pred_instances.scores)
    ours.train()
    data = ours.data_preprocessor(two_images(), training=True)
    losses = ours(**data, mode='loss')
    sum(sum(value) if isinstance(value, list) else value for name, value in losses.items() if 'loss' in name).backward()
    assert all(parameter.grad is not None for parameter in ours.parameters() if parameter.requires_grad)


def test_there_is_a_demo_of_each_neck():
    assert {path.stem.removeprefix('faster-rcnn_').removesuffix('_coins') for path in DEMOS} == {
        'r18_fpn-ea', 'r18_fpn-nl', 'r18-ea_fpn', 'r18-ea_fpn-ea', 'r18_fpn-kcla', 'r18_kclafpn', 'r18-kcla_kclafpn'}
