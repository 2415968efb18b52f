"""The kinds of values that the arguments of a class take, read from its type hints and defaults."""
from __future__ import annotations

import contextlib
import inspect
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..kinds_replaced import TRUTH

_WORDS = {bool: 'True or False', int: 'an integer', float: 'a number', str: 'text', dict: 'a dict', list: 'a list'}
_WRONG_HINTS = {('AmpOptimWrapper.__init__', 'loss_scale')}  # str, but it takes a number or a dict as well


@dataclass(frozen=True)
class Kinds:
    """The plain types that an argument takes. If ``certain`` is False, they follow from its default only, and it may
    take others as well; text only if ``types`` has it."""

    types: frozenset[type]
    certain: bool = True

    def __or__(self, other: Kinds) -> Kinds:
        return Kinds(self.types | other.types, self.certain and other.certain)

    def refusal(self, value: Any) -> str | None:
        """Return what the value must be if it is of another kind, else None. None and objects are never judged."""
        if isinstance(value, str) and bool in self.types and value.strip().lower() in TRUTH:
            return f'True or False; write {TRUTH[value.strip().lower()]}'
        if isinstance(value, str) and not self.certain and str not in self.types:
            return 'True or False'
        if not self.certain or value is None or not isinstance(value, (bool, int, float, str, dict, list, tuple)):
            return None
        return None if self._fits(value) else ' or '.join(word for kind, word in _WORDS.items() if kind in self.types)

    def _fits(self, value: Any) -> bool:
        """Whether a value is of these kinds. Hints of the hosts are loose within numbers, and within dicts and lists,
        and between a number and a list of numbers."""
        numbers, containers = bool(self.types & {int, float}), bool(self.types & {dict, list})
        if isinstance(value, bool):
            return bool in self.types
        if isinstance(value, (int, float)):
            return numbers or list in self.types or bool in self.types and value in (0, 1)
        if isinstance(value, str):
            return str in self.types
        return containers or isinstance(value, (list, tuple)) and numbers


_ANYTHING = Kinds(frozenset((str, )), certain=False)


def merged(parts: Iterable[Any]) -> dict[str, Kinds]:
    """Return the kinds that any of several classes takes."""
    taken = [kinds_taken(part) for part in parts]
    found: dict[str, Kinds] = {}
    for kinds in taken:
        for name, kind in kinds.items():
            found[name] = found[name] | kind if name in found else kind
    return found


@cache
def kinds_taken(part: Any) -> dict[str, Kinds]:
    """Return the kinds of the keyword arguments of a class or function."""
    found: dict[str, Kinds] = {}
    for function in _constructors(part):
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):
            continue
        hints = _hints(function)
        for parameter in parameters:
            if parameter.name in found or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                continue
            hint = hints.get(parameter.name, Any)
            if (function.__qualname__, parameter.name) in _WRONG_HINTS:
                hint = Any
            found[parameter.name] = _kinds(hint, parameter.default)
            if not found[parameter.name].certain and _compares_text(function, parameter.name):
                found[parameter.name] |= _ANYTHING
    return found


def _constructors(part: Any) -> list[Any]:
    if not inspect.isclass(part):
        return [part]
    return [vars(owner)['__init__'] for owner in part.__mro__[:-1] if '__init__' in vars(owner)]


def _hints(function: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except Exception:  # names that only type checkers import
        found: dict[str, Any] = {}
        for name, hint in getattr(function, '__annotations__', {}).items():
            with contextlib.suppress(Exception):
                found |= typing.get_type_hints(types.SimpleNamespace(__annotations__={name: hint}),
                                               getattr(function, '__globals__', None))
        return found


def _compares_text(function: Any, name: str) -> bool:
    """Whether a function asks if its argument is text, as FPN does for ``add_extra_convs=False``."""
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        return False
    pattern = rf"""isinstance\({name}, \(?[\w, ]*\bstr\b|\b{name} (==|!=|in|not in) [\[('"]"""
    return re.search(pattern, source) is not None


def _kinds(hint: Any, default: Any) -> Kinds:
    types_ = _of_hint(hint)
    if types_ is None:
        return Kinds(frozenset((bool, )), certain=False) if isinstance(default, bool) else _ANYTHING
    if default is not inspect.Parameter.empty and default is not None:
        types_ = types_ | (_of_hint(type(default)) or frozenset())  # (scale: int = 'auto')
    return Kinds(types_)


def _of_hint(hint: Any) -> frozenset[type] | None:
    """Return the plain types of a type hint without None; None if it stands for any value or an object."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        parts = [_of_hint(each) for each in typing.get_args(hint) if each is not type(None)]
        return None if None in parts else frozenset().union(*(part for part in parts if part is not None))
    if origin is typing.Literal:
        return frozenset(type(value) for value in typing.get_args(hint))
    kind = origin or hint
    if not isinstance(kind, type):
        return None
    if kind in (bool, int, str):
        return frozenset((kind, ))
    if kind is float:
        return frozenset((int, float))
    if issubclass(kind, Path):
        return frozenset((str, ))
    if issubclass(kind, Mapping):
        return frozenset((dict, ))
    return frozenset((list, )) if issubclass(kind, (list, tuple, set)) or kind in (Sequence, Iterable) else None
