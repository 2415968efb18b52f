"""``--cfg-options``: parse values, and refuse config variables that can no longer be changed."""
import inspect
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from ..errors import UserError
from ..utils.text import note, one_line
from .entries import assign, has, resolved
from .option_values import parse_value

if TYPE_CHECKING:
    from mmengine.config import Config

# entries read by mmengine's runner besides its arguments, and by the commands of this package
_ALSO_READ = ('model_wrapper_cfg', 'sync_bn', 'find_unused_parameters', 'activation_checkpointing',
              'efficient_conv_bn_eval', 'compile', 'runner_type', 'tta_model', 'tta_pipeline', 'data_preprocessor')
_WITH_DATA = ('train_dataloader', 'val_dataloader', 'test_dataloader', 'val_evaluator', 'test_evaluator',
              'tta_pipeline')
_MAX_PLACES = 6  # listed in an error
_PART = r"""'[^']+'|"[^"]+"|[^.='"]+"""
_OPTION = re.compile(rf'((?:{_PART})(?:\.(?:{_PART}))*)=(.*)', re.DOTALL)


@lru_cache
def keys_read() -> frozenset[str]:
    """Return the config entries that a run reads: the arguments of mmengine's runner, and a few more. All other
    variables have been used up when the config was loaded."""
    from mmengine.runner import Runner
    return frozenset((*inspect.signature(Runner).parameters, *_ALSO_READ)) - {'cfg'}


@lru_cache
def text_keys() -> frozenset[str]:
    """Return the entries of a config that can only be text, such as ``work_dir``."""
    from mmengine.runner import Runner
    hints = get_type_hints(Runner.__init__)
    return frozenset(name for name, hint in hints.items() if set(get_args(hint) or (hint, )) - {type(None)} == {str})


def parse_option(option: str) -> tuple[str, Any]:
    """Parse ``'a.b=[1,2]'`` to ``('a.b', [1, 2])``; see :mod:`~mmkcla.runtime.option_values` for the values.

    Raises:
        UserError: the option is malformed.
    """
    match = _OPTION.fullmatch(option)
    if match is None:
        raise UserError(f'--cfg-options takes KEY=VALUE, got {option!r}')
    key, text = match.groups()
    if key != key.rstrip():  # 'a = 1'
        text = text.strip()
    try:
        value = parse_value(text)
    except ValueError as error:
        raise UserError(f'--cfg-options {option}: {one_line(error)}; a dict is written as '
                        "dict(type='X', n=1)") from error
    key = key.strip()
    if key in text_keys() and not isinstance(value, (str, dict, type(None))):  # a folder named 2024
        value = text
    return key, value


def key_parts(key: str) -> list[str]:
    """Split a dotted key; a part in quotes may contain dots: ``custom_keys.'backbone.layer1'.lr_mult``."""
    return [part[1:-1] if part[0] in '\'"' else part for part in re.findall(_PART, key)]


def merge_options(config: 'Config', options: list[str]) -> None:
    """Merge ``options`` (``KEY=VALUE`` each) into ``config``, in their order.

    ``data_root``, a variable in most configs, is replaced in the data sets and evaluators that use its value, and
    ``crop_size`` in all entries that have its value.

    Raises:
        UserError: an option is malformed, or would have no effect.
    """
    changes = [parse_option(option) for option in options]
    keys = [key for key, _ in changes]
    whole = config.get('model') is not None  # otherwise it is not the config of a run
    moving = whole and 'data_root' in keys and isinstance(config.get('data_root'), str) and config.data_root
    if whole:
        sized = 'crop_size' in keys and _move_size(config, dict(changes)['crop_size'])
        moved = {name for name, done in (('data_root', moving), ('crop_size', sized)) if done}
        _refuse_spent(config, [key for key in keys if key not in moved])
    if moving:
        _move_data(config, dict(changes)['data_root'])
    places = [resolved(config, key_parts(key)) for key in keys]
    _compare_options(changes, places)
    new = [key for key, place in zip(keys, places, strict=True) if not has(config, place)]
    if new:
        note(f'--cfg-options: {", ".join(dict.fromkeys(new))} not in the config; added')
    for key, value in changes:
        assign(config, key_parts(key), value, f'--cfg-options {key}')


