"""Tracing and export of every method: torch.fx, feature extractors, torch.export, torch.jit.trace, ONNX."""
import copy

import pytest
import torch
from small_nets import KCLA, randomise_, two_stages
from torch import nn
from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

from mmkcla.errors import UserError
from mmkcla.layers import KCLA as KCLALayer
from mmkcla.layers import EfficientAttention, known_layer_attentions
from mmkcla.models.backbones import LayerAttentionResNet
from mmkcla.models.necks import KCLAFPN, EfficientAttentionNeck, LayerAttentionNeck

METHODS = known_layer_attentions()
EVERY_WAY = [(method, {}) for method in METHODS] + [('KCLA', dict(temperature='dynamic', gate_key='accumulated'))]
QUICK = ('KCLA', 'MRLALight')  # of the slow exporter
AUTO = torch.export.Dim.AUTO


def assert_same(ours, theirs, tolerance=1e-6):
    """Equal up to rounding, relative to the largest entry: eager mode runs other operators than a graph does."""
    for x, y in zip(ours, theirs, strict=True):
        assert x.shape == y.shape and x.sub(y).abs().max() <= tolerance * y.abs().max()


# Tracing ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(('method', 'options'), EVERY_WAY)
@torch.no_grad()
def test_symbolic_trace(method, options):
    net = two_stages(method, layer_scale_init=0.5, **options)
    x, other = torch.randn(2, 3, 40, 40), torch.randn(1, 3, 64, 48)
    graph = torch.fx.symbolic_trace(net)
    assert_same(graph(x), net(x))
    assert_same(graph(other), net(other))
    graph, plain = torch.fx.symbolic_trace(copy.deepcopy(net).train()), copy.deepcopy(net).train()
    results = []
    for model in (graph, plain):
        torch.manual_seed(3)  # of the drop path
        results.append(model(x))
    assert_same(*results)
    buffers = dict(plain.named_buffers())
    for name, tensor in graph.named_buffers():
        torch.testing.assert_close(tensor, buffers[name])


@pytest.mark.parametrize('method', ['KCLA', 'DLALight'])
@torch.no_grad()
def test_a_traced_network_under_autocast(method):
    net = two_stages(method)
    with torch.autocast('cpu', torch.bfloat16):
        assert_same(torch.fx.symbolic_trace(net)(x := torch.randn(2, 3, 40, 40)), net(x), 0.02)


def test_a_traced_layer_keeps_the_check():
    graph = torch.fx.symbolic_trace(KCLALayer(8), concrete_args=dict(state=None, shortcut=None))
    graph(torch.randn(2, 8, 1, 1), None, None)
    with pytest.raises(UserError, match='a batch norm cannot train on a single 1×1 map'):
        graph(torch.randn(1, 8, 1, 1), None, None)


def test_a_traced_module_keeps_the_check_of_the_channels():
    graph = torch.fx.symbolic_trace(EfficientAttention(8))
    with pytest.raises(UserError, match='EfficientAttention expects maps with 8 channels, got 4; set in_channels'):
        graph(torch.randn(1, 4, 5, 5))


def test_a_traced_network_with_checkpointing():
    net = LayerAttentionResNet(18, base_channels=8, layer_attention=KCLA | dict(with_cp=True), with_cp=True).train()
    assert_same(torch.fx.symbolic_trace(copy.deepcopy(net))(x := torch.randn(2, 3, 64, 64)), net(x), 1e-5)


@pytest.mark.parametrize('method', METHODS)
@torch.no_grad()
def test_feature_extractor(method):
    net = two_stages(method)
    last = get_graph_node_names(net)[1][-1]
    found = create_feature_extractor(net, return_nodes={'layer1.0.conv1': 'first', last: 'last'})(
        x := torch.randn(2, 3, 40, 40))
    assert_same([found['last']], [net(x)[1]])
    assert torch.equal(found['first'], net.layer1[0].conv1(net.forward_stem(x)))


