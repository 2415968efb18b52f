"""Explain a ``type`` that is in no registry, and names of packages."""
from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from ..compat import ALIASES, DISTRIBUTIONS
from ..utils.text import one_line

_SCOPES = ('mmkcla', *DISTRIBUTIONS)


def explain_unregistered(name: str, scope: str | None, kind: str) -> str:
    """Explain a ``type`` that is in no registry: from another package, from one that is not installed, or a typo.

    Args:
        name: the ``type`` in the config, optionally with a scope (``mmseg.UNet``).
        scope: scope of the registry, as reported by mmengine.
        kind: name of the registry, e.g. ``model``.
    """
    line = f"type='{name}' is not in the {kind} registry"
    prefix, _, bare = name.rpartition('.')
    package = prefix.split('.')[0]
    if package and (fault := explain_package(package)):
        return f'{line}: {": ".join(filter(None, fault))}'
    with contextlib.suppress(Exception):  # our modules may not be registered yet
        importlib.import_module('mmkcla.registry').MODELS.import_from_location()
    known = dict(registered(kind))
    homes = sorted({home for home, names in known.items() if bare in names and home not in (package, scope)})
    if homes:
        written = [bare if home == 'mmengine' else f'{home}.{bare}' for home in homes]  # every scope sees mmengine's
        return f'{line} of scope {package or scope!r}: write ' + ' or '.join(f"type='{name}'" for name in written)
    if near := similar(bare, known):
        return f'{line}: did you mean ' + ' or '.join(near) + '?'
    return (f'{line}, and no similar name is: if it is defined in your own module, import that module in the config '
            "(custom_imports = dict(imports=['your.module']))")


def similar(bare: str, known: dict[str, list[str]]) -> list[str]:
    """Up to three registered names similar to ``bare``, with their scopes; ``known`` maps scopes to names."""
    qualified = {f'{home}.{bare_name}': bare_name for home, names in known.items() for bare_name in names}
    near = get_close_matches(bare, sorted(set(qualified.values())), n=3, cutoff=0.6)
    return [next(full for full, short in qualified.items() if short == close) for close in near]


def explain_package(package: str) -> tuple[str, str] | None:
    """Return why types of the scope ``package`` cannot be found, and the remedy (may be empty); None if the package can
    be imported."""
    if not _exists(package):
        scope = ALIASES.get(package.lower().replace('-', '_'))
        if scope:
            return f'the Python package is called {scope}', (
                f"write type='{scope}.…'" if _exists(scope) else f'pip install {DISTRIBUTIONS[scope]}')
        if package in DISTRIBUTIONS:
            return f'the package {package!r} is not installed', f'pip install {DISTRIBUTIONS[package]}'
        near = get_close_matches(package, _SCOPES, n=1, cutoff=0.7)
        return f'the package {package!r} is not installed', f"did you mean '{near[0]}.…'?" if near else ''
    if package not in _SCOPES:
        return None
    try:  # mmengine hides an ImportError of these and reports the type as not registered
        importlib.import_module(f'{package}.registry')
    except ModuleNotFoundError as error:
        if error.name == f'{package}.registry':  # mmcv has none
            return None
        return f'the package {package!r} cannot be imported ({one_line(error, 200)})', 'run mmkcla doctor'
    except Exception as error:
        return f'the package {package!r} cannot be imported ({one_line(error, 200)})', 'run mmkcla doctor'
    return None


def registered(kind: str) -> Iterator[tuple[str, list[str]]]:
    """Yield (scope, names) for each registry of that kind: the root and all its descendants."""
    pending = [registry for registry in root_registries() if registry.name == kind][:1]
    while pending:
        registry = pending.pop()
        yield registry.scope, list(registry.module_dict)
        pending += registry.children.values()


def root_registries() -> list[Any]:
    """The registries of mmengine, and those of the imported hosts that have no parent (mmpretrain's batch augments)."""
    from mmengine.registry import Registry
    modules = [sys.modules.get(f'{package}.registry') for package in ('mmengine', *DISTRIBUTIONS)]
    found = [value for module in modules if module is not None for value in vars(module).values()
             if isinstance(value, Registry) and value.parent is None]
    return list({id(registry): registry for registry in found}.values())


def _exists(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # not a name; or loaded without a spec
        return False
