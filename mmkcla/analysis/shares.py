"""What a key is, and what an earlier layer's share is, in each method: the one place that knows.

Everything is recomputed from the layers' own modules and from what they were given; see :mod:`.record`. Layers of a
stage are numbered from 1 to its depth; token 0 is what KCLA carries over from earlier layers as one.
"""
from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import UserError
from ..layers import KCLA, DLABase, DLALight, LayerAttention, LinearLayerAttention, MRLABase, MRLALight
from ..layers.common import global_average
from ..layers.kcla import DYNAMIC_BOUND, MAX_SCORE, NORM_EPS
from ..layers.softmax import SoftmaxLayerAttention, layer_shares
from .record import Call, Stage

CARRY = 0


@dataclass
class Shares:
    """How much each token enters the output of a layer.

    ``tokens``: T numbers of layers, :data:`CARRY` for what was carried over. ``weights``: ``(T, B, N)``, where N are
    the G heads, or the C channels of methods whose weights are per channel (MRLA-light, DLA-L). ``with_norm``: the
    same with the factor of the batch norms on the way, for the methods that have any, else None.
    """

    tokens: list[int]
    weights: Tensor
    with_norm: Tensor | None = None


def heads(projected: Tensor, layer: LayerAttention) -> Tensor:
    """``(…, C)`` in heads: ``(…, G, d)``."""
    return projected.unflatten(-1, (-1, layer.head_channels))


def own_key(call: Call) -> Tensor:
    """K_i = c1d(p_i; b_i), of the layer's own map: ``(B, C)``."""
    return call.layer.key(global_average(call.x))


# -- keys ------------------------------------------------------------------------------------------------------------

@singledispatch
def keys(layer: LayerAttention, stage: Stage) -> Tensor:
    """The keys of a stage's layers as its last layer finds them, in heads: ``(D, B, G, d)``.

    ``layer`` is that last layer; its class decides. The standard layer attention projects every map with the last
    layer's c1d; DLA-B refreshes the cached keys (both as they stand at the last layer); elsewhere each layer keeps the
    key it projected itself. Linear layer attention: before φ, which makes everything positive. MRLA-light and DLA-L
    never compare the keys of two layers; theirs are those of the gates.

    Raises:
        UserError: for a method without keys of layers.
    """
    raise UserError(f'{type(layer).__name__} has no key of a layer: it looks at its own map alone')


@keys.register(KCLA)
@keys.register(LinearLayerAttention)
@keys.register(MRLALight)
def _(layer: LayerAttention, stage: Stage) -> Tensor:
    return heads(torch.stack([own_key(call) for call in stage.calls]), layer)


@keys.register
def _(layer: SoftmaxLayerAttention, stage: Stage) -> Tensor:
    return heads(torch.stack([layer.key(pooled) for pooled in stage.calls[-1].new_state[1::2]]), layer)


@keys.register
def _(layer: MRLABase, stage: Stage) -> Tensor:
    return heads(torch.stack(_cache(stage.calls[-1])[::2]), layer)


def _cache(call: Call) -> tuple[Tensor, ...]:
    """Keys and values by turns; DLA-B's state has two more tensors before them."""
    return call.new_state[2:] if isinstance(call.layer, DLABase) else call.new_state


# -- shares ----------------------------------------------------------------------------------------------------------

@singledispatch
def shares(layer: LayerAttention, stage: Stage, position: int) -> Shares:
    r"""The shares in the output of the stage's layer ``position`` (from 0; ``layer`` is that layer).

    * KCLA: the softmax over layers, A_t = Σ share_i X_i (up to the factor z/(z + 1e-3), which the gate takes). From
      the recorded log z: α_t = 1 − exp(log z_{t−1} − log z_t), share_i = α_i Π_{j>i} (1 − α_j). The carry is one
      token; a carry inside a stage (``carry_blocks``) makes one token of all layers before it.
    * standard, MRLA-base: the softmax over layers. DLA-B: the same, over the values as refreshed up to this layer.
    * linear: φ(Q)·φ(K_i) over the sum of these.
    * MRLA-light: Π_{j=i+1..t} λ_j per channel, 1 for the layer itself: the decay β of the papers, with which O_i comes
      down the shortcuts S_j = X_{j−1} + BN(O_{j−1}) as if BN were not there. It has a sign and does not sum to 1. The
      gate of O_i's own term is not in it. ``with_norm`` multiplies each step by the factor γ/√(σ² + ε) of that BN (in
      evaluation), and by a layer scale: exactly ∂O_t/∂O_i with the trunk's residual branches held still.
    * DLA-L: in place of λ_j, λ_j (u_j + Σ e): what the refreshed shortcut S ⊙ u + e(S) makes of a shift that is
      constant over the map, u held still, away from borders; per sample and channel.

    Raises:
        UserError: for a method without shares of layers.
    """
    raise UserError(f'{type(layer).__name__} gives earlier layers no share: it looks at its own map alone')


@shares.register
def _(layer: KCLA, stage: Stage, position: int) -> Shares:
    start = max(i for i in range(position + 1) if i == 0 or stage.calls[i].layer.carry is not None)
    tokens, weights = [], []
    for i in range(start, position + 1):
        call = stage.calls[i]
        log_z = call.new_state[1]
        if call.layer.carry is not None and call.state is not None:
            before = carried_weight(call)
            tokens, weights = [CARRY], [torch.ones_like(log_z)]
        elif i == start:
            before = torch.full_like(log_z, -torch.inf)
        else:
            before = stage.calls[i - 1].new_state[1]
        own = -torch.expm1(before - log_z)
        weights = [weight * (before - log_z).exp() for weight in weights] + [own]
        tokens.append(i + 1)
    return Shares(tokens, torch.stack(weights))


