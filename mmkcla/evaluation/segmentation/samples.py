"""From a sample as mmseg gives it to prediction, truth and scores of one size."""
from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from mmengine.logging import print_log
from torch import Tensor

from ...errors import UserError
from .counts import valid_pixels
from .resize import mask_at, scores_at

SIZES = ('original', 'network')
_TTA = ("mmseg's SegTTAModel does this: it merges the labels of the views, not their scores, and takes the sigmoid of "
        'a one-channel head twice')


class Maps(NamedTuple):
    """What is compared for one image, each ``(H, W)``: the foreground's probability, the predicted and the true
    foreground, and the pixels that count (bool)."""

    scores: Tensor
    prediction: Tensor
    foreground: Tensor
    valid: Tensor


@dataclass
class SampleReader:
    """Reads samples of a segmentor of one or two channels; see :class:`~.metric.BinarySegMetric` for the arguments.

    Args:
        threshold, size, network_size, ignore_index: as of the metric.
        every_threshold: whether the scores are needed beside the labels (``polyp_protocol``).
    """

    threshold: float = 0.5
    size: str = 'original'
    network_size: tuple[int, ...] | None = None
    ignore_index: int | None = 255
    every_threshold: bool = False
    warned: set[str] = field(default_factory=set)

    def read(self, sample: dict, name: str) -> Maps:
        """The maps of a sample.

        Args:
            sample: a data sample as a dict.
            name: of the image, for messages.

        Raises:
            UserError: as of the metric.
        """
        if 'gt_sem_seg' not in sample:
            raise UserError(f'BinarySegMetric: the image {name} comes without a mask; the pipeline needs '
                            'mmkcla.LoadBinaryMask, and the data set a seg_map_path')
        scores, prediction = self._prediction(sample, name)
        truth = _map(sample['gt_sem_seg']['data']).to(scores.device)
        valid_pixels(truth, self.ignore_index, str(sample.get('seg_map_path') or f'of the image {name}'))
        if self.size == 'network':
            scores, truth = self._to_network(sample, scores, truth, name)
            prediction = scores > self.threshold
        elif truth.shape != prediction.shape:
            raise UserError(f'the prediction for {name} is of {_size(prediction)} pixels, its mask of {_size(truth)}: '
                            "load the mask after the resize in the test pipeline, so that it keeps the image's own "
                            "size, or compare at size='network'")
        valid = torch.ones_like(prediction) if self.ignore_index is None else truth != self.ignore_index
        return Maps(scores, prediction, truth == 1, valid)

    def _prediction(self, sample: dict, name: str) -> tuple[Tensor, Tensor]:
        """Foreground probability and foreground, ``(H, W)``, at the original size."""
        labels = _map(sample['pred_sem_seg']['data']) == 1 if 'pred_sem_seg' in sample else None
        if 'seg_logits' not in sample:
            return self._labels_alone(labels, name, 'there are no seg_logits')
        logits = sample['seg_logits']['data'].float()
        if len(logits) not in (1, 2):
            raise UserError(f'BinarySegMetric is for one or two channels, the prediction for {name} has {len(logits)}; '
                            'set num_classes=2 in the decode head')
        if not bool(torch.isfinite(logits).all()):
            labels = None
            self.warn('finite', f'the prediction for {name} has scores that are not finite; where they are NaN it '
                       'counts as background')
        if len(logits) == 2:
            margin = (logits[1] - logits[0]).nan_to_num(-math.inf, math.inf, -math.inf)
            if labels is not None and bool((labels != (margin > 0)).any()):
                return self._labels_alone(labels, name, f'pred_sem_seg does not follow from seg_logits ({_TTA})')
            scores = (margin.cpu().double() if self.size == 'network' else margin).sigmoid()
            return scores, margin > math.log(self.threshold / (1 - self.threshold))
        scores = logits[0].nan_to_num(0.0)  # mmseg's postprocess_result has applied the sigmoid
        if bool(((scores < 0) | (scores > 1)).any()):
            raise UserError(f'BinarySegMetric expects probabilities of a one-channel head (mmseg applies the sigmoid), '
                            f'the prediction for {name} goes from {float(scores.min()):.3g} to '
                            f'{float(scores.max()):.3g}')
        prediction = scores > self.threshold
        if labels is not None and bool((labels != prediction).any()):
            self._check_cut(scores, labels, name, bool(sample.get('flip')))
        return scores, prediction

    def _check_cut(self, scores: Tensor, labels: Tensor, name: str, flipped: bool) -> None:
        """A one-channel head has a threshold of its own (mmseg's default is 0.3); see that it has just that."""
        below = float(scores[~labels].max()) if not bool(labels.all()) else 0.0
        above = float(scores[labels].min()) if bool(labels.any()) else 1.0
        if below > above or above < 0.05 or (flipped and bool(labels.all())):
            raise UserError(f'the prediction for {name}: pred_sem_seg does not follow from seg_logits by any sensible '
                            f'threshold ({_TTA}); use a TTA model that merges probabilities')
        self.warn('cut', f"the head's own labels are cut at a threshold between {below:.3g} and {above:.3g}; the "
                   f'scores here are for threshold={self.threshold}. Set decode_head.threshold={self.threshold} for '
                   'the same labels elsewhere')

    def _labels_alone(self, labels: Tensor | None, name: str, why: str) -> tuple[Tensor, Tensor]:
        if labels is None:
            raise UserError(f'BinarySegMetric: the sample of {name} has neither seg_logits nor pred_sem_seg')
        if self.threshold != 0.5 or self.every_threshold:
            asked = 'polyp_protocol' if self.every_threshold else f'threshold={self.threshold}'
            raise UserError(f'BinarySegMetric: {asked} needs the scores of {name}, but {why}')
        self.warn('labels', f'{name}: {why}; the labels are evaluated as they are')
        return labels.float(), labels

    def _to_network(self, sample: dict, scores: Tensor, truth: Tensor, name: str) -> tuple[Tensor, Tensor]:
        size = self.network_size or sample.get('img_shape')
        if size is None:
            raise UserError(f"BinarySegMetric: size='network', but the sample of {name} has no img_shape; give "
                            'network_size=(height, width)')
        size = int(size[0]), int(size[1])
        scores, exact = scores_at(scores, size)
        if not exact:
            self.warn('resize', f'the prediction for {name} is not exactly one of {size[1]}×{size[0]} pixels '
                       'resized; what is compared at that size is an approximation')
        return scores, mask_at(truth, size).to(scores.device)

    def warn(self, kind: str, text: str) -> None:
        """Log each kind of trouble once an evaluation."""
        if kind not in self.warned:
            self.warned.add(kind)
            print_log(text, 'current', logging.WARNING)


def _map(data: Tensor) -> Tensor:
    """``(1, H, W)`` or ``(H, W)`` to ``(H, W)``."""
    return data.reshape(data.shape[-2:])


def _size(data: Tensor) -> str:
    return f'{data.shape[1]}×{data.shape[0]}'
