"""Look up every ``type`` of a config in the registries, before anything is built."""
from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from ...errors import UserError
from ..moved_variables import keys_read
from ..unregistered import explain_package, explain_unregistered, registered, root_registries
from .parts import classes_of

if TYPE_CHECKING:
    from mmengine.config import Config

_SIMILAR = 0.8  # ratio of difflib, for places where other libraries may read the type
_NOT_BUILT = ('metainfo', 'layer_attention', 'clip_grad')  # not by a registry
_DATASET = r'\w+_dataloader\.dataset(\.dataset|\.datasets\.\d+)*'
# the registries of the places that mmengine's runner builds; what is built in them is decided by their classes
_REGISTRIES = {
    'model': 'model|tta_model', 'dataset': _DATASET, 'transform': rf'({_DATASET}\.pipeline|tta_pipeline)\.\d+',
    'data sampler': r'\w+_dataloader\.(sampler|batch_sampler)', 'function': r'\w+_dataloader\.collate_fn',
    'hook': r'default_hooks\.\w+|custom_hooks\.\d+', 'parameter scheduler': r'param_scheduler(\.\w+)*',
    'optimizer': r'optim_wrapper\.(\w+\.)?optimizer', 'optim_wrapper': r'optim_wrapper(\.\w+)?',
    'metric': r'(val|test)_evaluator(\.\d+|\.metrics\.\d+)?', 'loop': '(train|val|test)_cfg', 'visualizer':
    'visualizer', 'vis_backend': r'visualizer\.vis_backends\.\d+', 'log_processor': 'log_processor',
}


def check_registered(config: Config) -> None:
    """Look up each ``type`` in the parts that a run reads.

    A type that is in no registry is refused at the places that mmengine builds; elsewhere, if a registered name is
    similar, or if its package is missing.

    The host libraries must be imported already.

    Raises:
        UserError: the first type that is not registered, with its place and the nearest name.
    """
    scope = config.get('default_scope')
    for key in sorted(keys_read() & set(config)):
        for place, name, inner_scope in _names(config[key], key, scope):
            if classes_of(name, inner_scope) or _is_importable(name):
                continue
            kind = next((kind for kind, places in _REGISTRIES.items() if re.fullmatch(places, place)), None)
            if kind:
                raise UserError(f'{place}: {explain_unregistered(name, inner_scope, kind)}')
            if line := _explain_inner(name, inner_scope):
                raise UserError(f'{place}: {line}')


def _names(part: Any, place: str, scope: str | None) -> Iterator[tuple[str, str, str | None]]:
    """Yield the place, the name and the scope of each ``type`` that is text."""
    if isinstance(part, dict):
        scope = part.get('_scope_') or scope
        if isinstance(part.get('type'), str):
            yield place, part['type'], scope
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, (list, tuple)) else ()
    for key, inner in items:
        if key not in _NOT_BUILT:
            yield from _names(inner, f'{place}.{key}', scope)


def _is_importable(name: str) -> bool:
    """Whether mmengine finds the type as a module's attribute, such as ``torch.nn.GELU``."""
    from mmengine.utils import get_object_from_string
    try:
        return '.' in name and get_object_from_string(name) is not None
    except Exception:  # the module is other people's code
        return False


def _explain_inner(name: str, scope: str | None) -> str:
    """One line about a type that some class builds; empty if it may be of another library."""
    package, _, bare = name.rpartition('.')
    if package and (fault := explain_package(package.split('.')[0])):
        return f"type='{name}': {': '.join(filter(None, fault))}"
    if not bare[:1].isupper():  # words such as 'conv', which some classes read themselves
        return ''
    kinds = {known: kind for kind in dict.fromkeys(registry.name for registry in root_registries())
             for _, names in registered(kind) for known in names}
    near = get_close_matches(bare, list(kinds), n=1, cutoff=_SIMILAR)
    return explain_unregistered(name, scope, kinds[near[0]]) if near else ''
