"""Impossible numbers in a config are refused with their place."""
import math

import pytest

from mmkcla.errors import UserError
from mmkcla.runtime.checks import check_numbers, check_settings
from mmkcla.runtime.config import load_config

COINS = 'faster-rcnn_r18-kcla_fpn_coins'
POSITIVE, NOT_NEGATIVE = 'a finite number above 0', 'a finite number of at least 0'
FROM_ONE = 'an integer of at least 1'


@pytest.mark.parametrize(('place', 'values', 'needed'), [
    ('optim_wrapper.optimizer.lr', ['nan', 'inf', '-1e-3', '0', "'0.1'", 'True'], POSITIVE),
    ('optim_wrapper.optimizer.weight_decay', ['nan', '-1'], NOT_NEGATIVE),
    ('optim_wrapper.accumulative_counts', ['0', '-1', '1.5', 'True'], FROM_ONE),
    ('optim_wrapper.clip_grad.max_norm', ['0', '-1', 'nan'], 'a number above 0'),
    ('model.rpn_head.loss_cls.loss_weight', ['nan', 'inf', '-1'], NOT_NEGATIVE),
    ('train_dataloader.batch_size', ['0', '-1', '2.5', 'True'], FROM_ONE),
    ('train_dataloader.num_workers', ['-1'], 'an integer of at least 0'),
    ('train_cfg.max_iters', ['0', '-3', '2.5', 'inf'], FROM_ONE), ('train_cfg.val_interval', ['0', '-1'], FROM_ONE),
    ('default_hooks.logger.interval', ['0', '-1'], FROM_ONE),
    ('default_hooks.checkpoint.interval', ['0', '-2'], 'an integer of at least 1, or -1 for never'),
    ('param_scheduler.0.begin', ['-1'], 'an integer of at least 0'),
    ('param_scheduler.1.eta_min', ['nan', '-1'], NOT_NEGATIVE),
    ('model.backbone.norm_cfg.momentum', ['1.5', '-1'], 'a number from 0 to 1'),
    ('model.data_preprocessor.std.0', ['0', 'nan'], POSITIVE),
    ('auto_scale_lr.base_batch_size', ['0'], FROM_ONE), ('randomness.seed', ['-1'], 'an integer from 0 to 4294967295'),
])
def test_impossible_numbers(place, values, needed) -> None:
    for value in values:
        config = load_config(COINS, ['model.backbone.norm_cfg=dict(type=BN)', f'{place}={value}'])
        with pytest.raises(UserError) as error:
            check_numbers(config)
        assert str(error.value).startswith(f'{place}=') and str(error.value).endswith(f' must be {needed}')


@pytest.mark.parametrize(('place', 'needed'), [
    ('train_dataloader.batch_size', FROM_ONE), ('optim_wrapper.optimizer.lr', POSITIVE),
    ('param_scheduler.0.end', 'an integer of at least 0'), ('param_scheduler.0.start_factor', NOT_NEGATIVE),
    ('env_cfg.mp_cfg.opencv_num_threads', 'an integer of at least 0')])
@pytest.mark.parametrize('value', ['[]', '[1]', '(1,)', '{}', 'dict(a=1)'])
def test_a_list_or_a_dict_in_place_of_a_number(place, needed, value) -> None:
    with pytest.raises(UserError, match=rf'^{place}=.* must be {needed}$'):
        check_numbers(load_config(COINS, [f'{place}={value}']))


def test_lists_where_they_have_a_meaning() -> None:
    check_numbers(load_config(COINS, [
        'optim_wrapper.optimizer=dict(type=Adafactor,lr=.1,eps=(1e-30,1e-3))', 'model.backbone.strides=(1,2,2,2)',
        'optim_wrapper.paramwise_cfg=dict(custom_keys=dict(a_mult=dict(lr_mult=2)))',
        'model.roi_head.bbox_head.loss_cls.class_weight=[1,2]']))


def test_betas_and_momentum() -> None:
    for optimizer, place in (('dict(type=SGD, lr=.1, momentum=1.)', 'momentum=1.0'),
                             ('dict(type=SGD, lr=.1, momentum=-.1)', 'momentum=-0.1'),
                             ('dict(type=AdamW, lr=.1, betas=(.9, 1.))', 'betas.1=1.0')):
        with pytest.raises(UserError, match=f'^optim_wrapper.optimizer.{place} must be a number from 0 to below 1$'):
            check_numbers(load_config(COINS, [f'optim_wrapper.optimizer={optimizer}']))


def test_nan_anywhere() -> None:
    with pytest.raises(UserError, match='^model.test_cfg.rcnn.score_thr is nan; set a number$'):
        check_numbers(load_config(COINS, ['model.test_cfg.rcnn.score_thr=nan']))


def test_possible_numbers() -> None:
    config = load_config(COINS, [
        'train_cfg.max_iters=1e3', 'default_hooks.checkpoint.interval=-1', 'model.rpn_head.loss_cls.loss_weight=0',
        'optim_wrapper.clip_grad.max_norm=inf', 'randomness.seed=None', 'optim_wrapper.optimizer.weight_decay=0'])
    check_numbers(config)
    assert math.isinf(config.optim_wrapper.clip_grad.max_norm)


def test_a_test_judges_the_numbers_that_it_reads() -> None:
    for option in ('test_dataloader.batch_size=0', 'model.roi_head.bbox_head.num_classes=0', 'randomness.seed=-1',
                   'model.rpn_head.loss_cls.loss_weight=nan'):
        with pytest.raises(UserError, match=f'^{option.split("=")[0]}=.* must be '):
            check_settings(load_config(COINS, [option]), training=False)
    for option in ('optim_wrapper.optimizer.lr=0', 'train_dataloader.batch_size=0', 'train_cfg.max_iters=0',
                   'val_dataloader.num_workers=-1'):
        check_settings(load_config(COINS, [option]), training=False)
        with pytest.raises(UserError):
            check_settings(load_config(COINS, [option]))
