"""Registered backbones based on mmpretrain's ResNet."""
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mmcv.cnn import build_conv_layer, build_norm_layer
from mmpretrain.models.backbones.resnet import ResNet
from torch import Tensor, nn

from ...errors import UserError
from ...layers.common import is_positive
from ...registry import MODELS
from .layer_attention_mixin import LayerAttentionMixin


@MODELS.register_module()
class LayerAttentionResNet(LayerAttentionMixin, ResNet):
    """A ResNet (depth 18, 34, 50, 101, 152) with a layer attention after each block.

    Accepts the arguments of mmpretrain's ResNet and the extra ones of the ResNets of mmdet and mmseg, so in an
    existing config only ``type`` needs to change. ``pretrained`` is the old spelling of ``init_cfg``.

    Args:
        depth: depth of the ResNet.
        layer_attention, attention_norm_eval: see :class:`LayerAttentionMixin`.
        pretrained: checkpoint to initialise from, same as ``init_cfg=dict(type='Pretrained', checkpoint=…)``.
            Checkpoints of ResNetV1c and V1d of mmdet and mmseg need ``deep_stem=True`` (V1d: ``avg_down=True`` too).
        dcn, stage_with_dcn, plugins: accepted only if they have no effect. To use them, combine
            :class:`LayerAttentionMixin` with the ResNet of mmdet or mmseg.
        contract_dilation: halve the dilation of the first block of a dilated stage (mmseg).
        multi_grid: dilations of the blocks of the last stage (mmseg).
        small_stem: use a 3×3 convolution with stride 1 and no max-pool as the stem, for small images (CIFAR) and
            full-resolution U-Nets. Parameter names are those of the standard stem.
        stem_out: also return the stem's map (before the max-pool) as the first output, for the first skip of a U-Net.
        stage_channels: output channels of the stages, if they should not double from ``base_channels``.
        kwargs: passed to mmpretrain's ResNet: ``in_channels, stem_channels, base_channels, num_stages, strides,
            dilations, out_indices (default: (3,)), style, deep_stem, avg_down, frozen_stages, conv_cfg, norm_cfg,
            norm_eval, with_cp, zero_init_residual, drop_path_rate, init_cfg``.

    Raises:
        UserError: for unknown or inconsistent values.

    Example:
        >>> from mmkcla.models.backbones import LayerAttentionResNet
        >>> net = LayerAttentionResNet(50, layer_attention=dict(type='KCLA'), out_indices=(0, 1, 2, 3))
        >>> net.out_channels, net.out_strides
        ((256, 512, 1024, 2048), (4, 8, 16, 32))
    """

    def __init__(self, depth: int, *args: Any, layer_attention: dict | None = None, pretrained: str | None = None,
                 dcn: dict | None = None, stage_with_dcn: Sequence[bool] = (), plugins: list[dict] | None = None,
                 contract_dilation: bool = False, multi_grid: Sequence[int] | None = None, small_stem: bool = False,
                 stem_out: bool = False, stage_channels: Sequence[int] | None = None, **kwargs: Any) -> None:
        self.small_stem = small_stem
        self.stem_out = stem_out
        self.stage_channels = stage_channels
        if depth not in self.arch_settings:
            raise UserError(f'{type(self).__name__}: there is no ResNet of depth {depth!r}; choose one of: '
                            + ', '.join(map(str, self.arch_settings)))
        for name in ('in_channels', 'stem_channels', 'base_channels'):
            if kwargs.get(name) is not None and not is_positive(kwargs[name]):
                raise UserError(f'{type(self).__name__}: {name}={kwargs[name]!r} must be a number of channels')
        stages = kwargs.get('num_stages', 4)
        frozen, outs = kwargs.get('frozen_stages', -1), kwargs.get('out_indices', (0, ))
        if not (isinstance(frozen, int) and -1 <= frozen <= stages):
            raise UserError(f'frozen_stages={frozen!r} does not fit {stages} stages; choose -1 (none) to {stages}')
        if isinstance(outs, int) or not outs or not all(isinstance(i, int) and 0 <= i < stages for i in outs):
            raise UserError(f'out_indices={outs!r} does not fit {stages} stages; choose a tuple of indices from 0 to '
                            f'{stages - 1}')
        if dcn is not None and any(stage_with_dcn):
            raise UserError(f'{type(self).__name__} does not support dcn; combine LayerAttentionMixin with mmdet\'s '
                            'ResNet to use deformable convolutions')
        if plugins:
            raise UserError(f'{type(self).__name__} does not support block plugins; combine LayerAttentionMixin with '
                            'the ResNet of mmdet or mmseg to use plugins')
        if pretrained is not None:
            if kwargs.get('init_cfg'):
                raise UserError('pretrained and init_cfg cannot both be set; use init_cfg')
            kwargs['init_cfg'] = dict(type='Pretrained', checkpoint=pretrained)
        elif kwargs.get('init_cfg', ()) is None:  # means "default initialisation" in mmdet and mmseg
            del kwargs['init_cfg']
        if kwargs.get('stem_channels', ()) is None:  # mmdet's default
            kwargs['stem_channels'] = kwargs.get('base_channels', 64)
        super().__init__(depth, *args, layer_attention=layer_attention, **kwargs)
        self._set_dilations(contract_dilation, multi_grid)

    def _make_stem_layer(self, in_channels: int, stem_channels: int) -> None:
        if not self.small_stem:
            super()._make_stem_layer(in_channels, stem_channels)
            return
        if self.deep_stem:
            raise UserError('small_stem and deep_stem cannot both be set')
        self.conv1 = build_conv_layer(self.conv_cfg, in_channels, stem_channels, 3, padding=1, bias=False)
        self.norm1_name, norm1 = build_norm_layer(self.norm_cfg, stem_channels, postfix=1)
        self.add_module(self.norm1_name, norm1)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.Identity()

    def make_res_layer(self, **kwargs: Any) -> nn.Module:
        """Build a stage, with the width from ``stage_channels`` if set."""
        if self.stage_channels is not None:
            if len(self.stage_channels) != self.num_stages:
                raise UserError(f'stage_channels={tuple(self.stage_channels)} has {len(self.stage_channels)} entries '
                                f'for {self.num_stages} stages')
            widths = [self.stem_channels, *self.stage_channels]
            stage = len(self.res_layers)
            kwargs |= dict(in_channels=widths[stage], out_channels=widths[stage + 1])
        return super().make_res_layer(**kwargs)

    @property
    def out_channels(self) -> tuple[int, ...]:
        """Number of channels of each output."""
        return ((self.stem_channels,) if self.stem_out else ()) + super().out_channels

    @property
    def out_strides(self) -> tuple[int, ...]:
        """Stride of each output with respect to the input, in pixels."""
        return ((1 if self.small_stem else 2,) if self.stem_out else ()) + super().out_strides

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Compute the stem's map (with ``stem_out``) and the maps of ``out_indices`` from ``(B, 3, H, W)``; a tuple."""
        if not self.stem_out:
            return super().forward(x)
        stem = self.stem_map(x)
        return (stem, *self.forward_stages(self.maxpool(stem)))

    def _set_dilations(self, contract_dilation: bool, multi_grid: Sequence[int] | None) -> None:
        """Apply mmseg's ``contract_dilation`` and ``multi_grid``; parameters are unchanged."""
        for i, blocks in enumerate(self._stages()):
            dilations = [self.dilations[i]] * len(blocks)
            if contract_dilation and dilations[0] > 1:
                dilations[0] //= 2
            if multi_grid is not None and i == self.num_stages - 1:
                if len(multi_grid) < len(blocks):
                    raise UserError(f'multi_grid={tuple(multi_grid)} needs at least one entry for each of the '
                                    f'{len(blocks)} blocks of the last stage')
                dilations = list(multi_grid)
            for block, dilation in zip(blocks, dilations, strict=False):
                conv = block.conv2 if hasattr(block, 'conv3') else block.conv1
                conv.dilation = conv.padding = (dilation, dilation)

    def _pretrained_names(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Rename the deep stem and the ``avg_down`` downsamples of mmdet and mmseg checkpoints for mmpretrain."""
        if not self.deep_stem:
            if any(name.startswith('stem.') for name in weights):
                raise UserError('the checkpoint has a deep stem (ResNetV1c or V1d); set deep_stem=True')
            return weights
        renamed = {}
        own = self.state_dict()
        for name, value in weights.items():
            start, _, rest = name.rpartition('.')
            stem = re.fullmatch(r'stem\.([013467])', start)
            pooled = re.fullmatch(r'(layer\d\.0\.downsample)\.([12])', start)
            if stem:
                number, norm = divmod(int(stem[1]), 3)
                name = f'stem.{number}.{"bn" if norm else "conv"}.{rest}'
            elif pooled and f'{pooled[1]}.2.weight' not in own and f'{pooled[1]}.2.weight' in weights:
                name = f'{pooled[1]}.{int(pooled[2]) - 1}.{rest}'  # mmdet and mmseg average over 1×1 if the stride is 1
            renamed[name] = value
        return renamed


@MODELS.register_module()
class KCLAResNet(LayerAttentionResNet):
    """:class:`LayerAttentionResNet` with KCLA (arXiv 2606.28405) as its default layer attention.

    ``layer_attention`` may contain KCLA options without a type, or another method.

    KCLAResNet-50 has 23,801,133 parameters, KCLAResNet-101 42,989,271.
    """

    def __init__(self, depth: int, *args: Any, layer_attention: dict | None = None, **kwargs: Any) -> None:
        if layer_attention is None or isinstance(layer_attention, Mapping):
            layer_attention = {'type': 'KCLA', **(layer_attention or {})}
        super().__init__(depth, *args, layer_attention=layer_attention, **kwargs)
