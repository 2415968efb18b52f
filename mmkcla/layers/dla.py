"""Dynamic Layer Attention (DLA), IJCAI 2024: MRLA with a memory that a recurrent cell refreshes."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, cast

import torch
import torch.fx
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UserError
from .base import LayerAttention, State
from .cache import Cache
from .common import Preferred, depthwise_value, global_average, without_autocast
from .inspection import Call
from .mrla import MRLABase, MRLALight


@torch.fx.wrap  # symbolic tracing does not record a context
def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    with without_autocast(x):
        return F.linear(x.to(weight.dtype), weight, bias)


class FullLinear(nn.Linear):
    """A linear layer in the type of its weight, also under autocast."""

    def forward(self, x: Tensor) -> Tensor:
        return _linear(x, self.weight, self.bias)


class DynamicSharingUnit(nn.Module):
    """The DSU: an LSTM-like cell without an output gate, over pooled maps.

    Input and hidden state each pass Linear(C → C/r), ReLU, Linear(C/r → 3C); the sums are split into i, f, g;
    ``c' = σ(f) c + σ(i) tanh(g)``, ``h' = σ(c')``. Always in the score type, also under autocast.

    Args:
        channels: C.
        reduction: r.

    Raises:
        UserError: if there are fewer channels than r.
    """

    def __init__(self, channels: int, reduction: int) -> None:
        super().__init__()
        if isinstance(reduction, Preferred):
            reduction = min(reduction, channels)
        if not 1 <= reduction <= channels:
            raise UserError(f'reduction={reduction} does not fit {channels} channels; choose from 1 to {channels}')
        self.input, self.hidden = (nn.Sequential(
            FullLinear(channels, channels // reduction), nn.ReLU(), FullLinear(channels // reduction, 3 * channels))
            for _ in range(2))

    def forward(self, pooled: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """All ``(B, C)``; returns the new hidden state and cell."""
        gates = self.input(pooled) + self.hidden(hidden)
        i, f, g = gates.to(cell.dtype).chunk(3, dim=-1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        return cell.sigmoid(), cell


class UnitState(NamedTuple):
    """The DSU's hidden state and cell, each ``(B, C)``."""

    hidden: Tensor
    cell: Tensor


class DLABaseState(NamedTuple):
    """The DSU's state, and the refreshed keys and values."""

    unit: UnitState
    cache: Cache

    def pack(self) -> State:
        """A flat tuple: h, c, then the cache."""
        return (*self.unit, *self.cache.pack())

    @classmethod
    def unpack(cls, state: State) -> DLABaseState:
        """The inverse of :meth:`pack`."""
        hidden, cell, *cache = state
        return cls(UnitState(hidden, cell), Cache.unpack(tuple(cache)))


class _SharesUnit(LayerAttention):
    """Base of methods in which all layers of a stage share modules, owned by its first layer."""

    cifar_options: ClassVar[dict[str, Any]] = dict(head_channels=Preferred(16), reduction=Preferred(4))
    for_earlier_layers: ClassVar[bool] = False  # the unit acts on earlier layers only: a stage of one has no use for it
    owner: tuple[_SharesUnit] | None = None  # None: this layer itself
    unit: DynamicSharingUnit | None  # the owner's

    @classmethod
    def build_stage(cls, channels: int, depth: int, carry_channels: int | None = None, carry_stride: int = 1,
                    reduction: int = Preferred(16), **options: Any) -> nn.ModuleList:
        """Build a stage's layers; see :meth:`LayerAttention.build_stage`.

        ``reduction`` is the DSU's: 4 for CIFAR, 16 for ImageNet, 20 for detection.
        """
        stage = super().build_stage(channels, depth, **options)
        layers = cast('Sequence[_SharesUnit]', stage)
        alone = depth == 1 and cls.for_earlier_layers
        for name, module in cls.shared_modules(channels, reduction).items():
            layers[0].add_module(name, None if alone else module)
        return _SharingStage(stage)

    @staticmethod
    def shared_modules(channels: int, reduction: int) -> dict[str, nn.Module]:
        """The modules owned by the first layer, by name."""
        return dict(unit=DynamicSharingUnit(channels, reduction))

    @staticmethod
    def unpack_unit(state: State) -> UnitState:
        """The DSU's part of a state."""
        return UnitState(*state)

    def step(self, pooled: Tensor, state: State | None) -> UnitState:
        """Advance the cell of the stage by one layer."""
        if self.opens_stage or state is None:
            hidden = cell = torch.zeros_like(pooled)
        else:
            hidden, cell = self.unpack_unit(state)
        return UnitState(*self.sharing.unit(pooled, hidden, cell))

    @property
    def sharing(self) -> Any:
        """The layer of the stage that owns the shared modules."""
        return self if self.owner is None else self.owner[0]


class _SharingStage(nn.ModuleList):
    """A stage whose layers know the first one, which owns what they share.

    ``nn.parallel.replicate`` sets the copies of the layers one by one; they then share the modules of their own copy.
    """

    def __init__(self, layers: nn.ModuleList) -> None:
        super().__init__(layers)
        for name, layer in self._modules.items():
            self._link(name, layer)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        self._link(name, value)

    def _link(self, name: str, layer: Any) -> None:
        if name != '0' and isinstance(layer, _SharesUnit):
            # in a tuple it is not registered, and not in the state dict a second time
            layer.owner = (cast('_SharesUnit', self._modules['0']), )


class DLALight(_SharesUnit, MRLALight):
    r"""DLA-L: MRLA-light, with the shortcut S refreshed by the DSU of the stage as the past::

        (h, c) ← DSU(p; h, c)       u = DSU_h(GAP(S); h, c)       S' = S ⊙ u + e(S)
        O = σ(⟨Q, K⟩/√d) · f_V(X) + λ ⊙ S'                        retrieved = DropPath(BN(O))

    e is a depthwise 3×3 convolution; the layers of a stage share it and the DSU. The DSU's state is zero at the start
    of each stage. It is per sample (the released code uses the state of sample 0 for the whole batch). Built by
    :meth:`build_stage`.

    Args:
        kwargs: of :class:`MRLALight`; ``reduction`` of :meth:`build_stage`.
    """

    owner: tuple[DLALight] | None
    excite: nn.Conv2d  # the owner's

    @staticmethod
    def shared_modules(channels: int, reduction: int) -> dict[str, nn.Module]:
        """The DSU and e."""
        return dict(unit=DynamicSharingUnit(channels, reduction), excite=depthwise_value(channels))

    def attend(self, x: Tensor, state: State | None, shortcut: Tensor | None = None) -> tuple[Tensor, State]:
        """``state`` is a :class:`UnitState`."""
        assert shortcut is not None
        pooled = global_average(x)
        after = self.step(pooled, state)
        owner = self.sharing
        fresh, _ = owner.unit(global_average(shortcut), *after)
        past = shortcut * fresh[:, :, None, None].to(shortcut.dtype) + owner.excite(shortcut)
        return self.retrieve(x, pooled, past), tuple(after)

    def past_factor(self, call: Call) -> Tensor:
        """λ (u + Σe), ``(B, C)``: what λ S' makes of a shift that is constant over the map, u held still, away from
        borders."""
        assert call.shortcut is not None
        owner = self.sharing
        fresh, _ = owner.unit(global_average(call.shortcut), *self.unpack_unit(call.new_state))
        return self.past * (fresh + owner.excite.weight.sum((1, 2, 3)))


class DLABase(_SharesUnit, MRLABase):
    r"""DLA-B: MRLA-base, with the cached keys and values refreshed before every attention::

        (h, c) ← DSU(p; h, c)       K_i ← K_i ⊙ DSU_h(K_i; h, c)       V_i ← V_i ⊙ DSU_h(GAP(V_i); h, c)

    for the earlier layers i; the refreshed cache is passed to the next layer. Per sample, as in :class:`DLALight`. A
    stage of one layer has no DSU: it would get no gradient.

    Args:
        kwargs: of :class:`MRLABase`; ``reduction`` of :meth:`build_stage`.
    """

    for_earlier_layers = True

    def attend(self, x: Tensor, state: State | None, shortcut: Tensor | None = None) -> tuple[Tensor, State]:
        """``state`` is a :class:`DLABaseState`, packed."""
        pooled = global_average(x)
        unit = self.sharing.unit
        after = UnitState(*[torch.zeros_like(pooled)] * 2) if unit is None else self.step(pooled, state)
        cache = Cache() if self.opens_stage or state is None else self.unpack_cache(state)
        keys = tuple(key * unit(key, *after)[0] for key in cache.vectors)
        values = tuple(value * unit(global_average(value), *after)[0][:, :, None, None].to(value.dtype)
                       for value in cache.maps)
        cache = Cache(keys, values).append(self.key(pooled), self.value(x))
        return self.retrieve(pooled, cache), DLABaseState(after, cache).pack()

    @staticmethod
    def unpack_unit(state: State) -> UnitState:
        """The DSU's part of a state."""
        return DLABaseState.unpack(state).unit

    @staticmethod
    def unpack_cache(state: State) -> Cache:
        """The refreshed keys and values in a state."""
        return DLABaseState.unpack(state).cache
