"""Read and replace entries of a config by their keys."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import UserError

_MISSING = object()


def has(config: Any, keys: Sequence[str]) -> bool:
    """Whether the config has an entry with these keys, one per level."""
    return get(config, keys, _MISSING) is not _MISSING


def get(config: Any, keys: Sequence[str], default: Any = None) -> Any:
    """Return the entry with these keys, one per level; indices of lists may be negative."""
    for key in keys:
        if isinstance(config, (list, tuple)):
            if not _is_index(key) or not -len(config) <= int(key) < len(config):
                return default
            config = config[int(key)]
        elif not hasattr(config, 'get') or key not in config:
            return default
        else:
            config = config[key]
    return config


def resolved(config: Any, keys: Sequence[str]) -> list[str]:
    """Return the keys with negative indices of lists counted from the start."""
    found: list[str] = []
    for key in keys:
        part = get(config, found)
        if isinstance(part, (list, tuple)) and _is_index(key) and -len(part) <= int(key) < len(part):
            key = str(int(key) % len(part))
        found.append(key)
    return found


def assign(config: Any, keys: Sequence[str], value: Any, option: str) -> None:
    """Replace the entry with these keys. A dict is merged into an existing dict unless it has ``_delete_=True``.

    Other entries that share the changed objects (``test_dataloader = val_dataloader``) keep their values.

    Raises:
        UserError: there is no such place; the message starts with ``option``.
    """
    config[keys[0]] = _replaced(config.get(keys[0], _MISSING), list(keys[1:]), value, option, keys[0])


def _replaced(part: Any, keys: list[str], value: Any, option: str, place: str) -> Any:
    """Return a copy of ``part`` with another value at ``keys``."""
    if not keys:
        return _merged(part, value)
    key, rest = keys[0], keys[1:]
    inner = f'{place}.{key}'
    if isinstance(part, (list, tuple)):
        if not _is_index(key):
            raise UserError(f'{option}: {place} is a list; write an index instead of {key!r}')
        if not -len(part) <= int(key) < len(part):
            raise UserError(f'{option}: index {key} is out of range, since {place} has {len(part)} entries')
        entries = list(part)
        entries[int(key)] = _replaced(entries[int(key)], rest, value, option, inner)
        return entries if isinstance(part, list) else tuple(entries)
    if part is _MISSING or part is None:
        if _is_index(key) and not place.endswith('custom_keys'):
            raise UserError(f'{option}: {place} is not in the config, so it has no entry {key}; give '
                            f'{place} as a whole')
        part = {}
    if not isinstance(part, dict):
        raise UserError(f'{option}: {place} is {part!r}, which has no entries')
    copy = part.copy()
    copy[key] = _replaced(part.get(key, _MISSING), rest, value, option, inner)
    return copy


def _merged(old: Any, new: Any) -> Any:
    if not isinstance(new, dict):
        return new
    new = dict(new)
    if new.pop('_delete_', False) or not isinstance(old, dict):
        return {key: _merged(_MISSING, value) for key, value in new.items()}
    copy = old.copy()
    for key, value in new.items():
        copy[key] = _merged(old.get(key, _MISSING), value)
    return copy


def _is_index(key: str) -> bool:
    return key.lstrip('-').isdecimal()
