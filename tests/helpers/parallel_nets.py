"""Every shipped layer attention, neck and head in a small net, trained two steps on one process or on several."""
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from mmengine.config import Config
from mmengine.registry import MODEL_WRAPPERS
from small_nets import randomise_
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mmkcla.layers import known_layer_attentions, layer_attention_class
from mmkcla.models.backbones import CifarLayerAttentionResNet, LayerAttentionResNet
from mmkcla.models.decode_heads import UNetHead
from mmkcla.models.necks import KCLAFPN, EfficientAttentionNeck, LayerAttentionNeck
from mmkcla.runtime.launch import set_launcher

METHODS = [name for name in known_layer_attentions() if layer_attention_class(name).__module__.startswith('mmkcla.')]
WITH_CARRY = [name for name in METHODS
              if getattr(layer_attention_class(name).build_stage(8, 1, carry_channels=8)[0], 'carry', None)]
BATCH, STEPS = 8, 2
MODES = ('frozen', 'training')  # see :func:`net_of`


class Case(NamedTuple):
    """A net, built from options of its layer attention and of its trunk, and the shapes of its inputs."""

    build: Callable[..., nn.Module]
    shapes: tuple[tuple[int, ...], ...] = ((3, 24, 24), )


class _UNet(nn.Module):
    def __init__(self, method: str, upsample: str, options: dict[str, Any], trunk: dict[str, Any]) -> None:
        super().__init__()
        self.encoder = LayerAttentionResNet(
            18, small_stem=True, stem_out=True, stem_channels=8, stage_channels=(8, 16), num_stages=2, strides=(2, 2),
            dilations=(1, 1), out_indices=(0, 1), layer_attention=dict(type=method, **options), **trunk)
        self.head = UNetHead(self.encoder.out_channels, (8, 8), num_classes=2, out_channels=1, threshold=0.5,
                             upsample=upsample, dropout_ratio=0.)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (self.head(self.encoder(x)), )


def _backbone(method: str, variant: dict[str, Any], options: dict[str, Any], trunk: dict[str, Any]) -> nn.Module:
    return LayerAttentionResNet(18, base_channels=8, stem_channels=8, num_stages=3, strides=(1, 2, 2),
                                dilations=(1, 1, 1), out_indices=(2, ),
                                layer_attention=dict(type=method, **variant, **options), **trunk)


def _one_block(method: str, variant: dict[str, Any], options: dict[str, Any], trunk: dict[str, Any]) -> nn.Module:
    return CifarLayerAttentionResNet(8, layer_attention=dict(type=method, **variant, **options), **trunk)


