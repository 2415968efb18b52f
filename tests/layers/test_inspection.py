"""Keys and shares, against what the layers themselves computed."""
import math

import pytest
import torch

from mmkcla.analysis.record import recording, split_stages
from mmkcla.errors import UserError
from mmkcla.layers import (
    KCLA,
    DLABase,
    DLALight,
    EfficientLayerAttention,
    LayerAttention,
    LinearLayerAttention,
    MRLABase,
    MRLALight,
    SoftmaxLayerAttention,
)
from mmkcla.layers.cache import Cache
from mmkcla.layers.common import global_average, per_channel
from mmkcla.layers.dla import DLABaseState
from mmkcla.layers.inspection import CARRY
from mmkcla.layers.kcla import KCLAState

DEPTH, CHANNELS, WIDTH = 4, 8, 4


def stages_of(*stages, batch=2, size=6):
    """Run chains of layers on random maps in float64 and evaluation; (the layers' stages, the modules)."""
    modules = torch.nn.ModuleList(stages).double().eval()
    for module in modules.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_var.uniform_(0.5, 2)
            module.running_mean.normal_()
            module.weight.data.uniform_(0.5, 2)
    with recording(modules) as calls, torch.no_grad():
        state, shortcut = None, None
        for stage in modules:
            channels = stage[0].value.in_channels
            shortcut = torch.randn(batch, channels, size, size, dtype=torch.float64)
            for layer in stage:
                x = torch.randn(batch, channels, size, size, dtype=torch.float64)
                retrieved, state = layer(x, state, shortcut)
                shortcut = x + retrieved
            size = math.ceil(size / 2)
    return split_stages(calls)


def build(method, **options):
    return method.build_stage(CHANNELS, DEPTH, head_channels=WIDTH, drop_path=0., **options)


def weighted(stage, position, values):
    """Σ share_i · value_i."""
    found = stage.shares(position)
    assert found.tokens == list(range(1, position + 2))
    return sum(value * per_channel(weight, WIDTH, torch.float64)
               for value, weight in zip(values, found.weights, strict=True))


def output_of(call, mixed):
    return call.layer.output(mixed)


def test_recording_leaves_no_hooks_and_splits_stages() -> None:
    first, second = build(KCLA), KCLA.build_stage(16, 2, carry_channels=CHANNELS, carry_stride=2, head_channels=WIDTH)
    stages = stages_of(first, second)
    assert [stage.depth for stage in stages] == [4, 2] and [stage.number for stage in stages] == [1, 2]
    assert stages[0].calls[0].state is None and stages[1].calls[0].state is stages[0].calls[-1].new_state
    assert [call.name for call in stages[1].calls] == ['1.0', '1.1']
    assert not any(layer._forward_hooks for layer in (*first, *second))


@torch.no_grad()
@pytest.mark.parametrize('options', [{}, dict(temperature='dynamic'), dict(dynamic_value=False),
                                     dict(gate_key='accumulated', scale_by_width=True)])
def test_kcla_shares_make_the_mean(options) -> None:
    layers = build(KCLA, **options)
    if options.get('temperature'):
        for layer in layers:
            layer.shift.data.normal_()
    stage, = stages_of(layers)
    maps = [call.x if call.layer.dynamic_value else call.layer.value(call.x) for call in stage.calls]
    for position, call in enumerate(stage.calls):
        torch.testing.assert_close(weighted(stage, position, maps[:position + 1]), KCLAState(*call.new_state).mean)


@torch.no_grad()
def test_kcla_shares_are_the_softmax_of_key_lengths() -> None:
    stage, = stages_of(build(KCLA))
    lengths = stage.keys().norm(dim=-1)
    expected = torch.stack([length * call.layer.head_temperatures(call)
                            for length, call in zip(lengths, stage.calls, strict=True)])
    assert expected.max() < 10
    torch.testing.assert_close(stage.shares(3).weights, expected.softmax(0))