@pytest.mark.parametrize('method', METHODS)
@torch.no_grad()
def test_export_and_jit_trace(method):
    net = two_stages(method)
    x, other = torch.randn(2, 3, 40, 40), torch.randn(1, 3, 64, 48)
    assert_same(torch.export.export(net, (x, )).module()(x), net(x))
    traced = torch.jit.trace(net, (x, ))
    for image in (x, other):
        for ours, theirs in zip(traced(image), net(image), strict=True):
            torch.testing.assert_close(ours, theirs)


# ONNX -------------------------------------------------------------------------------------------------------------

class _Maps(nn.Module):
    """A neck with its maps as separate arguments."""

    def __init__(self, neck):
        super().__init__()
        self.neck = neck

    def forward(self, fine, middle, coarse):
        return self.neck((fine, middle, coarse))


def pyramid(batch, height, width):
    return tuple(torch.randn(batch, 8, -(-height // 2 ** i), -(-width // 2 ** i)) for i in range(3))


def export(net, inputs, path, dynamo):
    if dynamo:
        torch.onnx.export(net, inputs, path, dynamo=True, verbose=False,
                          dynamic_shapes=({0: AUTO, 2: AUTO, 3: AUTO}, ) * len(inputs))
        return
    names = [f'x{i}' for i in range(len(inputs))]
    torch.onnx.export(net, inputs, path, dynamo=False, opset_version=17, input_names=names,
                      dynamic_axes={name: {0: 'batch', 2: f'{name}_height', 3: f'{name}_width'} for name in names})


def check(net, path, calls):
    onnxruntime = pytest.importorskip('onnxruntime')
    session = onnxruntime.InferenceSession(str(path), providers=['CPUExecutionProvider'])
    for inputs in calls:
        named = {entry.name: x.numpy() for entry, x in zip(session.get_inputs(), inputs, strict=True)}
        with torch.no_grad():
            expected = net(*inputs)
        for ours, theirs in zip(session.run(None, named), expected, strict=True):
            assert torch.from_numpy(ours).sub(theirs).abs().max() <= 1e-5 * theirs.abs().max()


def quick(dynamo, name):
    """The exporter with dynamo takes several seconds a network."""
    return pytest.param(dynamo, name, marks=() if not dynamo or name in QUICK else pytest.mark.slow)


@pytest.mark.parametrize(('dynamo', 'method'), [quick(dynamo, name) for name in METHODS for dynamo in (False, True)])
def test_onnx_of_backbones(dynamo, method, tmp_path):
    net = two_stages(method)
    export(net, (torch.randn(2, 3, 32, 40), ), tmp_path / 'net.onnx', dynamo)
    check(net, tmp_path / 'net.onnx', [(torch.randn(2, 3, 32, 40), ), (torch.randn(3, 3, 41, 57), )])


NECKS = {
    'KCLAFPN': lambda: KCLAFPN([8] * 3, 8, 4),
    'KCLAFPN token': lambda: KCLAFPN([8] * 3, 8, 3, carry='token'),
    'EfficientAttentionNeck': lambda: EfficientAttentionNeck(8, 3, zero_init=False),
    'KCLA token': lambda: LayerAttentionNeck(8, 3, dict(type='KCLA', layer_scale_init=0.5), 'both', carry='token'),
    **{name: lambda name=name: LayerAttentionNeck(8, 3, dict(type=name, layer_scale_init=0.5), 'both')
       for name in METHODS},
}


@pytest.mark.parametrize(('dynamo', 'name'), [
    pytest.param(dynamo, name, marks=pytest.mark.slow if dynamo else ()) for name in NECKS for dynamo in (False, True)])
def test_onnx_of_necks(dynamo, name, tmp_path):
    net = randomise_(_Maps(NECKS[name]())).eval()
    export(net, pyramid(2, 16, 24), tmp_path / 'neck.onnx', dynamo)
    check(net, tmp_path / 'neck.onnx', [pyramid(2, 16, 24), pyramid(3, 21, 13)])
