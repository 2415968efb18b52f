"""What the tests of the backbones share: small nets of every host, with the mixin before them."""
from functools import cache

import mmdet.models
import mmpretrain.models
import mmseg.models
import torch

from mmkcla.layers import layer_attention_class
from mmkcla.models.backbones import LayerAttentionMixin, LayerAttentionResNet

HOSTS = {'mmdet': mmdet.models, 'mmseg': mmseg.models, 'mmpretrain': mmpretrain.models}
SMALL = dict(depth=50, base_channels=8, stem_channels=8, out_indices=(0, 1, 2, 3), norm_eval=False)
KCLA = dict(type='KCLA', head_channels=8, drop_path=0.)


def host_class(library, name='ResNet'):
    return getattr(HOSTS[library].backbones, name)


@cache
def mixed(host):
    """The host's class with the mixin before it."""
    return type(f'LayerAttention{host.__name__}', (LayerAttentionMixin, host), {'__module__': __name__})


def randomise_(module):
    """Weights and statistics of batch norms away from their neutral starts."""
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if 'running_var' in name or (name.endswith('.weight') and tensor.ndim == 1):
                tensor.uniform_(0.5, 1.5)
            elif 'running_mean' in name or (name.endswith('.bias') and tensor.ndim == 1):
                tensor.normal_(std=0.3)
    return module


def two_stages(method, **options):
    """Two stages with a layer attention, in evaluation, every parameter and statistic random."""
    options = dict(head_channels=8) | options if 'head_channels' in layer_attention_class(method).options() else options
    net = LayerAttentionResNet(18, stem_channels=16, base_channels=16, num_stages=2, strides=(1, 2), dilations=(1, 1),
                               out_indices=(0, 1), layer_attention=dict(type=method, **options))
    return randomise_(net).eval()


def trunk(state_dict):
    return [name for name in state_dict if not name.startswith('layer_attentions.')]


def image(*size, batch=2, seed=0, dtype=torch.float32):
    return torch.randn(batch, 3, *(size or (33, 47)), generator=torch.Generator().manual_seed(seed)).to(dtype)


def weighted_sum(outs, seed=1):
    """A scalar that depends on every entry of the outputs."""
    generator = torch.Generator().manual_seed(seed)
    return sum((out * torch.randn(out.shape, generator=generator, dtype=out.dtype)).sum() for out in outs)


def equal(ours, theirs):
    return len(ours) == len(theirs) and all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
