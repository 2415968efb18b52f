"""Efficient Attention (Shen et al.), arXiv 1812.01243, WACV 2021."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .base import LayerAttention, State
from .spatial_attention import SpatialAttention, softmax


class EfficientAttention(SpatialAttention):
    r"""Attention over positions with cost linear in their number n = H·W (the paper's eq. 5)::

        E = ρ_k(K) Vᵀ   (d_k × d_v, a global context)          out = Eᵀ ρ_q(Q)          x + reprojection(out)

    ``'softmax'``: ρ_k over positions, ρ_q over a head's key channels. ``'scaling'``: ρ(Y) = Y/√n, which is exactly
    dot-product attention scaled by 1/n (:class:`DotProductAttention2d`). No n×n matrix is formed.

    The arguments are those of :class:`SpatialAttention`.
    """

    def mix(self, keys: Tensor, queries: Tensor, values: Tensor) -> Tensor:
        """See :class:`SpatialAttention`; the values are mixed through the context."""
        root = keys.shape[-1] ** 0.5
        # √n is moved from one factor to the other, so that neither leaves the range of half precision
        if self.normalization == 'softmax':
            keys, queries = softmax(keys, -1) * root, softmax(queries, -2)
        else:
            keys = keys / root
        context = torch.matmul(keys, (values / root).transpose(-1, -2))
        return torch.matmul(context.transpose(-1, -2), queries)


class EfficientLayerAttention(LayerAttention):
    """:class:`EfficientAttention` in place of a layer attention, after every block; it only sees the current map.

    ``retrieved = DropPath(scale · reprojection(out))``; no norm, no state.

    Args:
        channels: C of the maps.
        key_channels, num_heads, value_channels, normalization, zero_init: of :class:`EfficientAttention`.
        options: of :class:`LayerAttention`; ``norm_layer`` has no use here.
    """

    own_map_alone = True
    not_recorded = frozenset({'key_channels', 'value_channels', 'zero_init'})  # the first two are shapes

    def __init__(self, channels: int, key_channels: int | None = None, num_heads: int = 1,
                 value_channels: int | None = None, normalization: str = 'softmax', zero_init: bool = False,
                 **options: Any) -> None:
        super().__init__(**options)
        self.attention = EfficientAttention(channels, key_channels, num_heads, value_channels, normalization,
                                            residual=False, zero_init=zero_init)
        self.build_output(channels, relu=False, norm=False)

    def attend(self, x: Tensor, state: State | None, shortcut: Tensor | None = None) -> tuple[Tensor, State]:
        """``state`` is empty."""
        return self.output(self.attention(x)), ()
