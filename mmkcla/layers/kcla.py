"""Key-Correlated Layer Attention (KCLA), arXiv 2606.28405."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from .base import LayerAttention, State
from .common import ChannelConv, HeadMixing, depthwise_value, global_average, per_channel, split_heads

TEMPERATURE_MODES = ('fixed', 'learnable', 'dynamic')
GATE_KEYS = ('current', 'accumulated')
MAX_SCORE = 10.  # P·‖K‖ is cut off here, so that no weight exceeds e^10
LOG_OFFSET = math.log(1e-3)  # the paper's code divides by z + 1e-3
NORM_EPS = 1e-6  # below it a key counts as zero: its direction is cut to zero, the gate is σ(0)
DYNAMIC_BOUND = math.log(2.)  # a dynamic temperature stays within half and twice its base


class KCLA(LayerAttention):
    r"""Key-Correlated Layer Attention: a running softmax-weighted mean over layers, gated per head by the query.

    With p the global average of x, Q = c1d(p; a), K = c1d(p; b) split into G heads, P_g the temperatures::

        ℓ = min(P·‖K‖, 10)                    log z ← logaddexp(log z, ℓ)           α = exp(ℓ − log z)
        m ← m + α (x − m)                     A = m · z/(z + 1e-3)
        γ = σ(Φ ⟨Q, K⟩/‖K‖)                   retrieved = DropPath(ReLU(BN(γ · f_V(A))))

    so that A is, per head, the softmax over all layers so far of min(P·‖K_i‖, 10) applied to their maps. The weights
    over layers depend on the keys alone; the query gates the heads; keys are static, and "dynamic in V" means that the
    current layer's f_V acts on the whole mean. The live state is one map and G numbers per sample, whatever the depth.
    Scores, exponents and log z are float32 under autocast; an all-zero map gives a finite result with gate σ(0).

    At the first layer of a stage the previous stage's mean is carried over (the paper's Algorithm 1) and becomes one
    token; odd sizes work where both sides round up. See :class:`Carry`.

    Args:
        channels: C of the maps.
        head_channels: channels d of a head: 64 for ImageNet and detection, 16 for CIFAR and medical segmentation.
        carry_channels: channels of the previous stage; None where there is none, and no carry is built.
        carry_stride: the stage's true stride (1 in a dilated stage).
        drop_path: probability of dropping the retrieved map of a sample in training.
        temperature: ``'fixed'`` (a buffer), ``'learnable'`` (log P is a parameter started at the fixed sequence) or
            ``'dynamic'`` (log P is a parameter, plus a shift of at most log 2 either way predicted per sample from
            ⟨Q, K⟩/‖K‖, started at zero). At the start all three agree.
        temperature_range: P of the first and the last head, log-uniform in between (one head takes the first).
        dynamic_value: the current layer's f_V acts on the mean of the raw maps (the default); off: every layer projects
            its own map once and the mean is over those values (the paper's ablation without a dynamic value).
        head_mixing: Φ on or off.
        relu: the ReLU after the BN, on or off.
        gate_key: ``'current'``: the gate's angle is to the current key; ``'accumulated'``: to the direction of ΣK_i.
        scale_by_width: divide ‖K‖ by √d in the weights.
        layer_scale_init: None, or the start of a per-channel scale after the ReLU. At 0 the network is bit for bit the
            plain one at step 0 and still learns (ours, not the paper's: for starting from plain ImageNet weights).
        carry_blocks: given to :meth:`build_stage`: indices ≥ 1 of blocks (within every stage deep enough) at which the
            stage's own mean so far is carried, i.e. normalised and made one token again (11 in the reference R101).
        carry_bias: bias of the carry's convolution.
        share_carry_key: the carry takes this layer's key convolution instead of its own.
        with_cp: see :class:`LayerAttention`.
        norm_layer: builds the normalisation of a number of channels.

    Raises:
        UserError: for channels that head_channels does not divide, and unknown modes.
    """

    def __init__(self, channels: int, head_channels: int = 64, carry_channels: int | None = None, carry_stride: int = 2,
                 drop_path: float = 0.2, temperature: str = 'fixed',
                 temperature_range: tuple[float, float] = (0.7, 1 / 0.7), dynamic_value: bool = True,
                 head_mixing: bool = True, relu: bool = True, gate_key: str = 'current', scale_by_width: bool = False,
                 layer_scale_init: float | None = None, carry_bias: bool = False, share_carry_key: bool = False,
                 with_cp: bool = False, norm_layer: Callable[[int], nn.Module] = nn.BatchNorm2d) -> None:
        super().__init__(with_cp)
        self.channels = channels
        self.head_channels = head_channels
        self.num_heads = split_heads(channels, head_channels)
        self.temperature = _one_of('temperature', temperature, TEMPERATURE_MODES)
        self.temperature_range = _positive_range(temperature_range)
        self.dynamic_value = dynamic_value
        self.gate_key = _one_of('gate_key', gate_key, GATE_KEYS)
        self.norm_scale = head_channels ** -0.5 if scale_by_width else 1.

        self.carry = None
        if carry_channels is not None:
            self.carry = Carry(carry_channels, channels, self.num_heads, carry_stride, carry_bias, not share_carry_key,
                               norm_layer)
        self.query = ChannelConv(channels)
        self.key = ChannelConv(channels)
        self.value = depthwise_value(channels)
        self.head_mixing = HeadMixing(self.num_heads) if head_mixing else nn.Identity()
        self.build_output(channels, relu, drop_path, layer_scale_init, norm_layer)
        if temperature == 'fixed':
            self.register_buffer('log_temperature', torch.empty(self.num_heads))
        else:
            self.log_temperature = nn.Parameter(torch.empty(self.num_heads))
        # per head: slope and offset of the predicted shift
        self.shift = nn.Parameter(torch.empty(2, self.num_heads)) if temperature == 'dynamic' else None
        self.reset_own_parameters()

    @classmethod
    def build_stage(cls, channels: int, depth: int, carry_channels: int | None = None, carry_stride: int = 1,
                    carry_blocks: tuple[int, ...] = (), **options: Any) -> nn.ModuleList:
        """Build a stage's layers; see :meth:`LayerAttention.build_stage` and ``carry_blocks`` above."""
        if not isinstance(carry_blocks, (list, tuple)) or not all(isinstance(i, int) and i > 0 for i in carry_blocks):
            raise UserError(f'carry_blocks={carry_blocks!r}: a tuple of indices of blocks after a stage\'s first (0) '
                            'is wanted; the first carries by itself')
        carries = {i: dict(carry_channels=channels, carry_stride=1) for i in carry_blocks}
        if carry_channels is not None:
            carries[0] = dict(carry_channels=carry_channels, carry_stride=carry_stride)
        layers = nn.ModuleList(cls(channels, **carries.get(i, {}), **options) for i in range(depth))
        layers[0].opens_stage = True
        return layers

    @torch.no_grad()
    def reset_own_parameters(self) -> None:
        """The temperature sequence, no shift, the layer scale."""
        super().reset_own_parameters()
        first, last = (math.log(p) for p in self.temperature_range)
        self.log_temperature.copy_(torch.linspace(first, last, self.num_heads, dtype=torch.float64))
        if self.shift is not None:
            self.shift.zero_()

    def _heads(self, pooled: Tensor) -> Tensor:
        """Split ``(B, C)`` into ``(B, G, d)``."""
        return pooled.unflatten(1, (self.num_heads, self.head_channels))

    def _weight(self, key: Tensor, log_temperature: Tensor) -> Tensor:
        """ℓ = min(P·‖K‖, 10): ``(B, G, d) -> (B, G)``."""
        norm = torch.linalg.vector_norm(key, dim=-1) * self.norm_scale
        return (log_temperature.exp() * norm).clamp(max=MAX_SCORE)

    def attend(self, x: Tensor, state: State | None, shortcut: Tensor | None = None) -> tuple[Tensor, State]:
        """``state`` is ``(m, log z)`` with shapes ``(B, C, H, W)`` and ``(B, G)``, plus ΣK ``(B, C)`` if the gate's
        angle is to the accumulated key."""
        pooled = global_average(x)
        query, key = self._heads(self.query(pooled)), self._heads(self.key(pooled))
        log_temperature = self.log_temperature.to(key.dtype)

        if self.carry is not None and state is not None:
            mean, carried = self.carry(state[0], self.key)
            carried = self._heads(carried)
            state = (mean, self._weight(carried, log_temperature), carried.flatten(1))
        elif self.opens_stage:
            state = None

        accumulated = key
        if self.gate_key == 'accumulated' and state is not None:
            accumulated = key + self._heads(state[2])
        length = torch.linalg.vector_norm(accumulated, dim=-1, keepdim=True)
        score = (query * (accumulated / length.clamp(min=NORM_EPS))).sum(-1)
        gate = self.head_mixing(score).sigmoid()

        if self.shift is not None:
            slope, offset = self.shift.to(score.dtype)
            log_temperature = log_temperature + DYNAMIC_BOUND * torch.tanh(slope * score + offset)
        weight = self._weight(key, log_temperature)
        token = x if self.dynamic_value else self.value(x)
        if state is None:
            mean, log_z = token, weight
        else:
            mean, log_z = state[:2]
            log_z = torch.logaddexp(log_z, weight)
            # lerp rounds once in half precision, and keeps no x - mean for the backward pass
            share = per_channel((weight - log_z).exp(), self.head_channels, token.dtype)
            mean = torch.lerp(mean.to(token.dtype), token, share)

        # z/(z + 1e-3) is a number per head, f_V is linear and per channel: it joins the gate
        gate = gate * (log_z - LOG_OFFSET).sigmoid()
        value = self.value(mean) if self.dynamic_value else mean
        out = self.output(value * per_channel(gate, self.head_channels, value.dtype))
        state = (mean, log_z) if self.gate_key == 'current' else (mean, log_z, accumulated.flatten(1))
        return out, state

    def extra_repr(self) -> str:
        return f'{self.channels}, head_channels={self.head_channels}, temperature={self.temperature!r}'


class Carry(nn.Module):
    """Bring the mean of the previous stage to this stage's channels and size (KCLA, Algorithm 1).

    A 1×1 convolution with the stage's stride, in as many groups as the stage has heads (only where channels or size
    change), a BN, and the key of the result.

    Args:
        in_channels: channels of the previous stage.
        out_channels: channels of this one.
        num_heads: heads of this one.
        stride: its true stride.
        bias: bias of the convolution.
        own_key: have a key convolution of its own.
        norm_layer: builds the normalisation of a number of channels.
    """

    def __init__(self, in_channels: int, out_channels: int, num_heads: int, stride: int, bias: bool, own_key: bool,
                 norm_layer: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv = nn.Identity()
        if in_channels != out_channels or stride != 1:
            if in_channels % num_heads:
                raise UserError(f'{in_channels} channels of the previous stage cannot be carried in {num_heads} '
                                'groups, one per head; choose another head_channels')
            self.conv = nn.Conv2d(in_channels, out_channels, 1, stride=stride, groups=num_heads, bias=bias)
        self.norm = norm_layer(out_channels)
        self.key = ChannelConv(out_channels) if own_key else None

    def forward(self, mean: Tensor, shared_key: ChannelConv) -> tuple[Tensor, Tensor]:
        """``(B, C', H', W') -> (B, C, H, W)`` and its key ``(B, C)``."""
        mean = self.norm(self.conv(mean))
        key = shared_key if self.key is None else self.key
        return mean, key(global_average(mean))


def _one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise UserError(f'{name}={value!r} is unknown; choose one of: {", ".join(known)}')
    return value


def _positive_range(temperature_range: tuple[float, float]) -> tuple[float, float]:
    if not (isinstance(temperature_range, (list, tuple)) and len(temperature_range) == 2
            and all(isinstance(p, (int, float)) and 0 < p < math.inf for p in temperature_range)):
        raise UserError(f'temperature_range={temperature_range!r} must be two positive numbers')
    return tuple(temperature_range)
