"""Check the kinds of the top-level entries of a config, and look for misspelled ones."""
from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from ...errors import UserError
from ...utils.text import did_you_mean, note, one_line
from ..moved_variables import keys_read

if TYPE_CHECKING:
    from mmengine.config import Config

_SIMILAR = 0.9  # ratio of difflib: one wrong letter in a name of six or more
_WORDS = {dict: 'a dict', list: 'a list', str: 'text', bool: 'True or False'}
_NEVER_NONE = ('model', 'env_cfg', 'randomness')
_WITH_TYPE = ('model', 'visualizer')
_SWITCHES = ('find_unused_parameters', 'compile')  # read by mmengine's runner besides its arguments
_DEFAULT_HOOKS = ('runtime_info', 'timer', 'sampler_seed', 'logger', 'param_scheduler', 'checkpoint')


def check_kinds(config: Config) -> None:
    """Check that the entries read by mmengine's runner, and the parts in them, are of the kinds that it expects: dicts,
    lists, text, Booleans.

    Raises:
        UserError: the first entry of another kind, or the first part without a type.
    """
    from mmengine.runner import Runner
    for name, hint in get_type_hints(Runner.__init__).items():
        if name not in config or name in ('cfg', 'return'):
            continue
        value, kinds = config[name], _kinds(hint)
        if value is None and name not in _NEVER_NONE or name == 'log_level' and isinstance(value, int):
            continue
        if not isinstance(value, tuple(kinds)):
            words = ' or '.join(_WORDS[kind] for kind in _WORDS if kind in kinds)
            raise UserError(f'{name} must be {words}, got {one_line(repr(value), 80)}')
    for name in _SWITCHES:
        value = config.get(name)
        if not isinstance(value, (bool, type(None), dict) if name == 'compile' else (bool, type(None))):
            raise UserError(f'{name} must be True or False{" or a dict" if name == "compile" else ""}, got '
                            f'{one_line(repr(value), 80)}')
    if config.get('sync_bn') not in (None, 'torch', 'mmcv'):
        raise UserError(f"sync_bn must be 'torch', 'mmcv' or None, got {one_line(repr(config.sync_bn), 80)}")
    for place, value in _parts(config):
        if not hasattr(value, 'get'):
            if not isinstance(value, (str, int, float, list, tuple)):  # an object, as in mmengine
                continue
            raise UserError(f"{place} must be a dict with a type, got {one_line(repr(value), 80)}")
        if value.get('type') is None:
            name = place.rpartition('.')[2]
            near = did_you_mean(name, _DEFAULT_HOOKS) if place.startswith('default_hooks.') else ''
            raise UserError(f'{place} has no type{near}; give its class')


def check_names(config: Config) -> None:
    """Look for top-level entries whose name is almost one that a run reads, such as ``train_dataloder``.

    Raises:
        UserError: the first of them. If the config has custom imports, which may read any entry, it is a note instead.
    """
    known = keys_read()
    for name in config:
        if name in known or name.startswith('_'):
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=_SIMILAR)
        if not near or name == f'{near[0]}s' and len(name) < 8:  # "models" is a likely variable
            continue
        line = f'config {config.filename}: no run reads {name!r} (did you mean {near[0]!r}?)'
        if config.get('custom_imports') is None:
            raise UserError(f'{line}; rename it')
        note(line)


def _kinds(hint: Any) -> set[type]:
    """Return the plain types of a type hint; ``Dict[str, Hook]`` is a dict, and a tuple counts as a list."""
    kinds: set[type] = set()
    for part in (get_args(hint) if get_origin(hint) not in (dict, list) else ()) or (hint, ):
        kind = get_origin(part) or part
        if isinstance(kind, type) and kind is not type(None):
            kinds |= {kind, tuple} if kind is list else {kind, int} if kind is bool else {kind}
    return kinds


def _parts(config: Config) -> Iterator[tuple[str, Any]]:
    """Yield the parts that need a type."""
    for name in _WITH_TYPE:
        if config.get(name) is not None:
            yield name, config[name]
    for name, hook in (config.get('default_hooks') or {}).items():
        if hook is not None:
            yield f'default_hooks.{name}', hook
    for name in ('custom_hooks', 'param_scheduler', 'val_evaluator', 'test_evaluator'):
        value = config.get(name)
        if isinstance(value, dict):
            if name == 'param_scheduler' and 'type' not in value:  # one list for each of several optimizers
                continue
            yield name, value
        for number, part in enumerate(value if isinstance(value, (list, tuple)) else ()):
            yield f'{name}.{number}', part
    for split in ('train', 'val', 'test'):
        loader = config.get(f'{split}_dataloader')
        for name in ('dataset', 'sampler', 'batch_sampler'):
            if isinstance(loader, dict) and loader.get(name) is not None:
                yield f'{split}_dataloader.{name}', loader[name]
    optimizer = (config.get('optim_wrapper') or {}).get('optimizer')
    if optimizer is not None:
        yield 'optim_wrapper.optimizer', optimizer
