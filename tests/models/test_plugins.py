"""Efficient Attention as a plugin of the hosts' ResNets."""
import pytest
import torch
from mmengine.registry import DefaultScope
from small_nets import HOSTS, KCLA, SMALL, equal, host_class, image, mixed

from mmkcla.layers import DotProductAttention2d, EfficientAttention

PLUGIN = dict(key_channels=8, num_heads=2, zero_init=True)


def plugins(type_='EfficientAttention'):
    return [dict(cfg=dict(type=f'mmkcla.{type_}', **PLUGIN), stages=(False, True, True, False), position='after_conv3')]


@pytest.mark.parametrize('type_, kind', [('EfficientAttention', EfficientAttention),
                                         ('DotProductAttention2d', DotProductAttention2d)])
@pytest.mark.parametrize('library', ['mmdet', 'mmseg'])
def test_plugin_of_a_host(library, type_, kind):
    assert library in HOSTS
    with DefaultScope.overwrite_default_scope(library):
        net = host_class(library)(plugins=plugins(type_), **SMALL)
    net.init_weights()  # the host's Kaiming rule for convolutions would undo the start at zero
    attentions = [module for module in net.modules() if isinstance(module, kind)]
    assert len(attentions) == 10 and all(not module.reprojection.weight.any() for module in attentions)
    plain = host_class(library)(**SMALL)
    plain.eval()
    missing, unexpected = plain.load_state_dict(net.state_dict(), strict=False)
    assert not missing and all('attention' in name for name in unexpected)
    net.eval()  # mmseg's returns nothing
    assert equal(net(image()), plain(image()))
    attentions[0].reprojection.weight.data.normal_()
    outs, theirs = net(image()), plain(image())
    assert torch.equal(outs[0], theirs[0]) and not torch.equal(outs[1], theirs[1])


def test_beside_a_layer_attention():
    """The mixin on a host's class takes both: plugins inside the blocks, KCLA after them."""
    with DefaultScope.overwrite_default_scope('mmdet'):
        net = mixed(host_class('mmdet'))(plugins=plugins(), layer_attention=KCLA, **SMALL)
    net.init_weights()
    outs = net(image())
    sum(out.square().sum() for out in outs).backward()
    assert all(parameter.grad is not None for parameter in net.parameters())