@torch.no_grad()
def test_kcla_carry_is_one_token() -> None:
    first = build(KCLA)
    second = KCLA.build_stage(16, 4, carry_channels=CHANNELS, carry_stride=2, carry_blocks=(2, ), head_channels=WIDTH)
    _, stage = stages_of(first, second)
    for position, (carrying, tokens) in enumerate([(0, [CARRY, 1]), (0, [CARRY, 1, 2]), (2, [CARRY, 3]),
                                                   (2, [CARRY, 3, 4])]):
        call = stage.calls[carrying]
        carried, _ = call.layer.carry(KCLAState(*call.state).mean, call.layer.key)
        found = stage.shares(position)
        assert found.tokens == tokens
        maps = [carried, *(stage.calls[token - 1].x for token in tokens[1:])]
        mean = sum(per_channel(weight, WIDTH, torch.float64) * x for x, weight in zip(maps, found.weights, strict=True))
        torch.testing.assert_close(mean, KCLAState(*stage.calls[position].new_state).mean)
        torch.testing.assert_close(found.weights.sum(0), torch.ones(2, 4, dtype=torch.float64))


@torch.no_grad()
@pytest.mark.parametrize('options', [{}, dict(gate_key='accumulated'), dict(head_mixing=False),
                                     dict(temperature='dynamic')])
def test_kcla_gate_makes_the_output(options) -> None:
    layers = build(KCLA, **options)
    if options.get('temperature'):
        for layer in layers:
            layer.shift.data.normal_()
    stage, = stages_of(layers)
    for call in stage.calls:
        mean, z, _ = KCLAState(*call.new_state)
        value = call.layer.value(mean * per_channel(z / (z + 1e-3), WIDTH, torch.float64))
        gates = per_channel(call.layer.head_gates(call), WIDTH, torch.float64)
        torch.testing.assert_close(output_of(call, value * gates), call.retrieved)
    if options.get('temperature'):  # the first layer's log z is its own P·‖K‖
        call = stage.calls[0]
        length = stage.keys()[0].norm(dim=-1)
        torch.testing.assert_close(KCLAState(*call.new_state).z.log(), call.layer.head_temperatures(call) * length)


@torch.no_grad()
@pytest.mark.parametrize('literal', [False, True])
def test_softmax_shares_make_the_output(literal) -> None:
    stage, = stages_of(build(SoftmaxLayerAttention, literal=literal))
    for position, call in enumerate(stage.calls):
        mixed = weighted(stage, position, [earlier.x for earlier in stage.calls[:position + 1]])
        torch.testing.assert_close(output_of(call, call.layer.value(mixed)), call.retrieved)
    last = stage.calls[-1].layer
    expected = torch.stack([last.key(global_average(call.x)) for call in stage.calls]).unflatten(-1, (2, WIDTH))
    torch.testing.assert_close(stage.keys(), expected)


@torch.no_grad()
@pytest.mark.parametrize('method', [MRLABase, DLABase])
def test_mrla_base_shares_make_the_output(method) -> None:
    stage, = stages_of(build(method, **({'reduction': 2} if method is DLABase else {})))
    for position, call in enumerate(stage.calls):
        cache = DLABaseState.unpack(call.new_state).cache if method is DLABase else Cache.unpack(call.new_state)
        torch.testing.assert_close(output_of(call, weighted(stage, position, cache.maps)), call.retrieved)
    found = stage.keys().flatten(-2)
    own = torch.stack([call.layer.key(global_average(call.x)) for call in stage.calls])
    assert torch.equal(found[-1], own[-1])
    assert torch.equal(found, own) == (method is MRLABase)  # DLA-B has refreshed the earlier ones


@torch.no_grad()
def test_linear_shares_make_the_output() -> None:
    stage, = stages_of(build(LinearLayerAttention))
    for position, call in enumerate(stage.calls):
        values = [earlier.layer.value(earlier.x) for earlier in stage.calls[:position + 1]]
        torch.testing.assert_close(output_of(call, weighted(stage, position, values)), call.retrieved)


def test_mrla_light_decay_is_the_jacobian_down_the_shortcuts() -> None:
    stage, = stages_of(build(MRLALight, layer_scale_init=0.5), batch=1)
    layers, maps = [call.layer for call in stage.calls], [call.x for call in stage.calls]
    found = stage.shares(3)
    assert found.tokens == [1, 2, 3, 4] and torch.equal(found.weights[3], torch.ones(1, 8))
    torch.testing.assert_close(found.weights[0, 0], layers[1].past * layers[2].past * layers[3].past)
    shift = torch.zeros(3, CHANNELS, 1, 1, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda shift: _last_output(layers, maps, stage, shift), shift)
    for i in range(3):
        torch.testing.assert_close(jacobian[:, i, :, 0, 0], torch.diag(found.with_norm[i, 0]))


