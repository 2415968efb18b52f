"""Multi-head Recurrent Layer Attention (MRLA), arXiv 2302.03985, ICLR 2023."""
from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .base import LayerAttention, State
from .common import ChannelConv, depthwise_value, global_average, per_channel, split_heads
from .softmax import layer_shares, mix


class MRLABase(LayerAttention):
    r"""Every layer projects its own map once; later layers attend to the cached keys and values (the paper's eq. 6)::

        K_i = c1d(p_i; b_i)      V_i = f_V^i(X_i)      a_i = softmax_i(⟨Q_t, K_i⟩/√d)
        retrieved = DropPath(ReLU(BN( Σ_i a_i V_i )))

    The cache starts anew at each stage.

    Args:
        channels: C of the maps.
        head_channels: channels d of a head: 32 for ImageNet, 16 for CIFAR.
        drop_path, layer_scale_init, norm_layer: see :meth:`LayerAttention.build_output`.
        with_cp: see :class:`LayerAttention`.
    """

    def __init__(self, channels: int, head_channels: int = 32, drop_path: float = 0.2,
                 layer_scale_init: float | None = None, with_cp: bool = False,
                 norm_layer: Callable[[int], nn.Module] = nn.BatchNorm2d) -> None:
        super().__init__(with_cp)
        self.head_channels = head_channels
        self.num_heads = split_heads(channels, head_channels)
        self.query = ChannelConv(channels)
        self.key = ChannelConv(channels)
        self.value = depthwise_value(channels)
        self.build_output(channels, True, drop_path, layer_scale_init, norm_layer)

    def attend(self, x: Tensor, state: State | None, shortcut: Tensor | None = None) -> tuple[Tensor, State]:
        """``state`` holds, layer by layer, the key ``(B, C)`` and the value ``(B, C, H, W)``."""
        pooled = global_average(x)
        cache = () if self.opens_stage or state is None else state
        cache = (*cache, self.key(pooled), self.value(x))
        return self.retrieve(pooled, cache), cache

    def retrieve(self, pooled: Tensor, cache: State) -> Tensor:
        """Attend to ``cache``, laid out as the state."""
        shares = layer_shares(self.query(pooled), list(cache[::2]), self.head_channels)
        return self.output(mix(cache[1::2], shares, self.head_channels))


class MRLALight(LayerAttention):
    r"""The light form: what is left of the past comes through the block's shortcut S (the paper's eq. 9)::

        O = σ(⟨Q, K⟩/√d) · f_V(X) + λ ⊙ S            retrieved = DropPath(BN(O))

    λ is a learned number per channel. Unrolled, an earlier layer's share is a product of λ. There is no ReLU and no
    state.

    Args:
        channels: C of the maps.
        head_channels: channels d of a head: 32 for ImageNet, 16 in KCLA's CIFAR experiments.
        drop_path, layer_scale_init, norm_layer: see :meth:`LayerAttention.build_output`.
        with_cp: see :class:`LayerAttention`.
    """

    needs_shortcut = True

    def __init__(self, channels: int, head_channels: int = 32, drop_path: float = 0.2,
                 layer_scale_init: float | None = None, with_cp: bool = False,
                 norm_layer: Callable[[int], nn.Module] = nn.BatchNorm2d) -> None:
        super().__init__(with_cp)
        self.head_channels = head_channels
        self.num_heads = split_heads(channels, head_channels)
        self.query = ChannelConv(channels)
        self.key = ChannelConv(channels)
        self.value = depthwise_value(channels)
        self.past = nn.Parameter(torch.empty(channels))
        self.build_output(channels, False, drop_path, layer_scale_init, norm_layer)
        self.reset_own_parameters()

    def reset_own_parameters(self) -> None:
        """λ from N(0, 1)."""
        super().reset_own_parameters()
        nn.init.normal_(self.past)

    def attend(self, x: Tensor, state: State | None, shortcut: Tensor | None = None) -> tuple[Tensor, State]:
        """``state`` is empty."""
        return self.retrieve(x, global_average(x), shortcut), ()

    def retrieve(self, x: Tensor, pooled: Tensor, past: Tensor) -> Tensor:
        """Attend to ``x`` itself and to ``past``, both ``(B, C, H, W)``."""
        product = (self.query(pooled) * self.key(pooled)).unflatten(1, (self.num_heads, self.head_channels)).sum(-1)
        gate = (product * self.head_channels ** -0.5).sigmoid()
        value = self.value(x)
        value = value * per_channel(gate, self.head_channels, value.dtype)
        return self.output(value + past * self.past[:, None, None].to(past.dtype))
