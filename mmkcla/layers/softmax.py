"""Standard (quadratic) layer attention, as in the MRLA paper, arXiv 2302.03985, section 3.2."""
from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .base import LayerAttention, State
from .common import ChannelConv, depthwise_value, global_average, per_channel, split_heads


class SoftmaxLayerAttention(LayerAttention):
    r"""Every layer projects all maps of its stage so far with its own weights, and attends to them::

        Q = c1d(p_t; a_t)      K_i = c1d(p_i; b_t)      a_i = softmax_i(⟨Q, K_i⟩/√d)
        retrieved = DropPath(ReLU(BN( Σ_i a_i f_V(X_i) )))

    f_V is linear and one per layer, so it is applied once, to Σ a_i X_i: t maps are summed and one is convolved, in
    place of t convolutions. The state holds every map of the stage; it starts anew at each stage.

    Args:
        channels: C of the maps.
        head_channels: channels d of a head.
        drop_path: see :meth:`LayerAttention.build_output`.
        literal: apply f_V to every map, as written; the same result at quadratic cost.
        layer_scale_init, norm_layer: see :meth:`LayerAttention.build_output`.
        with_cp: see :class:`LayerAttention`.
    """

    def __init__(self, channels: int, head_channels: int = 16, drop_path: float = 0.2, literal: bool = False,
                 layer_scale_init: float | None = None, with_cp: bool = False,
                 norm_layer: Callable[[int], nn.Module] = nn.BatchNorm2d) -> None:
        super().__init__(with_cp)
        self.head_channels = head_channels
        self.num_heads = split_heads(channels, head_channels)
        self.literal = literal
        self.query = ChannelConv(channels)
        self.key = ChannelConv(channels)
        self.value = depthwise_value(channels)
        self.build_output(channels, True, drop_path, layer_scale_init, norm_layer)

    def attend(self, x: Tensor, state: State | None, shortcut: Tensor | None = None) -> tuple[Tensor, State]:
        """``state`` holds, layer by layer, the map ``(B, C, H, W)`` and its pooled form ``(B, C)``."""
        pooled = global_average(x)
        state = (*(() if self.opens_stage or state is None else state), x, pooled)
        maps, vectors = state[::2], state[1::2]
        query = self.query(pooled)
        shares = layer_shares(query, [self.key(vector) for vector in vectors], self.head_channels)
        if self.literal:
            maps = [self.value(earlier) for earlier in maps]
        mixed = mix(maps, shares, self.head_channels)
        return self.output(mixed if self.literal else self.value(mixed)), state


def layer_shares(query: Tensor, keys: list[Tensor], head_channels: int) -> Tensor:
    """softmax over layers of ⟨Q, K_i⟩/√d per head: ``(B, C)`` and T of ``(B, C)`` to ``(T, B, G)``."""
    products = (query * torch.stack(keys)).unflatten(-1, (-1, head_channels)).sum(-1)
    return (products * head_channels ** -0.5).softmax(0)


def mix(maps: tuple[Tensor, ...] | list[Tensor], shares: Tensor, head_channels: int) -> Tensor:
    """Σ_i share_i · map_i, the shares ``(T, B, G)`` spread over their heads' channels."""
    mixed = maps[0] * per_channel(shares[0], head_channels, maps[0].dtype)
    for earlier, share in zip(maps[1:], shares[1:], strict=True):
        mixed = mixed + earlier * per_channel(share, head_channels, earlier.dtype)
    return mixed
