"""Metric for disparity maps."""
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
    """Sums for the scores of a set, for one map.

    Args:
        prediction, truth: ``(H, W)``, pixels.
        max_disparity: use only pixels with a smaller true disparity.

    Returns:
        ``pixels``, the number of valid pixels (truth finite, above 0 and below ``max_disparity``); over these ``EPE``,
        the sum of absolute errors in float64, and ``1px``, ``3px``, ``D1``, the numbers of bad pixels. The error of a
        non-finite prediction is infinite.
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
    """Compute scores pooled over all pixels of all maps from their :func:`stereo_counts`."""
    pixels = sum(each['pixels'] for each in counts)
    return {name: sum(each[name] for each in counts) / pixels for name in counts[0] if name != 'pixels'}


@METRICS.register_module()
class StereoMetric(BaseMetric):
    """End-point error and share of bad pixels, pooled over all valid pixels of the set.

    * ``EPE``: mean absolute disparity error, in pixels;
    * ``1px``, ``3px``: share of pixels, 0 to 1, with an error above 1 and 3 pixels;
    * ``D1``: as in KITTI 2015, share of pixels with an error above 3 pixels and above 5 % of the truth.

    Valid pixels have a known true disparity above 0 and below ``max_disparity``. Maps without valid pixels are skipped
    and logged.

    Args:
        max_disparity: in pixels, usually that of the model; None: no limit.
        out_dir: folder for pictures (left | truth | prediction | error); None: draw none.
        pictures: number of pictures; the first maps of each process are drawn.
        collect_device, prefix, collect_dir: see mmengine's ``BaseMetric``.

    Raises:
        UserError: for invalid arguments; for a sample without truth or with another size; if no map has a valid pixel.
    """

    default_prefix = ''  # keys without a prefix; mmengine warns about None

    def __init__(self, max_disparity: float | None = None, out_dir: str | None = None, pictures: int = 10,
                 collect_device: str = 'cpu', prefix: str | None = None, collect_dir: str | None = None) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix, collect_dir=collect_dir)
        if max_disparity is not None and not max_disparity > 0:
            raise UserError(f'StereoMetric: max_disparity={max_disparity} must be above 0')
        if pictures < 0:
            raise UserError(f'StereoMetric: pictures={pictures} must not be negative')
        if out_dir is not None and Path(out_dir).exists() and not Path(out_dir).is_dir():
            raise UserError(f'StereoMetric: out_dir={out_dir} is a file; choose a folder')
        self.max_disparity, self.pictures = max_disparity, pictures
        self.out_dir = None if out_dir is None else Path(out_dir)

    @property
    def names(self) -> list[str]:
        """Keys that :meth:`evaluate` returns."""
        names = ['EPE', *(f'{limit}px' for limit in _BAD), 'D1']
        return [f'{self.prefix}/{name}' if self.prefix else name for name in names]

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Append the counts of each sample to ``self.results``. Maps are not kept."""
        for sample in data_samples:
            name = str(sample.get('name') or sample.get('left_path') or f'number {len(self.results)}')
            if 'gt_disparity' not in sample:
                raise UserError(f'StereoMetric: the pair {name} has no ground-truth disparity; the pipeline needs '
                                'mmkcla.LoadDisparity, and the data set a disparity file for it')
            prediction, truth = (sample[key]['data'][0].cpu() for key in ('pred_disparity', 'gt_disparity'))
            if prediction.shape != truth.shape:
                raise UserError(f'StereoMetric: the prediction for {name} has the shape {tuple(prediction.shape)}, the '
                                f'true disparity {tuple(truth.shape)}')
            counts = stereo_counts(prediction, truth, self.max_disparity)
            if self.out_dir is not None and len(self.results) < self.pictures:
                self._draw(sample, name, prediction, truth, counts)
            self.results.append(dict(name=name, **counts))

    def compute_metrics(self, results: list[dict]) -> dict[str, float]:
        """Compute the scores of the set from the counts of all processes."""
        without = [record['name'] for record in results if not record['pixels']]
        counts = [{key: value for key, value in record.items() if key != 'name'}
                  for record in results if record['pixels']]
        limit = '' if self.max_disparity is None else f' and below {self.max_disparity}'
        if not counts:
            raise UserError(f'StereoMetric: none of the {len(results)} maps has a pixel with a true disparity above '
                            f'0{limit}')
        if without:
            print_log(f'skipped {len(without)} maps without a pixel with a true disparity above 0{limit}: '
                      + ', '.join(without[:5]) + (', …' if len(without) > 5 else ''), 'current', logging.WARNING)
        scores = stereo_scores(counts)
        if not np.isfinite(scores['EPE']):
            print_log('some predictions are not finite', 'current', logging.WARNING)
        print_log(f'{len(counts)} maps, {sum(each["pixels"] for each in counts)} pixels with a true disparity above 0'
                  f'{limit}: EPE {scores["EPE"]:.3f} px, ' + ', '.join(
                      f'{key} {100 * scores[key]:.2f} %' for key in ('1px', '3px', 'D1')), 'current')
        return scores

    def _draw(self, sample: dict, name: str, prediction: Tensor, truth: Tensor, counts: dict[str, float]) -> None:
        from ..evaluation.segmentation.report import read_image
        from .picture import stereo_figure
        left = read_image(str(sample.get('left_path')))
        if left is not None and left.shape[:2] != tuple(truth.shape):
            left = None  # the pipeline cropped or resized it
        known = stereo_scores([counts]) if counts['pixels'] else {}
        title = name + (f': EPE {known["EPE"]:.2f} px, above 3 px {100 * known["3px"]:.1f} %' if known else '')
        figure = stereo_figure(left, truth.nan_to_num(0, 0, 0).numpy(), prediction.numpy(), title)
        path = self.out_dir / (re.sub(r'[^\w.-]+', '_', name)[-150:] + '.png')
        try:
            write_figure(path, figure, dpi=80)
        except OSError as error:  # do not lose the scores because of a picture
            print_log(f'cannot write the picture {path}: {error}', 'current', logging.WARNING)
