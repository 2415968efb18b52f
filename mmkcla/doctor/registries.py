"""What the package registers."""
from __future__ import annotations

import importlib
from collections.abc import Iterator

from ..utils.text import one_line, plural
from .finding import Finding, ok, problem
from .openmmlab import remedy_of


def check() -> Iterator[Finding]:
    """Import everything that each registry of :mod:`mmkcla.registry` lists, and count it."""
    from mmengine.registry import Registry
    module = importlib.import_module('mmkcla.registry')
    if (fault := _operators_missing()) is not None:
        yield fault
        return
    for registry in vars(module).values():
        if not (isinstance(registry, Registry) and registry.scope == 'mmkcla'):
            continue
        try:
            registry.import_from_location()
        except Exception as error:
            yield problem(registry.name, f'cannot be registered: {one_line(error, 200)}', remedy_of(error, 'mmkcla'))
            continue
        names = sorted(registry.module_dict)
        yield ok(registry.name, f'{len(names)}: {", ".join(names)}', names=names)


def _operators_missing() -> Finding | None:
    from ..errors import UserError
    from ..ops import install
    try:
        install()
    except UserError as error:
        return problem('registries', one_line(error), 'see torchvision and mmcv')
    return None


def check_layers() -> Iterator[Finding]:
    """The layer attentions that configs can name."""
    from ..layers import known_layer_attentions
    names = sorted(known_layer_attentions())
    yield ok('layer attention', f'{plural(len(names), "method")}: {", ".join(names)}', names=names)
