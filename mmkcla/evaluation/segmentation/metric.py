"""Evaluation of segmentation into foreground and background."""
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
    """Scores of the foreground (label 1) against masks of 0 and 1, pooled over the set and as a mean over images.

    The two aggregations differ by points and papers rarely say which they report, so each key ends in what it is:

    * ``IoU, DSC, mIoU, mDice, Acc, Sens, Spec`` with ``_pooled`` (all pixels of the set counted as one image) and
      ``_mean`` (mean over images), defined in :mod:`~.counts`. ``mIoU`` and ``mDice`` average
      foreground and background; what many papers call mIoU is ``IoU_pooled`` here.
    * ``TJ65_mean`` (ISIC 2018: an image's IoU, 0 if below .65), ``failed_share`` (images of IoU < .65),
      ``empty_truth`` (how many images have no foreground; they have no ``Sens``).
    * ``<key>_lo`` and ``<key>_hi`` for ``IoU_pooled, DSC_pooled, IoU_mean, DSC_mean, TJ65_mean``: 95 % bootstrap
      intervals over images.
    * ``mDice_256, mIoU_256, maxDice_256, maxIoU_256`` with ``polyp_protocol=True``
      (:mod:`~.polyp_protocol`); ``HD95_mean`` in pixels with ``hd95=True``; ``BF1_mean`` with
      ``boundary_f1=True`` (:mod:`~.surface`; ignored pixels are background there).

    All but ``empty_truth`` and HD95 are from 0 to 1. The head may have one channel (sigmoid) or two (softmax). An image
    that comes twice, as samplers of several processes pad, counts once: the same path of image and of mask.

    Args:
        threshold: a foreground probability above it is foreground. At 0.5, two channels give their argmax.
        size: ``'original'``: the scores that mmseg has resized to the image's own size, against the mask at that
            size. ``'network'``: at the size the network saw, as most papers on ISIC compare: mmseg's resize is undone
            (:mod:`~.resize`), and the mask resized by nearest pixel centre.
        network_size: height and width for ``size='network'``; None: each sample's ``img_shape``.
        empty: where a class is in neither mask, its IoU and DSC are 1 (``'one'``), or the image is left out of their
            means (``'skip'``). A truth without foreground of which some is predicted scores 0 in any case.
        ignore_index: value of mask pixels that do not count; None: all count.
        polyp_protocol: also the polyp papers' average over 256 thresholds, at the original size.
        hd95: also the 95th percentile of the Hausdorff distance, in pixels of the compared size.
        boundary_f1: also the boundary F1.
        tolerance: of the boundary F1, in pixels.
        distances: also ``HD95_pooled_mean``, ``ASD_mean``, ``ASSD_mean`` and ``ASSD_halves_mean``
            (:func:`~.surface.distance_scores`), in pixels.
        structure: also ``MAE_mean``, ``Smeasure_mean``, ``Emeasure_mean``, ``maxEmeasure``, ``adpEmeasure_mean`` and
            ``wFmeasure_mean`` of the probabilities (:mod:`~.structure`), each map stretched to 0…1 as the papers'
            scripts do.
        bootstrap: how many sets are drawn for the intervals; 0: no intervals.
        seed: of those draws.
        out_dir: a folder for ``per_image.csv`` and ``worst/``, pictures of the worst images by IoU (image | truth |
            prediction; none that is without a fault), which are named in the log too; None: nothing is written.
        worst: how many of them.
        collect_device, prefix, collect_dir: of mmengine's ``BaseMetric``.

    Raises:
        UserError: for unusable arguments; at an image for a mask that is missing, of other values (naming the file) or
            of another size than the prediction, for other than one or two channels, for logits where probabilities are
            expected, for labels that do not follow from the scores.
    """

    default_prefix = ''  # bare keys; None would be warned of

    def __init__(self, threshold: float = 0.5, size: str = 'original', network_size: Sequence[int] | None = None,
                 empty: str = 'one', ignore_index: int | None = 255, polyp_protocol: bool = False, hd95: bool = False,
                 boundary_f1: bool = False, tolerance: float = 2.0, distances: bool = False, structure: bool = False,
                 bootstrap: int = 1000, seed: int = 0, out_dir: str | None = None, worst: int = 20,
                 collect_device: str = 'cpu', prefix: str | None = None,
                 collect_dir: str | None = None) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix, collect_dir=collect_dir)
        if not 0 < threshold < 1:
            raise UserError(f'BinarySegMetric: threshold={threshold} is a probability between 0 and 1')
        if size not in SIZES:
            raise UserError(f'BinarySegMetric: size={size!r} is unknown; choose one of: {", ".join(SIZES)}')
        if network_size is not None and (size != 'network' or len(network_size) != 2):
            raise UserError(f'BinarySegMetric: network_size={network_size} is (height, width) for size=\'network\', '
                            f'and size is {size!r}')
        if polyp_protocol and size != 'original':
            raise UserError('BinarySegMetric: polyp_protocol=True is defined at the original size; '
                            'use size=\'original\', or a second evaluator for it')
        if ignore_index in (0, 1):
            raise UserError(f'BinarySegMetric: ignore_index={ignore_index} is one of the two classes')
        if tolerance < 0 or bootstrap < 0 or worst < 0:
            raise UserError(f'BinarySegMetric: tolerance={tolerance}, bootstrap={bootstrap} and worst={worst} cannot '
                            'be negative')
        if out_dir is not None and Path(out_dir).exists() and not Path(out_dir).is_dir():
            raise UserError(f'BinarySegMetric: out_dir={out_dir} is a file')
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
        """The keys of what :meth:`evaluate` returns with these arguments, known beforehand."""
        names = list(summarise(np.zeros((1, 4)), self.empty))
        if self.bootstrap:
            names += score_intervals(np.ones((1, 4), np.int64), self.empty, 1)
        names += [f'{name}_mean' for name in self._extra]
        names += ['Emeasure_mean', 'maxEmeasure'] * self.structure
        if self.polyp_protocol:
            names += protocol_scores(*np.ones((2, 1, LEVELS)))
        return [f'{self.prefix}/{name}' if self.prefix else name for name in names]

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Count each sample; ``self.results`` gets a small record of it, no maps (but those of the worst)."""
        classes = (self.dataset_meta or {}).get('classes')
        if classes is not None and len(classes) != 2:
            raise UserError(f'BinarySegMetric is for two classes, background and foreground; the data set has '
                            f'{len(classes)}: {", ".join(map(str, classes[:6]))}')
        for sample in data_samples:
            self.results.append(self._record(sample))

    def evaluate(self, size: int) -> dict[str, float]:
        """See mmengine."""
        try:
            return super().evaluate(size)
        finally:
            self.reader.warned.clear()
            if self.report is not None:
                self.report.worst.clear()

    def compute_metrics(self, results: list[dict]) -> dict[str, float]:
        """Scores of the whole set from the records of all processes; writes the report if there is an ``out_dir``."""
        records = self._each_once(results)
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
            curve = np.mean(curves or [np.full(1, np.nan)], axis=0)
            metrics |= dict(Emeasure_mean=float(curve.mean()), maxEmeasure=float(curve.max()))
        if self.polyp_protocol:
            judged = [record['curves'] for record in records if sum(record['counts'])]
            metrics |= protocol_scores(*np.stack(judged or [np.full((2, LEVELS), np.nan)], axis=1))
        print_log(f'{len(records)} images ({metrics["empty_truth"]} without foreground), threshold {self.threshold}, '
                  f'{self.size} size'
                  + (' (95 % bootstrap intervals)' if self.bootstrap else '') + '\n' + text_table(metrics), 'current')
        unjudged = int((counts.sum(1) == 0).sum())
        if unjudged:
            print_log(f'{unjudged} images have no pixel that counts; they are in no score', 'current', logging.WARNING)
        if self.report is not None:
            try:
                self.report.write(records, scores_from_counts(counts, self.empty))
            except OSError as error:  # the numbers are worth more than the report
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
        """Names of the optional scores of an image."""
        return (['HD95'] * self.hd95 + ['BF1'] * self.boundary_f1
                + ['HD95_pooled', 'ASD', 'ASSD', 'ASSD_halves'] * self.distances
                + ['MAE', 'Smeasure', 'adpEmeasure', 'wFmeasure'] * self.structure)

    def _extra_scores(self, scores: np.ndarray, prediction: np.ndarray, foreground: np.ndarray,
                      valid: np.ndarray) -> dict[str, Any]:
        """The optional scores of an image, and its curve of E-measures; ignored pixels are background."""
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
                           wFmeasure=weighted_f_measure(scores, foreground))
        return dict(extra={name: values[name] for name in self._extra}) | curve

    def _each_once(self, results: list[dict]) -> list[dict]:
        """The records in one order whatever the number of processes, without those that came twice."""
        records, seen = [], set()
        for record in sorted(results, key=lambda record: (record['path'], record['mask'])):
            key = record['path'], record['mask']
            if not record['path'] or key not in seen:
                records.append(record)
            seen.add(key)
        if len(records) < len(results):
            print_log(f'{len(results) - len(records)} samples came more than once (the same image and mask); each '
                      'counts once', 'current', logging.WARNING)
        return records
