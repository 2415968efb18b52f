"""Linear layer attention: the softmax over layers replaced by a positive feature map, which makes it a recurrence."""
from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from .base import LayerAttention, State
from .common import ChannelConv, depthwise_value, global_average, split_heads

SMALLEST = 1e-30  # of the normaliser: φ of very negative numbers underflows


class LinearLayerAttention(LayerAttention):
    r"""With φ = elu + 1, per head::

        s ← s + φ(K_t) V_tᵀ          z ← z + φ(K_t)          O = φ(Q_t)ᵀ s / (φ(Q_t)ᵀ z)
        retrieved = DropPath(ReLU(BN(O)))

    so that layer i's share is φ(Q)·φ(K_i) over the sum of these. The state does not grow with the depth, but it is
    d maps large, since s keeps a map for every key channel of a head. It starts anew at each stage.

    Args:
        channels: C of the maps.
        head_channels: channels d of a head.
        drop_path, layer_scale_init, norm_layer: see :meth:`LayerAttention.build_output`.
        with_cp: see :class:`LayerAttention`.
    """

    def __init__(self, channels: int, head_channels: int = 16, drop_path: float = 0.2,
                 layer_scale_init: float | None = None, with_cp: bool = False,
                 norm_layer: Callable[[int], nn.Module] = nn.BatchNorm2d) -> None:
        super().__init__(with_cp)
        self.head_channels = head_channels
        self.num_heads = split_heads(channels, head_channels)
        self.query = ChannelConv(channels)
        self.key = ChannelConv(channels)
        self.value = depthwise_value(channels)
        self.build_output(channels, True, drop_path, layer_scale_init, norm_layer)

    def _features(self, projected: Tensor) -> Tensor:
        """φ of ``(B, C)``, in heads: ``(B, G, d)``, positive."""
        return F.elu(projected.unflatten(1, (self.num_heads, self.head_channels))) + 1

    def attend(self, x: Tensor, state: State | None, shortcut: Tensor | None = None) -> tuple[Tensor, State]:
        """``state`` is (s, z): ``(B, G, d, d, H, W)``, key channels before value channels, and ``(B, G, d)``; both
        in the score type, since the products of large activations overflow half precision."""
        pooled = global_average(x)
        query, key = self._features(self.query(pooled)), self._features(self.key(pooled))
        value = self.value(x).to(key.dtype).unflatten(1, (self.num_heads, 1, self.head_channels))
        total, weight = key[..., None, None, None] * value, key
        if state is not None and not self.opens_stage:
            total, weight = total + state[0], weight + state[1]
        share = query / (query * weight).sum(-1, keepdim=True).clamp(min=SMALLEST)
        retrieved = (share[..., None, None, None] * total).sum(2).flatten(1, 2)
        return self.output(retrieved.to(x.dtype)), (total, weight)
