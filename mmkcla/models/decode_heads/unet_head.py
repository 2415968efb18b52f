"""U-Net decoder as a decode head for mmseg."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from mmcv.cnn import ConvModule
from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from mmseg.models.utils import resize
from mmseg.utils import SampleList
from torch import Tensor, nn

from ...errors import UserError
from ...registry import MODELS

UPSAMPLES = ('bilinear', 'deconv')


@MODELS.register_module()
class UNetHead(BaseDecodeHead):
    """U-Net decoder. Each step upsamples to the size of the next skip, concatenates and applies two conv-BN-ReLU
    layers; a final 1×1 convolution classifies.

    The map is resized to exactly the size of the skip. Nothing is cropped, odd input sizes work, and a map that already
    has the right size (a stage with stride 1) is used unchanged.

    Args:
        in_channels: channels of the encoder outputs selected by ``in_index``, highest resolution first.
        decoder_channels: channels after each decoder step, deepest first; one entry fewer than ``in_channels``. The
            last entry is the input width of the classifier.
        in_index: indices of the encoder outputs to use. Default: all.
        upsample: ``'bilinear'``, or ``'deconv'``: a 2×2 transposed convolution with stride 2, which requires every map
            to be half the size of the next one (rounded up).
        kwargs: passed to mmseg's ``BaseDecodeHead``: ``num_classes, out_channels, threshold, norm_cfg, dropout_ratio,
            loss_decode, …``. A sigmoid head with one channel is ``num_classes=2, out_channels=1, threshold=0.5``.

    Raises:
        UserError: if the lengths do not match, or a transposed convolution cannot produce the required size.
    """

    def __init__(self, in_channels: Sequence[int], decoder_channels: Sequence[int],
                 in_index: Sequence[int] | None = None, upsample: str = 'bilinear',
                 norm_cfg: dict | None = None, **kwargs: Any) -> None:
        in_index = tuple(range(len(in_channels))) if in_index is None else tuple(in_index)
        if not len(decoder_channels) == len(in_channels) - 1 > 0:
            raise UserError(f'UNetHead: decoder_channels={tuple(decoder_channels)} has {len(decoder_channels)} '
                            f'entries; {len(in_channels)} maps need {len(in_channels) - 1}')
        if len(in_index) != len(in_channels):
            raise UserError(f'UNetHead: in_index={in_index} and in_channels={tuple(in_channels)} differ in length')
        if upsample not in UPSAMPLES:
            raise UserError(f'UNetHead: upsample={upsample!r} is unknown; choose one of: {", ".join(UPSAMPLES)}')
        super().__init__(list(in_channels), decoder_channels[-1], input_transform='multiple_select', in_index=in_index,
                         norm_cfg=norm_cfg or dict(type='BN'), **kwargs)
        skips = list(in_channels[-2::-1])
        below = [in_channels[-1], *decoder_channels[:-1]]
        self.ups = nn.ModuleList(
            nn.ConvTranspose2d(channels, channels, 2, stride=2) if upsample == 'deconv' else nn.Identity()
            for channels in below)
        self.joins = nn.ModuleList(
            nn.Sequential(self._conv(deep + skip, out), self._conv(out, out))
            for deep, skip, out in zip(below, skips, decoder_channels, strict=True))
        self.upsample = upsample

    def _conv(self, in_channels: int, out_channels: int) -> ConvModule:
        return ConvModule(in_channels, out_channels, 3, padding=1, conv_cfg=self.conv_cfg, norm_cfg=self.norm_cfg,
                          act_cfg=self.act_cfg)

    def _to_size(self, x: Tensor, up: nn.Module, size: torch.Size) -> Tensor:
        if self.upsample == 'bilinear':
            if x.shape[-2:] == size:
                return x
            return F.interpolate(x, size=size, mode='bilinear', align_corners=self.align_corners)
        if x.shape[-2:] != tuple((side + 1) // 2 for side in size):
            raise UserError(f'UNetHead: upsample=\'deconv\' doubles the size and cannot upsample a map from '
                            f'{tuple(x.shape[-2:])} to {tuple(size)}; use upsample=\'bilinear\'')
        return up(x)[..., :size[0], :size[1]]  # drop the extra row or column if a side is odd

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """Compute logits ``(B, out_channels, H, W)`` from the encoder outputs, at the size of the first output."""
        *skips, x = self._transform_inputs(inputs)
        for up, join, skip in zip(self.ups, self.joins, reversed(skips), strict=True):
            x = join(torch.cat([skip, self._to_size(x, up, skip.shape[-2:])], dim=1))
        return self.cls_seg(x)

    def loss_by_feat(self, seg_logits: Tensor, batch_data_samples: SampleList) -> dict[str, Tensor]:
        """Compute mmseg's losses, with a correct ``acc_seg`` for heads with one channel.

        ``acc_seg`` is the percentage of pixels classified correctly at the threshold. mmseg takes the argmax over the
        single channel, which is always the background.

        Args:
            seg_logits: ``(B, out_channels, h, w)``.
            batch_data_samples: with ``gt_sem_seg`` of any size; pixels with ``ignore_index`` are ignored.
        """
        losses = super().loss_by_feat(seg_logits, batch_data_samples)
        if self.out_channels == 1:
            truth = self._stack_batch_gt(batch_data_samples)
            logits = resize(seg_logits.detach(), truth.shape[2:], mode='bilinear', align_corners=self.align_corners)
            counted = truth != self.ignore_index
            right = (logits.sigmoid() > self.threshold) == (truth == 1)
            losses['acc_seg'] = 100 * (right & counted).sum() / counted.sum().clamp(min=1)
        return losses
