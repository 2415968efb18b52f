"""Entries that are iterated or unpacked are lists, dicts or text; others are refused with their place."""
import pytest

from mmkcla.errors import UserError
from mmkcla.paths import configs_root
from mmkcla.runtime.checks.containers import check_containers
from mmkcla.runtime.config import load_config
from mmkcla.runtime.moved_variables import keys_read

COINS = 'faster-rcnn_r18-kcla_fpn_coins'


@pytest.mark.parametrize(('place', 'values', 'needed'), [
    ('train_dataloader.dataset', ['None', '3', '[]', 'text'], 'a dict with a type'),
    ('train_dataloader.dataset.metainfo', ['(0.5,2)', '[]'], 'a dict, e.g. dict(classes=(...,))'),
    ('val_dataloader.dataset.pipeline', ['{}', 'text', '1'], 'a list of transforms'),
    ('env_cfg.mp_cfg', ['file.pkl', '1e30', '[]'], 'a dict'),
    ('visualizer.vis_backends', ['-0.5', '{}'], 'a list of dicts with a type'),
    ('param_scheduler.1.milestones', ['1e30', '3'], 'a list of integers'),
    ('model.backbone.init_cfg', ['1e30', 'text'], 'a dict with a type, or a list of them'),
    ('default_hooks.checkpoint.save_best', ['-1', '{}'], 'the name of a metric')])
def test_other_kinds(place, values, needed) -> None:
    for value in values:
        with pytest.raises(UserError) as error:
            check_containers(load_config(COINS, [f'{place}={value}']))
        assert str(error.value).startswith(f'{place}=') and str(error.value).endswith(f' must be {needed}')


def test_entries_of_a_list() -> None:
    with pytest.raises(UserError, match=r'^default_hooks\.checkpoint\.save_best\.0=None must be the name of a metric$'):
        check_containers(load_config(COINS, ['default_hooks.checkpoint.save_best=[None]']))


def test_an_integer_that_no_machine_counts_to() -> None:
    with pytest.raises(UserError, match='=9223372036854775808 must be an integer of at most 9223372036854775807$'):
        check_containers(load_config(COINS, ['train_dataloader.batch_size=9223372036854775808']))
    check_containers(load_config(COINS, ['train_dataloader.batch_size=9223372036854775807']))


def test_none_is_a_default() -> None:
    config = load_config(COINS, ['model.backbone.init_cfg=None', 'default_hooks.checkpoint.save_best=None',
                                 'train_dataloader.dataset.metainfo=None', 'env_cfg.dist_cfg=None'])
    check_containers(config)
    assert config.model.backbone.init_cfg is None and 'env_cfg' in keys_read()


@pytest.mark.parametrize('family', sorted(path.name for path in configs_root().iterdir() if path.is_dir()))
def test_shipped_configs(family) -> None:
    for path in sorted((configs_root() / family).glob('*.py'))[:4]:
        if family != '_base_':
            check_containers(load_config(str(path), []))