def carried_weight(call: Call) -> Tensor:
    """ℓ = min(P·‖K_u‖, 10) of a KCLA layer's carry, ``(B, G)``."""
    layer = call.layer
    _, key = layer.carry(call.state[0], layer.key)
    norm = torch.linalg.vector_norm(heads(key, layer), dim=-1) * layer.norm_scale
    return (layer.log_temperature.to(key.dtype).exp() * norm).clamp(max=MAX_SCORE)


@shares.register
def _(layer: SoftmaxLayerAttention, stage: Stage, position: int) -> Shares:
    pooled = stage.calls[position].new_state[1::2]
    weights = layer_shares(layer.query(pooled[-1]), [layer.key(vector) for vector in pooled], layer.head_channels)
    return Shares(list(range(1, position + 2)), weights)


@shares.register
def _(layer: MRLABase, stage: Stage, position: int) -> Shares:
    call = stage.calls[position]
    weights = layer_shares(layer.query(global_average(call.x)), list(_cache(call)[::2]), layer.head_channels)
    return Shares(list(range(1, position + 2)), weights)


@shares.register
def _(layer: LinearLayerAttention, stage: Stage, position: int) -> Shares:
    calls = stage.calls[:position + 1]
    query = F.elu(heads(layer.query(global_average(calls[-1].x)), layer)) + 1
    features = F.elu(heads(torch.stack([own_key(call) for call in calls]), layer)) + 1
    products = (query * features).sum(-1)
    return Shares(list(range(1, position + 2)), products / products.sum(0))


@shares.register
def _(layer: MRLALight, stage: Stage, position: int) -> Shares:
    ones = stage.calls[position].x.new_ones(stage.calls[position].x.shape[:2])
    weights, with_norm = [ones], [ones]
    for i in range(position, 0, -1):  # from this layer back
        factor = _past_factor(stage.calls[i])
        weights.insert(0, weights[0] * factor)
        with_norm.insert(0, with_norm[0] * factor * _output_factor(stage.calls[i - 1].layer))
    return Shares(list(range(1, position + 2)), torch.stack(weights), torch.stack(with_norm))


def _past_factor(call: Call) -> Tensor:
    """What a layer's term of the past makes of its shortcut, per channel: ``(C,)`` or ``(B, C)``."""
    layer = call.layer
    if not isinstance(layer, DLALight):
        return layer.past
    owner = layer.owner[0]
    fresh, _ = owner.unit(global_average(call.shortcut), *call.new_state)
    return layer.past * (fresh + owner.excite.weight.sum((1, 2, 3)))


def _output_factor(layer: LayerAttention) -> Tensor:
    """∂retrieved/∂O of MRLA-light in evaluation, per channel.

    Raises:
        UserError: for a norm without running statistics, whose factor depends on the map.
    """
    norm = layer.norm
    if getattr(norm, 'running_var', None) is None:
        raise UserError(f'the decay of {type(layer).__name__} is told for batch norms with running statistics, and '
                        f'this one has a {type(norm).__name__}')
    factor = (norm.running_var + norm.eps).rsqrt()
    if norm.weight is not None:
        factor = factor * norm.weight
    return factor if layer.layer_scale is None else factor * layer.layer_scale


# -- gates and temperatures ------------------------------------------------------------------------------------------

def gate(call: Call) -> Tensor | None:
    """The gate per head, ``(B, G)`` in (0, 1), of the methods that have one: KCLA's γ (without the factor z/(z + 1e-3))
    and MRLA-light's and DLA-L's σ(⟨Q, K⟩/√d); None of others."""
    layer = call.layer
    if isinstance(layer, KCLA):
        return layer.head_mixing(_gate_score(call)).sigmoid()
    if isinstance(layer, MRLALight):
        query = layer.query(global_average(call.x))
        return (heads(query * own_key(call), layer).sum(-1) * layer.head_channels ** -0.5).sigmoid()
    return None


def _gate_score(call: Call) -> Tensor:
    """KCLA's ⟨Q, K⟩/‖K‖ per head, K the current or the accumulated key."""
    layer = call.layer
    query = heads(layer.query(global_average(call.x)), layer)
    key = heads(own_key(call) if layer.gate_key == 'current' else call.new_state[2], layer)
    length = torch.linalg.vector_norm(key, dim=-1, keepdim=True)
    return (query * (key / length.clamp(min=NORM_EPS))).sum(-1)


def temperature(call: Call) -> Tensor | None:
    """KCLA's P per head, ``(B, G)``; it differs between samples where it is dynamic. None of other methods."""
    layer = call.layer
    if not isinstance(layer, KCLA):
        return None
    log_temperature = layer.log_temperature.to(call.new_state[1].dtype)
    if layer.shift is not None:
        slope, offset = layer.shift
        log_temperature = log_temperature + DYNAMIC_BOUND * torch.tanh(slope * _gate_score(call) + offset)
    return log_temperature.exp().expand_as(call.new_state[1])
