"""Parts of a config whose class is known, and the classes that a ``type`` may mean."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..unregistered import root_registries
from .kinds_taken import Kinds
from .signatures import mentions, taken

if TYPE_CHECKING:
    from mmengine.registry import Registry

# taken by the builder of a part, or by the layer that uses it, instead of its class
BY_BUILDERS = frozenset(('type', '_scope_', '_delete_', '_reverse_', 'priority', 'convert_to_iter_based',
                          'epoch_length', 'requires_grad', 'fallback_on_stride', 'override', 'init_cfg', 'name'))
_SIMILAR = 0.85  # ratio of difflib


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
    kinds: Mapping[str, Kinds] = field(default_factory=dict)

    def unknown(self) -> list[str]:
        """Return the entries that neither the class nor one around it takes. Of a class that takes any keyword, these
        are the entries whose name is almost that of an argument."""
        return [name for name in self.entries if name not in self.known
                and not any(mentions(owner, str(name)) for owner in self.around)
                and (self.complete or get_close_matches(str(name), self.known - BY_BUILDERS, n=1, cutoff=_SIMILAR))]


@cache
def names_of(kind: Any, scope: str | None) -> tuple[frozenset[str], bool]:
    """Return the arguments of all classes with that name, whatever registry they are in, and whether they are all."""
    found = [taken(each) for each in classes_of(kind, scope)]
    return frozenset().union(*(names for names, _ in found)), all(complete for _, complete in found)


@cache
def classes_of(kind: Any, scope: str | None) -> tuple[Any, ...]:
    """Return the classes that a ``type`` may mean."""
    if not isinstance(kind, str):
        return (kind, )
    import_module('mmkcla.registry')  # so that the scope mmkcla exists
    found: list[Any] = []
    for root in root_registries():
        home = root._search_child(scope) if scope else None  # unlike switch_scope_and_registry, without warnings
        part = _registered(root if home is None else home, kind)  # an empty registry is false
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
