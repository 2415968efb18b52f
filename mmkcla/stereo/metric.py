"""Evaluation of disparity maps."""
from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.evaluator import BaseMetric
from mmengine.logging import print_log
from torch import Tensor

from ..errors import UserError
from ..registry import METRICS
from ..utils.figures import write_figure

_BAD = (1, 3)  # pixels
_D1_PIXELS, _D1_SHARE = 3, 0.05


def stereo_counts(prediction: Tensor, truth: Tensor, max_disparity: float | None = None) -> dict[str, float]:
    """What the scores of a set are made of, for one map.

    Args:
        prediction, truth: ``(H, W)``, pixels.
        max_disparity: count only pixels whose truth is below it.

    Returns:
        ``pixels``, the number of those that count (truth finite, above 0 and below ``max_disparity``); over them
        ``EPE``, the sum of absolute errors in float64, and ``1px``, ``3px``, ``D1``, numbers of bad ones. A prediction
        that is not finite is infinitely wrong.
    """
    valid = torch.isfinite(truth) & (truth > 0)
    if max_disparity is not None:
        valid &= truth < max_disparity
    truth = truth[valid].double()
    error = (prediction[valid].double() - truth).abs().nan_to_num(nan=torch.inf)
    counts = dict(pixels=int(valid.sum()), EPE=float(error.sum()))
    counts |= {f'{limit}px': int((error > limit).sum()) for limit in _BAD}
    counts['D1'] = int(((error > _D1_PIXELS) & (error > _D1_SHARE * truth)).sum())
    return counts


def stereo_scores(counts: Sequence[dict[str, float]]) -> dict[str, float]:
    """Scores pooled over all pixels of all maps, from their :func:`stereo_counts`."""
    pixels = sum(each['pixels'] for each in counts)
    return {name: sum(each[name] for each in counts) / pixels for name in counts[0] if name != 'pixels'}


@METRICS.register_module()
class StereoMetric(BaseMetric):
    """End-point error and shares of bad pixels, pooled over all valid pixels of the set (all its maps as one).

    * ``EPE``: mean absolute disparity error, in pixels;
    * ``1px``, ``3px``: share of pixels, 0 to 1, whose error is above 1 and 3 pixels;
    * ``D1``: KITTI 2015's: above 3 pixels and above 5 % of the truth.

    Valid are pixels whose truth is known, above 0, and below ``max_disparity``. A map without any is left out, which
    the log says.

    Args:
        max_disparity: in pixels, usually the model's; None: no limit.
        out_dir: a folder for pictures (left | truth | prediction | error); None: none are drawn.
        pictures: of how many maps, the first ones of each process.
        collect_device, prefix, collect_dir: of mmengine's ``BaseMetric``.

    Raises:
        UserError: for unusable arguments; for a sample without truth or of another size; if no map has a valid pixel.
    """

    default_prefix = ''  # bare keys; None would be warned of

    def __init__(self, max_disparity: float | None = None, out_dir: str | None = None, pictures: int = 10,
                 collect_device: str = 'cpu', prefix: str | None = None, collect_dir: str | None = None) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix, collect_dir=collect_dir)
        if max_disparity is not None and not max_disparity > 0:
            raise UserError(f'StereoMetric: max_disparity={max_disparity} must be above 0')
        if pictures < 0:
            raise UserError(f'StereoMetric: pictures={pictures} cannot be negative')
        if out_dir is not None and Path(out_dir).exists() and not Path(out_dir).is_dir():
            raise UserError(f'StereoMetric: out_dir={out_dir} is a file')
        self.max_disparity, self.pictures = max_disparity, pictures
        self.out_dir = None if out_dir is None else Path(out_dir)

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Count each sample; ``self.results`` gets its numbers, no maps."""
        for sample in data_samples:
            name = str(sample.get('name') or sample.get('left_path') or f'number {len(self.results)}')
            if 'gt_disparity' not in sample:
                raise UserError(f'StereoMetric: the pair {name} comes without a true disparity; the pipeline needs '
                                'mmkcla.LoadDisparity, and the data set a disparity of it')
            prediction, truth = (sample[key]['data'][0].cpu() for key in ('pred_disparity', 'gt_disparity'))
            if prediction.shape != truth.shape:
                raise UserError(f'StereoMetric: the prediction for {name} is of {tuple(prediction.shape)} pixels, the '
                                f'true disparity of {tuple(truth.shape)}')
            counts = stereo_counts(prediction, truth, self.max_disparity)
            if self.out_dir is not None and len(self.results) < self.pictures:
                self._draw(sample, name, prediction, truth, counts)
            self.results.append(dict(name=name, **counts))

    def compute_metrics(self, results: list[dict]) -> dict[str, float]:
        """Scores of the whole set from the numbers of all processes."""
        without = [record['name'] for record in results if not record['pixels']]
        counts = [{key: value for key, value in record.items() if key != 'name'}
                  for record in results if record['pixels']]
        limit = '' if self.max_disparity is None else f' and below {self.max_disparity}'
        if not counts:
            raise UserError(f'StereoMetric: none of the {len(results)} maps has a pixel whose true disparity is above '
                            f'0{limit}')
        if without:
            print_log(f'{len(without)} maps have no pixel of true disparity above 0{limit}; they are in no score: '
                      + ', '.join(without[:5]) + (', …' if len(without) > 5 else ''), 'current', logging.WARNING)
        scores = stereo_scores(counts)
        if not np.isfinite(scores['EPE']):
            print_log('some predictions are not finite', 'current', logging.WARNING)
        print_log(f'{len(counts)} maps, {sum(each["pixels"] for each in counts)} pixels of true disparity above 0'
                  f'{limit}: EPE {scores["EPE"]:.3f} px, ' + ', '.join(
                      f'{key} {100 * scores[key]:.2f} %' for key in ('1px', '3px', 'D1')), 'current')
        return scores

    def _draw(self, sample: dict, name: str, prediction: Tensor, truth: Tensor, counts: dict[str, float]) -> None:
        from ..evaluation.segmentation.report import read_image
        from .picture import stereo_figure
        left = read_image(str(sample.get('left_path')))
        if left is not None and left.shape[:2] != tuple(truth.shape):
            left = None  # the pipeline cut or resized it
        known = stereo_scores([counts]) if counts['pixels'] else {}
        title = name + (f': EPE {known["EPE"]:.2f} px, above 3 px {100 * known["3px"]:.1f} %' if known else '')
        figure = stereo_figure(left, truth.nan_to_num(0, 0, 0).numpy(), prediction.numpy(), title)
        path = self.out_dir / (re.sub(r'[^\w.-]+', '_', name)[-150:] + '.png')
        try:
            write_figure(path, figure, dpi=80)
        except OSError as error:  # the numbers are worth more than the picture
            print_log(f'cannot write the picture {path}: {error}', 'current', logging.WARNING)
