"""Multi-head Recurrent Layer Attention (MRLA), arXiv 2302.03985, ICLR 2023."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from .base import LayerAttention, State
from .cache import Cache
from .common import (
    ChannelAffine,
    ChannelConv,
    Preferred,
    depthwise_value,
    global_average,
    in_type_of,
    per_channel,
    split_heads,
)
from .inspection import Call, Shares, heads, own_keys
from .softmax import mix, softmax_shares


class MRLABase(LayerAttention):
    r"""Every layer projects its own map once; later layers attend to the cached keys and values (the paper's eq. 6)::

        K_i = c1d(p_i; b_i)      V_i = f_V^i(X_i)      a_i = softmax_i(⟨Q_t, K_i⟩/√d)
        retrieved = DropPath(ReLU(BN( Σ_i a_i V_i )))

    The cache is empty at the start of each stage.

    Args:
        channels: C of the maps.
        head_channels: channels d of a head: 32 for ImageNet, 16 for CIFAR; if not set and the default does not
            divide the channels: the nearest divisor.
        options: of :class:`LayerAttention`.
    """

    cifar_options = dict(head_channels=Preferred(16))

    def __init__(self, channels: int, head_channels: int = Preferred(32), **options: Any) -> None:
        super().__init__(**options)
        self.num_heads = split_heads(channels, head_channels)
        self.head_channels = channels // self.num_heads
        self.query = ChannelConv(channels)
        self.key = ChannelConv(channels)
        self.value = depthwise_value(channels)
        self.build_output(channels)

    def attend(self, x: Tensor, state: State | None, shortcut: Tensor | None = None) -> tuple[Tensor, State]:
        """``state`` is the :class:`Cache` of keys and values, packed."""
        pooled = global_average(x)
        cache = Cache() if self.opens_stage or state is None else Cache.unpack(state)
        cache = cache.append(self.key(pooled), self.value(x))
        return self.retrieve(pooled, cache), cache.pack()

    def retrieve(self, pooled: Tensor, cache: Cache) -> Tensor:
        """Attend to the keys and values of ``cache``."""
        shares = softmax_shares(self.query(pooled), cache.vectors, self.head_channels)
        return self.output(mix(cache.maps, shares, self.head_channels))

    @staticmethod
    def unpack_cache(state: State) -> Cache:
        """The keys and values in a state."""
        return Cache.unpack(state)

    def stage_keys(self, calls: Sequence[Call]) -> Tensor:
        """The cached keys; see :meth:`LayerAttention.stage_keys`."""
        return heads(torch.stack(self.unpack_cache(calls[-1].new_state).vectors), self.head_channels)

    def layer_shares(self, calls: Sequence[Call], position: int) -> Shares:
        """The softmax over layers; see :meth:`LayerAttention.layer_shares`."""
        call = calls[position]
        cache = self.unpack_cache(call.new_state)
        weights = softmax_shares(self.query(global_average(call.x)), cache.vectors, self.head_channels)
        return Shares(list(range(1, position + 2)), weights)


class MRLALight(LayerAttention):
    r"""The light form: the past enters only through the block's shortcut S (the paper's eq. 9)::

        O = σ(⟨Q, K⟩/√d) · f_V(X) + λ ⊙ S            retrieved = DropPath(BN(O))

    λ is a learned number per channel. Unrolled, an earlier layer's share is a product of λ. There is no ReLU and no
    state.

    Args:
        channels: C of the maps.
        head_channels: channels d of a head: 32 for ImageNet, 16 in KCLA's CIFAR experiments; if not set and the default
            does not divide the channels: the nearest divisor.
        options: of :class:`LayerAttention`.
    """

    needs_shortcut = True
    cifar_options = dict(head_channels=Preferred(16))

    def __init__(self, channels: int, head_channels: int = Preferred(32), **options: Any) -> None:
        super().__init__(**options)
        self.num_heads = split_heads(channels, head_channels)
        self.head_channels = channels // self.num_heads
        self.query = ChannelConv(channels)
        self.key = ChannelConv(channels)
        self.value = depthwise_value(channels)
        self.past = nn.Parameter(torch.empty(channels))
        self.build_output(channels, relu=False)
        self.reset_own_parameters()

    def reset_own_parameters(self) -> None:
        """λ from N(0, 1)."""
        super().reset_own_parameters()
        nn.init.normal_(self.past)

    def attend(self, x: Tensor, state: State | None, shortcut: Tensor | None = None) -> tuple[Tensor, State]:
        """``state`` is empty."""
        assert shortcut is not None
        return self.retrieve(x, global_average(x), shortcut), ()

    def retrieve(self, x: Tensor, pooled: Tensor, past: Tensor) -> Tensor:
        """Attend to ``x`` itself and to ``past``, both ``(B, C, H, W)``."""
        gate = self._gate(self.query(pooled), self.key(pooled))
        value = self.value(x)
        value = value * per_channel(gate, self.head_channels, value.dtype)
        return self.output(value + past * in_type_of(self.past, past)[:, None, None])

    def folded_norm(self, scale: Tensor, shift: Tensor) -> nn.Module:
        """f_V and λ take the scale."""
        self.value.weight.mul_(scale[:, None, None, None])
        self.past.mul_(scale)
        return ChannelAffine(None, shift)

    def _gate(self, query: Tensor, key: Tensor) -> Tensor:
        """σ(⟨Q, K⟩/√d): ``(B, C)`` to ``(B, G)``."""
        product = (query * key).unflatten(1, (self.num_heads, self.head_channels)).sum(-1)
        return (product * self.head_channels ** -0.5).sigmoid()

    def stage_keys(self, calls: Sequence[Call]) -> Tensor:
        """The keys of the gates (keys of two layers are never compared); see :meth:`LayerAttention.stage_keys`."""
        return own_keys(calls)

    def head_gates(self, call: Call) -> Tensor:
        """σ(⟨Q, K⟩/√d), ``(B, G)``."""
        pooled = global_average(call.x)
        return self._gate(self.query(pooled), self.key(pooled))

    def layer_shares(self, calls: Sequence[Call[MRLALight]], position: int) -> Shares:
        """Π_{j=i+1..t} λ_j per channel, 1 for the layer itself: the decay β of the papers.

        It has a sign and does not sum to 1; the gate of O_i's own term is not in it. With it O_i comes down the
        shortcuts S_j = X_{j−1} + BN(O_{j−1}) as if BN were not there. ``with_norm`` multiplies each step by the factor
        γ/√(σ² + ε) of that BN (in evaluation), and by a layer scale: exactly ∂O_t/∂O_i with the trunk's residual
        branches held still.
        """
        ones = calls[position].x.new_ones(calls[position].x.shape[:2])
        weights, with_norm = [ones], [ones]
        for i in range(position, 0, -1):  # from this layer back
            factor = calls[i].layer.past_factor(calls[i])
            weights.insert(0, weights[0] * factor)
            with_norm.insert(0, with_norm[0] * factor * calls[i - 1].layer.output_factor())
        return Shares(list(range(1, position + 2)), torch.stack(weights), torch.stack(with_norm))

    def past_factor(self, call: Call) -> Tensor:
        """The factor of the past term on the shortcut, per channel: ``(C,)`` or ``(B, C)``."""
        return self.past

    def output_factor(self) -> Tensor:
        """∂retrieved/∂O in evaluation, per channel, ``(C,)``.

        Raises:
            UserError: for a norm without running statistics, since its factor depends on the map.
        """
        norm: Any = self.norm  # of any class that has running statistics
        if getattr(norm, 'running_var', None) is None:
            raise UserError(f'the decay of {type(self).__name__} is only defined for batch norms with running '
                            f'statistics, but its norm is a {type(norm).__name__}')
        factor = (norm.running_var + norm.eps).rsqrt()
        if norm.weight is not None:
            factor = factor * norm.weight
        return factor if self.layer_scale is None else factor * self.layer_scale
