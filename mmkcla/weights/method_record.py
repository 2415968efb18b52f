"""The record in a checkpoint of the methods that made it, and its comparison with a model.

``meta['mmkcla']`` holds the version of this package, the layer attentions of the model by module path, and the class
names. Weights of two methods can have the same names and shapes, for example ``MRLABase`` and
``SoftmaxLayerAttention``; only the record tells them apart.
"""
from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn

from ..errors import UserError
from ..layers.record import Recorded
from ..version import __version__
from .matching import in_neck_list, neck_index
from .reading import state_dict_of

KEY = 'mmkcla'
REPLACED, ADDED, DROPPED = 'method', 'added', 'dropped'  # kinds of differences: weights of an attention cannot be used
_ATTENTION = re.compile(r'(^|\.)layer_attentions\.')  # names of weights in the backbones of this package
_PART = re.compile(r'(?:^|\.)(backbone|neck)\.')


class Difference(NamedTuple):
    """A module whose record in the checkpoint is not that of the model."""

    path: str
    kind: str  # REPLACED, ADDED (only the model has it), DROPPED (only the checkpoint has it), or the name of an option
    saved: Any
    here: Any


def methods_of(model: nn.Module) -> dict[str, dict[str, Any]]:
    """The records of the attention modules of a model, by module path (without the ``module.`` of a wrapper)."""
    return {name: module.record() for name, module in model.named_modules() if isinstance(module, Recorded)}


def make_record(model: nn.Module, weights: Iterable[str], classes: Sequence[str] | None = None) -> dict[str, Any]:
    """The record of a model: ``version``, ``methods`` and, if given, ``classes``; plain values.

    Args:
        model: the model.
        weights: names of the saved entries; modules without any of them are left out.
        classes: class names of the training data.
    """
    names = list(weights)
    methods = {path: record for path, record in methods_of(model).items() if _has_weights(path, names)}
    record: dict[str, Any] = dict(version=__version__, methods=methods)
    return record if classes is None else record | dict(classes=[str(name) for name in classes])


def _has_weights(path: str, names: Iterable[str]) -> bool:
    return any(name.startswith(f'{path}.' if path else '') for name in names)


def record_in(checkpoint: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record in a checkpoint; empty for checkpoints of other packages and of earlier versions."""
    meta = checkpoint.get('meta')
    record = meta.get(KEY) if isinstance(meta, Mapping) else None
    return record if isinstance(record, Mapping) else {}


def classes_in(checkpoint: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The class names that a checkpoint learned, by label; None if it does not say."""
    meta = checkpoint.get('meta')
    meta = meta if isinstance(meta, Mapping) else {}
    data = meta.get('dataset_meta')
    for part, key in ((record_in(checkpoint), 'classes'), (data, 'classes'), (data, 'CLASSES'), (meta, 'CLASSES')):
        classes = part.get(key) if isinstance(part, Mapping) else None
        if isinstance(classes, (list, tuple)) and classes:
            return tuple(map(str, classes))
    return None


def differences(model: nn.Module, checkpoint: Mapping[str, Any], prefix: str = '') -> list[Difference]:
    """Compare the methods of a checkpoint with those of a model, for the backbone and the neck each.

    Without a record, a checkpoint without weights of layer attention is that of a plain network; for others, names and
    shapes of the weights decide. So do they for modules that only one side has, if both sides have the same methods.

    Args:
        model: the model, or a part of it.
        checkpoint: as :func:`~mmkcla.weights.reading.read_checkpoint` returns it.
        prefix: path of ``model`` in the checkpoint, for a part of the saved model.
    """
    weights = state_dict_of(checkpoint)
    here = methods_of(model)
    prefix = f'{prefix.rstrip(".")}.' if prefix else ''
    saved = record_in(checkpoint).get('methods')
    if not isinstance(saved, Mapping):
        if _has_attention(weights, here, prefix):
            return []
        saved = {}
    index = neck_index(model, weights)
    saved = {(name if index is None else in_neck_list(name, index)): record for name, record in saved.items()
             if isinstance(record, Mapping)}
    saved = {path: record for path, record in saved.items() if path.startswith(prefix)}
    found: list[Difference] = []
    for path, record in saved.items():
        if (ours := here.get(path.removeprefix(prefix))) is not None:
            found += _compared(path, record, ours)
    if any(one.kind == REPLACED for one in found):
        return sorted(found, key=lambda one: one.kind != REPLACED)
    names = list(model.state_dict())
    trained = {prefix + path: record for path, record in here.items() if _has_weights(path, names)}
    return _other_methods(saved, trained) + found


def _has_attention(weights: Iterable[str], here: Iterable[str], prefix: str) -> bool:
    """Whether there are weights of a layer attention, be it that of the model or another one."""
    inside = tuple(f'{prefix}{path}.' for path in here if path)
    return '' in here or any(name.startswith(inside) or _ATTENTION.search(name) for name in weights)


def _other_methods(saved: Mapping[str, Mapping[str, Any]], here: Mapping[str, Mapping[str, Any]]) -> list[Difference]:
    """The modules of the methods that only one side has, in the first part of the model where there are any."""
    for part in dict.fromkeys(map(_part, [*saved, *here])):
        theirs, ours = ({path: str(record.get('type')) for path, record in side.items() if _part(path) == part}
                        for side in (saved, here))
        lost, new = set(theirs.values()) - set(ours.values()), set(ours.values()) - set(theirs.values())
        if not lost and not new:
            continue
        kind = REPLACED if lost and new else ADDED if new else DROPPED
        named = ('/'.join(sorted(lost if kind == REPLACED else set(theirs.values()))),
                 '/'.join(sorted(new if kind == REPLACED else set(ours.values()))))
        side, wanted = (ours, new) if new else (theirs, lost)
        return [Difference(path, kind, *named) for path, method in side.items() if method in wanted]
    return []


def _part(path: str) -> str:
    return match[1] if (match := _PART.search(path)) else ''


def _compared(path: str, saved: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterable[Difference]:
    if saved.get('type') != ours['type']:
        return [Difference(path, REPLACED, saved.get('type'), ours['type'])]
    options, own = saved.get('options') or {}, ours['options']
    return [Difference(path, name, value, own[name]) for name, value in options.items()
            if name in own and value != own[name]]


def require_same_method(found: Sequence[Difference], filename: str | os.PathLike, hint: str = '') -> None:
    """Refuse a checkpoint that another method made, or the same one with other options.

    Raises:
        UserError: for the first difference, with both sides; ``hint`` is appended where only options differ.
    """
    if not found:
        return
    path, kind, saved, here = found[0]
    others = len({one.path for one in found} - {path})
    where = path + (f' and {others} more' if others else '')
    if kind in (REPLACED, ADDED, DROPPED):
        raise UserError(f'checkpoint {filename} {methods_text(saved, here)} ({where}); use the '
                        + (f'config of {saved}' if saved else f'config without {here}') + ' or a checkpoint '
                        + (f'of {here}' if here else 'without layer attention'))
    raise UserError(f'checkpoint {filename} was made with {kind}={saved!r}, the config has {kind}={here!r} in {where}: '
                    f'the weights have the same names, but the result would be wrong; set {kind}={saved!r}{hint}')


def methods_text(saved: str, here: str) -> str:
    """What made a checkpoint and what the config has, for messages; an empty text is no layer attention."""
    return (f'was made {f"with {saved}" if saved else "without layer attention"}, the config has '
            f'{here or "no layer attention"}')
