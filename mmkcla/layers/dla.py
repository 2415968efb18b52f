"""Dynamic Layer Attention (DLA), IJCAI 2024: MRLA whose memory is refreshed by a recurrent cell."""
from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..errors import UserError
from .base import State
from .common import depthwise_value, global_average
from .mrla import MRLABase, MRLALight


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
        if not 1 <= reduction <= channels:
            raise UserError(f'reduction={reduction} does not fit {channels} channels; choose from 1 to {channels}')
        self.input, self.hidden = (nn.Sequential(
            nn.Linear(channels, channels // reduction), nn.ReLU(), nn.Linear(channels // reduction, 3 * channels))
            for _ in range(2))

    def forward(self, pooled: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """All ``(B, C)``; returns the new hidden state and cell."""
        dtype = self.input[0].weight.dtype
        with torch.autocast(pooled.device.type, enabled=False):
            gates = self.input(pooled.to(dtype)) + self.hidden(hidden.to(dtype))
        i, f, g = gates.to(cell.dtype).chunk(3, dim=-1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        return cell.sigmoid(), cell


class _SharesUnit:
    """For layers of which a stage's first owns the modules that all of the stage use."""

    cifar_options: ClassVar[dict[str, Any]] = dict(head_channels=16, reduction=4)

    @classmethod
    def build_stage(cls, channels: int, depth: int, carry_channels: int | None = None, carry_stride: int = 1,
                    reduction: int = 16, **options: Any) -> nn.ModuleList:
        """Build a stage's layers; see :meth:`LayerAttention.build_stage`.

        ``reduction`` is the DSU's: 4 for CIFAR, 16 for ImageNet, 20 for detection.
        """
        layers = super().build_stage(channels, depth, **options)
        for name, module in cls.shared_modules(channels, reduction).items():
            layers[0].add_module(name, module)
        for layer in layers:
            layer.owner = (layers[0], )  # in a tuple it is not registered, and not in the state dict a second time
        return layers

    @staticmethod
    def shared_modules(channels: int, reduction: int) -> dict[str, nn.Module]:
        """What the first layer owns, by name."""
        return dict(unit=DynamicSharingUnit(channels, reduction))

    def step(self, pooled: Tensor, state: State | None) -> tuple[Tensor, Tensor]:
        """Advance the stage's cell by a layer: its new hidden state and cell."""
        if self.opens_stage or state is None:
            hidden = cell = torch.zeros_like(pooled)
        else:
            hidden, cell = state[:2]
        return self.owner[0].unit(pooled, hidden, cell)


class DLALight(_SharesUnit, MRLALight):
    r"""DLA-L: MRLA-light, whose past is the shortcut S refreshed by the stage's DSU::

        (h, c) ← DSU(p; h, c)       u = DSU_h(GAP(S); h, c)       S' = S ⊙ u + e(S)
        O = σ(⟨Q, K⟩/√d) · f_V(X) + λ ⊙ S'                        retrieved = DropPath(BN(O))

    e is a depthwise 3×3 convolution that a stage's layers share, as they do the DSU; its state starts at zero with the
    stage. Per sample (the released code gives sample 0's state to the whole batch). Built by :meth:`build_stage`.

    Args:
        kwargs: of :class:`MRLALight`; ``reduction`` of :meth:`build_stage`.
    """

    @staticmethod
    def shared_modules(channels: int, reduction: int) -> dict[str, nn.Module]:
        """The DSU and e."""
        return dict(unit=DynamicSharingUnit(channels, reduction), excite=depthwise_value(channels))

    def attend(self, x: Tensor, state: State | None, shortcut: Tensor | None = None) -> tuple[Tensor, State]:
        """``state`` is (h, c), each ``(B, C)``."""
        pooled = global_average(x)
        hidden, cell = self.step(pooled, state)
        owner = self.owner[0]
        fresh, _ = owner.unit(global_average(shortcut), hidden, cell)
        past = shortcut * fresh[:, :, None, None].to(shortcut.dtype) + owner.excite(shortcut)
        return self.retrieve(x, pooled, past), (hidden, cell)


class DLABase(_SharesUnit, MRLABase):
    r"""DLA-B: MRLA-base, whose cached keys and values are refreshed before every attention::

        (h, c) ← DSU(p; h, c)       K_i ← K_i ⊙ DSU_h(K_i; h, c)       V_i ← V_i ⊙ DSU_h(GAP(V_i); h, c)

    for the earlier layers i; the refreshed cache goes on. Per sample, as :class:`DLALight`.

    Args:
        kwargs: of :class:`MRLABase`; ``reduction`` of :meth:`build_stage`.
    """

    def attend(self, x: Tensor, state: State | None, shortcut: Tensor | None = None) -> tuple[Tensor, State]:
        """``state`` is (h, c), then layer by layer the key ``(B, C)`` and the value ``(B, C, H, W)``."""
        pooled = global_average(x)
        hidden, cell = self.step(pooled, state)
        unit = self.owner[0].unit
        cache = () if self.opens_stage or state is None else state[2:]
        keys = [key * unit(key, hidden, cell)[0] for key in cache[::2]]
        values = [value * unit(global_average(value), hidden, cell)[0][:, :, None, None].to(value.dtype)
                  for value in cache[1::2]]
        refreshed = [entry for pair in zip(keys, values, strict=True) for entry in pair]
        cache = (*refreshed, self.key(pooled), self.value(x))
        return self.retrieve(pooled, cache), (hidden, cell, *cache)
