"""Inspection of layer attentions for the analyses: the record of a call, and the shares of earlier layers.

The questions are methods of :class:`LayerAttention`: ``stage_keys``, ``layer_shares``, ``head_gates``,
``head_temperatures``, ``head_mixing_matrix``. Layers of a stage are numbered from 1 to its depth.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from .common import global_average

CARRY = 0  # the token of what was carried over from earlier layers as one
Layer = TypeVar('Layer', bound=nn.Module)


@dataclass
class Call(Generic[Layer]):
    """The inputs and outputs of one call of a :class:`LayerAttention`; see there for the shapes."""

    name: str
    layer: Layer
    x: Tensor
    state: tuple[Tensor, ...] | None
    shortcut: Tensor | None
    retrieved: Tensor
    new_state: tuple[Tensor, ...]


@dataclass
class Shares:
    """The weight of each token in the output of a layer.

    ``tokens``: T numbers of layers, :data:`CARRY` for what was carried over. ``weights``: ``(T, B, N)``, where N are
    the G heads, or the C channels of methods with weights per channel. ``with_norm``: the same with the factor of
    the batch norms on the way, for the methods that have any, else None.
    """

    tokens: list[int]
    weights: Tensor
    with_norm: Tensor | None = None


def heads(projected: Tensor, head_channels: int) -> Tensor:
    """``(…, C)`` in heads: ``(…, G, d)``."""
    return projected.unflatten(-1, (-1, head_channels))


def own_keys(calls: Sequence[Call]) -> Tensor:
    """K_i = c1d(p_i; b_i), each projected by its own layer from its own map, in heads: ``(D, B, G, d)``."""
    keys = torch.stack([call.layer.key(global_average(call.x)) for call in calls])
    return heads(keys, calls[-1].layer.head_channels)
