"""The form of a model that inference needs: no batch norms, no drop path, no statistics."""
from __future__ import annotations

import copy
from typing import TypeVar

import torch
from mmcv.cnn import fuse_conv_bn
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..errors import UserError
from ..layers import LayerAttention
from ..layers.common import ChannelAffine, affine_of

Model = TypeVar('Model', bound=nn.Module)


@torch.no_grad()
def switch_to_deploy(model: Model) -> Model:
    """Fold all batch norms of a model into its convolutions, and drop what only training needs.

    The model is changed in place and put into evaluation mode, with all parameters frozen; its results stay equal up
    to rounding. Works on backbones and on complete models of mmdet, mmseg and mmpretrain. Convolutions are folded by
    mmcv's ``fuse_conv_bn``, which takes a batch norm to follow the convolution that is registered before it. A batch
    norm without such a convolution becomes a scale and a shift per channel. Load the weights before: the entries of
    the batch norms no longer exist afterwards.

    Raises:
        UserError: for a batch norm without running statistics, whose result depends on the batch.
    """
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and (module.running_mean is None or module.running_var is None):
            raise UserError(f'batch norm {name} has no running statistics (track_running_stats=False), so it cannot be '
                            'folded')
    model.eval()
    for module in model.modules():
        if isinstance(module, LayerAttention):
            module.switch_to_deploy()
    _unshare_convolutions(model)
    for module in model.modules():
        if isinstance(module, _BatchNorm) and not module.affine:  # fuse_conv_bn expects a scale and a shift
            module.register_parameter('weight', nn.Parameter(torch.ones(module.num_features)))
            module.register_parameter('bias', nn.Parameter(torch.zeros(module.num_features)))
            module.to(next(module.buffers()))
    model = fuse_conv_bn(model)
    _replace_other_norms(model)
    return model.requires_grad_(False)


def _unshare_convolutions(model: nn.Module) -> None:
    """Give each parent its own copy: heads may share a convolution between levels whose batch norms differ."""
    known: set[nn.Module] = set()
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Conv2d):
                if child in known:
                    module._modules[name] = child = copy.deepcopy(child)
                known.add(child)


def _replace_other_norms(model: nn.Module) -> None:
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, (nn.BatchNorm2d, nn.SyncBatchNorm)):
                module._modules[name] = ChannelAffine(*affine_of(child))
