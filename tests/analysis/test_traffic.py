"""What layer attention may cost a ResNet-50: operators, memory traffic and kept bytes, as ratios to the plain network.

The counts are exact and the same on every machine. The limits are a little above what was measured when they were set;
a change that exceeds one makes every training slower.
"""
import pytest
import torch
from mmpretrain.models.backbones import ResNet
from torch.autograd.graph import saved_tensors_hooks

from mmkcla.analysis.traffic import TrafficCounter
from mmkcla.layers import known_layer_attentions, layer_attention_class
from mmkcla.models.backbones import LayerAttentionResNet

# method: calls, traffic and kept bytes in training; calls and traffic in inference
LIMITS = {
    'KCLA': (4.0, 2.05, 1.55, 3.2, 1.75),
    'MRLALight': (3.1, 1.99, 1.84, 3.3, 1.80),
    'MRLABase': (3.5, 2.24, 2.03, 2.8, 2.03),
    'SoftmaxLayerAttention': (3.8, 2.24, 2.03, 3.0, 2.03),
    'DLALight': (6.9, 2.93, 2.11, 5.4, 2.43),
    'DLABase': (12.4, 3.54, 2.42, 9.0, 2.68),
    'LinearLayerAttention': (3.4, 7.88, 6.12, 2.9, 6.86),
    'EfficientLayerAttention': (2.4, 2.60, 2.13, 2.3, 2.43),
}


def costs(net):
    """Calls, traffic and kept bytes of a training pass, calls and traffic of an inference, at 224² and batch 1."""
    x = torch.zeros(1, 3, 224, 224, device='meta')
    parameters = {parameter.untyped_storage()._cdata for parameter in net.parameters()}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in parameters:
            kept[storage._cdata] = storage
        return tensor

    net.train()
    with TrafficCounter() as training:
        with saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = net(x)[-1].sum()
        loss.backward()
    net.eval()
    with TrafficCounter() as inference, torch.no_grad():
        net(x)
    return (training.calls, training.traffic, sum(storage.nbytes() for storage in kept.values()), inference.calls,
            inference.traffic)


def build(kind=ResNet, **options):
    return kind(depth=50, norm_eval=False, **options).to('meta')


@pytest.fixture(scope='module')
def plain():
    return costs(build())


def test_every_method_has_limits() -> None:
    own = {name for name in known_layer_attentions()
           if layer_attention_class(name).__module__.startswith('mmkcla.')}
    assert own == set(LIMITS)


@pytest.mark.parametrize('method', LIMITS)
def test_limits(plain, method) -> None:
    found = costs(build(LayerAttentionResNet, layer_attention=dict(type=method)))
    ratios = [ours / theirs for ours, theirs in zip(found, plain, strict=True)]
    assert all(ratio <= limit for ratio, limit in zip(ratios, LIMITS[method], strict=True)), ratios


def test_limits_of_frozen_statistics() -> None:
    """As detectors fine-tune: norm_eval=True in the trunk and in the attentions."""
    frozen = dict(depth=50, norm_eval=True)
    plain = costs(ResNet(**frozen).to('meta'))
    net = LayerAttentionResNet(**frozen, attention_norm_eval=True, layer_attention=dict(type='KCLA'))
    found = costs(net.to('meta'))
    ratios = [ours / theirs for ours, theirs in zip(found, plain, strict=True)]
    assert all(ratio <= limit for ratio, limit in zip(ratios, (4.9, 1.85, 1.56, 3.2, 1.75), strict=True)), ratios
