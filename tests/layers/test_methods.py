"""What every layer attention must bear, one parametrised file."""
import copy
import math

import pytest
import torch
from torch import nn

from mmkcla.errors import UserError
from mmkcla.layers import LinearLayerAttention, SoftmaxLayerAttention, known_layer_attentions, layer_attention_class
from mmkcla.layers.dla import DynamicSharingUnit

METHODS = known_layer_attentions()
CHANNELS, DEPTH = (32, 64), 3
SIZES = ((7, 9), (4, 5))


def build(name, **options):
    method = layer_attention_class(name)
    options = {**method.cifar_options, 'drop_path': 0., **options}
    return nn.ModuleList([*method.build_stage(CHANNELS[0], DEPTH, **options),
                          *method.build_stage(CHANNELS[1], DEPTH, CHANNELS[0], 2, **options)])


def maps(batch=3, dtype=torch.float32):
    return [torch.randn(batch, channels, *size, dtype=dtype)
            for channels, size in zip(CHANNELS, SIZES, strict=True) for _ in range(DEPTH)]


def run(layers, xs, shortcuts=None):
    state, outs = None, []
    for i, (layer, x) in enumerate(zip(layers, xs, strict=True)):
        shortcut = None
        if layer.needs_shortcut:
            shortcut = torch.roll(x, 1, 2) if shortcuts is None else shortcuts[i]
        out, state = layer(x, state, shortcut)
        outs.append(out)
    return outs, state


@pytest.fixture(params=METHODS)
def name(request):
    return request.param


def test_shapes_and_state(name):
    layers, xs = build(name), maps()
    outs, state = run(layers, xs)
    assert [out.shape for out in outs] == [x.shape for x in xs]
    assert isinstance(state, tuple) and all(isinstance(entry, torch.Tensor) for entry in state)


def decides(name, key):
    """Whether a parameter can matter: where a stage's first layer attends to one entry alone, its share is 1; and a
    constant added to all keys leaves a softmax over positions as it is."""
    layer, _, rest = key.partition('.')
    if name == 'EfficientLayerAttention':
        return rest != 'attention.keys.bias'
    if int(layer) % DEPTH:
        return True
    fixed = {'SoftmaxLayerAttention': ('query', 'key'), 'MRLABase': ('query', ), 'DLABase': ('query', ),
             'LinearLayerAttention': ('query', )}
    return not rest.startswith(fixed.get(name, ('none', )))


def test_every_parameter_learns(name):
    layers = build(name)
    outs, _ = run(layers, maps())
    sum((out * torch.randn_like(out)).sum() for out in outs).backward()
    for key, parameter in layers.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().sum() > 1e-6 or not decides(name, key), key


@pytest.mark.parametrize('depth', [1, 2])
def test_every_parameter_gets_a_gradient(name, depth):
    """In short stages too: DDP with find_unused_parameters=False waits for the gradients of all parameters."""
    method = layer_attention_class(name)
    options = {**method.cifar_options, 'drop_path': 0.}
    layers = nn.ModuleList([*method.build_stage(32, depth, **options),
                            *method.build_stage(64, depth, 32, 2, **options)])
    state, total = None, 0.
    for i, layer in enumerate(layers):
        x = torch.randn(2, *((32, 7, 9) if i < depth else (64, 4, 5)))
        out, state = layer(x, state, torch.roll(x, 1, 2) if layer.needs_shortcut else None)
        total = total + out.square().sum()
    total.backward()
    assert [key for key, parameter in layers.named_parameters() if parameter.grad is None] == []


def test_zero_layer_scale_adds_nothing_then_learns(name):
    layers = build(name, layer_scale_init=0.)
    start = copy.deepcopy(dict(layers.named_parameters()))
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    for step in range(2):
        outs, _ = run(layers, maps())
        assert step or all((out == 0).all() for out in outs)
        optimizer.zero_grad()
        sum((out - torch.randn_like(out)).square().sum() for out in outs).backward()
        optimizer.step()
    for key, parameter in layers.named_parameters():
        assert not torch.equal(parameter, start[key]) or not decides(name, key), key


def test_samples_do_not_see_each_other(name):
    """DLA's released code gives sample 0's state to the whole batch."""
    layers = build(name).double().eval()
    xs = maps(4, torch.float64)
    order = [2, 0, 3, 1]
    with torch.no_grad():
        outs, _ = run(layers, xs)
        swapped, _ = run(layers, [x[order] for x in xs])
        alone, _ = run(layers, [x[1:2] for x in xs])
    for out, other, one in zip(outs, swapped, alone, strict=True):
        torch.testing.assert_close(out[order], other)
        torch.testing.assert_close(out[1:2], one)


