"""Metric for binary (foreground/background) segmentation."""
from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.evaluator import BaseMetric
from mmengine.logging import print_log

from ...errors import UserError
from ...registry import METRICS
from .bootstrap import score_intervals
from .counts import check_rule, count_pixels, mean, scores_from_counts, summarise
from .polyp_protocol import LEVELS, protocol_scores, threshold_curves
from .report import Report, text_table
from .samples import SIZES, SampleReader
from .structure import e_measure, mean_absolute_error, s_measure, stretched, weighted_f_measure
from .surface import boundary_scores, distance_scores


@METRICS.register_module()
class BinarySegMetric(BaseMetric):
    """Scores of the foreground (label 1), pooled over the set and as a mean over images.

    The two aggregations differ by several points, and papers rarely say which one they report. Each key therefore
    states its aggregation:

    * ``IoU, DSC, mIoU, mDice, Acc, Sens, Spec, Prec`` with the suffix ``_pooled`` (all pixels of the set as one image)
      or ``_mean`` (mean over images), defined in :mod:`~.counts`. ``mIoU`` and ``mDice`` average foreground and
      background. What many papers call mIoU is ``IoU_pooled`` here.
    * ``TJ65_mean`` (ISIC 2018: an image's IoU, 0 if below .65), ``failed_share`` (share of images with IoU < .65),
      ``empty_truth`` (number of images without foreground; their ``Sens`` is undefined).
    * ``<key>_lo`` and ``<key>_hi`` for ``IoU_pooled, DSC_pooled, IoU_mean, DSC_mean, TJ65_mean``: 95 % bootstrap
      intervals over images.
    * ``mDice_256, mIoU_256, maxDice_256, maxIoU_256`` with ``polyp_protocol=True`` (:mod:`~.polyp_protocol`);
      ``HD95_mean`` in pixels with ``hd95=True``; ``BF1_mean`` with ``boundary_f1=True`` (:mod:`~.surface`).

    Ignored pixels count as background for the distances, ``BF1`` and the scores of ``structure``.

    All scores except ``empty_truth`` and the distances range from 0 to 1 (E-measures to pixels/(pixels − 1)). The head
    may have one channel (sigmoid) or two (softmax). Duplicates, which distributed samplers add as padding, count once:
    samples with the same image and mask paths.

    Args:
        threshold: foreground probabilities above this value are foreground. With two channels, 0.5 equals argmax.
        size: ``'original'``: compare at the original image size, to which mmseg resizes the scores. ``'network'``:
            compare at the network's input size, as most ISIC papers do; mmseg's resize is undone (:mod:`~.resize`) and
            the mask is resized by nearest pixel centre.
        network_size: (height, width) for ``size='network'``; None: the ``img_shape`` of each sample.
        empty: rule for a class absent from both masks: its IoU and DSC are 1 (``'one'``), or the image is excluded
            from their means (``'skip'``). If foreground is predicted but the truth has none, they are 0 in either case.
        ignore_index: value of ignored mask pixels; None: no pixel is ignored.
        polyp_protocol: also compute the average over 256 thresholds of the polyp papers, at the original size.
        hd95: also compute the 95th percentile of the Hausdorff distance, in pixels at the compared size.
        boundary_f1: also compute the boundary F1.
        tolerance: tolerance of the boundary F1, in pixels.
        distances: also compute ``HD95_mean``, ``HD95_pooled_mean``, ``ASD_mean``, ``ASSD_mean`` and
            ``ASSD_halves_mean`` (:func:`~.surface.distance_scores`), in pixels.
        structure: also compute ``MAE_mean``, ``Smeasure_mean``, ``Emeasure_mean``, ``maxEmeasure``,
            ``adpEmeasure_mean`` and ``wFmeasure_mean`` from the probabilities (:mod:`~.structure`), with each map
            normalised to 0…1 as in the papers' scripts.
        bootstrap: number of bootstrap samples for the intervals; 0: no intervals.
        seed: random seed of the bootstrap.
        out_dir: folder for ``per_image.csv`` and ``worst/``, pictures of the images with the lowest IoU (image | truth
            | prediction; only images with an IoU below 1), which are also listed in the log. None: write nothing.
        worst: number of pictures.
        collect_device, prefix, collect_dir: see mmengine's ``BaseMetric``.

    Raises:
        UserError: for invalid arguments. During evaluation: for a mask that is missing, has other values (names the
            file) or another size than the prediction; for more than two channels; for logits instead of probabilities;
            for labels that do not match the scores.
    """

    default_prefix = ''  # keys without a prefix; mmengine warns about None

    def __init__(self, threshold: float = 0.5, size: str = 'original', network_size: Sequence[int] | None = None,
                 empty: str = 'one', ignore_index: int | None = 255, polyp_protocol: bool = False, hd95: bool = False,
                 boundary_f1: bool = False, tolerance: float = 2.0, distances: bool = False, structure: bool = False,
                 bootstrap: int = 1000, seed: int = 0, out_dir: str | None = None, worst: int = 20,
                 collect_device: str = 'cpu', prefix: str | None = None,
                 collect_dir: str | None = None) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix, collect_dir=collect_dir)
        if not 0 < threshold < 1:
            raise UserError(f'BinarySegMetric: threshold={threshold} must be a probability between 0 and 1')
        if size not in SIZES:
            raise UserError(f'BinarySegMetric: size={size!r} is unknown; choose one of: {", ".join(SIZES)}')
        if network_size is not None and (size != 'network' or len(network_size) != 2):
            raise UserError(f'BinarySegMetric: network_size={network_size} must be (height, width) and needs '
                            f'size=\'network\', got size={size!r}')
        if polyp_protocol and size != 'original':
            raise UserError('BinarySegMetric: polyp_protocol=True is defined at the original size only; '
                            'use size=\'original\', or a second evaluator')
        if ignore_index in (0, 1):
            raise UserError(f'BinarySegMetric: ignore_index={ignore_index} is one of the two classes; use another '
                            'value, or None')
        if tolerance < 0 or bootstrap < 0 or worst < 0:
            raise UserError(f'BinarySegMetric: tolerance={tolerance}, bootstrap={bootstrap} and worst={worst} must not '
                            'be negative')
        if out_dir is not None and Path(out_dir).exists() and not Path(out_dir).is_dir():
            raise UserError(f'BinarySegMetric: out_dir={out_dir} is a file; choose a folder')
        check_rule(empty)
        self.threshold, self.size, self.empty = threshold, size, empty
        self.reader = SampleReader(threshold, size, None if network_size is None else tuple(network_size), ignore_index,
                                   every_threshold=polyp_protocol or structure)
        self.polyp_protocol, self.hd95, self.boundary_f1, self.tolerance = polyp_protocol, hd95, boundary_f1, tolerance
        self.distances, self.structure = distances, structure
        self.bootstrap, self.seed = bootstrap, seed
        self.report = None if out_dir is None else Report(Path(out_dir), worst)

    @property
    def names(self) -> list[str]:
        """Keys that :meth:`evaluate` returns for these arguments; available before the evaluation."""
        names = list(summarise(np.zeros((1, 4)), self.empty))
        if self.bootstrap:
            names += score_intervals(np.ones((1, 4), np.int64), self.empty, 1)
        names += [f'{name}_mean' for name in self._extra]
        names += ['maxEmeasure'] * self.structure
        if self.polyp_protocol:
            names += protocol_scores(*np.ones((2, 1, LEVELS)))
        return [f'{self.prefix}/{name}' if self.prefix else name for name in names]

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Append a small record of each sample to ``self.results``. Only the worst records keep a map."""
        classes = (self.dataset_meta or {}).get('classes')
        if classes is not None and len(classes) != 2:
            raise UserError(f'BinarySegMetric needs two classes, background and foreground; the data set has '
                            f'{len(classes)}: {", ".join(map(str, classes[:6]))}')
        for sample in data_samples:
            self.results.append(self._record(sample))

    def evaluate(self, size: int) -> dict[str, float]:
        """Evaluate and reset the state; see mmengine."""
        try:
            return super().evaluate(size)
        finally:
            self.reader.warned.clear()
            if self.report is not None:
                self.report.worst.clear()

    def compute_metrics(self, results: list[dict]) -> dict[str, float]:
        """Compute the scores of the set from the records of all processes, and write the report to ``out_dir``."""
        records = self._without_duplicates(results)
        if not records:
            raise UserError('BinarySegMetric: no image was evaluated; is the data set empty?')
        counts = np.array([record['counts'] for record in records], dtype=np.int64)
        metrics = summarise(counts, self.empty)
        if self.bootstrap:
            metrics |= score_intervals(counts, self.empty, self.bootstrap, seed=self.seed)
        for name in self._extra:
            metrics[f'{name}_mean'] = mean(np.array([record['extra'][name] for record in records]))
        if self.structure:
            curves = [record['alignment'] for record in records if sum(record['counts'])]
            metrics['maxEmeasure'] = float(np.mean(curves or [np.full(1, np.nan)], axis=0).max())
        if self.polyp_protocol:
            curves = [record['curves'] for record in records if sum(record['counts'])]
            metrics |= protocol_scores(*np.stack(curves or [np.full((2, LEVELS), np.nan)], axis=1))
        print_log(f'{len(records)} images ({metrics["empty_truth"]} without foreground), threshold {self.threshold}, '
                  f'{self.size} size'
                  + (' (95 % bootstrap intervals)' if self.bootstrap else '') + '\n' + text_table(metrics), 'current')
        without_valid = int((counts.sum(1) == 0).sum())
        if without_valid:
            print_log(f'{without_valid} images have no valid pixel and are excluded from all scores', 'current',
                      logging.WARNING)
        if self.report is not None:
            try:
                self.report.write(records, scores_from_counts(counts, self.empty))
            except OSError as error:  # do not lose the scores because of the report
                print_log(f'cannot write the report to {self.report.folder}: {error}', 'current', logging.WARNING)
        return metrics

    def _record(self, sample: dict) -> dict[str, Any]:
        path, mask_path = sample.get('img_path'), sample.get('seg_map_path')
        scores, prediction, foreground, valid = self.reader.read(sample, str(path or f'number {len(self.results)}'))
        counts = count_pixels(prediction, foreground, valid)
        record: dict[str, Any] = dict(path=str(path or ''), mask=str(mask_path or ''), counts=counts,
                                      size=tuple(valid.shape),
                                      IoU=float(scores_from_counts(counts, self.empty)['IoU']))
        record |= self._extra_scores(*(side.cpu().numpy() for side in (scores, prediction & valid, foreground & valid,
                                                                       valid)))
        if not sum(counts):
            record['extra'] = dict.fromkeys(record['extra'], np.nan)
        if self.polyp_protocol:
            record['curves'] = threshold_curves(scores, foreground, valid)
        if self.report is not None:
            self.report.keep_if_bad(record, prediction, foreground, valid)
        return record

    @property
    def _extra(self) -> list[str]:
        """Names of the optional scores per image."""
        return (['HD95'] * (self.hd95 or self.distances) + ['BF1'] * self.boundary_f1
                + ['HD95_pooled', 'ASD', 'ASSD', 'ASSD_halves'] * self.distances
                + ['MAE', 'Smeasure', 'Emeasure', 'adpEmeasure', 'wFmeasure'] * self.structure)

    def _extra_scores(self, scores: np.ndarray, prediction: np.ndarray, foreground: np.ndarray,
                      valid: np.ndarray) -> dict[str, Any]:
        """Optional scores of an image and its E-measure curve. Ignored pixels count as background."""
        values: dict[str, float] = {}
        curve: dict[str, np.ndarray] = {}
        if self.hd95 or self.boundary_f1:
            values |= boundary_scores(prediction, foreground, self.tolerance, self.empty)
        if self.distances:
            values |= distance_scores(prediction, foreground, self.empty)
        if self.structure:
            scores = stretched(scores.astype(np.float64)) * valid
            curve['alignment'], values['adpEmeasure'] = e_measure(scores, foreground)
            values |= dict(MAE=mean_absolute_error(scores, foreground), Smeasure=s_measure(scores, foreground),
                           Emeasure=float(curve['alignment'].mean()),
                           wFmeasure=weighted_f_measure(scores, foreground))
        return dict(extra={name: values[name] for name in self._extra}) | curve

    def _without_duplicates(self, results: list[dict]) -> list[dict]:
        """Sort the records, so that the order does not depend on the number of processes, and drop duplicates."""
        records, seen = [], set()
        for record in sorted(results, key=lambda record: (record['path'], record['mask'])):
            key = record['path'], record['mask']
            if not record['path'] or key not in seen:
                records.append(record)
            seen.add(key)
        if len(records) < len(results):
            print_log(f'{len(results) - len(records)} duplicate samples (same image and mask) were dropped', 'current',
                      logging.WARNING)
        return records
