"""Test-time augmentation for segmentation with two classes."""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from mmengine.model import BaseTTAModel
from mmengine.structures import PixelData

from ...registry import MODELS

if TYPE_CHECKING:
    from mmseg.structures import SegDataSample


@MODELS.register_module()
class BinarySegTTAModel(BaseTTAModel):
    """Average the probabilities over the augmented views, then apply the threshold of the head.

    mmseg's ``SegTTAModel`` applies the sigmoid a second time to the probabilities of a head with one channel, which
    turns every pixel into foreground.

    With one channel, ``seg_logits`` is the mean probability, as in mmseg's output for a single view, and
    ``pred_sem_seg`` is 1 above ``decode_head.threshold``. With more channels, ``seg_logits`` is the logarithm of the
    mean softmax.
    """

    def merge_preds(self, data_samples_list: list[list[SegDataSample]]) -> list[SegDataSample]:
        """Merge the samples of the views of each image. The segmentor has already undone flips and resizing."""
        return [self._merge(views) for views in data_samples_list]

    def _merge(self, views: list[SegDataSample]) -> SegDataSample:
        maps = torch.stack([view.seg_logits.data.float() for view in views])
        merged = views[0]
        if maps.shape[1] == 1:
            scores = maps.mean(0)
            labels = (scores > self.module.decode_head.threshold).to(scores)
        else:
            scores = maps.softmax(1).mean(0).log()
            labels = scores.argmax(0, keepdim=True)
        merged.set_data(dict(seg_logits=PixelData(data=scores), pred_sem_seg=PixelData(data=labels)))
        return merged
