"""Refuse tensors in checkpoints that are not plain, dense values."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError

_LARGE = 2 ** 31  # bytes, from which a tensor must have its values in the file
_PLAIN = (Tensor, nn.Parameter, nn.Buffer) if hasattr(nn, 'Buffer') else (Tensor, nn.Parameter)


def check_tensors(checkpoint: Mapping[str, Any], path: Any) -> None:
    """Check that all tensors of a checkpoint are dense and hold their values.

    Raises:
        UserError: names the first sparse, quantized, nested or meta tensor, one of a subclass, or one that repeats few
            values to more than 2 GiB.
    """
    for name, value in _tensors(checkpoint):
        if kind := _kind(value):
            raise UserError(f'checkpoint {path}: {name} is {kind}')


def _kind(value: Tensor) -> str | None:
    if type(value) not in _PLAIN:
        return f'a {type(value).__name__}, a subclass of Tensor; save it as a plain tensor'
    if value.is_meta:
        return 'a meta tensor, without values; save the model after its weights are loaded'
    if value.is_quantized:
        return 'a quantized tensor; save the weights of the model before quantization, or dequantize() them'
    if value.is_nested:
        return 'a nested tensor; save its parts as tensors'
    if value.layout is not torch.strided:
        return f'a sparse tensor ({str(value.layout).removeprefix("torch.")}); save its to_dense()'
    size = value.numel() * value.element_size()
    if size > _LARGE and size > value.untyped_storage().nbytes():
        return f'of shape {tuple(value.shape)}, but the file has only {value.untyped_storage().nbytes()} bytes of it'
    return None


def _tensors(checkpoint: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """Yield (dotted name, tensor) in nested containers; each container once, since a pickle can have circles."""
    pending: list[tuple[str, Any]] = [('', checkpoint)]
    seen = set()
    while pending:
        place, value = pending.pop()
        if isinstance(value, Tensor):
            yield place, value
        elif isinstance(value, (Mapping, list, tuple)) and id(value) not in seen:
            seen.add(id(value))
            items = value.items() if isinstance(value, Mapping) else enumerate(value)
            pending += [(f'{place}.{key}'.removeprefix('.'), item) for key, item in items]
