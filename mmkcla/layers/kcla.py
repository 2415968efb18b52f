"""Key-Correlated Layer Attention (KCLA), arXiv 2606.28405."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torchvision.ops import StochasticDepth

from ..errors import UserError
from .base import LayerAttention, State
from .common import (
    ChannelAffine,
    ChannelConv,
    HeadMixing,
    Preferred,
    depthwise_value,
    global_average,
    in_type_of,
    per_channel,
    runs_eagerly,
    score_dtype,
    split_heads,
)
from .inspection import CARRY, Call, Shares, own_keys
from .kcla_fused import Constants, Parts, fits, run

TEMPERATURE_MODES = ('fixed', 'learnable', 'dynamic')
GATE_KEYS = ('current', 'accumulated')
MAX_SCORE = 10.  # P·‖K‖ is cut off here, so that no weight exceeds e^10
OFFSET = 1e-3  # the paper's code divides by z + 1e-3
NORM_EPS = 1e-6  # below it a key counts as zero: its direction is cut to zero, the gate is σ(0)
DYNAMIC_BOUND = math.log(2.)  # a dynamic temperature stays within half and twice its base


class KCLAState(NamedTuple):
    """The running mean m ``(B, C, H, W)``, z ``(B, G)``, and ΣK ``(B, C)`` if the gate's angle is to it."""

    mean: Tensor
    z: Tensor
    key_sum: Tensor | None = None

    def pack(self) -> State:
        """A flat tuple of the tensors that are not None."""
        return tuple(entry for entry in self if entry is not None)

    @classmethod
    def unpack(cls, state: State) -> KCLAState:
        """The inverse of :meth:`pack`."""
        return cls(*state)


