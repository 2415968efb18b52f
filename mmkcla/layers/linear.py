"""Linear layer attention: the softmax over layers replaced by a positive feature map, which makes it a recurrence."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor

from .base import LayerAttention, State
from .common import ChannelConv, Preferred, depthwise_value, global_average, split_heads
from .inspection import Call, Shares, heads, own_keys

SMALLEST = 1e-30  # of the normaliser: φ of very negative numbers underflows


class LinearState(NamedTuple):
    """The sums s = Σ φ(K_i) V_iᵀ and z = Σ φ(K_i), both in the score type, since the products of large activations
    overflow half precision."""

    total: Tensor  # (B, G, d, d, H, W), key channels before value channels
    weight: Tensor  # (B, G, d)


class LinearLayerAttention(LayerAttention):
    r"""With φ = elu + 1, per head::

        s ← s + φ(K_t) V_tᵀ          z ← z + φ(K_t)          O = φ(Q_t)ᵀ s / (φ(Q_t)ᵀ z)
        retrieved = DropPath(ReLU(BN(O)))

    so that layer i's share is φ(Q)·φ(K_i) over the sum of these. The state does not grow with the depth, but it is
    as large as d maps, since s keeps a map for every key channel of a head. It is reset at the start of each stage.

    Args:
        channels: C of the maps.
        head_channels: channels d of a head; if not set and the default does not
            divide the channels: the nearest divisor.
        options: of :class:`LayerAttention`.
    """

    cifar_options = dict(head_channels=Preferred(16))

    def __init__(self, channels: int, head_channels: int = Preferred(16), **options: Any) -> None:
        super().__init__(**options)
        self.num_heads = split_heads(channels, head_channels)
        self.head_channels = channels // self.num_heads
        self.query = ChannelConv(channels)
        self.key = ChannelConv(channels)
        self.value = depthwise_value(channels)
        self.build_output(channels)

    def _features(self, projected: Tensor) -> Tensor:
        """φ of ``(…, C)``, in heads: ``(…, G, d)``, positive."""
        return F.elu(heads(projected, self.head_channels)) + 1

    def attend(self, x: Tensor, state: State | None, shortcut: Tensor | None = None) -> tuple[Tensor, State]:
        """``state`` is a :class:`LinearState`."""
        pooled = global_average(x)
        query, key = self._features(self.query(pooled)), self._features(self.key(pooled))
        value = self.value(x).to(key.dtype).unflatten(1, (self.num_heads, 1, self.head_channels))
        total, weight = key[..., None, None, None] * value, key
        if state is not None and not self.opens_stage:
            before = LinearState(*state)
            total, weight = total + before.total, weight + before.weight
        share = query / (query * weight).sum(-1, keepdim=True).clamp(min=SMALLEST)
        retrieved = (share[..., None, None, None] * total).sum(2).flatten(1, 2)
        return self.output(retrieved.to(x.dtype)), tuple(LinearState(total, weight))

    def stage_keys(self, calls: Sequence[Call]) -> Tensor:
        """The keys before φ (φ makes all of them positive); see :meth:`LayerAttention.stage_keys`."""
        return own_keys(calls)

    def layer_shares(self, calls: Sequence[Call], position: int) -> Shares:
        """φ(Q)·φ(K_i) over the sum of these; see :meth:`LayerAttention.layer_shares`."""
        calls = calls[:position + 1]
        query = self._features(self.query(global_average(calls[-1].x)))
        products = (query * (F.elu(own_keys(calls)) + 1)).sum(-1)
        return Shares(list(range(1, position + 2)), products / products.sum(0))
