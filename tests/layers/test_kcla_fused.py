"""The fused KCLA against the plain form, which is the reference."""
import copy
import itertools
import threading

import pytest
import torch
from torch import nn

from mmkcla.errors import UserError
from mmkcla.layers import KCLA
from mmkcla.layers.kcla_fused import _products

BOUNDS = {torch.float64: (1e-12, 1e-11), torch.float32: (1e-6, 1e-5)}  # of outputs, of gradients
OPTIONS = [dict(), dict(head_mixing=False), dict(temperature='learnable'), dict(scale_by_width=True),
           dict(layer_scale_init=0.5), dict(layer_scale_init=-0.5, drop_path=0.5), dict(drop_path=0.5),
           dict(carry_blocks=(1, )), dict(carry_bias=True, share_carry_key=True)]
PLAIN = [dict(temperature='dynamic'), dict(dynamic_value=False), dict(relu=False), dict(gate_key='accumulated'),
         dict(norm_layer=lambda channels: nn.GroupNorm(2, channels)), dict(fused=False)]  # without a fused form
ids = lambda value: ','.join(value) or 'default' if isinstance(value, dict) else None  # noqa: E731


def stage(dtype=torch.float64, train=True, channels=16, depth=3, carry_channels=8, stride=2, **options):
    torch.manual_seed(1)
    options = dict(head_channels=4, drop_path=0.) | options
    layers = KCLA.build_stage(channels, depth, carry_channels, stride, **options).to(dtype)
    for module in layers.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias, 0, 0.3)
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
        elif isinstance(module, KCLA) and module.shift is not None:
            nn.init.normal_(module.shift)
    return layers.train(train)


def inputs(dtype=torch.float64, batch=3, channels=16, depth=3, carry_channels=8, stride=2, size=(5, 6)):
    torch.manual_seed(2)
    maps = [torch.randn(batch, channels, *size, dtype=dtype) * (8 if i == 1 else 1) for i in range(depth)]
    before = torch.randn(batch, carry_channels, stride * size[0] - 1, stride * size[1] - 1, dtype=dtype)
    return [*maps, before]


