"""Standard (quadratic) layer attention, as in the MRLA paper, arXiv 2302.03985, section 3.2."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .base import LayerAttention, State
from .cache import Cache
from .common import ChannelConv, Preferred, depthwise_value, global_average, per_channel, split_heads
from .inspection import Call, Shares, heads


class SoftmaxLayerAttention(LayerAttention):
    r"""Every layer projects all maps of its stage so far with its own weights, and attends to them::

        Q = c1d(p_t; a_t)      K_i = c1d(p_i; b_t)      a_i = softmax_i(⟨Q, K_i⟩/√d)
        retrieved = DropPath(ReLU(BN( Σ_i a_i f_V(X_i) )))

    f_V is linear and one per layer, so it is applied once, to Σ a_i X_i: one convolution instead of t. The state
    contains every map of the stage; it is empty at the start of each stage.

    Args:
        channels: C of the maps.
        head_channels: channels d of a head; if not set and the default does not
            divide the channels: the nearest divisor.
        literal: apply f_V to every map, as written; the same result at quadratic cost.
        options: of :class:`LayerAttention`.
    """

    cifar_options = dict(head_channels=Preferred(16))
    not_recorded = frozenset({'literal'})  # the same result

    def __init__(self, channels: int, head_channels: int = Preferred(16), literal: bool = False,
                 **options: Any) -> None:
        super().__init__(**options)
        self.num_heads = split_heads(channels, head_channels)
        self.head_channels = channels // self.num_heads
        self.literal = literal
        self.query = ChannelConv(channels)
        self.key = ChannelConv(channels)
        self.value = depthwise_value(channels)
        self.build_output(channels)

    def attend(self, x: Tensor, state: State | None, shortcut: Tensor | None = None) -> tuple[Tensor, State]:
        """``state`` is the :class:`Cache` of pooled maps and maps, packed."""
        pooled = global_average(x)
        cache = Cache() if self.opens_stage or state is None else Cache.unpack(state)
        cache = cache.append(pooled, x)
        shares = self._softmax(cache.vectors)
        maps = [self.value(earlier) for earlier in cache.maps] if self.literal else cache.maps
        mixed = mix(maps, shares, self.head_channels)
        return self.output(mixed if self.literal else self.value(mixed)), cache.pack()

    def folded_norm(self, scale: Tensor, shift: Tensor) -> nn.Module:
        """f_V takes scale and shift, since the shares sum to 1."""
        self.value.weight.mul_(scale[:, None, None, None])
        self.value.bias = nn.Parameter(shift)
        return nn.Identity()

    def _softmax(self, pooled: Sequence[Tensor]) -> Tensor:
        """The shares of T pooled maps in this layer, the last of them: ``(T, B, G)``."""
        query = self.query(pooled[-1])
        return softmax_shares(query, [self.key(vector) for vector in pooled], self.head_channels)

    def stage_keys(self, calls: Sequence[Call]) -> Tensor:
        """Every map's key by this layer's c1d; see :meth:`LayerAttention.stage_keys`."""
        pooled = Cache.unpack(calls[-1].new_state).vectors
        return heads(torch.stack([self.key(vector) for vector in pooled]), self.head_channels)

    def layer_shares(self, calls: Sequence[Call], position: int) -> Shares:
        """The softmax over layers; see :meth:`LayerAttention.layer_shares`."""
        return Shares(list(range(1, position + 2)), self._softmax(Cache.unpack(calls[position].new_state).vectors))


def softmax_shares(query: Tensor, keys: list[Tensor] | tuple[Tensor, ...], head_channels: int) -> Tensor:
    """softmax over layers of ⟨Q, K_i⟩/√d per head: ``(B, C)`` and T of ``(B, C)`` to ``(T, B, G)``."""
    products = (query * torch.stack(keys)).unflatten(-1, (-1, head_channels)).sum(-1)
    return (products * head_channels ** -0.5).softmax(0)


def mix(maps: Sequence[Tensor], shares: Tensor, head_channels: int) -> Tensor:
    """Σ_i share_i · map_i, the shares ``(T, B, G)`` spread over their heads' channels."""
    mixed = maps[0] * per_channel(shares[0], head_channels, maps[0].dtype)
    for i in range(1, len(maps)):  # symbolic tracing cannot iterate over the shares
        mixed = mixed + maps[i] * per_channel(shares[i], head_channels, maps[i].dtype)
    return mixed
