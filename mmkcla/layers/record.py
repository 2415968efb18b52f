"""What a module was built with: the record in a checkpoint that tells methods with equal weights apart."""
from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from .common import Preferred

if TYPE_CHECKING:
    from typing_extensions import Self

_ATOMS = (str, bool, int, float, type(None))


class Recorded:
    """Mixin, before ``nn.Module``: remembers the arguments of the constructor.

    Two methods, or one method with two values of an option, can have parameters of the same names and shapes; loading
    one into the other gives wrong numbers without an error. :meth:`record` tells them apart.
    """

    # options that do not change what a trained module computes, or that names and shapes of the weights decide
    not_recorded: ClassVar[frozenset[str]] = frozenset()
    _given: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls)
        object.__setattr__(self, '_given', (args, kwargs))  # nn.Module is not initialised yet
        return self

    def record(self) -> dict[str, Any]:
        """``dict(type=…, options=…)`` of plain values: the class name, and the options that change the computation.

        Options that are not numbers, text, or lists and dicts of these are left out.
        """
        args, kwargs = self._given
        kind = type(self)
        names = [name for name in inspect.signature(kind.__init__).parameters if name != 'self']
        values = parameters_of(kind, ('__init__',), last=Recorded) | dict(zip(names, args, strict=False)) | kwargs
        values = {name: getattr(self, name, value) if isinstance(value, Preferred) else value
                  for name, value in values.items()}  # what took the place of a default
        unwanted = frozenset().union(*(vars(parent).get('not_recorded', ()) for parent in kind.__mro__))
        return dict(type=kind.__name__, options={name: _plain(value) for name, value in values.items()
                                                 if name not in unwanted and _is_plain(value)})


def parameters_of(kind: type, methods: Iterable[str], last: type) -> dict[str, Any]:
    """Parameters with their defaults of the methods of a class, and of its base classes where ``**kwargs`` pass to.

    Args:
        kind: the class.
        methods: names of the methods; the first one that has a parameter decides its default.
        last: base class at which the search ends.
    """
    found: dict[str, Any] = {}
    for name in methods:
        for parent in kind.__mro__:
            if name not in vars(parent):
                continue
            parameters = inspect.signature(getattr(parent, name)).parameters.values()
            for parameter in parameters:
                if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                    found.setdefault(parameter.name, parameter.default)
            if parent is last or all(parameter.kind != parameter.VAR_KEYWORD for parameter in parameters):
                break  # what it does not take goes no further
    found.pop('self', None)
    return found


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    return isinstance(value, _ATOMS)


def _plain(value: Any) -> Any:
    """Lists for tuples, as JSON has them; plain classes for subclasses."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    for atom in (bool, int, float, str):
        if isinstance(value, atom):
            return atom(value)
    return value
