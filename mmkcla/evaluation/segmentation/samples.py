"""Extract prediction, ground truth and scores at one size from mmseg data samples."""
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
_TTA = ("mmseg's SegTTAModel causes this: it merges the labels of the views, not their scores, and applies the sigmoid "
        'of a head with one channel twice')


class Maps(NamedTuple):
    """Maps of one image, each ``(H, W)``: foreground probabilities, and as bool the predicted foreground, the true
    foreground and the valid pixels."""

    scores: Tensor
    prediction: Tensor
    foreground: Tensor
    valid: Tensor


@dataclass
class SampleReader:
    """Reads samples of segmentors with one or two output channels.

    Args:
        threshold, size, network_size, ignore_index: see :class:`~.metric.BinarySegMetric`.
        every_threshold: whether scores are required in addition to labels (``polyp_protocol``, ``structure``).
    """

    threshold: float = 0.5
    size: str = 'original'
    network_size: tuple[int, ...] | None = None
    ignore_index: int | None = 255
    every_threshold: bool = False
    warned: set[str] = field(default_factory=set)

    def read(self, sample: dict, name: str) -> Maps:
        """Return the maps of a sample.

        Args:
            sample: a data sample as a dict.
            name: name of the image in messages.

        Raises:
            UserError: see :class:`~.metric.BinarySegMetric`.
        """
        if 'gt_sem_seg' not in sample:
            raise UserError(f'BinarySegMetric: the image {name} has no mask; the pipeline needs '
                            'mmkcla.LoadBinaryMask, and the data set a seg_map_path')
        scores, prediction = self._prediction(sample, name)
        truth = _map(sample['gt_sem_seg']['data']).to(scores.device)
        valid_pixels(truth, self.ignore_index, str(sample.get('seg_map_path') or f'of the image {name}'))
        if self.size == 'network':
            scores, truth = self._to_network(sample, scores, truth, name)
            prediction = scores > self.threshold
        elif truth.shape != prediction.shape:
            raise UserError(f'the prediction for {name} has {_size(prediction)} pixels, its mask {_size(truth)}; load '
                            'the mask after the resize in the test pipeline so that it keeps its original size, or use '
                            "size='network'")
        valid = torch.ones_like(prediction) if self.ignore_index is None else truth != self.ignore_index
        return Maps(scores, prediction, truth == 1, valid)

    def _prediction(self, sample: dict, name: str) -> tuple[Tensor, Tensor]:
        """Foreground probabilities and predicted foreground, ``(H, W)``, at the original size."""
        labels = _map(sample['pred_sem_seg']['data']) == 1 if 'pred_sem_seg' in sample else None
        if 'seg_logits' not in sample:
            return self._labels_alone(labels, name, 'there are no seg_logits')
        logits = sample['seg_logits']['data'].float()
        if len(logits) not in (1, 2):
            raise UserError(f'BinarySegMetric needs one or two channels, the prediction for {name} has {len(logits)}; '
                            'set num_classes=2 in the decode head')
        if not bool(torch.isfinite(logits).all()):
            labels = None
            self.warn('finite', f'the prediction for {name} has non-finite scores; NaN counts as background')
        if len(logits) == 2:
            margin = (logits[1] - logits[0]).nan_to_num(-math.inf, math.inf, -math.inf)
            if labels is not None and bool((labels != (margin > 0)).any()):
                return self._labels_alone(labels, name, f'pred_sem_seg does not follow from seg_logits ({_TTA})')
            scores = (margin.cpu().double() if self.size == 'network' else margin).sigmoid()
            return scores, margin > math.log(self.threshold / (1 - self.threshold))
        scores = logits[0].nan_to_num(0.0)  # mmseg's postprocess_result has applied the sigmoid
        if bool(((scores < 0) | (scores > 1)).any()):
            raise UserError(f'BinarySegMetric needs probabilities from a head with one channel (mmseg applies the '
                            f'sigmoid), the prediction for {name} ranges from {float(scores.min()):.3g} to '
                            f'{float(scores.max()):.3g}')
        prediction = scores > self.threshold
        if labels is not None and bool((labels != prediction).any()):
            self._check_cut(scores, labels, name, bool(sample.get('flip')))
        return scores, prediction

    def _check_cut(self, scores: Tensor, labels: Tensor, name: str, flipped: bool) -> None:
        """Check that the labels are the scores cut at some threshold (the head has its own; mmseg's default is 0.3)."""
        below = float(scores[~labels].max()) if not bool(labels.all()) else 0.0
        above = float(scores[labels].min()) if bool(labels.any()) else 1.0
        if below > above or above < 0.05 or (flipped and bool(labels.all())):
            raise UserError(f'the prediction for {name}: no sensible threshold turns seg_logits into pred_sem_seg '
                            f'({_TTA}); use a TTA model that merges probabilities')
        self.warn('cut', f'the labels of the head use a threshold between {below:.3g} and {above:.3g}, this metric '
                   f'uses threshold={self.threshold}; set decode_head.threshold={self.threshold} to make them agree')

    def _labels_alone(self, labels: Tensor | None, name: str, why: str) -> tuple[Tensor, Tensor]:
        if labels is None:
            raise UserError(f'BinarySegMetric: the sample of {name} has neither seg_logits nor pred_sem_seg')
        if self.threshold != 0.5 or self.every_threshold:
            option = 'polyp_protocol or structure' if self.every_threshold else f'threshold={self.threshold}'
            raise UserError(f'BinarySegMetric: {option} needs the scores of {name}, but {why}')
        self.warn('labels', f'{name}: {why}; the labels are evaluated instead')
        return labels.float(), labels

    def _to_network(self, sample: dict, scores: Tensor, truth: Tensor, name: str) -> tuple[Tensor, Tensor]:
        size = self.network_size or sample.get('img_shape')
        if size is None:
            raise UserError(f"BinarySegMetric: size='network', but the sample of {name} has no img_shape; set "
                            'network_size=(height, width)')
        size = int(size[0]), int(size[1])
        scores, exact = scores_at(scores, size)
        if not exact:
            self.warn('resize', f'the prediction for {name} is not an exact resize of a {size[1]}×{size[0]} map; its '
                       'scores at that size are an approximation')
        return scores, mask_at(truth, size).to(scores.device)

    def warn(self, kind: str, text: str) -> None:
        """Log each kind of warning once per evaluation."""
        if kind not in self.warned:
            self.warned.add(kind)
            print_log(text, 'current', logging.WARNING)


def _map(data: Tensor) -> Tensor:
    """Reshape ``(1, H, W)`` or ``(H, W)`` to ``(H, W)``."""
    return data.reshape(data.shape[-2:])


def _size(data: Tensor) -> str:
    return f'{data.shape[1]}×{data.shape[0]}'