class _Neck(nn.Module):
    """A neck behind convolutions, so that its gradients go on to earlier layers."""

    def __init__(self, neck: nn.Module, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.before = nn.ModuleList(nn.Conv2d(width, width, 1) for width in widths)
        self.neck = neck

    def forward(self, *levels: Tensor) -> tuple[Tensor, ...]:
        return self.neck([conv(x) for conv, x in zip(self.before, levels, strict=True)])


def _levels_neck(carry: str, method: str, options: dict[str, Any], trunk: object) -> nn.Module:
    layers = dict(type=method, layer_scale_init=1., **options)
    return _Neck(LayerAttentionNeck([8] * 3, layer_attention=layers, direction='both', carry=carry), (8, ) * 3)


def _fpn(carry: str, method: str, options: dict[str, Any], trunk: object) -> nn.Module:
    layers = dict(type=method, layer_scale_init=.5, **options)
    return _Neck(KCLAFPN([8, 12, 16], 8, 4, layer_attention=layers, carry=carry), (8, 12, 16))


def _within_levels(attention: str, options: object, trunk: object) -> nn.Module:
    return _Neck(EfficientAttentionNeck([8] * 3, attention=attention, zero_init=False), (8, ) * 3)


def _pyramid(*widths: int) -> tuple[tuple[int, ...], ...]:
    return tuple((width, 12 >> level, 16 >> level) for level, width in enumerate(widths))


# options that add, remove or bypass parameters of a method
VARIANTS = {
    'KCLA': [dict(temperature='learnable'), dict(temperature='dynamic'), dict(dynamic_value=False),
             dict(head_mixing=False), dict(relu=False), dict(fused=False), dict(gate_key='accumulated'),
             dict(share_carry_key=True), dict(carry_bias=True, carry_blocks=(1, )),
             dict(scale_by_width=True, layer_scale_init=.5)],
    'SoftmaxLayerAttention': [dict(literal=True)],
    'EfficientLayerAttention': [dict(normalization='scaling', num_heads=2), dict(key_channels=4, value_channels=4)]}


def _cases() -> Iterator[tuple[str, Case]]:
    for method in METHODS:
        for variant in ({}, *VARIANTS.get(method, ())):
            name = ' '.join([method, *(f'{key}={value}' for key, value in variant.items())])
            yield f'{name} backbone', Case(partial(_backbone, method, variant))
            yield f'{name} one block a stage', Case(partial(_one_block, method, variant), ((3, 16, 16), ))
        for upsample in ('bilinear', 'deconv') if method.startswith('DLA') else ('bilinear', ):
            yield f'{method} UNetHead {upsample}', Case(partial(_UNet, method, upsample), ((3, 16, 16), ))
        for carry in ('keep', 'token') if method in WITH_CARRY else ('keep', ):
            yield (f'{method} LayerAttentionNeck {carry}',
                   Case(partial(_levels_neck, carry, method), _pyramid(8, 8, 8)))
            yield f'{method} KCLAFPN {carry}', Case(partial(_fpn, carry, method), _pyramid(8, 12, 16))
    for attention in ('EfficientAttention', 'DotProductAttention2d'):
        yield f'{attention} EfficientAttentionNeck', Case(partial(_within_levels, attention), _pyramid(8, 8, 8))


CASES = dict(_cases())


def net_of(name: str, mode: str) -> nn.Module:
    """The net of a case in float64, the same in every process.

    ``'frozen'``: batch norms in evaluation. ``'training'``: batch norms train, drop path is on, blocks and attentions
    are checkpointed.
    """
    torch.manual_seed(0)
    training = mode == 'training'
    net = CASES[name].build(dict(drop_path=0.3 if training else 0., with_cp=training), dict(with_cp=training))
    randomise_(net).double().train()
    for module in net.modules():
        if isinstance(module, _BatchNorm) and not training:
            module.eval()
    return net


def losses(net: nn.Module, name: str, part: int, parts: int) -> Iterator[Tensor]:
    """The loss of each step for one of several equal parts of its batch: the mean over the samples."""
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        batch = [torch.randn(BATCH, *shape, generator=generator, dtype=torch.float64)[part::parts]
                 for shape in CASES[name].shapes]
        torch.manual_seed(100 * step + part)  # of drop path
        yield sum(((out - 1).square() * torch.linspace(-1, 2, out[0].numel(), dtype=out.dtype).view_as(out[0])).mean()
                  for out in net(*batch))


def gradients(net: nn.Module) -> list[Tensor | None]:
    return [None if parameter.grad is None else parameter.grad.clone() for parameter in net.parameters()]


def one_process(name: str, mode: str, parts: int) -> list[Any]:
    """Loss and gradients of each step, where the batch passes through the net in several parts."""
    net = net_of(name, mode)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    found = []
    for losses_of_step in zip(*(losses(net, name, part, parts) for part in range(parts)), strict=True):
        loss = sum(losses_of_step) / parts
        optimizer.zero_grad()
        loss.backward()
        found.append((loss.detach(), gradients(net)))
        optimizer.step()
    return found


def this_rank(wanted: list[tuple[str, str]]) -> dict[tuple[str, str], Any]:
    """Loss and gradients of each step as DDP of our commands gives them; an error as text."""
    config = Config()
    set_launcher(config, 'pytorch', 0)
    return {case: _steps(config.model_wrapper_cfg, *case) for case in wanted}


def _steps(wrapper: dict[str, Any], name: str, mode: str) -> Any:
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    try:
        net = MODEL_WRAPPERS.build(dict(module=net_of(name, mode), **wrapper))
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
        found = []
        for loss in losses(net, name, rank, ranks):
            optimizer.zero_grad()
            loss.backward()
            distributed.all_reduce(mean := loss.detach() / ranks)
            found.append((mean, gradients(net)))
            optimizer.step()
        return found
    except RuntimeError as error:  # the same on all ranks: parameters without a gradient
        return str(error)
