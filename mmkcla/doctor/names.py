"""Explain a name of a config or of a package: registered, misspelt, of another scope, or of a missing package."""
from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
from collections.abc import Iterator
from difflib import SequenceMatcher, get_close_matches

from ..compat import ALIASES, DISTRIBUTIONS
from ..runtime.unregistered import explain_package, registered, similar
from .finding import Finding, ok, problem
from .openmmlab import HOSTS
from .packages import installed, normalised

_CUSTOM = "if it is defined in your own module, import that module with custom_imports"


def explain(name: str) -> Iterator[Finding]:
    """Explain ``name``: a type (``mmkcla.KCLAResNet``, ``FPN``) or a package (``mmdet``, ``mmsegmentation``)."""
    scope, _, bare = name.rpartition('.')
    package = scope.split('.')[0]
    alias = ALIASES.get(name.lower().replace('-', '_'), name)
    if not scope and (alias in DISTRIBUTIONS or alias == 'mmkcla' or importlib.util.find_spec(alias)):
        yield _package(name, alias)
        return
    if distribution := next((one for one in installed() if normalised(one.name) == normalised(name)), None):
        yield ok(name, f'installed: {distribution}')
        return
    if package and (fault := explain_package(package)):
        yield problem(name, fault[0], fault[1] or 'correct the name, or install the package that defines it')
        return
    yield from _type(name, package, bare)


def _package(name: str, package: str) -> Finding:
    owning = [str(one) for one in installed() if one.owns(package)]
    if fault := explain_package(package):
        return problem(name, *fault)
    of = f', of the distribution {" and ".join(owning)}' if owning else ''
    return ok(name, f"installed; in Python and in configs it is called {package}{of}")


def _type(name: str, package: str, bare: str) -> Iterator[Finding]:
    with contextlib.redirect_stdout(io.StringIO()):
        _register()
    kinds = {kind: dict(registered(kind)) for kind in _kinds()}
    homes = [(kind, scope) for kind, scopes in kinds.items() for scope, names in scopes.items() if bare in names]
    written = ' or '.join(dict.fromkeys(f"type='{scope}.{bare}'" for _, scope in homes))
    if homes and (not package or package in [scope for _, scope in homes]):
        yield ok(name, 'registered: ' + ', '.join(f'{kind} of {scope}' for kind, scope in homes if not package
                                                  or scope == package) + ('' if package else f'; write {written}'))
        return
    if homes:
        yield problem(name, f'not registered in {package}', f'write {written}')
        return
    if not package and bare in _layer_attentions():
        yield ok(name, f"a layer attention; write layer_attention=dict(type='{bare}')")
        return
    near = [full for scopes in kinds.values() for full in similar(bare, scopes)]
    near += get_close_matches(bare, _layer_attentions(), n=1) if not package else []
    own = [full for full in near if full.startswith(f'{package}.')] if package else []
    best = sorted(dict.fromkeys(own or near), key=lambda full: -_similarity(bare, full))[:3]
    yield problem(name, 'not registered', f'did you mean {" or ".join(best)}?' if best else _CUSTOM)


def _similarity(bare: str, full: str) -> float:
    return SequenceMatcher(None, bare, full.rpartition('.')[2]).ratio()


def _kinds() -> list[str]:
    import mmengine.registry as registries
    return sorted({registry.name for registry in vars(registries).values()
                   if isinstance(registry, registries.Registry) and registry.parent is None})


def _layer_attentions() -> list[str]:
    with contextlib.suppress(ImportError):
        from ..layers import known_layer_attentions
        return sorted(known_layer_attentions())
    return []


def _register() -> None:
    """Register the modules of all hosts that can be imported, and our own."""
    from ..errors import UserError
    from ..runtime.hosts import import_hosts
    for host in HOSTS:
        with contextlib.suppress(UserError):
            import_hosts([host])
    with contextlib.suppress(Exception):
        importlib.import_module('mmkcla').register_all_modules()
