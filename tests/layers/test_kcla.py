"""KCLA against numbers of the reference code, against the formula written out, and in the places where it can break."""
import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mmkcla.errors import UserError
from mmkcla.layers import KCLA, LayerAttention, known_layer_attentions, layer_attention_class
from mmkcla.layers.kcla import KCLAState
from mmkcla.weights.convert import convert_reference

OPTIONS = [
    dict(),
    dict(dynamic_value=False),
    dict(temperature='learnable'),
    dict(temperature='dynamic'),
    dict(head_mixing=False),
    dict(relu=False),
    dict(gate_key='accumulated'),
    dict(scale_by_width=True),
    dict(layer_scale_init=0.5),
    dict(carry_bias=True, share_carry_key=True),
    dict(carry_blocks=(1,)),
    dict(temperature_range=(1 / 0.7, 0.7)),
]
ids = lambda options: ','.join(options) or 'default'  # noqa: E731


def two_stages(channels=(32, 64), depth=3, **options):
    options = dict(head_channels=16, drop_path=0., **options)
    return nn.ModuleList([*KCLA.build_stage(channels[0], depth, **options),
                          *KCLA.build_stage(channels[1], depth, channels[0], 2, **options)])


def randomise(module):
    """Statistics and weights away from their neutral starts."""
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if 'running_var' in name:
                tensor.uniform_(0.5, 1.5)
            elif 'running_mean' in name or name.endswith(('norm.weight', 'norm.bias', 'shift')):
                tensor.normal_()
    return module


def maps(batch=3, sizes=((9, 11), (5, 6)), channels=(32, 64), depth=3, dtype=torch.float32):
    return [torch.randn(batch, c, *size, dtype=dtype) for c, size in zip(channels, sizes, strict=True)
            for _ in range(depth)]


def run(layers, xs):
    state, outs = None, []
    for layer, x in zip(layers, xs, strict=True):
        out, state = layer(x, state)
        outs.append(out)
    return outs, state


# Reference numbers ------------------------------------------------------------------------------------------------

def golden_layers(data_dir):
    golden = np.load(data_dir / 'golden' / 'imagenet_kcla_layers.npz')
    layers = nn.ModuleList([*KCLA.build_stage(256, 3), *KCLA.build_stage(512, 2, 256, 2)]).double().eval()
    for i, layer in enumerate(layers):
        reference = {name.split('.', 1)[1]: torch.from_numpy(golden[name]) for name in golden.files
                     if name.startswith(f'state/{i}.')}
        layer.load_state_dict(convert_reference(reference, 'kcla-layer', carry='none' if i == 0 else 'stage'))
    return layers, {kind: [torch.from_numpy(golden[f'{kind}/{i}']).double() for i in range(5)]
                    for kind in ('x', 'out', 'history_mean', 'log_z')}


def close(ours, theirs, tolerance):
    return (ours.double() - theirs.double()).abs().max() <= tolerance * theirs.abs().max()


@pytest.mark.parametrize(('dtype', 'tolerance'), [(torch.float64, 1e-6), (torch.float32, 1e-4)])
@pytest.mark.parametrize('fused', [True, False])
@torch.no_grad()
def test_golden(data_dir, dtype, tolerance, fused):
    layers, golden = golden_layers(data_dir)
    layers.to(dtype)
    for layer in layers:
        layer.fused = fused
        assert layer._runs_fused(golden['x'][0].to(dtype)) == fused
    state = None
    for i, layer in enumerate(layers):
        out, state = layer(golden['x'][i].to(dtype), state)
        mean, z = state
        history = mean * (z / (z + 1e-3)).repeat_interleave(64, 1)[..., None, None]
        assert close(out, golden['out'][i], tolerance)
        assert close(history, golden['history_mean'][i], tolerance)
        assert close(z.log(), golden['log_z'][i], tolerance)


def test_golden_carry_of_first_layer_is_dead(data_dir):
    golden = np.load(data_dir / 'golden' / 'imagenet_kcla_layers.npz')
    reference = {name[len('state/0.'):]: torch.from_numpy(golden[name]) for name in golden.files
                 if name.startswith('state/0.')}
    assert not [name for name in convert_reference(reference, 'kcla-layer', carry='none') if name.startswith('carry')]
    kept = convert_reference(reference, 'kcla-layer', carry='block')
    assert 'carry.norm.weight' in kept and 'carry.conv.weight' not in kept
    torch.testing.assert_close(kept['log_temperature'].exp(), 1 / torch.from_numpy(reference['norm_d'].numpy()).double()
                               .flatten())


