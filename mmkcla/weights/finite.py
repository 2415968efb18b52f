"""Find NaN and infinite values in the weights of a model or a checkpoint."""
from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from ..utils.text import listed

WEIGHTS = ('state_dict', 'ema_state_dict')  # of a checkpoint of mmengine
_PLACES = (*WEIGHTS, 'model', 'model_ema', 'state_dict_ema')  # of those of other packages, too


def non_finite_entries(weights: Mapping[str, Any]) -> list[str]:
    """Names of the tensors with NaN or infinite values, in order. Masks of 0 and minus infinity, which some models keep
    as buffers, are not included."""
    return [str(name) for name, value in weights.items() if isinstance(value, Tensor) and not _is_valid(value)]


def all_finite(values: Iterable[Tensor]) -> bool:
    """Whether all floating-point values are finite; one synchronisation per device, not per tensor."""
    flags: dict[torch.device, list[Tensor]] = {}
    for value in values:
        if value.numel() and (value.is_floating_point() or value.is_complex()):
            flags.setdefault(value.device, []).append(_finite(value))
    return all(bool(torch.stack(each).all()) for each in flags.values())


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in nested dicts, lists and tuples."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (Mapping, list, tuple)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from tensors_in(item)


def _finite(value: Tensor) -> Tensor:
    if value.is_sparse:
        value = value.coalesce().values()
    if value.element_size() == 1:  # torch.isfinite does not support all 8-bit types
        value = value.float()
    return torch.isfinite(value).all()


def _is_valid(value: Tensor) -> bool:
    if value.layout is not torch.strided and not value.is_sparse or value.is_meta or all_finite([value]):
        return True
    return not value.is_complex() and bool(((value == 0) | (value == float('-inf'))).all()) and bool((value == 0).any())


def require_finite(checkpoint: Mapping[str, Any], filename: str | os.PathLike) -> None:
    """Refuse a checkpoint with NaN or infinite weights, be it in the averaged ones (EMA) or in buffers.

    Args:
        checkpoint: weights by name, or a checkpoint with them under ``state_dict``, ``ema_state_dict``, ``model``,
            ``model_ema`` or ``state_dict_ema``.
        filename: its file, for the message.

    Raises:
        UserError: names the first entries.
    """
    parts = [part for key in _PLACES if isinstance(part := checkpoint.get(key), Mapping)] or [checkpoint]
    if names := [name for part in parts for name in non_finite_entries(part)]:
        raise UserError(f'checkpoint {filename} has NaN or infinite values in {listed(names)}: its training had '
                        'diverged before it was saved; use an earlier checkpoint')