def _compare_options(changes: list[tuple[str, Any]], places: list[list[str]]) -> None:
    """Report options that are given twice.

    Raises:
        UserError: an option replaces the entry that an earlier one changes.
    """
    for number, (key, value) in enumerate(changes):
        before = places[:number]
        if places[number] in places[number + 1:]:
            continue
        if places[number] in before:
            count = before.count(places[number]) + 1
            note(f'--cfg-options {key} is given {count} times; the last value, {value!r}, is used')
        merged = isinstance(value, dict) and not value.get('_delete_')
        inside = [place for place in before if place[:len(places[number])] == places[number] != place]
        if inside and not merged:
            raise UserError(f'--cfg-options {".".join(inside[0])} and {key}: the second replaces the first; give only '
                            'one of them')


def _refuse_spent(config: 'Config', keys: list[str]) -> None:
    """Refuse variables that are not read any more, and report where their values are used.

    If the config has custom imports, which may read any variable, print a note instead.
    """
    for key in keys:
        name = key_parts(key)[0]
        if name in keys_read() and not (name == 'data_preprocessor' and config.model.get(name) is not None):
            continue
        if name not in config:
            line = f'--cfg-options {key}: {name} is neither a variable of the config nor read by a run; check the name'
        else:
            line = (f'--cfg-options {key}: {name} is a variable that was used when the config was loaded; changing it '
                    f'has no effect. {_where_used(config, name)}')
        if config.get('custom_imports') is None:
            raise UserError(line)
        note(line)


def _move_size(config: 'Config', size: Any) -> bool:
    """Replace the config's ``crop_size`` by ``size`` in all entries of a run that have its value.

    Returns:
        Whether there are any.

    Raises:
        UserError: ``size`` is not a height and a width.
    """
    old = config.get('crop_size')
    if not isinstance(old, (list, tuple)) or len(old) != 2:
        return False
    read = {key: config[key] for key in config if key in keys_read()}
    places = [place for place, value in _walk(read) if type(value) is type(old)
              and value == (old[::-1] if place.endswith('scale') else old)]  # a scale is (width, height)
    if not places:
        return False
    if not isinstance(size, (list, tuple)) or [type(side) is int and side > 0 for side in size] != [True, True]:
        raise UserError(f'--cfg-options crop_size={size!r}: give height and width, e.g. crop_size=(128,128)')
    for place in places:
        value = type(old)(size[::-1] if place.endswith('scale') else size)
        assign(config, place.split('.'), value, '--cfg-options crop_size')
    note(f'--cfg-options crop_size: replaced {old} by {size} in {", ".join(places)}')
    return True


def _where_used(config: 'Config', name: str) -> str:
    value = config[name]
    if name == 'data_preprocessor':
        return 'Set model.data_preprocessor'
    if value is None or isinstance(value, bool) or value in (0, 1):  # too common to search for
        return 'Set the entries derived from it'
    read = {key: config[key] for key in config if key in keys_read() and key != 'data_preprocessor'}
    places = [place for place, found in _walk(read) if type(found) is type(value) and found == value]
    if not places:
        return 'Set the entries derived from it'
    more = f' and {len(places) - _MAX_PLACES} more' if len(places) > _MAX_PLACES else ''
    return f'Set the entries with its value: {", ".join(places[:_MAX_PLACES])}{more}'


def _move_data(config: 'Config', root: Any) -> None:
    """Replace the config's ``data_root`` by ``root`` in the paths of data sets and evaluators.

    Raises:
        UserError: none of them uses it.
    """
    old = config.data_root
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
    if not count:
        raise UserError(f'--cfg-options data_root: no data set or evaluator of the config has a path in {old}; set '
                        'the data_root of each, e.g. train_dataloader.dataset.data_root=…')
    note(f'--cfg-options data_root: replaced {old} by {root} in {count} path{"s" * (count > 1)} of data sets and '
         'evaluators')


def _walk(part: Any, place: str = '') -> Iterator[tuple[str, Any]]:
    """Yield all entries with their dotted keys, outer entries first; strings and tuples are leaves."""
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in items:
        inner = f'{place}.{key}' if place else str(key)
        yield inner, value
        yield from _walk(value, inner)
