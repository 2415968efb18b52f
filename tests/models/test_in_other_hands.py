"""What others do with a model: mmcv's fusion of batch norms, threads, deepcopy, replicas, pickling."""
import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from mmcv.cnn import fuse_conv_bn
from small_nets import randomise_

from mmkcla.layers import LayerAttention, known_layer_attentions, layer_attention_class
from mmkcla.models.backbones import LayerAttentionResNet

METHODS = [name for name in known_layer_attentions() if layer_attention_class(name).__module__.startswith('mmkcla.')]


def network(method, **options) -> LayerAttentionResNet:
    """Two stages, in evaluation, every parameter and statistic random."""
    options = dict(head_channels=8) | options if 'head_channels' in layer_attention_class(method).options() else {}
    net = LayerAttentionResNet(18, stem_channels=16, base_channels=16, num_stages=2, strides=(1, 2), dilations=(1, 1),
                               out_indices=(0, 1), layer_attention=dict(type=method, **options))
    randomise_(net)
    return net.eval()


def test_every_method_is_here():
    assert {'KCLA', 'MRLABase', 'MRLALight', 'DLABase', 'DLALight', 'SoftmaxLayerAttention', 'LinearLayerAttention',
            'EfficientLayerAttention'} <= set(METHODS)


@pytest.mark.parametrize('method', METHODS)
@torch.no_grad()
def test_fuse_conv_bn_changes_nothing(method):
    """Folding the norm into the value convolution would skip the gate between them."""
    net = network(method).double()
    x = torch.randn(2, 3, 40, 40, dtype=torch.double)
    before = net(x)
    fused = fuse_conv_bn(copy.deepcopy(net))
    assert isinstance(fused.bn1, torch.nn.Identity)  # the trunk is fused
    for now, then in zip(fused(x), before, strict=True):
        torch.testing.assert_close(now, then, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_without_the_order_of_children_the_fusion_is_wrong(monkeypatch):
    monkeypatch.setattr(LayerAttention, 'named_children', torch.nn.Module.named_children)
    net = network('KCLA').double()
    x = torch.randn(2, 3, 40, 40, dtype=torch.double)
    assert not torch.allclose(fuse_conv_bn(copy.deepcopy(net))(x)[1], net(x)[1], atol=1e-2)


@pytest.mark.parametrize('method', METHODS)
@torch.no_grad()
def test_eight_threads_five_hundred_calls(method):
    net = network(method)
    images = torch.randn(8, 1, 3, 32, 32)
    expected = [net(image)[1] for image in images]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda call: (call % 8, net(images[call % 8])[1]), range(500)))
    assert all(torch.equal(result, expected[number]) for number, result in results)
    assert not any(getattr(module, 'kept', None) for module in net.modules())


@pytest.mark.parametrize('method', METHODS)
@torch.no_grad()
def test_copies(method):
    net = network(method)
    x = torch.randn(1, 3, 32, 32)
    expected = net(x)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert all(torch.equal(*pair) for pair in zip(other(x), expected, strict=True))
        shared = {id(p) for p in other.parameters()} & {id(p) for p in net.parameters()}
        assert not shared and other.state_dict().keys() == net.state_dict().keys()
        for module in other.modules():  # a shared unit is that of the copy
            if isinstance(module, LayerAttention):
                owner = getattr(module, 'owner', None)
                assert owner is None or any(owner[0] is one for one in other.modules())
