"""Test-time augmentation of segmentors of two classes."""
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
    """Averages the probabilities of the views, then cuts at the head's threshold.

    mmseg's own ``SegTTAModel`` passes the probabilities of a one-channel head through the sigmoid once more, after
    which every pixel is foreground.

    One channel: ``seg_logits`` becomes the mean probability, as mmseg leaves it for one view, and ``pred_sem_seg``
    is 1 above ``decode_head.threshold``. More channels: ``seg_logits`` becomes the logarithm of the mean softmax.
    """

    def merge_preds(self, data_samples_list: list[list[SegDataSample]]) -> list[SegDataSample]:
        """Merge, image by image, the samples of its views (turned back by the segmentor)."""
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