class KCLA(LayerAttention):
    r"""Key-Correlated Layer Attention: a running softmax-weighted mean over layers, gated per head by the query.

    With p the global average of x, Q = c1d(p; a), K = c1d(p; b) split into G heads, P_g the temperatures::

        w = exp(min(P·‖K‖, 10))               z ← z + w                             α = w/z
        m ← m + α (x − m)                     A = m · z/(z + 1e-3)
        γ = σ(Φ ⟨Q, K⟩/‖K‖)                   retrieved = DropPath(ReLU(BN(γ · f_V(A))))

    so that A is, per head, the softmax over all layers so far of min(P·‖K_i‖, 10) applied to their maps. The weights
    over layers depend on the keys alone; the query gates the heads; keys are static, and "dynamic in V" means that the
    current layer's f_V acts on the whole mean. The live state is one map and G numbers per sample, whatever the depth.
    Scores, exponents and z are float32 under autocast; an all-zero map gives a finite result with gate σ(0).

    At the first layer of a stage the previous stage's mean is carried over (the paper's Algorithm 1) and becomes one
    token; odd sizes work where both sides round up. See :class:`Carry`.

    Args:
        channels: C of the maps.
        head_channels: channels d of a head: 64 for ImageNet and detection, 16 for CIFAR and medical segmentation. If it
            is not set and 64 does not divide the channels: the nearest divisor.
        carry_channels: channels of the previous stage; None: there is none, and no carry is built.
        carry_stride: the stage's true stride (1 in a dilated stage).
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
        carry_blocks: given to :meth:`build_stage`: indices ≥ 1 of blocks (within every stage deep enough) at which the
            stage's own mean so far is carried, i.e. normalised and made one token again (11 in the reference R101).
        carry_bias: bias of the carry's convolution.
        share_carry_key: the carry takes this layer's key convolution instead of its own.
        fused: compute the layer with :mod:`.kcla_fused` wherever it can (the default options, BN, eager), which needs
            less time and memory and whose gradients cannot be differentiated again; off: always in the plain form.
        options: of :class:`LayerAttention`.

    Raises:
        UserError: for channels that head_channels does not divide, and unknown modes.
    """

    cifar_options = dict(head_channels=Preferred(16))
    not_recorded = frozenset({'temperature_range', 'fused'})  # the start of weights; the same function

    def __init__(self, channels: int, head_channels: int = Preferred(64), carry_channels: int | None = None,
                 carry_stride: int = 2, temperature: str = 'fixed',
                 temperature_range: tuple[float, float] = (0.7, 1 / 0.7),
                 dynamic_value: bool = True, head_mixing: bool = True, relu: bool = True, gate_key: str = 'current',
                 scale_by_width: bool = False, carry_bias: bool = False, share_carry_key: bool = False,
                 fused: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.channels = channels
        self.num_heads = split_heads(channels, head_channels, carry_channels)
        self.head_channels = channels // self.num_heads
        self.temperature = _one_of('temperature', temperature, TEMPERATURE_MODES)
        self.temperature_range = _positive_range(temperature_range)
        self.dynamic_value = dynamic_value
        self.fused = fused
        self.gate_key = _one_of('gate_key', gate_key, GATE_KEYS)
        self.norm_scale = self.head_channels ** -0.5 if scale_by_width else 1.

        self.carry: Carry | None = None
        if carry_channels is not None:
            self.carry = Carry(carry_channels, channels, self.num_heads, carry_stride, carry_bias, not share_carry_key,
                               self.norm_layer)
        self.query = ChannelConv(channels)
        self.key = ChannelConv(channels)
        self.value = depthwise_value(channels)
        self.head_mixing = HeadMixing(self.num_heads) if head_mixing else nn.Identity()
        self.build_output(channels, relu)
        if temperature == 'fixed':
            self.register_buffer('log_temperature', torch.empty(self.num_heads))
        else:
            self.log_temperature = nn.Parameter(torch.empty(self.num_heads))
        self._known_temperatures: tuple[Tensor, int, torch.dtype, Tensor] | None = None
        # per head: slope and offset of the predicted shift
        self.shift = nn.Parameter(torch.empty(2, self.num_heads)) if temperature == 'dynamic' else None
        self.reset_own_parameters()

    @classmethod
    def build_stage(cls, channels: int, depth: int, carry_channels: int | None = None, carry_stride: int = 1,
                    carry_blocks: tuple[int, ...] = (), **options: Any) -> nn.ModuleList:
        """Build a stage's layers; see :meth:`LayerAttention.build_stage` and ``carry_blocks`` above."""
        if not isinstance(carry_blocks, (list, tuple)) or not all(isinstance(i, int) and i > 0 for i in carry_blocks):
            raise UserError(f'carry_blocks={carry_blocks!r} must be a tuple of block indices of at least 1; the first '
                            'block of a stage (0) needs no entry')
        carries: dict[int, dict[str, Any]] = {i: dict(carry_channels=channels, carry_stride=1) for i in carry_blocks}
        if carry_channels is not None:
            carries[0] = dict(carry_channels=carry_channels, carry_stride=carry_stride)
        head_channels = options.setdefault('head_channels', cls.options()['head_channels'])
        if isinstance(head_channels, Preferred):  # one width for the stage: its first layer must fit the carry, too
            options['head_channels'] = channels // split_heads(channels, head_channels, carry_channels)
        layers = [cls(channels, **carries.get(i, {}), **options) for i in range(depth)]
        layers[0].opens_stage = True
        return nn.ModuleList(layers)

    @torch.no_grad()
    def reset_own_parameters(self) -> None:
        """The temperature sequence, no shift, the layer scale."""
        super().reset_own_parameters()
        first, last = (math.log(p) for p in self.temperature_range)
        self.log_temperature.copy_(torch.linspace(first, last, self.num_heads, dtype=torch.float64))
        if self.shift is not None:
            self.shift.zero_()

    def folded_norm(self, scale: Tensor, shift: Tensor) -> nn.Module:
        """f_V takes the scale where it comes right before."""
        if not self.dynamic_value:
            return super().folded_norm(scale, shift)
        self.value.weight.mul_(scale[:, None, None, None])
        return ChannelAffine(None, shift)

    def _heads(self, pooled: Tensor) -> Tensor:
        """Split ``(B, C)`` into ``(B, G, d)``."""
        return pooled.unflatten(1, (self.num_heads, self.head_channels))

    def _temperatures(self, score: Tensor) -> Tensor:
        """P of each head, ``(G,)``, or ``(B, G)`` where it depends on ``score``, and in the type of that."""
        if self.shift is None:
            return self._base_temperatures(score)
        slope, offset = in_type_of(self.shift, score)
        shift = DYNAMIC_BOUND * torch.tanh(slope * score + offset)
        return (in_type_of(self.log_temperature, score) + shift).exp()

    def _base_temperatures(self, like: Tensor) -> Tensor:
        """P of each head before any shift, ``(G,)``, in the type of ``like``; if fixed, computed once."""
        log_temperature = in_type_of(self.log_temperature, like)
        held = self.log_temperature
        if self.temperature != 'fixed' or not runs_eagerly(like) or held.is_inference():
            return log_temperature.exp()
        known = self._known_temperatures  # one look: threads may share the layer
        if known is None or known[0] is not held or known[1:3] != (held._version, like.dtype):
            with torch.inference_mode(False):
                known = self._known_temperatures = held, held._version, like.dtype, log_temperature.exp()
        return known[3]

    def _weight(self, key: Tensor, temperature: Tensor) -> Tensor:
        """w = exp(min(P·‖K‖, 10)): ``(B, G, d) -> (B, G)``."""
        norm = torch.linalg.vector_norm(key, dim=-1)
        if self.norm_scale != 1:
            norm = norm * self.norm_scale
        return (temperature * norm).clamp(max=MAX_SCORE).exp()

    def _score(self, query: Tensor, key: Tensor) -> Tensor:
        """⟨Q, K⟩/‖K‖: ``(B, G, d)`` to ``(B, G)``."""
        length = torch.linalg.vector_norm(key, dim=-1, keepdim=True)
        return (query * (key / length.clamp(min=NORM_EPS))).sum(-1)

    def _carried(self, carry: Carry, before: KCLAState) -> KCLAState:
        """Carry the mean of the previous stage as the first token of this stage."""
        mean, key = carry(before.mean, self.key)
        key = self._heads(key)
        return KCLAState(mean, self._weight(key, self._base_temperatures(key)), key.flatten(1))

    def attend(self, x: Tensor, state: State | None, shortcut: Tensor | None = None) -> tuple[Tensor, State]:
        """``state`` is a :class:`KCLAState`, packed."""
        before = None if state is None else KCLAState.unpack(state)
        if self.carry is not None and before is not None:
            before = self._carried(self.carry, before)
        elif self.opens_stage:
            before = None
        return self._attend_fused(x, before) if self._runs_fused(x) else self._attend_plain(x, before)

    def _runs_fused(self, x: Tensor) -> bool:
        """Whether :mod:`.kcla_fused` has this form and may run here."""
        norm, drop_path = self.norm, self.drop_path
        return (self.fused and self.dynamic_value and self.shift is None and self.gate_key == 'current'
                and type(self.relu) is nn.ReLU and type(self.value) is nn.Conv2d
                and (type(norm) is nn.BatchNorm2d and norm.affine and norm.track_running_stats
                     and norm.momentum is not None or type(norm) is ChannelAffine)
                and type(drop_path) in (nn.Identity, StochasticDepth)
                and fits(x, (self.query, self.key, self.value, self.head_mixing, norm, self.relu, drop_path)))

    def _attend_fused(self, x: Tensor, before: KCLAState | None) -> tuple[Tensor, State]:
        norm: Any = self.norm
        deployed = isinstance(norm, ChannelAffine)
        if norm.training and not deployed and norm.num_batches_tracked is not None:
            norm.num_batches_tracked.add_(1)
        keep = None
        if self.training and isinstance(self.drop_path, StochasticDepth):
            keep = x.new_empty(len(x)).bernoulli_(1 - self.drop_path.p).div_(1 - self.drop_path.p)
        mixing = self.head_mixing.weight if isinstance(self.head_mixing, HeadMixing) else None
        temperatures = self._base_temperatures(x.new_empty(0, dtype=score_dtype(x)))
        of_norm: Any = ((None, norm.shift, None, None) if deployed else
                        (norm.weight, norm.bias, norm.running_mean, norm.running_var))
        parts = Parts._make((self.query.weight, self.key.weight, temperatures, mixing, self.value.weight, *of_norm,
                             keep, self.layer_scale))
        numbers = Constants(self.head_channels, self.norm_scale, MAX_SCORE, OFFSET, NORM_EPS,
                            *((False, None, 0.) if deployed else (norm.training, norm.momentum, norm.eps)))
        out, mean, z = run(x, before and before.mean, before and before.z, parts, numbers)
        return out, KCLAState(mean, z).pack()

    def _attend_plain(self, x: Tensor, before: KCLAState | None) -> tuple[Tensor, State]:
        pooled = global_average(x)
        query, key = self._heads(self.query(pooled)), self._heads(self.key(pooled))
        accumulated = key
        if self.gate_key == 'accumulated' and before is not None:
            assert before.key_sum is not None  # kept for this gate
            accumulated = key + self._heads(before.key_sum)
        score = self._score(query, accumulated)
        gate = self.head_mixing(score).sigmoid()

        weight = self._weight(key, self._temperatures(score))
        token = x if self.dynamic_value else self.value(x)
        if before is None:
            mean, z = token, weight
        else:
            z = before.z + weight
            # lerp rounds once in half precision, and keeps no x - mean for the backward pass
            share = per_channel(weight / z, self.head_channels, token.dtype)
            mean = torch.lerp(before.mean.to(token.dtype), token, share)

        # z/(z + 1e-3) is a number per head, f_V is linear and per channel: it joins the gate
        gate = gate * (z / (z + OFFSET))
        value = self.value(mean) if self.dynamic_value else mean
        out = self.output(value * per_channel(gate, self.head_channels, value.dtype))
        key_sum = None if self.gate_key == 'current' else accumulated.flatten(1)
        return out, KCLAState(mean, z, key_sum).pack()

    def stage_keys(self, calls: Sequence[Call]) -> Tensor:
        """Each layer's own keys; see :meth:`LayerAttention.stage_keys`."""
        return own_keys(calls)

    def layer_shares(self, calls: Sequence[Call[KCLA]], position: int) -> Shares:
        """The softmax over layers: A_t = Σ share_i X_i (up to the factor z/(z + 1e-3), which the gate takes).

        From the recorded z: 1 − α_t = z_{t−1}/z_t, share_i = α_i Π_{j>i} (1 − α_j). The carry is one token; a carry
        inside a stage (``carry_blocks``) makes one token of all layers before it.
        """
        start = max(i for i in range(position + 1) if i == 0 or calls[i].layer.carry is not None)
        tokens, weights = [], []
        for i in range(start, position + 1):
            call = calls[i]
            z = KCLAState.unpack(call.new_state).z
            if (carry := call.layer.carry) is not None and call.state is not None:
                before = call.layer._carried(carry, KCLAState.unpack(call.state)).z
                tokens, weights = [CARRY], [torch.ones_like(z)]
            elif i == start:
                before = torch.zeros_like(z)
            else:
                before = KCLAState.unpack(calls[i - 1].new_state).z
            weights = [weight * (before / z) for weight in weights] + [(z - before) / z]
            tokens.append(i + 1)
        return Shares(tokens, torch.stack(weights))

    def _recorded_score(self, call: Call) -> Tensor:
        pooled = global_average(call.x)
        key = self.key(pooled) if self.gate_key == 'current' else KCLAState.unpack(call.new_state).key_sum
        assert key is not None
        return self._score(self._heads(self.query(pooled)), self._heads(key))

    def head_gates(self, call: Call) -> Tensor:
        """γ, ``(B, G)``, without the factor z/(z + 1e-3)."""
        return self.head_mixing(self._recorded_score(call)).sigmoid()

    def head_temperatures(self, call: Call) -> Tensor:
        """P, ``(B, G)``; it differs between samples only if dynamic."""
        score = self._recorded_score(call)
        return self._temperatures(score).expand_as(score)

    def head_mixing_matrix(self) -> Tensor | None:
        """Φ, ``(G, G)``; None if it is off."""
        return self.head_mixing.weight if isinstance(self.head_mixing, HeadMixing) else None

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
        self.conv: nn.Module = nn.Identity()
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
    first, last = temperature_range
    return first, last
