"""The parts of an optimizer wrapper whose keys go to a known function: ``clip_grad``, ``loss_scale`` and
``paramwise_cfg``."""
from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from ...errors import UserError
from .kinds_taken import Kinds, kinds_taken
from .parts import Part, classes_of, names_of

_DEFAULT = 'DefaultOptimWrapperConstructor'
_READ = re.compile(r"paramwise_cfg(?:\.get\(|\.pop\(|\[)\s*'(\w+)'")
_NUMBER = Kinds(frozenset((int, float)))


def optimizer_parts(wrapper: Any, scope: str | None) -> Iterator[Part]:
    """Yield the parts of ``optim_wrapper``; of each, if it has one for each of several optimizers.

    Raises:
        UserError: ``clip_grad`` limits nothing, or an entry of ``custom_keys`` has another dict in it.
    """
    if not isinstance(wrapper, dict):
        return
    places = {'optim_wrapper': wrapper} if 'optimizer' in wrapper else {
        f'optim_wrapper.{name}': part for name, part in wrapper.items() if isinstance(part, dict)}
    for place, part in places.items():
        if isinstance(part.get('clip_grad'), dict):
            yield _clipping(f'{place}.clip_grad', part['clip_grad'])
        if isinstance(part.get('loss_scale'), dict):
            yield _scaling(f'{place}.loss_scale', part['loss_scale'])
    if isinstance(wrapper.get('paramwise_cfg'), dict):
        yield from _paramwise(wrapper, scope)


def _clipping(place: str, entries: dict) -> Part:
    from torch.nn.utils import clip_grad_norm_, clip_grad_value_
    kind = entries.get('type', 'norm')
    if kind not in ('norm', 'value'):
        raise UserError(f"{place}.type={kind!r} must be 'norm' or 'value'")
    function, needed = (clip_grad_norm_, 'max_norm') if kind == 'norm' else (clip_grad_value_, 'clip_value')
    names = frozenset(inspect.signature(function).parameters) - {'parameters'}
    if needed not in entries and not set(entries) - names - {'type'}:
        raise UserError(f'{place} without {needed} clips nothing; set {place}.{needed}=…, or {place}=None')
    kinds = {**kinds_taken(function), 'clip_value': _NUMBER, 'max_norm': _NUMBER}
    return Part(place, entries, names | {'type'}, function.__name__, kinds=kinds)


def _scaling(place: str, entries: dict) -> Part:
    from torch.amp import GradScaler
    names = frozenset(inspect.signature(GradScaler).parameters)
    return Part(place, entries, names, 'GradScaler', kinds=kinds_taken(GradScaler))


def _paramwise(wrapper: dict, scope: str | None) -> Iterator[Part]:
    rules, place = wrapper['paramwise_cfg'], 'optim_wrapper.paramwise_cfg'
    kind = wrapper.get('constructor', _DEFAULT)
    known = frozenset(_read_by(kind, scope))
    name = kind if isinstance(kind, str) else kind.__name__
    if known:
        kinds = {rule: Kinds(frozenset((dict, ))) if rule == 'custom_keys' else _NUMBER for rule in known
                 if rule.endswith('_mult') or rule == 'custom_keys'}
        if 'bypass_duplicate' in known:
            kinds['bypass_duplicate'] = Kinds(frozenset((bool, )))
        yield Part(place, {rule: value for rule, value in rules.items() if not str(rule).startswith('_')}, known, name,
                   kinds=kinds)
    if not isinstance(rules.get('custom_keys'), dict):
        return
    optimizer = wrapper.get('optimizer') or {}
    names, _ = names_of(optimizer.get('type'), scope)
    for key, entries in rules['custom_keys'].items():
        inner = f'{place}.custom_keys.{key}'
        if not isinstance(entries, dict):
            raise UserError(f'{inner}={entries!r} must be a dict such as dict(lr_mult=0.1)')
        nested = next((each for each, value in entries.items() if isinstance(value, dict)), None)
        if nested is not None:
            raise UserError(f"{inner} has the dict {nested!r}; write a name with dots in quotes: {place}.custom_keys."
                            f"'{key}.{nested}'.lr_mult=…")
        # a hook may read other names from the parameter groups
        yield Part(inner, entries, names | {'lr_mult', 'decay_mult'}, 'custom_keys', complete=False,
                   around=classes_of(optimizer.get('type'), scope), kinds=dict(lr_mult=_NUMBER, decay_mult=_NUMBER))


def _read_by(kind: Any, scope: str | None) -> set[str]:
    """Return the entries of ``paramwise_cfg`` that a constructor and its base classes read."""
    found: set[str] = set()
    for constructor in classes_of(kind, scope):
        for owner in constructor.__mro__[:-1] if inspect.isclass(constructor) else ():
            try:
                found |= set(_READ.findall(inspect.getsource(owner)))
            except (OSError, TypeError):
                return set()
    return found
