"""The CIFAR ResNets of the layer-attention papers."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmpretrain.models.backbones.resnet import BasicBlock, Bottleneck
from mmpretrain.models.backbones.seresnet import SEBottleneck

from ...errors import UserError
from ...layers import layer_attention_class
from ...layers.common import is_positive
from ...registry import MODELS
from .resnet import LayerAttentionResNet

BLOCKS = {'bottleneck': (Bottleneck, 9), 'basic': (BasicBlock, 6), 'se_bottleneck': (SEBottleneck, 9)}


@MODELS.register_module()
class CifarLayerAttentionResNet(LayerAttentionResNet):
    """A ResNet for 32×32 images: a 3×3 stem with 16 channels and three stages with base widths 16, 32 and 64.

    Args:
        depth: 9n + 2 with bottleneck blocks (20, 56, 110, 164; the last stage has 256 channels), 6n + 2 with basic
            blocks (the last stage has 64 channels).
        block: ``'bottleneck'``, ``'basic'`` or ``'se_bottleneck'`` (mmpretrain's squeeze-and-excitation block, as a
            baseline). Default: bottleneck if the depth allows it.
        layer_attention: see :class:`LayerAttentionResNet`. The defaults are the method's ``cifar_options``, as in the
            papers: ``head_channels`` is 16, and DLA's ``reduction`` is 4.
        kwargs: passed to :class:`LayerAttentionResNet`; ``out_indices`` defaults to (2,).

    Raises:
        UserError: for an unknown block, or a depth that is neither 9n + 2 nor 6n + 2.
    """

    def __init__(self, depth: int, layer_attention: dict | None = None, block: str | None = None,
                 **kwargs: Any) -> None:
        if block not in (None, *BLOCKS):
            raise UserError(f'block={block!r} is unknown; choose one of: {", ".join(BLOCKS)}')
        fitting = [name for name, (_, layers) in BLOCKS.items()
                   if is_positive(depth) and depth > 2 and (depth - 2) % layers == 0]
        block = block or next(iter(fitting), None)
        if block not in fitting:
            raise UserError(f'there is no CIFAR ResNet of depth {depth!r}; choose 9n + 2 for bottleneck blocks '
                            '(20, 56, 110, 164) or 6n + 2 for basic blocks (20, 32, 44, 56, 110)')
        kind, layers = BLOCKS[block]
        self.arch_settings = {depth: (kind, ((depth - 2) // layers, ) * 3)}
        if isinstance(layer_attention, Mapping):
            layer_attention = {**layer_attention_class(layer_attention.get('type')).cifar_options, **layer_attention}
        defaults: dict[str, Any] = dict(stem_channels=16, base_channels=16, num_stages=3, strides=(1, 2, 2),
                                        dilations=(1, 1, 1), out_indices=(2, ), small_stem=True)
        super().__init__(depth, layer_attention=layer_attention, **defaults | kwargs)
