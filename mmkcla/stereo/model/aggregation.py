"""Cost aggregation by 3-D convolutions (PSMNet, arXiv 1803.08669, section 3.4)."""
from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from mmcv.cnn import ConvModule
from mmengine.model import BaseModule
from torch import Tensor, nn

from ...registry import MODELS


def _convolution(channels_in: int, channels: int, stride: int = 1, relu: bool = True) -> ConvModule:
    return ConvModule(channels_in, channels, 3, stride=stride, padding=1, conv_cfg=dict(type='Conv3d'),
                      norm_cfg=dict(type='BN3d'), act_cfg=dict(type='ReLU') if relu else None)


def _pair(channels_in: int, channels: int) -> nn.Sequential:
    return nn.Sequential(_convolution(channels_in, channels), _convolution(channels, channels, relu=False))


def _output(channels: int) -> nn.Sequential:
    return nn.Sequential(_convolution(channels, channels), nn.Conv3d(channels, 1, 3, padding=1, bias=False))


class _Aggregation(BaseModule):
    """``forward`` maps a volume ``(B, C, D, H, W)`` to a list of logits ``(B, D, H, W)``; the last one is the best.

    D, H and W must be divisible by ``divisor``. ``num_outputs`` is the length of the list.
    """

    divisor: ClassVar[int] = 1
    num_outputs = 1

    def __init__(self, in_channels: int, channels: int, init_cfg: dict | list | None = None) -> None:
        super().__init__(init_cfg)
        self.reduction = nn.Sequential(_convolution(in_channels, channels), _convolution(channels, channels))


@MODELS.register_module()
class BasicAggregation(_Aggregation):
    """Residual pairs of 3×3×3 convolutions at the resolution of the volume.

    Args:
        in_channels: channels of the volume.
        channels: channels of the convolutions.
        pairs: number of residual pairs after the first two convolutions.
        init_cfg: see mmengine's ``BaseModule``.
    """

    def __init__(self, in_channels: int, channels: int = 32, pairs: int = 5,
                 init_cfg: dict | list | None = None) -> None:
        super().__init__(in_channels, channels, init_cfg)
        self.pairs = nn.ModuleList(_pair(channels, channels) for _ in range(pairs))
        self.output = _output(channels)

    def forward(self, volume: Tensor) -> list[Tensor]:
        """See :class:`_Aggregation`."""
        x = self.reduction(volume)
        for pair in self.pairs:
            x = x + pair(x)
        return [self.output(x)[:, 0]]


@MODELS.register_module()
class HourglassAggregation(_Aggregation):
    """One residual pair, then hourglasses. Each hourglass has an output, which is added to the previous one.

    Args:
        in_channels: channels of the volume.
        channels: channels of the convolutions; doubled inside the hourglasses.
        stacks: number of hourglasses; PSMNet has 3.
        init_cfg: see mmengine's ``BaseModule``.
    """

    divisor = 4

    def __init__(self, in_channels: int, channels: int = 32, stacks: int = 3,
                 init_cfg: dict | list | None = None) -> None:
        super().__init__(in_channels, channels, init_cfg)
        self.num_outputs = stacks
        self.pair = _pair(channels, channels)
        self.hourglasses = nn.ModuleList(_Hourglass(channels) for _ in range(stacks))
        self.outputs = nn.ModuleList(_output(channels) for _ in range(stacks))

    def forward(self, volume: Tensor) -> list[Tensor]:
        """See :class:`_Aggregation`."""
        x = self.reduction(volume)
        first = x = x + self.pair(x)
        down = middle = None
        logits: list[Tensor] = []
        for hourglass, output in zip(self.hourglasses, self.outputs, strict=True):
            x, earlier_down, middle = hourglass(x, down, middle)
            down = earlier_down if down is None else down  # all later hourglasses use the map of the first
            x = x + first
            logits.append(output(x)[:, 0] + (logits[-1] if logits else 0))
        return logits


class _Hourglass(nn.Module):
    """Downsample to a quarter and upsample again, adding the intermediate maps of earlier hourglasses."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down = _convolution(channels, 2 * channels, stride=2)
        self.middle = _convolution(2 * channels, 2 * channels, relu=False)
        self.bottom = nn.Sequential(_convolution(2 * channels, 2 * channels, stride=2),
                                    _convolution(2 * channels, 2 * channels))
        self.up = _enlargement(2 * channels, 2 * channels)
        self.out = _enlargement(2 * channels, channels)

    def forward(self, x: Tensor, first_down: Tensor | None, before: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the output and the intermediate maps of the downsampling and upsampling paths."""
        down = self.middle(self.down(x))
        down = F.relu(down if before is None else down + before)
        up = F.relu(self.up(self.bottom(down)) + (down if first_down is None else first_down))
        return self.out(up), down, up


def _enlargement(channels_in: int, channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.ConvTranspose3d(channels_in, channels, 3, stride=2, padding=1, output_padding=1, bias=False),
        nn.BatchNorm3d(channels))
