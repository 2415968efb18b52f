"""Compare the entries of each known part of a config with what its class takes."""
from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ...errors import UserError
from ...utils.text import did_you_mean, one_line
from ..hosts import without_noise
from ..moved_variables import keys_read
from .kinds_taken import Kinds, kinds_taken, merged
from .optimizer import optimizer_parts
from .parts import BY_BUILDERS, Part, classes_of, names_of
from .ranges import check_ranges
from .registered import check_registered
from .signatures import accepted
from .untyped import check_untyped, preprocessor_part

if TYPE_CHECKING:
    from mmengine.config import Config

_LOADER = ('dataset', 'num_batch_per_epoch', 'disable_subprocess_warning')
_LOOPS = {'train_cfg': ('EpochBasedTrainLoop', 'IterBasedTrainLoop'), 'val_cfg': ('ValLoop', ),
          'test_cfg': ('TestLoop', )}
_WRAPPER = frozenset(('optimizer', 'constructor', 'paramwise_cfg'))
_BOOL = Kinds(frozenset((bool, )))
_OF_BUILDERS = dict(requires_grad=_BOOL, convert_to_iter_based=_BOOL, fallback_on_stride=_BOOL, _delete_=_BOOL)


def check_keys(config: Config) -> None:
    """Check the entries of dataloaders, data sets, pipelines, evaluators, loops, model parts, optimizers, schedulers,
    hooks, visualizers and the environment.

    The host libraries must be imported already.

    Raises:
        UserError: the first class that is not registered, or entry that its class does not take, with the nearest
            name.
    """
    with without_noise():  # looking up a class may import another host
        check_registered(config)
        parts = list(parts_of(config))
    for part in parts:
        for name in part.unknown():
            near = did_you_mean(name, sorted(part.known - BY_BUILDERS | {'type'}))
            raise UserError(f'{part.place}.{name}: {part.taker} takes no {name!r}{near}')
        for name, value in part.entries.items():
            needed = name in part.kinds and part.kinds[name].refusal(value)
            if needed:
                raise UserError(f'{part.place}.{name}={one_line(repr(value), 80)} must be {needed}')
    check_ranges(config)
    check_untyped(config.get('model'), config.get('default_scope'), config.get('custom_imports') is not None)


def parts_of(config: Config) -> Iterator[Part]:
    """Yield the parts whose class is known."""
    from mmengine.optim import OptimWrapper
    from torch.utils.data import DataLoader
    scope = config.get('default_scope')
    read = {key: config[key] for key in sorted(keys_read()) if key in config}
    for split in ('train', 'val', 'test'):
        loader = read.get(f'{split}_dataloader')
        if isinstance(loader, dict) and 'type' not in loader:
            yield Part(f'{split}_dataloader', loader, _loader_names(), 'a dataloader',
                       kinds={**kinds_taken(DataLoader), 'disable_subprocess_warning': _BOOL})
        loop = read.get(f'{split}_cfg')
        if isinstance(loop, dict) and 'type' not in loop:
            yield _loop(f'{split}_cfg', loop)
    wrapper = read.get('optim_wrapper')
    if isinstance(wrapper, dict) and 'optimizer' in wrapper and 'type' not in wrapper:
        yield Part('optim_wrapper', wrapper, names_of('OptimWrapper', scope)[0] | _WRAPPER, 'OptimWrapper',
                   kinds=kinds_taken(OptimWrapper))
    yield from optimizer_parts(wrapper, scope)
    yield from _environment(read)
    if preprocessor := preprocessor_part(config, scope):
        yield preprocessor
    for key, part in read.items():
        yield from _typed(part, key, scope)


def _environment(read: dict[str, Any]) -> Iterator[Part]:
    from mmengine.runner import LogProcessor, Runner
    from mmengine.utils.dl_utils import set_multi_processing
    environment = read.get('env_cfg')
    if isinstance(environment, dict):
        yield Part('env_cfg', environment, frozenset(('cudnn_benchmark', 'mp_cfg', 'dist_cfg', 'resource_limit')),
                   'the environment', kinds=dict(cudnn_benchmark=_BOOL))
        if isinstance(environment.get('mp_cfg'), dict):
            names = frozenset(inspect.signature(set_multi_processing).parameters) - {'distributed'}
            yield Part('env_cfg.mp_cfg', environment['mp_cfg'], names, 'set_multi_processing',
                       kinds=kinds_taken(set_multi_processing))
    if isinstance(read.get('randomness'), dict):
        names = frozenset(inspect.signature(Runner.set_randomness).parameters) - {'self'}
        yield Part('randomness', read['randomness'], names, 'set_randomness',
                   kinds=kinds_taken(Runner.set_randomness))
    if isinstance(read.get('auto_scale_lr'), dict):
        yield Part('auto_scale_lr', read['auto_scale_lr'], frozenset(('enable', 'base_batch_size')), 'the scaling',
                   kinds=dict(enable=_BOOL))
    processor = read.get('log_processor')
    if isinstance(processor, dict) and 'type' not in processor:
        yield Part('log_processor', processor, accepted(LogProcessor) or frozenset(processor), 'LogProcessor',
                   kinds=kinds_taken(LogProcessor))


def _loop(place: str, loop: dict) -> Part:
    import mmengine.runner
    kind = _LOOPS[place][0 if loop.get('by_epoch', True) else -1]
    names = (accepted(getattr(mmengine.runner, kind)) or frozenset(loop)) - {'runner', 'dataloader', 'evaluator'}
    kinds = {**kinds_taken(getattr(mmengine.runner, kind)), 'by_epoch': _BOOL}
    return Part(place, loop, names | ({'by_epoch'} if place == 'train_cfg' else frozenset()), kind, kinds=kinds)


@lru_cache
def _loader_names() -> frozenset[str]:
    from torch.utils.data import DataLoader
    return (accepted(DataLoader) or frozenset()) | frozenset(_LOADER)


def _typed(part: Any, place: str, scope: str | None, around: tuple[Any, ...] = ()) -> Iterator[Part]:
    """Yield all dicts with a ``type`` whose class is found in a registry."""
    if isinstance(part, (list, tuple)):
        for number, inner in enumerate(part):
            yield from _typed(inner, f'{place}.{number}', scope, around)
    if not isinstance(part, dict):
        return
    scope = part.get('_scope_') or scope
    kind = part.get('type')
    classes = classes_of(kind, scope) if kind is not None else ()
    if kind is not None and not any(inspect.isclass(each) or accepted(each) for each in classes):
        return  # unknown, or stands for a class that is not installed: it may take entries out of the parts in it
    names, complete = names_of(kind, scope)
    if classes:
        name = kind if isinstance(kind, str) else getattr(kind, '__name__', str(kind))
        yield Part(place, part, names | BY_BUILDERS | (_WRAPPER if place == 'optim_wrapper' else frozenset()), name,
                   (*around, *(() if complete else classes)), complete, {**_OF_BUILDERS, **merged(classes)})
    for key, inner in part.items():
        if key != 'override':  # of init_cfg: names a module in addition
            yield from _typed(inner, f'{place}.{key}', scope, (*around, *classes))