def test_convert_names_what_it_does_not_know():
    with pytest.raises(UserError, match=r"'foo.weight' is not an entry of a reference KCLA layer"):
        convert_reference({'foo.weight': torch.zeros(1)}, 'kcla-layer')
    with pytest.raises(UserError, match='unknown source .kcla.; available: '):
        convert_reference({}, 'kcla')
    with pytest.raises(UserError, match="carry='x' is unknown; choose one of: stage, block, none"):
        convert_reference({}, 'kcla-layer', carry='x')


# The formula ------------------------------------------------------------------------------------------------------

def written_out(layers, xs):
    """Sums U and z as in the paper's code, heads in a loop, one stage."""
    outs, total, weights = [], 0, 0
    for layer, x in zip(layers, xs, strict=True):
        width = layer.head_channels
        pooled = x.mean((2, 3))

        def conv(module, pooled=pooled):
            return nn.functional.conv1d(pooled[:, None], module.weight, padding=module.kernel_size // 2)[:, 0]

        query, key = conv(layer.query), conv(layer.key)
        weight, score = torch.zeros_like(x), []
        for g in range(layer.num_heads):
            head = slice(g * width, (g + 1) * width)
            norm = key[:, head].norm(dim=1)
            weight[:, head] = (layer.log_temperature[g].exp() * norm).clamp(max=10).exp()[:, None, None, None]
            score.append((query[:, head] * key[:, head]).sum(1) / norm)
        total, weights = total + weight * x, weights + weight
        gate = torch.sigmoid(torch.stack(score, 1) @ layer.head_mixing.weight.T)
        value = layer.value(total / (weights + 1e-3)) * gate.repeat_interleave(width, 1)[..., None, None]
        outs.append(layer.norm(value).relu())
    return outs


@settings(max_examples=15, deadline=None)
@given(depth=st.integers(1, 64), heads=st.integers(1, 4), scale=st.floats(0.01, 10.), seed=st.integers(0, 99))
def test_running_mean_is_the_softmax_over_layers(depth, heads, scale, seed):
    torch.manual_seed(seed)
    layers = randomise(KCLA.build_stage(8 * heads, depth, head_channels=8, drop_path=0.)).double().eval()
    xs = [torch.randn(2, 8 * heads, 3, 4, dtype=torch.float64) * scale + 0.3 for _ in range(depth)]
    with torch.no_grad():
        ours, (mean, _) = run(layers, xs)
        for out, reference in zip(ours, written_out(layers, xs), strict=True):
            assert close(out, reference, 1e-9)
        # and the mean itself, as an explicit softmax
        keys = torch.stack([layer.key(x.mean((2, 3))) for layer, x in zip(layers, xs, strict=True)])
        scores = (layers[0].log_temperature.exp() * keys.unflatten(-1, (heads, 8)).norm(dim=-1)).clamp(max=10)
        shares = scores.softmax(0).repeat_interleave(8, -1)[..., None, None]
        torch.testing.assert_close(mean, (shares * torch.stack(xs)).sum(0))


@settings(max_examples=10, deadline=None)
@given(order=st.permutations(range(4)))
def test_samples_do_not_see_each_other(order):
    torch.manual_seed(1)
    layers = randomise(two_stages()).double().eval()
    xs = maps(batch=4, dtype=torch.float64)
    with torch.no_grad():
        outs, _ = run(layers, xs)
        shuffled, _ = run(layers, [x[list(order)] for x in xs])
        alone, _ = run(layers, [x[:1] for x in xs])
    for out, other, first in zip(outs, shuffled, alone, strict=True):
        torch.testing.assert_close(out[list(order)], other)
        torch.testing.assert_close(out[:1], first)


def test_temperatures():
    assert KCLA(64, 64).log_temperature.exp().tolist() == pytest.approx([0.7])
    assert KCLA(256, 64).log_temperature.exp().tolist() == pytest.approx(
        [0.7, 0.7 ** (1 / 3), 0.7 ** (-1 / 3), 1 / 0.7])
    fixed, learnable, dynamic = (KCLA(64, 16, temperature=mode, fused=False)
                                 for mode in ('fixed', 'learnable', 'dynamic'))
    assert 'log_temperature' not in dict(fixed.named_parameters())
    assert 'log_temperature' in fixed.state_dict()
    learnable.load_state_dict(fixed.state_dict())
    assert dynamic.load_state_dict(fixed.state_dict(), strict=False).missing_keys == ['shift']
    xs = [torch.randn(2, 64, 5, 5) for _ in range(3)]
    for other in (learnable, dynamic):
        for ours, theirs in zip(run([fixed.eval()] * 3, xs)[0], run([other.eval()] * 3, xs)[0], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_dynamic_temperature_stays_within_its_bound():
    layer = KCLA(64, 16, temperature='dynamic').eval()
    with torch.no_grad():
        layer.shift.fill_(1e4)
    x = torch.randn(2, 64, 5, 5)
    pooled = x.mean((2, 3))
    norm = layer.key(pooled).unflatten(1, (4, 16)).norm(dim=-1)
    score = KCLAState(*layer(x)[1]).z.log() / norm / layer.log_temperature.exp()
    torch.testing.assert_close(torch.maximum(score, 1 / score), torch.full_like(score, 2.))


@pytest.mark.parametrize('channels', [32, 64, 128, 256, 512, 1024, 2048])
def test_parameter_count(channels):
    """9C + 2C + 2k + G² a layer; a carry adds C·(C/2)/G + 2C + k."""
    kernel = {32: 3, 64: 3, 2048: 7}.get(channels, 5)
    heads = channels // 16
    count = lambda module: sum(p.numel() for p in module.parameters())  # noqa: E731
    plain, carried = KCLA(channels, 16), KCLA(channels, 16, carry_channels=channels // 2)
    assert count(plain) == 11 * channels + 2 * kernel + heads ** 2
    assert count(carried) - count(plain) == channels * (channels // 2) // heads + 2 * channels + kernel


# Gradients --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('options', OPTIONS, ids=ids)
def test_every_parameter_learns(options):
    layers = two_stages(**options).train()
    xs = maps()
    outs, _ = run(layers, xs)
    sum((out * torch.randn_like(out)).sum() for out in outs).backward()
    for name, parameter in layers.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize('options', OPTIONS, ids=ids)
def test_gradcheck(options):
    layers = randomise(two_stages(channels=(16, 32), depth=2, **options)).double().eval()
    xs = [x.requires_grad_() for x in maps(1, ((3, 3), (2, 2)), (16, 32), 2, torch.float64)]
    assert torch.autograd.gradcheck(lambda *xs: sum(out.square().sum() for out in run(layers, xs)[0]), xs,
                                    fast_mode=True)


def test_zero_layer_scale_adds_nothing_then_learns():
    layers = two_stages(layer_scale_init=0.).train()
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    start = copy.deepcopy(layers.state_dict())
    for step in range(2):
        outs, _ = run(layers, maps())
        if step == 0:
            assert all((out == 0).all() for out in outs)
        optimizer.zero_grad()
        sum((out - torch.randn_like(out)).square().sum() for out in outs).backward()
        optimizer.step()
    for name, parameter in layers.named_parameters():
        assert not torch.equal(parameter, start[name]), name


# Where it can break -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize('options', OPTIONS, ids=ids)
def test_all_zero_map(options):
    layers = two_stages(**options)
    xs = [torch.zeros_like(x).requires_grad_() for x in maps()]
    outs, state = run(layers, xs)
    sum(out.sum() for out in outs).backward()
    assert all(out.isfinite().all() for out in [*outs, *state])
    assert all(x.grad.isfinite().all() for x in xs)
    assert all(p.grad.isfinite().all() for p in layers.parameters())


def test_zero_key_gates_at_one_half():
    layer = KCLA(32, 16, relu=False).eval()
    x = torch.randn(2, 32, 5, 5)
    with torch.no_grad():
        layer.key.weight.zero_()
        ours = layer(x)[0]
        # A = x/(1 + 1e-3), since exp(0) = 1; the BN is the identity at its start, but for its eps
        theirs = 0.5 * layer.value(x / 1.001) / math.sqrt(1 + layer.norm.eps)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
@pytest.mark.parametrize('scale', [1e-3, 1., 1e4])
@torch.no_grad()
def test_half_precision_maps(dtype, scale):
    """Under autocast: finite up to 1e4, and close to float32 on the same maps."""
    layers = two_stages(channels=(64, 128)).train()
    xs = [(x.abs() * scale / 4).to(dtype) for x in maps(channels=(64, 128))]
    exact, _ = run(copy.deepcopy(layers), [x.float() for x in xs])
    with torch.autocast('cpu', dtype):
        ours, state = run(layers, xs)
    assert state[1].dtype == torch.float32 and state[0].dtype == dtype
    for out, reference in zip(ours, exact, strict=True):
        assert out.isfinite().all()
        # bfloat16 rounds by 4e-3 each time; six layers and a carry add up
        error = (out.float() - reference).norm() / reference.norm()
        assert error <= (1e-2 if dtype == torch.float16 or out is ours[0] else 1.5e-2)
        assert close(out, reference, 1e-2 if dtype == torch.float16 else 2e-2)


def test_half_module():
    layers = two_stages().eval()
    with torch.no_grad():
        exact, _ = run(layers, xs := maps())
        ours, _ = run(layers.bfloat16(), [x.bfloat16() for x in xs])
    assert all(close(out, reference, 3e-2) for out, reference in zip(ours, exact, strict=True))


@pytest.mark.parametrize('options', [dict(), dict(temperature='dynamic', gate_key='accumulated')], ids=ids)
def test_compile_fullgraph(options):
    layers = randomise(two_stages(**options)).eval()
    compiled = torch.compile(lambda xs: run(layers, xs), fullgraph=True, backend='aot_eager')
    with torch.no_grad():
        for ours, theirs in zip(compiled(xs := maps())[0], run(layers, xs)[0], strict=True):
            torch.testing.assert_close(ours, theirs)


def test_export_with_any_batch():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = two_stages()

        def forward(self, a, b):
            return run(self.layers, [a, a, a, b, b, b])[0][-1]

    net, batch = Net().eval(), torch.export.Dim('batch', min=2)
    a, b = torch.randn(3, 32, 9, 11), torch.randn(3, 64, 5, 6)
    program = torch.export.export(net, (a, b), dynamic_shapes=({0: batch}, {0: batch}))
    with torch.no_grad():
        torch.testing.assert_close(program.module()(a[:2], b[:2]), net(a[:2], b[:2]))


def test_checkpointing_changes_nothing():
    plain = nn.ModuleList(KCLA.build_stage(64, 4, head_channels=16)).train()  # with drop path
    cheap = copy.deepcopy(plain)
    for layer in cheap:
        layer.with_cp = True
    results = []
    for layers in (plain, cheap):
        torch.manual_seed(3)
        xs = [torch.randn(3, 64, 5, 6).requires_grad_() for _ in layers]
        sum(out.square().sum() for out in run(layers, xs)[0]).backward()
        results.append([x.grad for x in xs] + [p.grad for p in layers.parameters()] + list(layers.buffers()))
    for ours, theirs in zip(*results, strict=True):  # running statistics too: updated once, not twice
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_drop_path_is_per_sample():
    layer = KCLA(32, 16, drop_path=0.5).train()
    out, _ = layer(torch.randn(64, 32, 4, 4))
    dropped = (out.flatten(1) == 0).all(1)
    assert 16 <= dropped.sum() <= 48
    assert KCLA(32, 16, drop_path=0.).train()(torch.randn(64, 32, 4, 4))[0].flatten(1).any(1).all()


def test_state_has_one_map_whatever_the_depth():
    _, state = run(KCLA.build_stage(32, 20, head_channels=16), [torch.randn(2, 32, 4, 4)] * 20)
    assert [tuple(tensor.shape) for tensor in state] == [(2, 32, 4, 4), (2, 2)]


# Registration and bad values --------------------------------------------------------------------------------------

def test_known_by_name():
    assert 'KCLA' in known_layer_attentions()
    assert layer_attention_class('mmkcla.KCLA') is layer_attention_class('KCLA') is layer_attention_class(KCLA) is KCLA

    class OfTheirOwn(LayerAttention):
        pass

    assert layer_attention_class('OfTheirOwn') is OfTheirOwn
    del LayerAttention._known['OfTheirOwn']


@pytest.mark.parametrize(('make', 'message'), [
    (lambda: layer_attention_class('KCLB'), "unknown layer_attention type 'KCLB'; known are: .*KCLA.*mean 'KCLA'"),
    (lambda: KCLA(96, 64), '96 channels are not divisible by head_channels=64'),
    (lambda: KCLA(64, 16, temperature='hot'), "temperature='hot' is unknown; choose one of: fixed, learnable, dynamic"),
    (lambda: KCLA(64, 16, gate_key='last'), "gate_key='last' is unknown; choose one of: current, accumulated"),
    (lambda: KCLA(64, 16, temperature_range=(0., 1.)), r'temperature_range=\(0.0, 1.0\) must be two positive numbers'),
    (lambda: KCLA(64, 16, drop_path=1.), r'drop_path=1.0 is not a probability in \[0, 1\)'),
    (lambda: KCLA(64, 16, carry_channels=30), '30 channels of the previous stage cannot be carried in 4 groups'),
    (lambda: KCLA.build_stage(64, 3, head_channels=16, carry_blocks=(0,)), r'carry_blocks=\(0,\) must be a tuple'),
])
def test_bad_values_are_named(make, message):
    with pytest.raises(UserError, match=message) as error:
        make()
    assert '\n' not in str(error.value)