def test_finite_on_zeros_and_large_values(name):
    layers = build(name).train()
    for xs in ([torch.zeros_like(x) for x in maps()], [x * 1e4 for x in maps()]):
        xs = [x.requires_grad_() for x in xs]
        outs, _ = run(layers, xs)
        sum(out.sum() for out in outs).backward()
        assert all(out.isfinite().all() for out in outs) and all(x.grad.isfinite().all() for x in xs)
    assert all(parameter.grad.isfinite().all() for parameter in layers.parameters())


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
@torch.no_grad()
def test_autocast(name, dtype):
    layers = build(name)
    for scale in (1., 1e4):
        xs = [(x.abs() * scale / 4).to(dtype) for x in maps()]
        exact, _ = run(copy.deepcopy(layers), [x.float() for x in xs])
        with torch.autocast('cpu', dtype):
            outs, _ = run(copy.deepcopy(layers), xs)
        for out, reference in zip(outs, exact, strict=True):
            assert out.isfinite().all()
            allowed = 1e-2 if dtype == torch.float16 else 3e-2
            if name == 'EfficientLayerAttention' and scale > 1:
                continue  # keys of thousands make its softmax pick one position, and rounding them may pick another
            # a gate that saturates at 0 leaves nothing of the map
            assert (out.float() - reference).norm() <= allowed * reference.norm()


def test_compiles_whole(name):
    layers, xs = build(name).eval(), maps(2)
    compiled = torch.compile(lambda xs: run(layers, xs)[0], fullgraph=True, backend='aot_eager')
    with torch.no_grad():
        for ours, theirs in zip(compiled(xs), run(layers, xs)[0], strict=True):
            torch.testing.assert_close(ours, theirs)


def test_checkpointing_changes_nothing(name):
    plain = build(name, drop_path=0.3).train()
    cheap = copy.deepcopy(plain)
    for layer in cheap:
        layer.with_cp = True
    results = []
    for layers in (plain, cheap):
        torch.manual_seed(5)
        xs = [x.requires_grad_() for x in maps()]
        sum(out.square().sum() for out in run(layers, xs)[0]).backward()
        results.append([x.grad for x in xs] + [p.grad for p in layers.parameters()] + list(layers.buffers()))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def test_copy_and_state_dict(name):
    layers = build(name).eval()
    other = copy.deepcopy(layers)
    fresh = build(name).eval()
    fresh.load_state_dict(layers.state_dict())
    xs = maps()
    with torch.no_grad():
        for ours, copied, loaded in zip(*(run(net, xs)[0] for net in (layers, other, fresh)), strict=True):
            torch.testing.assert_close(ours, copied, rtol=0, atol=0)
            torch.testing.assert_close(ours, loaded, rtol=0, atol=0)
    assert len(layers.state_dict()) == len({tensor.data_ptr() for tensor in layers.state_dict().values()})
    with torch.no_grad():  # the copy is its own
        for parameter in other.parameters():
            parameter.zero_()
    assert any(parameter.abs().sum() > 0 for parameter in layers.parameters())


def test_heads_must_divide(name):
    if name == 'EfficientLayerAttention':
        with pytest.raises(UserError, match='key_channels=16 is not divisible by num_heads=3'):
            build(name, num_heads=3)
        return
    with pytest.raises(UserError, match='32 channels are not divisible by head_channels=24'):
        build(name, head_channels=24)


# Each method's own formula ------------------------------------------------------------------------------------------

