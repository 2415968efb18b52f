"""The record in a checkpoint of the methods that made it, and its comparison with a model.

``meta['mmkcla']`` holds the version of this package, the layer attentions of the model by module path, and the class
names. Weights of two methods can have the same names and shapes, for example ``MRLABase`` and
``SoftmaxLayerAttention``; only the record tells them apart.
"""
from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn

from ..errors import UserError
from ..layers.record import Recorded
from ..version import __version__
from .matching import in_neck_list, neck_index
from .reading import state_dict_of

KEY = 'mmkcla'


class Difference(NamedTuple):
    """A module whose record in the checkpoint is not that of the model."""

    path: str
    kind: str  # 'method', or the name of an option
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
    """Compare the record in a checkpoint with a model.

    Modules and options that only one side has are not compared: names and shapes of the weights decide there.

    Args:
        model: the model, or a part of it.
        checkpoint: as :func:`~mmkcla.weights.reading.read_checkpoint` returns it.
        prefix: path of ``model`` in the checkpoint, for a part of the saved model.
    """
    methods = record_in(checkpoint).get('methods')
    if not isinstance(methods, Mapping):
        return []
    here = methods_of(model)
    index = neck_index(model, state_dict_of(checkpoint))
    prefix = f'{prefix.rstrip(".")}.' if prefix else ''
    found = []
    for name, saved in methods.items():
        path = name if index is None else in_neck_list(name, index)
        if not path.startswith(prefix) or not isinstance(saved, Mapping):
            continue
        ours = here.get(path.removeprefix(prefix))
        if ours is not None:
            found += _compared(path, saved, ours)
    return found


def _compared(path: str, saved: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterable[Difference]:
    if saved.get('type') != ours['type']:
        return [Difference(path, 'method', saved.get('type'), ours['type'])]
    options, own = saved.get('options') or {}, ours['options']
    return [Difference(path, name, value, own[name]) for name, value in options.items()
            if name in own and value != own[name]]


def require_same_method(found: Sequence[Difference], filename: str | os.PathLike, hint: str = '') -> None:
    """Refuse a checkpoint that another method made, or the same one with other options.

    Raises:
        UserError: for the first difference, with both sides.
    """
    if not found:
        return
    path, kind, saved, here = found[0]
    others = len({one.path for one in found} - {path})
    where = path + (f' and {others} more' if others else '')
    if kind == 'method':
        raise UserError(f'checkpoint {filename} was made by the method {saved}, the config has {here} in {where}: the '
                        f'weights have the same names, but the result would be wrong; use the config of {saved}{hint}')
    raise UserError(f'checkpoint {filename} was made with {kind}={saved!r}, the config has {kind}={here!r} in {where}: '
                    f'the weights have the same names, but the result would be wrong; set {kind}={saved!r}{hint}')