def run(layers, tensors):
    """Outputs of all layers and the last state, for the maps and the mean of the stage before."""
    *maps, before = tensors
    state = before, torch.ones(len(before), before.shape[1] // 4, dtype=before.dtype)
    outs = []
    torch.manual_seed(3)  # of the drop path
    for layer, x in zip(layers, maps, strict=True):
        retrieved, state = layer(x, state)
        outs.append(x + retrieved)
    return [*outs, *state]


def results(layers, tensors, fused):
    """Outputs, gradients of inputs and parameters, and buffers."""
    layers = copy.deepcopy(layers)
    for layer in layers:
        layer.fused = fused
    tensors = [x.detach().clone(memory_format=torch.preserve_format).requires_grad_() for x in tensors]
    outs = run(layers, tensors)
    torch.manual_seed(4)
    sum((out.float() if out.dtype.itemsize < 4 else out).mul(torch.randn(out.shape)).sum() for out in outs).backward()
    return [out.detach() for out in outs], [x.grad for x in (*tensors, *layers.parameters())], list(layers.buffers())


def assert_near(ours, theirs, tolerance):
    """Relative to the largest entry, or to 1: some gradients are zero but for rounding, before a batch norm."""
    for x, y in zip(ours, theirs, strict=True):
        assert (x is None) == (y is None)
        if y is not None and y.numel():
            x, y = x.double(), y.double()
            assert (x - y).abs().max() <= tolerance * y.abs().max().clamp(min=1)


def spy(monkeypatch):
    """Count the calls of either form."""
    calls = dict(fused=0, plain=0)
    for name in calls:
        kind = getattr(KCLA, f'_attend_{name}')

        def counted(self, *args, name=name, kind=kind):
            calls[name] += 1
            return kind(self, *args)
        monkeypatch.setattr(KCLA, f'_attend_{name}', counted)
    return calls


@pytest.mark.parametrize('options', OPTIONS, ids=ids)
@pytest.mark.parametrize(('dtype', 'batch'), [(torch.float64, 1), (torch.float64, 3), (torch.float32, 3)])
@pytest.mark.parametrize('train', [True, False])
def test_equals_the_plain_form(monkeypatch, options, dtype, train, batch):
    calls = spy(monkeypatch)
    layers, tensors = stage(dtype, train, **options), inputs(dtype, batch)
    outs, grads, buffers = results(layers, tensors, True)
    assert calls == dict(fused=3, plain=0)
    wanted_outs, wanted_grads, wanted_buffers = results(layers, tensors, False)
    assert calls == dict(fused=3, plain=3)
    for_outs, for_grads = BOUNDS[dtype]
    assert_near(outs, wanted_outs, for_outs)
    assert_near(grads, wanted_grads, for_grads)
    assert_near(buffers, wanted_buffers, for_outs)
    with torch.no_grad():
        assert_near(run(copy.deepcopy(layers), tensors), outs, for_outs)


@pytest.mark.parametrize('options', PLAIN, ids=ids)
def test_options_without_a_fused_form(monkeypatch, options):
    calls = spy(monkeypatch)
    run(stage(**options), inputs())
    assert calls == dict(fused=0, plain=3)


@pytest.mark.parametrize('options', [
    dict(zip(('temperature', 'head_mixing', 'layer_scale_init', 'scale_by_width'), values, strict=True))
    for values in itertools.product(['fixed', 'learnable', 'dynamic'], [True, False], [None, 0.7], [True, False])
] + PLAIN, ids=lambda options: '-'.join(getattr(value, '__name__', str(value)) for value in options.values()))
@pytest.mark.parametrize(('train', 'drop_path'), [(True, 0.), (True, 0.5), (False, 0.)])
def test_gradcheck(options, train, drop_path):
    layers = stage(train=train, channels=4, depth=2, carry_channels=2, drop_path=drop_path,
                   **dict(head_channels=2) | options)
    tensors = [x.requires_grad_() for x in inputs(batch=2, channels=4, depth=2, carry_channels=2, size=(2, 2))]
    names, parameters = zip(*layers.named_parameters(), strict=True)

    def function(*values):
        maps, values = values[:len(tensors)], values[len(tensors):]
        net = copy.deepcopy(layers)
        for name, value in zip(names, values, strict=True):
            owner, _, last = name.rpartition('.')
            owner = net.get_submodule(owner)
            del owner._parameters[last]
            object.__setattr__(owner, last, value)
        *maps, before = maps
        state = before, torch.ones(2, 1, dtype=torch.float64)
        torch.manual_seed(3)
        outs = []
        for layer, x in zip(net, maps, strict=True):
            retrieved, state = layer(x, state)
            outs.append(x + retrieved)
        return (*outs, *state)

    assert torch.autograd.gradcheck(function, (*tensors, *parameters), fast_mode=True)


def test_gradients_are_not_differentiated_again():
    layers, tensors = stage(), [x.requires_grad_() for x in inputs()]
    with pytest.raises(UserError, match=r'cannot be differentiated again \(create_graph=True\).*set fused=False'):
        torch.autograd.grad(run(layers, tensors)[2].sum(), tensors[0], create_graph=True)
    for layer in layers:
        layer.fused = False
    gradient, = torch.autograd.grad(run(layers, tensors)[2].sum(), tensors[0], create_graph=True)
    gradient.sum().backward()
    assert tensors[1].grad.abs().max() > 0


@pytest.mark.parametrize(('dtype', 'tolerance'), [(torch.bfloat16, 0.03), (torch.float16, 0.004)])
@pytest.mark.parametrize('train', [True, False])
@pytest.mark.parametrize('options', [dict(), dict(layer_scale_init=0.5, drop_path=0.5)], ids=ids)
def test_autocast(monkeypatch, dtype, tolerance, train, options):
    """As near to float32 as the plain form is, in the precision of the type; maps of that type, scores in float32."""
    calls = spy(monkeypatch)
    layers, tensors = stage(torch.float32, train, **options), inputs(torch.float32)
    halves = [x.to(dtype) for x in tensors]
    exact = results(layers, [x.float() for x in halves], False)
    with torch.autocast('cpu', dtype):
        ours, plain = results(layers, halves, True), results(layers, halves, False)
    assert calls == dict(fused=3, plain=6)
    assert [out.dtype for out in ours[0]] == [dtype] * 4 + [torch.float32]
    assert_near(ours[0], exact[0], tolerance)
    assert all(grad.dtype is dtype for grad in ours[1][:4])
    zeros = [y if y is None else 0 * y for y in exact[1]]
    ours, plain, size = (torch.stack([(x - y).norm() for x, y in zip(grads, exact[1], strict=True) if y is not None])
                         .norm() for grads in (ours[1], plain[1], zeros))
    assert ours <= 2 * tolerance * size and ours <= 4 * plain  # a ReLU that flips makes the difference


@pytest.mark.parametrize('options', [dict(), dict(drop_path=0.5), dict(layer_scale_init=0.5)], ids=ids)
def test_checkpointing_gives_the_same_bits(monkeypatch, options):
    calls = spy(monkeypatch)
    layers, tensors = stage(torch.float32, **options), inputs(torch.float32)
    kept = results(layers, tensors, True)
    for layer in layers:
        layer.with_cp = True
    for ours, theirs in zip(results(layers, tensors, True), kept, strict=True):
        assert all(map(torch.equal, ours, theirs))
    assert calls == dict(fused=9, plain=0)  # three of them again in the backward pass


@pytest.mark.parametrize('train', [True, False])
def test_channels_last(train):
    layers, tensors = stage(torch.float32, train), inputs(torch.float32)
    last = [x.to(memory_format=torch.channels_last) for x in tensors]
    for ours, theirs, tolerance in zip(results(layers, last, True), results(layers, tensors, True),
                                       (1e-6, 1e-5, 1e-6), strict=True):
        assert_near(ours, theirs, tolerance)


@pytest.mark.parametrize('name', ['query', 'key', 'value', 'head_mixing', 'norm', 'relu', 'drop_path'])
def test_hooks_are_called(name):
    layers, tensors = stage(torch.float32, drop_path=0.5), inputs(torch.float32)
    wanted, seen = run(copy.deepcopy(layers), tensors), []
    getattr(layers[1], name).register_forward_hook(lambda *_: seen.append(name))
    assert_near(run(layers, tensors), wanted, 1e-6)
    assert seen == [name]


def test_global_hooks_are_called():
    layers, seen = stage(torch.float32), []
    handle = torch.nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(module))
    try:
        run(layers, inputs(torch.float32))
    finally:
        handle.remove()
    assert {layer.value for layer in layers} <= set(seen)


