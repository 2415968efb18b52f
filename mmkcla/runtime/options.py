"""``--cfg-options``: parse values, and refuse config variables that can no longer be changed."""
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from ..errors import UserError
from ..utils.text import listed, note, one_line, plural
from .config_source import ConfigSource
from .entries import assign, get, has, resolved
from .kinds_replaced import refuse_text
from .moved_variables import keys_read, move_data, move_size
from .option_values import parse_value

if TYPE_CHECKING:
    from mmengine.config import Config

MAX_PLACES = 6  # listed in a message
_PART = r"""'[^']+'|"[^"]+"|[^.='"]+"""
_OPTION = re.compile(rf'((?:{_PART})(?:\.(?:{_PART}))*)=(.*)', re.DOTALL)


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
        _refuse_spent(config, [(key, value) for key, value in changes if key not in moved])
    if moving:
        _move_data(config, dict(changes)['data_root'])
    places = [resolved(config, key_parts(key)) for key in keys]
    _compare_options(changes, places)
    new = [key for key, place in zip(keys, places, strict=True) if not has(config, place)]
    if new:
        note(f'--cfg-options: {", ".join(dict.fromkeys(new))} not in the config; added')
    for key, value in changes:
        refuse_text(config, key_parts(key), value, f'--cfg-options {key}={value}')
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


def _refuse_spent(config: 'Config', changes: list[tuple[str, Any]]) -> None:
    """Refuse variables that are not read any more, and report where their values are used.

    If the config has custom imports, which may read any variable, print a note instead.
    """
    for key, value in changes:
        name = key_parts(key)[0]
        if name in keys_read() and not (name == 'data_preprocessor' and config.model.get(name) is not None):
            continue
        if name not in config:
            line = f'--cfg-options {key}: {name} is neither a variable of the config nor read by a run; check the name'
        else:
            line = (f'--cfg-options {key}: {name} is a variable that was used when the config was loaded; changing it '
                    f'has no effect. {_where_used(config, key, value)}')
        if config.get('custom_imports') is None:
            raise UserError(line)
        note(line)


def _move_size(config: 'Config', size: Any) -> bool:
    """Replace the config's ``crop_size`` by ``size``; return whether a run has an entry with it."""
    old = config.get('crop_size')
    places = move_size(config, old, size, '--cfg-options crop_size')
    if places:
        note(f'--cfg-options crop_size: replaced {old} by {size} in {", ".join(places)}')
    return bool(places)


def _move_data(config: 'Config', root: Any) -> None:
    """Replace the config's ``data_root`` by ``root``.

    Raises:
        UserError: no data set or evaluator uses it.
    """
    old = config.data_root
    count = move_data(config, old, root)
    if not count:
        raise UserError(f'--cfg-options data_root: no data set or evaluator of the config has a path in {old}; set '
                        'the data_root of each, e.g. train_dataloader.dataset.data_root=…')
    note(f'--cfg-options data_root: replaced {old} by {root} in {plural(count, "path")} of data sets and evaluators')


def _where_used(config: 'Config', key: str, value: Any) -> str:
    name, *inner = key_parts(key)
    if name == 'data_preprocessor':
        return 'Set model.data_preprocessor'
    changed = {name: config[name]}
    try:
        assign(changed, [name, *inner], value, key)
        source = ConfigSource(config.filename)
        places = [place for place, old in source.effects(name, changed[name])
                  if place.split('.')[0] in keys_read() and get(config, place.split('.')) == old]
    except (UserError, OSError, TypeError):
        places = []
    return f'Set {listed(places, MAX_PLACES)}' if places else 'Set the entries derived from it'
