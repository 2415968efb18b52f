"""The feature net that both views share."""
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
STRIDES = (1, 2, 1, 1)  # of the stages, after a stem of stride 2
STRIDE = 4


@MODELS.register_module()
class StereoFeatureNet(BaseModule):
    """Three 3×3 convolutions, four stages of residual blocks, spatial pyramid pooling (PSMNet, table 1).

    The maps are a quarter of the image's size, all four stages' but the first. Averages over windows of ``pool_sizes``,
    each reduced by a 1×1 convolution and enlarged again, stand beside the maps of stages 1 and 3 (counted from 0); two
    convolutions fuse them. The windows are cut to the map where it is smaller. PSMNet's blocks end without a ReLU and
    dilate both their convolutions; mmcv's, which are used here, end with one and dilate the first.

    Args:
        stem_channels: of the first convolutions.
        stage_channels, stage_blocks, stage_dilations: of the four stages.
        pool_sizes: sides of the windows, in pixels of a quarter-size map.
        pool_channels: of each of the pyramid's branches.
        fusion_channels: between the two last convolutions.
        out_channels: of the result.
        attention: an attention over positions, as ``dict(type='mmkcla.EfficientAttention', num_heads=1)``;
            ``in_channels`` is filled in. None: PSMNet's own net.
        attention_stages: after which stages it stands, each with weights of its own. The last by default: the place
            is ours.
        init_cfg: of mmengine's ``BaseModule``.

    Raises:
        UserError: for other than four stages, or a stage to attend to that there is not.
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
                raise UserError(f'StereoFeatureNet: {name}={values} must be {len(STRIDES)} numbers of at least 1')
        if attention is not None and not (isinstance(attention, Mapping) and 'type' in attention):
            raise UserError(f'StereoFeatureNet: attention={attention!r} must be a dict with a type, as in '
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
        # mmengine's own dict and list: they pass init_weights on, so that an attention draws its own start
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
        """``(B, 3, H, W)``, sides divisible by 4, to ``(B, out_channels, H/4, W/4)``."""
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
        """Means over windows; those at the lower and right border may be smaller, so that no pixel is left out."""
        window = (min(side, x.shape[2]), min(side, x.shape[3]))
        return F.avg_pool2d(x, window, window, ceil_mode=True, count_include_pad=False)
