"""Variables that move with their entries, on the command line and in child configs: ``data_root`` and ``crop_size``."""
from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from .entries import assign

if TYPE_CHECKING:
    from mmengine.config import Config

MOVED = ('data_root', 'crop_size')
# entries read by mmengine's runner besides its arguments, and by the commands of this package
_ALSO_READ = ('model_wrapper_cfg', 'sync_bn', 'find_unused_parameters', 'activation_checkpointing',
              'efficient_conv_bn_eval', 'compile', 'runner_type', 'tta_model', 'tta_pipeline', 'data_preprocessor')
# read by a training with its validation, not by a test
TRAINING_KEYS = ('train_dataloader', 'train_cfg', 'optim_wrapper', 'param_scheduler', 'auto_scale_lr',
                 'val_dataloader', 'val_cfg', 'val_evaluator')
_WITH_DATA = ('train_dataloader', 'val_dataloader', 'test_dataloader', 'val_evaluator', 'test_evaluator',
              'tta_pipeline')


@lru_cache
def keys_read() -> frozenset[str]:
    """Return the config entries that a run reads: the arguments of mmengine's runner, and a few more. All other
    variables have been used up when the config was loaded."""
    import inspect

    from mmengine.runner import Runner
    return frozenset((*inspect.signature(Runner).parameters, *_ALSO_READ)) - {'cfg'}


def size_places(config: Config, old: Any) -> list[str]:
    """Return the entries of a run with the value ``old`` of ``crop_size``; a scale is (width, height)."""
    if not isinstance(old, (list, tuple)) or len(old) != 2:
        return []
    model = config.get('model') or {}
    unused = {'data_preprocessor'} if model.get('data_preprocessor') is not None else set()  # the model has its own
    read = {key: config[key] for key in config if key in keys_read() - unused}
    return [place for place, value in walk(read) if type(value) is type(old)
            and value == (old[::-1] if place.endswith('scale') else old)]


def move_size(config: Config, old: Any, size: Any, place: str) -> list[str]:
    """Replace the crop size ``old`` by ``size`` in all entries of a run that have it.

    Args:
        place: where the new value was given, for messages.

    Returns:
        The dotted keys of the entries.

    Raises:
        UserError: ``size`` is not a height and a width.
    """
    places = size_places(config, old)
    if not places:
        return []
    if not isinstance(size, (list, tuple)) or [type(side) is int and side > 0 for side in size] != [True, True]:
        raise UserError(f'{place}={size!r}: give height and width, e.g. crop_size=(128,128)')
    for key in places:
        value = type(old)(size[::-1] if key.endswith('scale') else size)
        assign(config, key.split('.'), value, place)
    return places


def data_places(config: Config, old: Any) -> list[str]:
    """Return the paths of data sets and evaluators below the folder ``old``."""
    if not isinstance(old, str) or not old:
        return []
    stem = old.rstrip('/')
    read = {key: config[key] for key in _WITH_DATA if config.get(key) is not None}
    return [place for place, value in walk(read, tuples=True)
            if isinstance(value, str) and (value in (old, stem) or value.startswith(stem + '/'))]


def move_data(config: Config, old: str, root: Any) -> int:
    """Replace the folder ``old`` by ``root`` in the paths of data sets and evaluators; return their number."""
    stem, new = old.rstrip('/'), str(root).rstrip('/') or '/'
    count, seen = 0, set()

    def moved(part: Any) -> Any:
        nonlocal count
        if id(part) in seen:  # a pipeline shared by two data sets
            return part
        if isinstance(part, (dict, list)):
            seen.add(id(part))
        if isinstance(part, dict):
            for key in part:
                part[key] = moved(part[key])
        elif isinstance(part, list):
            part[:] = map(moved, part)
        elif isinstance(part, tuple):
            return tuple(map(moved, part))
        elif isinstance(part, str) and (part in (old, stem) or part.startswith(stem + '/')):
            count += 1
            return str(root) if part == old else new + part[len(stem):]
        return part

    for key in _WITH_DATA:
        if config.get(key) is not None:
            config[key] = moved(config[key])
    return count


def walk(part: Any, place: str = '', tuples: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield all entries with their dotted keys, outer entries first; strings, and tuples by default, are leaves."""
    listed = isinstance(part, (list, tuple) if tuples else list)
    items = part.items() if isinstance(part, dict) else enumerate(part) if listed else ()
    for key, value in items:
        inner = f'{place}.{key}' if place else str(key)
        yield inner, value
        yield from walk(value, inner, tuples)
