"""The form for inference gives the same results, and has nothing that only training needs."""
import copy

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from small_nets import HOSTS, KCLA, SMALL, host_class, image, mixed, randomise_, two_stages, weighted_sum
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

import mmkcla
from mmkcla.analysis.traffic import TrafficCounter
from mmkcla.errors import UserError
from mmkcla.layers import known_layer_attentions
from mmkcla.models import switch_to_deploy

EVERY_WAY = [(name, {}) for name in known_layer_attentions()] + [('KCLA', options) for options in (
    dict(temperature='dynamic'), dict(temperature='learnable', head_mixing=False), dict(dynamic_value=False),
    dict(relu=False), dict(gate_key='accumulated'), dict(fused=False), dict(carry_blocks=(1, )),
    dict(layer_scale_init=-0.5))] + [
    ('SoftmaxLayerAttention', dict(literal=True)), ('MRLALight', dict(layer_scale_init=2.))]


def tensors_of(out):
    return [out] if isinstance(out, torch.Tensor) else [x for part in out for x in tensors_of(part)]


def assert_deployed(net, *args, tolerance=1e-5, **kwargs):
    with torch.no_grad():
        wanted = tensors_of(net.eval()(*args, **kwargs))
        deployed = switch_to_deploy(copy.deepcopy(net).train())
        found = tensors_of(deployed(*args, **kwargs))
    for x, y in zip(found, wanted, strict=True):
        assert (x - y).abs().max() <= tolerance * y.abs().max()
    assert not deployed.training and not any(isinstance(module, _BatchNorm) for module in deployed.modules())
    assert not any('running' in name or 'num_batches' in name for name in deployed.state_dict())
    assert not any(parameter.requires_grad for parameter in deployed.parameters())
    return deployed


@pytest.mark.parametrize(('method', 'options'), EVERY_WAY)
@pytest.mark.parametrize('batch', [1, 2])
def test_every_method(method, options, batch):
    assert_deployed(two_stages(method, **options), image(batch=batch))


@pytest.mark.parametrize('library', HOSTS)
@pytest.mark.parametrize(('name', 'options'), [('ResNet', {}), ('ResNeXt', dict(groups=2, base_width=4)),
                                               ('ResNetV1d', {}), ('Res2Net', dict(scales=4, base_width=4)),
                                               ('SEResNet', {})])
def test_trunks(library, name, options):
    if not hasattr(HOSTS[library].backbones, name):
        pytest.skip(f'{library} has no {name}')
    if (name, library) == ('ResNeXt', 'mmpretrain'):
        options = dict(groups=2, width_per_group=4)
    net = mixed(host_class(library, name))(layer_attention=KCLA, **SMALL | options)
    assert_deployed(randomise_(net), image(64, 64))


def test_counts():
    """Nothing but convolutions and ReLU between the maps: the norm costs neither an operator nor a pass."""
    def costs(net):
        with TrafficCounter() as counter, torch.no_grad():
            net(image(64, 64))
        return counter
    net = two_stages('KCLA')
    before, after = costs(net), costs(switch_to_deploy(copy.deepcopy(net)))
    assert after.calls_by_name['native_batch_norm'] == after.calls_by_name['addcmul'] == 0
    assert after.calls < before.calls and after.traffic < before.traffic


@pytest.mark.parametrize('method', ['KCLA', 'MRLALight'])
def test_gradient_of_the_image(method):
    net = two_stages(method).double()
    grads = []
    for form in (net, switch_to_deploy(copy.deepcopy(net))):
        x = image(dtype=torch.float64).requires_grad_()
        weighted_sum(form(x)).backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize('name', ['kcla-resnet20_digits', 'unet-kcla-small_coins', 'mask-rcnn_r18-kcla_fpn_coins'])
def test_whole_models(name):
    config = Config.fromfile(mmkcla.config_file(f'{name}.py'))
    model = randomise_(MODELS.build(config.model | dict(_scope_=config.default_scope)))
    kwargs = {}
    if 'rcnn' in name:
        model.forward = model.extract_feat
    else:
        kwargs = dict(mode='tensor')
    assert_deployed(model, image(64, 64), **kwargs)


class Head(nn.Module):
    """One convolution for two levels, with a batch norm each, as in RTMDet's head."""

    def __init__(self):
        super().__init__()
        conv = nn.Conv2d(4, 4, 3)
        self.levels = nn.ModuleList(nn.Sequential(conv, nn.BatchNorm2d(4)) for _ in range(2))

    def forward(self, x):
        return [level(x) for level in self.levels]


def test_a_shared_convolution():
    assert_deployed(randomise_(Head()), torch.randn(1, 4, 5, 5))


def test_batch_norms_of_other_kinds():
    assert_deployed(nn.Sequential(nn.ReLU(), randomise_(nn.BatchNorm2d(4)), nn.Conv2d(4, 4, 1),
                                  nn.BatchNorm2d(4, affine=False)), torch.randn(2, 4, 5, 5))
    with pytest.raises(UserError, match='batch norm 1 has no running statistics .*, so it cannot be folded'):
        switch_to_deploy(nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4, track_running_stats=False)))
