"""Feature network shared by both views."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from mmcv.cnn import ConvModule, make_res_layer
from mmcv.cnn.resnet import BasicBlock
from mmengine.model import BaseModule, ModuleDict, ModuleList
from torch import Tensor, nn

from ...errors import UserError
from ...registry import MODELS

_BN = dict(type='BN')
STRIDES = (1, 2, 1, 1)  # of the stages, after a stem with stride 2
STRIDE = 4


@MODELS.register_module()
class StereoFeatureNet(BaseModule):
    """Three 3×3 convolutions, four stages of residual blocks, and spatial pyramid pooling (PSMNet, table 1).

    All stages except the first compute maps at a quarter of the image size. The pyramid averages the last map over
    windows of ``pool_sizes``, reduces each result by a 1×1 convolution and upsamples it. The results are concatenated
    with the maps of stages 1 and 3 (counted from 0) and fused by two convolutions. Windows larger than the map are cut
    to its size. PSMNet's blocks have no final ReLU and dilate both convolutions; the blocks of mmcv used here have one
    and dilate the first convolution only.

    Args:
        stem_channels: channels of the first convolutions.
        stage_channels, stage_blocks, stage_dilations: channels, number of blocks and dilation of the four stages.
        pool_sizes: window sizes in pixels of a quarter-size map.
        pool_channels: channels of each branch of the pyramid.
        fusion_channels: channels between the last two convolutions.
        out_channels: channels of the output.
        attention: spatial attention, for example ``dict(type='mmkcla.EfficientAttention', num_heads=1)``;
            ``in_channels`` is set automatically. None: the plain network of PSMNet.
        attention_stages: stages followed by an attention, each with its own weights. The default, the last stage, is
            our choice.
        init_cfg: see mmengine's ``BaseModule``.

    Raises:
        UserError: if there are not four stages, or for an unknown attention stage.
    """

    def __init__(self, stem_channels: int = 32, stage_channels: Sequence[int] = (32, 64, 128, 128),
                 stage_blocks: Sequence[int] = (3, 16, 3, 3), stage_dilations: Sequence[int] = (1, 1, 1, 2),
                 pool_sizes: Sequence[int] = (64, 32, 16, 8), pool_channels: int = 32, fusion_channels: int = 128,
                 out_channels: int = 32, attention: dict | None = None, attention_stages: Sequence[int] = (3, ),
                 init_cfg: dict | list | None = None) -> None:
        super().__init__(init_cfg)
        for name, values in (('stage_channels', stage_channels), ('stage_blocks', stage_blocks),
                             ('stage_dilations', stage_dilations)):
            if len(values) != len(STRIDES) or not all(isinstance(value, int) and value > 0 for value in values):
                raise UserError(f'StereoFeatureNet: {name}={values} must be {len(STRIDES)} integers of at least 1')
        if attention is not None and not (isinstance(attention, Mapping) and 'type' in attention):
            raise UserError(f'StereoFeatureNet: attention={attention!r} must be a dict with a type, for example '
                            'dict(type=\'mmkcla.EfficientAttention\')')
        if unknown := [stage for stage in attention_stages if stage not in range(len(STRIDES))]:
            raise UserError(f'StereoFeatureNet: attention_stages has {unknown[0]!r}; the stages are 0 to '
                            f'{len(STRIDES) - 1}')
        self.out_channels = out_channels
        self.stem = nn.Sequential(*(
            ConvModule(3 if number == 0 else stem_channels, stem_channels, 3, stride=2 if number == 0 else 1,
                       padding=1, norm_cfg=_BN) for number in range(3)))
        widths = [stem_channels, *stage_channels]
        self.stages = nn.ModuleList(
            make_res_layer(BasicBlock, width_in, width, blocks, stride, dilation)
            for width_in, width, blocks, stride, dilation in zip(widths, widths[1:], stage_blocks, STRIDES,
                                                                 stage_dilations, strict=False))
        # mmengine's containers propagate init_weights, so the attentions initialise themselves
        self.attentions = ModuleDict({} if attention is None else {
            str(stage): MODELS.build({**attention, 'in_channels': stage_channels[stage]})
            for stage in sorted(set(attention_stages))})
        self.pool_sizes = tuple(pool_sizes)
        self.pools = ModuleList(ConvModule(stage_channels[3], pool_channels, 1, norm_cfg=_BN) for _ in pool_sizes)
        self.fusion = nn.Sequential(
            ConvModule(stage_channels[1] + stage_channels[3] + pool_channels * len(self.pool_sizes), fusion_channels,
                       3, padding=1, norm_cfg=_BN),
            nn.Conv2d(fusion_channels, out_channels, 1, bias=False))

    def forward(self, images: Tensor) -> Tensor:
        """Compute features ``(B, out_channels, H/4, W/4)`` of images ``(B, 3, H, W)``; H and W divisible by 4."""
        x = self.stem(images)
        maps = []
        for number, stage in enumerate(self.stages):
            x = stage(x)
            if str(number) in self.attentions:
                x = self.attentions[str(number)](x)
            maps.append(x)
        size = x.shape[2:]
        pooled = [F.interpolate(convolution(self._average(x, side)), size=size, mode='bilinear', align_corners=False)
                  for side, convolution in zip(self.pool_sizes, self.pools, strict=True)]
        return self.fusion(torch.cat([maps[1], x, *pooled], 1))

    @staticmethod
    def _average(x: Tensor, side: int) -> Tensor:
        """Average over windows. Windows at the bottom and right border may be smaller, so all pixels are used."""
        window = (min(side, x.shape[2]), min(side, x.shape[3]))
        return F.avg_pool2d(x, window, window, ceil_mode=True, count_include_pad=False)
