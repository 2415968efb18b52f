"""What the class of a config part takes: its arguments, and those that it forwards to its base classes."""
from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from typing import Any

_ROOTS = {'object', 'Module', 'Generic', 'Protocol'}  # their constructors take no settings


@cache
def accepted(part: Any) -> frozenset[str] | None:
    """Return the names of the keyword arguments that a class or function takes; None if that is not known.

    ``**kwargs`` counts as the arguments of the next class in the method resolution order if it is only passed to
    ``super().__init__``.
    """
    names, complete = taken(part)
    return names if complete else None


@cache
def taken(part: Any) -> tuple[frozenset[str], bool]:
    """Return the known names of keyword arguments of a class or function, and whether they are all; see
    :func:`accepted`."""
    if not inspect.isclass(part):
        return _of_function(part)
    complete = True
    names: set[str] = set()
    for number, owner in enumerate(part.__mro__):
        init = vars(owner).get('__init__')
        if init is None:
            continue
        if owner.__name__ in _ROOTS:
            break
        if number == 0 and '__new__' in vars(owner) or hasattr(init, '__wrapped__'):
            complete = False  # a decorator may rename arguments
        try:
            parameters = list(inspect.signature(init).parameters.values())[1:]
        except (TypeError, ValueError):
            return frozenset(names), False
        names |= {parameter.name for parameter in parameters
                  if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)}
        rest = next((parameter.name for parameter in parameters if parameter.kind is parameter.VAR_KEYWORD), None)
        if rest is None:
            break
        complete = complete and _only_forwarded(init, rest, owner.__name__)
    return frozenset(names), complete


def _of_function(function: Any) -> tuple[frozenset[str], bool]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return frozenset(), False
    names = frozenset(parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD)
    return names, not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def _only_forwarded(init: Any, rest: str, owner: str) -> bool:
    """Whether the constructor of the class ``owner`` uses ``**rest`` only in a call of ``super().__init__``."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(init)))
    except (OSError, TypeError, SyntaxError):
        return False
    uses = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == rest]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_super_init(node.func, owner)]
    forwarded = [keyword.value for call in calls for keyword in call.keywords if keyword.arg is None]
    return len(uses) == 1 and any(use is value for use in uses for value in forwarded)


def _is_super_init(function: ast.expr, owner: str) -> bool:
    if not (isinstance(function, ast.Attribute) and function.attr == '__init__' and isinstance(function.value, ast.Call)
            and isinstance(function.value.func, ast.Name) and function.value.func.id == 'super'):
        return False
    start = function.value.args[:1]  # super(Other, self) skips classes
    return not start or isinstance(start[0], ast.Name) and start[0].id == owner


@cache
def mentions(part: Any, name: str) -> bool:
    """Whether the source of a class or its bases contains ``name`` in quotes: it may take the entry out of a part."""
    for owner in part.__mro__ if inspect.isclass(part) else (part, ):
        try:
            source = inspect.getsource(owner)
        except (OSError, TypeError):
            continue
        if f"'{name}'" in source or f'"{name}"' in source:
            return True
    return False
