"""Numbers out of the range of their name are refused; the values of shipped configs and of defaults are not."""
import inspect
from pathlib import Path

import pytest
from mmengine.config import Config

from mmkcla.errors import UserError
from mmkcla.runtime.checks import check_settings
from mmkcla.runtime.checks.ranges import check_ranges, defaults, range_of
from mmkcla.runtime.config import load_config
from mmkcla.runtime.hosts import import_hosts

ROOT = Path(__file__).parents[3]
COINS, UNET = 'faster-rcnn_r18-kcla_fpn_coins', 'unet-kcla-small_coins'
ONE, ZERO = 'an integer of at least 1', 'an integer of at least 0'
ABOVE, SHARE = 'a finite number above 0', 'a number from 0 to 1'


@pytest.fixture(scope='module', autouse=True)
def _hosts():
    import_hosts(['mmdet', 'mmseg', 'mmpretrain'], with_models=True)


@pytest.mark.parametrize(('name', 'place', 'values', 'needed'), [
    (COINS, 'model.backbone.strides.0', ['-1', '0'], ABOVE), (COINS, 'model.backbone.dilations.0', ['-1', '0'], ONE),
    (COINS, 'model.backbone.out_indices.0', ['-1'], ZERO), (COINS, 'model.neck.out_channels', ['0', '-8'], ONE),
    (COINS, 'model.backbone.frozen_stages', ['-2'], 'an integer of at least -1'),
    (COINS, 'model.roi_head.bbox_head.num_classes', ['0', '-3'], ONE),
    (COINS, 'model.data_preprocessor.pad_size_divisor', ['0', '-32'], ONE),
    (COINS, 'model.test_cfg.rcnn.nms.iou_threshold', ['-0.1', '1.5'], SHARE),
    (COINS, 'model.test_cfg.rcnn.score_thr', ['1.5'], 'a number of at most 1'),
    (COINS, 'model.test_cfg.rcnn.max_per_img', ['-2', '0'], f'{ONE}, or -1 for no limit'),
    (COINS, 'model.train_cfg.rpn.assigner.pos_iou_thr', ['-1', '7'], SHARE),
    (COINS, 'model.rpn_head.anchor_generator.strides.0', ['0', '-4'], ABOVE),
    (COINS, 'model.rpn_head.anchor_generator.ratios.0', ['0', '-1', 'inf'], ABOVE),
    (UNET, 'model.decode_head.num_classes', ['0', '-3'], ONE), (UNET, 'crop_size', ['(0,64)'], None)])
def test_out_of_range(name, place, values, needed) -> None:
    whole = [f'model.backbone.{key}=({numbers})' for key, numbers in (('strides', '1,2,2,2'), ('dilations', '1,1,1,1'))
             if f'.backbone.{key}.' in place]
    for value in values:
        with pytest.raises(UserError) as error:
            check_ranges(load_config(name, [*whole, f'{place}={value}']))
        if needed:
            assert str(error.value).startswith(f'{place}=') and str(error.value).endswith(f' must be {needed}')


@pytest.mark.parametrize('key', ['filter_empty_gt', 'class_agnostic'])
def test_switches_in_dicts_without_a_type(key) -> None:
    with pytest.raises(UserError, match=rf"^train_dataloader.dataset.filter_cfg.{key}='abc' must be True or False$"):
        check_ranges(load_config(COINS, [f'train_dataloader.dataset.filter_cfg.{key}=abc']))


def test_classes_of_others_have_their_own_ranges() -> None:
    class Mine:
        def __init__(self, channels):
            pass

    check_ranges(Config(dict(model=dict(type=Mine, channels=-1))))
    with pytest.raises(UserError, match='^model.channels=-1 must be an integer of at least 1$'):
        check_ranges(Config(dict(model=dict(type='mmseg.FCNHead', channels=-1))))


def test_all_shipped_configs() -> None:
    paths = sorted((ROOT / 'configs').glob('[!_]*/*.py'))
    assert len(paths) > 200
    for path in paths:
        config = Config.fromfile(path, import_custom_modules=False)
        check_ranges(config)
        check_settings(config)
        check_settings(config, training=False)


def test_defaults_of_the_hosts_are_in_the_ranges() -> None:
    """Except for a few classes, where the number has another meaning; they are exempt by their defaults."""
    import mmengine.registry as registries
    roots = [root for root in vars(registries).values() if isinstance(root, registries.Registry)]
    classes = {part for root in roots for each in (root, *root.children.values()) for part in each.module_dict.values()}
    outside, count = set(), 0
    for part in classes:
        try:
            names = inspect.signature(part).parameters
        except (TypeError, ValueError):
            continue
        for name in names:
            rule = range_of(name)
            values = list(defaults(part, name)) if rule else []
            count += len(values)
            outside |= {name for value in values if not rule.valid(value)}
    assert outside <= {'mid_channels', 'num_classes', 'out_indices', 'proto_kernel_sizes', 'topk'}
    assert count > 1000
