"""What a checkpoint may hold before a run is resumed from it: each hostile or broken part is one line."""
import copy
import math

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer

from mmkcla.errors import UserError
from mmkcla.weights.training_state import check_training_state


def state():
    """A training state as mmengine saves it after three iterations."""
    return {
        'meta': dict(epoch=1, iter=3, cfg='model = dict()', seed=7, experiment_name='x', time='20260101_000000',
                     mmengine_version='0.10', dataset_meta=dict(classes=('a', 'b'))),
        'message_hub': dict(log_scalars={'train/loss': HistoryBuffer([1.], [1])},
                            runtime_info=dict(iter=3, epoch=1, max_iters=6, last_ckpt='w/iter_3.pth', best_score=0.5,
                                              best_ckpt='w/best.pth', keep_ckpt_ids=[3], cfg='model = dict()'),
                            resumed_keys={'train/loss': True}),
        'optimizer': dict(state={0: dict(step=torch.tensor(3.), exp_avg=torch.zeros(2))},
                          param_groups=[dict(lr=0.1, betas=(0.9, 0.999), weight_decay=0, foreach=None, params=[0])]),
        'param_schedulers': [dict(last_step=3, _global_step=4, end=math.inf, base_values=[0.1])],
    }


def changed(path, value):
    checkpoint = state()
    part = checkpoint
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return checkpoint


def test_state_of_a_training_is_accepted():
    checkpoint = state()
    before = copy.deepcopy(checkpoint)
    check_training_state(checkpoint, 'iter_3.pth')
    assert checkpoint['meta'] == before['meta'] and checkpoint['param_schedulers'] == before['param_schedulers']
    several = changed(('optimizer',), dict(first=state()['optimizer'], second=state()['optimizer']))
    several['param_schedulers'] = dict(first=state()['param_schedulers'], second=[])
    check_training_state(several, 'iter_3.pth')


def test_stored_config_is_removed(tmp_path):
    marker = tmp_path / 'marker'
    checkpoint = changed(('meta', 'config'), f"a = __import__('pathlib').Path({str(marker)!r}).touch()")
    check_training_state(checkpoint, 'iter_3.pth')
    assert 'config' not in checkpoint['meta'] and not marker.exists()


GROUP = ('optimizer', 'param_groups', 0)
INFO = ('message_hub', 'runtime_info')


@pytest.mark.parametrize(('path', 'value', 'message'), [
    (('meta',), None, 'its meta is None; expected a dict'),
    (('meta', 'epoch'), '1', "its meta.epoch is '1'; expected an integer of at least 0"),
    (('meta', 'iter'), -1, 'its meta.iter is -1; expected an integer of at least 0'),
    (('meta', 'iter'), 2.5, 'its meta.iter is 2.5; expected an integer'),
    (('meta', 'iter'), True, 'its meta.iter is True; expected an integer'),
    (('meta', 'iter'), 2 ** 80, 'its meta.iter is 1208925819614629174706176; expected an integer'),
    (('meta', 'seed'), 'x', "its meta.seed is 'x'"),
    (('meta', 'seed'), 2 ** 40, 'its meta.seed is 1099511627776; expected an integer below'),
    (('meta', 'experiment_name'), ['x'], 'its meta.experiment_name is a list; expected text'),
    (('meta', 'dataset_meta'), [], 'its meta.dataset_meta is a list; expected a dict'),
    (('message_hub',), None, 'its message_hub is None'),
    (('message_hub', 'log_scalars'), [], 'its message_hub.log_scalars is a list'),
    (('message_hub', 'runtime_info'), {1: 2}, 'its message_hub.runtime_info is a dict; expected a dict with names'),
    (('message_hub', 'resumed_keys'), {'a': 'yes'}, "its message_hub.resumed_keys.a is 'yes'"),
    ((*INFO, 'max_iters'), 'many', 'runtime_info.max_iters'),
    ((*INFO, 'best_ckpt'), 5, 'its message_hub.runtime_info.best_ckpt is 5; expected a path'),
    ((*INFO, 'best_score'), math.nan, 'its message_hub.runtime_info.best_score is nan; expected a finite number'),
    ((*INFO, 'best_score_AP'), 'high', 'runtime_info.best_score_AP'),
    ((*INFO, 'keep_ckpt_ids'), ['../x'], 'its message_hub.runtime_info.keep_ckpt_ids is a list'),
    (('optimizer',), None, 'it has no optimizer state, as best_'),
    (('optimizer',), [], 'its optimizer is a list'),
    (('optimizer', 'param_groups'), {}, 'its optimizer.param_groups is a dict; expected a list of dicts'),
    (('optimizer', 'state'), None, 'its optimizer.state is None'),
    (('optimizer', 'state'), {0: 1}, 'its optimizer.state is a dict; expected a dict of dicts'),
    (('optimizer', 'state', 0, 'exp_avg'), torch.tensor([math.nan]), r'its optimizer.state.0.exp_avg is nan; '),
    ((*GROUP, 'params'), ['a'], r'its optimizer.param_groups\[0\].params is a list; expected a list of integers'),
    ((*GROUP, 'lr'), 'fast', r"its optimizer.param_groups\[0\].lr is 'fast'; expected a number of at least 0"),
    ((*GROUP, 'lr'), -0.1, r'param_groups\[0\].lr is -0.1; expected a number of at least 0'),
    ((*GROUP, 'lr'), math.inf, r'param_groups\[0\].lr is inf; expected a finite number'),
    ((*GROUP, 'lr'), np.float64('nan'), r'param_groups\[0\].lr is nan'),
    ((*GROUP, 'betas'), (0.9, math.nan), r'param_groups\[0\].betas\[1\] is nan'),
    (('param_schedulers',), 5, 'its param_schedulers is 5; expected a list'),
    (('param_schedulers',), [5], 'its param_schedulers is a list; expected a list of dicts'),
    (('param_schedulers', 0, 'base_values'), [math.nan], r'param_schedulers\[0\].base_values\[0\] is nan'),
])
def test_one_line_for_each_broken_part(path, value, message):
    with pytest.raises(UserError, match=f'^cannot resume from iter_3.pth: .*{message}') as error:
        check_training_state(changed(path, value), 'iter_3.pth')
    assert '\n' not in str(error.value)


@pytest.mark.parametrize('part', [key for key in state() if key != 'param_schedulers'])
def test_missing_part(part):
    checkpoint = state()
    del checkpoint[part]
    with pytest.raises(UserError, match=part):
        check_training_state(checkpoint, 'iter_3.pth')
