"""Check how a config spreads a run over processes: DistributedDataParallel, in mmengine's Runner."""
from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from ...errors import UserError

if TYPE_CHECKING:
    from mmengine.config import Config

_INSTEAD = 'several processes train with DistributedDataParallel (tools/dist_train.sh CONFIG GPUS)'


def check_parallel(config: Config) -> None:
    """Check that the runner is one of mmengine's ``Runner``, and that the model wrapper is a DistributedDataParallel.

    ``FlexibleRunner`` with its strategies, FSDP and DeepSpeed are refused: their checkpoints hold a part of the weights
    for each process, and are neither checked nor resumed exactly.

    Raises:
        UserError: another runner, a strategy, or another wrapper, with its key.
    """
    from mmengine.registry import MODEL_WRAPPERS, RUNNERS
    from mmengine.runner import Runner
    from torch.nn.parallel import DistributedDataParallel
    kind = config.get('runner_type')
    if kind is not None:
        found = _class_of(kind, RUNNERS)
        if found is None:
            raise UserError(f'runner_type={kind!r} is not registered; remove it, or add its module to custom_imports')
        if not issubclass(found, Runner):
            raise UserError(f'runner_type={_name(kind)!r} is not a Runner of mmengine; remove runner_type and '
                            f'strategy: {_INSTEAD}')
    if config.get('strategy') is not None:
        raise UserError(f'strategy is an argument of FlexibleRunner, which is not supported; remove it: {_INSTEAD}')
    wrapper = config.get('model_wrapper_cfg') or {}
    kind = wrapper.get('type')
    found = _class_of(kind, MODEL_WRAPPERS) if kind is not None else None
    # one that is not registered is named with the others
    if found is not None and not issubclass(found, DistributedDataParallel):
        raise UserError(f'model_wrapper_cfg.type={_name(kind)!r} is not a DistributedDataParallel; remove it: '
                        f'{_INSTEAD}')


def _class_of(kind: Any, registry: Any) -> type | None:
    found = registry.get(kind) if isinstance(kind, str) else kind
    return found if inspect.isclass(found) else None


def _name(kind: Any) -> str:
    return kind if isinstance(kind, str) else getattr(kind, '__name__', str(kind))
