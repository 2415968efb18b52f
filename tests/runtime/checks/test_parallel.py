"""Runners, strategies and model wrappers of mmengine: which are taken, which are refused."""
import inspect

import mmengine._strategy
import pytest
from mmengine.config import Config
from mmengine.registry import MODEL_WRAPPERS, RUNNERS, STRATEGIES
from mmengine.runner import FlexibleRunner, Runner
from torch.nn.parallel import DistributedDataParallel

from mmkcla.errors import UserError
from mmkcla.runtime.checks.parallel import check_parallel


@pytest.mark.parametrize('name', sorted(MODEL_WRAPPERS.module_dict))
def test_every_wrapper_of_mmengine(name):
    """DataParallel has no gradients of several processes; FSDP and DeepSpeed have checkpoints of their own."""
    kind = MODEL_WRAPPERS.get(name)
    config = Config(dict(model_wrapper_cfg=dict(type=name)))
    if inspect.isclass(kind) and issubclass(kind, DistributedDataParallel):
        check_parallel(config)
    else:
        with pytest.raises(UserError, match=f"^model_wrapper_cfg.type='{name}' is not a DistributedDataParallel; "):
            check_parallel(config)


def test_the_wrappers_that_are_taken():
    taken = {name for name, kind in MODEL_WRAPPERS.module_dict.items()
             if inspect.isclass(kind) and issubclass(kind, DistributedDataParallel)}
    assert {'MMDistributedDataParallel', 'MMSeparateDistributedDataParallel'} <= taken
    assert 'MMFullyShardedDataParallel' in MODEL_WRAPPERS.module_dict.keys() - taken


@pytest.mark.parametrize('strategy', sorted(STRATEGIES.module_dict))
def test_every_strategy(strategy):
    assert hasattr(mmengine._strategy, strategy)
    with pytest.raises(UserError, match="^runner_type='FlexibleRunner' is not a Runner of mmengine; remove runner_type "
                       'and strategy: several processes train with DistributedDataParallel'):
        check_parallel(Config(dict(runner_type='FlexibleRunner', strategy=dict(type=strategy))))
    with pytest.raises(UserError, match='^strategy is an argument of FlexibleRunner, which is not supported'):
        check_parallel(Config(dict(strategy=dict(type=strategy))))


def test_runners():
    with pytest.raises(UserError, match="^runner_type='FlexibleRunner' is not a Runner"):
        check_parallel(Config(dict(runner_type=FlexibleRunner)))
    with pytest.raises(UserError, match="^runner_type='Runer' is not registered"):
        check_parallel(Config(dict(runner_type='Runer')))
    own = type('OwnRunner', (Runner, ), {})
    for kind in ('Runner', Runner, own, None):
        check_parallel(Config(dict(runner_type=kind)))
    assert 'FlexibleRunner' in RUNNERS.module_dict
    check_parallel(Config(dict(model_wrapper_cfg=None, strategy=None)))
    check_parallel(Config(dict(model_wrapper_cfg=dict(broadcast_buffers=False))))