def test_dla_light_decay_is_the_jacobian_of_a_constant_shift() -> None:
    stage, = stages_of(build(DLALight, reduction=2), batch=1, size=12)
    layers, maps = [call.layer for call in stage.calls], [call.x for call in stage.calls]
    found = stage.shares(3)
    fresh = [layer.sharing.unit(global_average(call.shortcut), *call.new_state)[0][:, :, None, None]
             for layer, call in zip(layers, stage.calls, strict=True)]
    shift = torch.zeros(3, CHANNELS, 1, 1, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(
        lambda shift: _last_output(layers, maps, stage, shift, fresh), shift)
    for i in range(3):
        torch.testing.assert_close(jacobian[:, i, :, 0, 0], torch.diag(found.with_norm[i, 0]))


def _last_output(layers, maps, stage, shift, fresh=None):
    """O of the last layer at an inner pixel, O_i moved by ``shift[i]``; the blocks' outputs stay as they are."""
    past = stage.calls[0].shortcut
    for i, (layer, x) in enumerate(zip(layers, maps, strict=True)):
        refreshed = past if fresh is None else past * fresh[i] + layer.sharing.excite(past)
        product = (layer.query(global_average(x)) * layer.key(global_average(x))).unflatten(1, (2, WIDTH)).sum(-1)
        weight = per_channel((product / math.sqrt(WIDTH)).sigmoid(), WIDTH, x.dtype)
        out = weight * layer.value(x) + refreshed * layer.past[:, None, None]
        if i == len(layers) - 1:
            return out[0, :, 6 if fresh is not None else 2, 5 if fresh is not None else 2]
        torch.testing.assert_close(layer.output(out), stage.calls[i].retrieved)  # with shift 0 it is the layer
        past = x + layer.output(out + shift[i])
    raise AssertionError


@torch.no_grad()
def test_gates_of_mrla_light() -> None:
    stage, = stages_of(build(MRLALight))
    call = stage.calls[1]
    value = call.layer.value(call.x) * per_channel(call.layer.head_gates(call), WIDTH, torch.float64)
    past = call.shortcut * call.layer.past[:, None, None]
    torch.testing.assert_close(output_of(call, value + past), call.retrieved)
    assert call.layer.head_temperatures(call) is None and call.layer.head_mixing_matrix() is None
    call, *_ = stages_of(build(MRLABase))[0].calls
    assert call.layer.head_gates(call) is None


def test_head_mixing_matrix() -> None:
    mixing, plain = KCLA(8, head_channels=4), KCLA(8, head_channels=4, head_mixing=False)
    assert mixing.head_mixing_matrix() is mixing.head_mixing.weight and plain.head_mixing_matrix() is None


def stage_of(layers):
    with recording(layers) as calls:
        layers[0](torch.randn(1, 8, 4, 4), None, None)
    return split_stages(calls)[0]


def test_methods_without_the_notion() -> None:
    stage = stage_of(EfficientLayerAttention.build_stage(8, 1))
    with pytest.raises(UserError, match='EfficientLayerAttention has no key of a layer: it looks at its own map alone'):
        stage.keys()
    with pytest.raises(UserError, match='EfficientLayerAttention gives earlier layers no share: it looks at its own'):
        stage.shares(0)
    norm = MRLALight.build_stage(8, 2, head_channels=4, norm_layer=lambda channels: torch.nn.GroupNorm(2, channels))
    with pytest.raises(UserError, match='batch norms with running statistics, but its norm is a GroupNorm'):
        stages_of(norm)[0].shares(1)


def test_methods_that_do_not_say() -> None:
    class _Silent(LayerAttention):
        def __init__(self, channels, **options):
            super().__init__(**options)

        def attend(self, x, state, shortcut):
            return x, ()

    stage = stage_of(_Silent.build_stage(8, 1))
    with pytest.raises(UserError, match=r'^_Silent does not define stage_keys\(calls\), which this analysis calls; '
                                        r'add it to .*test_inspection.*_Silent as docs/own-layer-attention.md shows$'):
        stage.keys()
    with pytest.raises(UserError, match=r'_Silent does not define layer_shares\(calls, position\)'):
        stage.shares(0)
    call, = stage.calls
    assert call.layer.head_gates(call) is call.layer.head_temperatures(call) is call.layer.head_mixing_matrix() is None
