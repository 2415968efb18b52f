"""Compare the entries of each known part of a config with what its class takes."""
from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from ...errors import UserError
from ...utils.text import did_you_mean
from ..hosts import without_import_noise
from ..moved_variables import keys_read
from .signatures import accepted, mentions, taken

if TYPE_CHECKING:
    from mmengine.config import Config
    from mmengine.registry import Registry

# taken by the builder of a part, or by the layer that uses it, instead of its class
_BY_BUILDERS = frozenset(('type', '_scope_', '_delete_', '_reverse_', 'priority', 'convert_to_iter_based',
                          'epoch_length', 'requires_grad', 'fallback_on_stride', 'override', 'init_cfg', 'name'))
_SIMILAR = 0.85  # ratio of difflib
_LOADER = ('dataset', 'num_batch_per_epoch', 'disable_subprocess_warning')
_LOOPS = {'train_cfg': ('EpochBasedTrainLoop', 'IterBasedTrainLoop'), 'val_cfg': ('ValLoop', ),
          'test_cfg': ('TestLoop', )}
_WRAPPER = frozenset(('optimizer', 'constructor', 'paramwise_cfg'))


@dataclass(frozen=True)
class Part:
    """A part of a config: its dotted ``place``, the names that its class takes, the name of the class, and the classes
    of the parts around it."""

    place: str
    entries: dict
    known: frozenset[str]
    taker: str
    around: tuple[Any, ...] = ()
    complete: bool = True

    def unknown(self) -> list[str]:
        """Return the entries that neither the class nor one around it takes. Of a class that takes any keyword, these
        are the entries whose name is almost that of an argument."""
        return [name for name in self.entries if name not in self.known
                and not any(mentions(owner, str(name)) for owner in self.around)
                and (self.complete or get_close_matches(str(name), self.known - _BY_BUILDERS, n=1, cutoff=_SIMILAR))]


def check_keys(config: Config) -> None:
    """Check the entries of dataloaders, data sets, pipelines, evaluators, loops, model parts, optimizers, schedulers,
    hooks, visualizers and the environment.

    The host libraries must be imported already.

    Raises:
        UserError: the first entry that its class does not take, with the nearest name.
    """
    with without_import_noise():  # looking up a class may import another host
        parts = list(parts_of(config))
    for part in parts:
        for name in part.unknown():
            near = did_you_mean(name, sorted(part.known - _BY_BUILDERS | {'type'}))
            raise UserError(f'{part.place}.{name}: {part.taker} takes no {name!r}{near}')


def parts_of(config: Config) -> Iterator[Part]:
    """Yield the parts whose class is known."""
    scope = config.get('default_scope')
    read = {key: config[key] for key in sorted(keys_read()) if key in config}
    for split in ('train', 'val', 'test'):
        loader = read.get(f'{split}_dataloader')
        if isinstance(loader, dict) and 'type' not in loader:
            yield Part(f'{split}_dataloader', loader, _loader_names(), 'a dataloader')
        loop = read.get(f'{split}_cfg')
        if isinstance(loop, dict) and 'type' not in loop:
            yield _loop(f'{split}_cfg', loop)
    wrapper = read.get('optim_wrapper')
    if isinstance(wrapper, dict) and 'optimizer' in wrapper and 'type' not in wrapper:
        yield Part('optim_wrapper', wrapper, _names_of('OptimWrapper', scope)[0] | _WRAPPER, 'OptimWrapper')
    yield from _environment(read)
    for key, part in read.items():
        yield from _typed(part, key, scope)


def _environment(read: dict[str, Any]) -> Iterator[Part]:
    from mmengine.runner import LogProcessor, Runner
    from mmengine.utils.dl_utils import set_multi_processing
    environment = read.get('env_cfg')
    if isinstance(environment, dict):
        yield Part('env_cfg', environment, frozenset(('cudnn_benchmark', 'mp_cfg', 'dist_cfg', 'resource_limit')),
                   'the environment')
        if isinstance(environment.get('mp_cfg'), dict):
            names = frozenset(inspect.signature(set_multi_processing).parameters) - {'distributed'}
            yield Part('env_cfg.mp_cfg', environment['mp_cfg'], names, 'set_multi_processing')
    if isinstance(read.get('randomness'), dict):
        names = frozenset(inspect.signature(Runner.set_randomness).parameters) - {'self'}
        yield Part('randomness', read['randomness'], names, 'set_randomness')
    if isinstance(read.get('auto_scale_lr'), dict):
        yield Part('auto_scale_lr', read['auto_scale_lr'], frozenset(('enable', 'base_batch_size')), 'the scaling')
    processor = read.get('log_processor')
    if isinstance(processor, dict) and 'type' not in processor:
        yield Part('log_processor', processor, accepted(LogProcessor) or frozenset(processor), 'LogProcessor')


def _loop(place: str, loop: dict) -> Part:
    import mmengine.runner
    kind = _LOOPS[place][0 if loop.get('by_epoch', True) else -1]
    names = (accepted(getattr(mmengine.runner, kind)) or frozenset(loop)) - {'runner', 'dataloader', 'evaluator'}
    return Part(place, loop, names | ({'by_epoch'} if place == 'train_cfg' else frozenset()), kind)


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
    classes = _classes(kind, scope) if kind is not None else ()
    if kind is not None and not any(inspect.isclass(each) or accepted(each) for each in classes):
        return  # unknown, or stands for a class that is not installed: it may take entries out of the parts in it
    names, complete = _names_of(kind, scope)
    if classes:
        name = kind if isinstance(kind, str) else getattr(kind, '__name__', str(kind))
        yield Part(place, part, names | _BY_BUILDERS | (_WRAPPER if place == 'optim_wrapper' else frozenset()), name,
                   (*around, *(() if complete else classes)), complete)
    for key, inner in part.items():
        if key != 'override':  # of init_cfg: names a module in addition
            yield from _typed(inner, f'{place}.{key}', scope, (*around, *classes))


@cache
def _names_of(kind: Any, scope: str | None) -> tuple[frozenset[str], bool]:
    """Return the arguments of all classes with that name, whatever registry they are in, and whether they are all."""
    found = [taken(each) for each in _classes(kind, scope)]
    return frozenset().union(*(names for names, _ in found)), all(complete for _, complete in found)


@cache
def _classes(kind: Any, scope: str | None) -> tuple[Any, ...]:
    """Return the classes that a ``type`` may mean."""
    if not isinstance(kind, str):
        return (kind, )
    import mmengine.registry as registries
    found: list[Any] = []
    for root in vars(registries).values():
        if isinstance(root, registries.Registry):
            with root.switch_scope_and_registry(scope) as registry:
                part = _registered(registry, kind)
            if part is not None and part not in found:
                found.append(part)
    return tuple(found)


def _registered(registry: Registry, kind: str) -> Any:
    """Look up a type in a registry and those above it. Unlike ``Registry.get``, import nothing: a name such as ``conv``
    may be a module of the working directory."""
    prefix, _, name = kind.rpartition('.')
    root: Any = registry
    while root.parent is not None:
        root = root.parent
    if prefix:
        home = next((each for each in (root, *root.children.values()) if each.scope == prefix), None)
        if home is not None:
            home.import_from_location()  # the modules it is filled from
        return home.module_dict.get(name) if home is not None else None
    while registry is not None:
        registry.import_from_location()
        if name in registry.module_dict:
            return registry.module_dict[name]
        registry = registry.parent
    return None