def test_gradients_are_accumulated_over_passes():
    """Each pass has its own graph, also where a temperature is learned, and a pass in evaluation leaves nothing."""
    for temperature in ('fixed', 'learnable', 'dynamic'):
        layers, tensors = stage(temperature=temperature), inputs()
        with torch.no_grad():
            run(layers.eval(), tensors)
        once = {}
        for _ in range(2):
            run(layers.eval(), tensors)[2].sum().backward()
            for name, parameter in layers.named_parameters():
                if parameter.grad is not None:
                    once.setdefault(name, parameter.grad.clone())
        assert once and ('0.log_temperature' in once) == (temperature != 'fixed')
        for name, parameter in layers.named_parameters():
            if name in once:
                torch.testing.assert_close(parameter.grad, 2 * once[name])


def test_frozen_parts():
    """No gradient for what needs none; the rest unchanged."""
    layers, tensors = stage(), inputs()
    _, grads, _ = results(layers, tensors, True)
    names = [None] * len(tensors) + [name for name, _ in layers.named_parameters()]
    for name, parameter in layers.named_parameters():
        parameter.requires_grad_('value' not in name and 'norm' not in name)
    for name, ours, theirs in zip(names, results(layers, tensors, True)[1], grads, strict=True):
        if name and ('value' in name or 'norm' in name):
            assert ours is None
        else:
            torch.testing.assert_close(ours, theirs)


@torch.no_grad()
def test_changed_temperatures_are_used():
    layer, x = stage(train=False, depth=1)[0], inputs()[0]
    before = layer(x)[1][1].log()
    layer.log_temperature.add_(0.1)
    torch.testing.assert_close(layer(x)[1][1].log(), (before * torch.tensor(0.1).exp()).clamp(max=10))
    layer.load_state_dict(layer.state_dict() | dict(log_temperature=layer.log_temperature - 0.1))
    torch.testing.assert_close(layer(x)[1][1].log(), before)
    assert layer.float()(x.float())[1][1].dtype is torch.float32


@torch.no_grad()
def test_threads():
    layers, tensors = stage(torch.float32, False), inputs(torch.float32)
    wanted, found = run(layers, tensors), [None] * 8

    def work(i):
        with torch.no_grad():
            found[i] = run(layers, tensors)
    threads = [threading.Thread(target=work, args=(i, )) for i in range(len(found))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(x, y) for outs in found for x, y in zip(outs, wanted, strict=True))


@pytest.mark.parametrize('dtype', [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize('shape', [(2, 3, 56, 56), (1, 4, 1, 1), (3, 2, 5, 7)])
def test_sums_of_products(shape, dtype):
    """Also of half precision, with the accuracy of float32; a batched matrix product lost a digit on large maps."""
    torch.manual_seed(0)
    a, b = (torch.randn(shape).to(dtype) for _ in range(2))
    wanted = (a.double() * b.double()).sum(dim=(2, 3)).flatten()
    found = _products(a, b)
    assert found.dtype is (torch.float64 if dtype is torch.float64 else torch.float32)
    bound = {torch.float64: 1e-15, torch.float32: 1e-7}.get(dtype, 1e-6)
    assert ((found.double() - wanted).abs() <= bound * (a.double() * b.double()).abs().sum(dim=(2, 3)).flatten()).all()