def test_softmax_cheap_equals_literal():
    layers = build('SoftmaxLayerAttention').double().eval()
    literal = build('SoftmaxLayerAttention', literal=True).double().eval()
    literal.load_state_dict(layers.state_dict())
    xs = [x.requires_grad_() for x in maps(dtype=torch.float64)]
    results = []
    for net in (layers, literal):
        outs, _ = run(net, xs)
        results.append([*outs, *torch.autograd.grad(sum(out.square().sum() for out in outs), xs)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_linear_is_the_normalised_sum_over_layers():
    layers = LinearLayerAttention.build_stage(32, 4, head_channels=8).double().eval()
    xs = [torch.randn(2, 32, 3, 4, dtype=torch.float64) for _ in layers]
    with torch.no_grad():
        outs, _ = run(layers, xs)
        phi = lambda v: nn.functional.elu(v.reshape(2, 4, 8)) + 1  # noqa: E731
        keys = [phi(layer.key(x.mean((2, 3)))) for layer, x in zip(layers, xs, strict=True)]
        values = [layer.value(x) for layer, x in zip(layers, xs, strict=True)]
        for t, layer in enumerate(layers):
            query = phi(layer.query(xs[t].mean((2, 3))))
            scores = torch.stack([(query * key).sum(-1) for key in keys[:t + 1]])
            shares = (scores / scores.sum(0)).repeat_interleave(8, -1)[..., None, None]
            expected = layer.output((shares * torch.stack(values[:t + 1])).sum(0))
            torch.testing.assert_close(outs[t], expected)


def test_caches_start_anew_at_each_stage():
    for name in ('SoftmaxLayerAttention', 'MRLABase', 'LinearLayerAttention', 'DLABase', 'DLALight'):
        layers, xs = build(name).eval(), maps()
        with torch.no_grad():
            outs, _ = run(layers, xs)
            later, _ = run(layers[DEPTH:], xs[DEPTH:])
        torch.testing.assert_close(outs[-1], later[-1], rtol=0, atol=0)


def test_dla_base_written_out():
    """Earlier keys and values are refreshed by the DSU before each attention, and stay so."""
    torch.manual_seed(2)
    layers = build('DLABase')[:DEPTH].double().eval()
    unit = layers[0].unit
    xs = maps(dtype=torch.float64)[:DEPTH]
    outs, state = run(layers, xs)
    hidden = cell = torch.zeros(3, CHANNELS[0], dtype=torch.float64)
    keys, values = [], []
    for layer, x, out in zip(layers, xs, outs, strict=True):
        pooled = x.mean((2, 3))
        hidden, cell = unit(pooled, hidden, cell)
        keys = [key * unit(key, hidden, cell)[0] for key in keys] + [layer.key(pooled)]
        values = [value * unit(value.mean((2, 3)), hidden, cell)[0][..., None, None] for value in values]
        values.append(layer.value(x))
        width = layer.head_channels
        heads = lambda vector, width=width: vector.unflatten(1, (-1, width))  # noqa: E731
        scores = torch.stack([(heads(layer.query(pooled)) * heads(key)).sum(-1) for key in keys]) / width ** .5
        shares = scores.softmax(0).repeat_interleave(width, -1)[..., None, None]
        torch.testing.assert_close(out, layer.norm((shares * torch.stack(values)).sum(0)).relu())
    cache = (entry for pair in zip(keys, values, strict=True) for entry in pair)
    for ours, written in zip(state, (hidden, cell, *cache), strict=True):
        torch.testing.assert_close(ours, written)


def test_dsu_is_the_cell():
    unit = DynamicSharingUnit(8, 4)
    pooled, hidden, cell = torch.randn(3, 2, 8)
    gates = unit.input(pooled) + unit.hidden(hidden)
    i, f, g = gates[:, :8], gates[:, 8:16], gates[:, 16:]
    expected = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    new_hidden, new_cell = unit(pooled, hidden, cell)
    torch.testing.assert_close(new_cell, expected)
    torch.testing.assert_close(new_hidden, torch.sigmoid(expected))
    with pytest.raises(UserError, match='reduction=16 does not fit 8 channels; choose from 1 to 8'):
        DynamicSharingUnit(8, 16)


def test_softmax_state_holds_the_stage():
    _, state = run(SoftmaxLayerAttention.build_stage(32, 5), [torch.randn(2, 32, 4, 4)] * 5)
    assert len(state) == 10 and state[0].shape == (2, 32) and state[1].shape == (2, 32, 4, 4)


# Default head widths ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('channels', [1, 4, 8, 60, 97, 100])
def test_a_default_width_gives_way(name, channels):
    """The nearest divisor of the channels takes its place, and the record says so."""
    layers = layer_attention_class(name).build_stage(channels, 2, norm_layer=nn.BatchNorm2d)
    x = torch.randn(2, channels, 4, 4)
    outs, _ = run(layers.eval(), [x, x])
    assert all(out.shape == x.shape and out.isfinite().all() for out in outs)
    default = layer_attention_class(name).options().get('head_channels')
    if default is None:
        return
    width = layers[0].head_channels
    assert channels % width == 0 and {layer.head_channels for layer in layers} == {width}
    distance = {d: abs(math.log(d / default)) for d in range(1, channels + 1) if channels % d == 0}
    assert distance[width] == min(distance.values())
    assert layers[1].record()['options']['head_channels'] == width
    with pytest.raises(UserError, match=f'{channels} channels are not divisible by head_channels=7'):
        layer_attention_class(name).build_stage(channels, 2, head_channels=7, norm_layer=nn.BatchNorm2d)


@pytest.mark.parametrize('name', ['DLABase', 'DLALight'], ids=str)
def test_a_default_reduction_gives_way(name):
    assert layer_attention_class(name).build_stage(8, 2)[0].unit.input[0].out_features == 1
    assert layer_attention_class(name).build_stage(32, 2)[0].unit.input[0].out_features == 2
    with pytest.raises(UserError, match='reduction=16 does not fit 8 channels; choose from 1 to 8'):
        layer_attention_class(name).build_stage(8, 1, reduction=16)
