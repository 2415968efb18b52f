"""COCO evaluation with faster-coco-eval if installed, with two fixes to mmdet's metric."""
from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from mmdet.evaluation.metrics import coco_metric as host
from mmengine.logging import print_log

from ..datasets.detection.coco.repairs import is_whole_decimal, repair
from ..registry import METRICS
from .coco_curves import write_curves
from .names import metric_names

LARGEST_ID = 2 ** 53 - 1  # faster-coco-eval keeps ids as float64; above, two of them can become one


@METRICS.register_module()
class CocoMetric(host.CocoMetric):
    """mmdet's ``CocoMetric`` with the same arguments and results. Uses the C++ ``faster-coco-eval`` if it is installed
    (``pip install 'mmkcla[coco]'``), and pycocotools otherwise.

    It differs from mmdet in three cases where mmdet's results are wrong or lost:

    * Annotation ids that are 0, negative, 2^53 or more, duplicated or not integers are renumbered in memory, and this
      is logged. pycocotools treats a match with annotation id 0 as no match, and keeps only one of several annotations
      with the same id; faster-coco-eval does so with negative and very large ids.
    * Ids and sizes that are whole numbers with a decimal point are read as integers, and a missing ``iscrowd`` as 0.
      The number of such values is logged.
    * With ``classwise=True`` and several metrics, each metric has its own ``<metric>_<class>_precision``. In mmdet the
      last metric overwrites ``<class>_precision``. With one metric the keys are mmdet's.

    ``out_dir`` is a folder for precision-recall curves and AP by size (:mod:`~.coco_curves`); None: write nothing.
    ``iou_thrs`` may also be a number or a list. Data sets whose image or category ids are not integers from 0 to 2^53,
    and ``proposal_nums`` without 100, are evaluated with pycocotools.
    """

    def __init__(self, *args: Any, out_dir: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.out_dir = None if out_dir is None else Path(out_dir)
        self.iou_thrs = np.atleast_1d(np.asarray(self.iou_thrs, dtype=float))
        if self._coco_api is not None:
            repair_annotations(self._coco_api)
            self._coco_api.__class__ = _AnyIds

    @property
    def names(self) -> list[str]:
        """Keys that :meth:`evaluate` returns, known before the evaluation; empty if they depend on the data set."""
        return metric_names(self) or []

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Compute the metrics; see mmdet."""
        for truth, found in results:  # as the ids of the annotation file
            for one in (truth, found):
                if is_whole_decimal(one.get('img_id')):
                    one['img_id'] = int(one['img_id'])
        self._report_missing(results)
        kept: list[Any] = []
        with _use_evaluator(_keeping(self._evaluator(results), kept)):
            scores = self._scores(results)
        for evaluator in kept if self.out_dir else ():
            if evaluator.params.useCats and 'precision' in (evaluator.eval or {}):
                try:
                    write_curves(self.out_dir, evaluator)
                except OSError as error:  # do not lose the scores because of the report
                    print_log(f'cannot write the curves to {self.out_dir}: {error}', 'current', logging.WARNING)
        return scores

    def _scores(self, results: list) -> dict[str, float]:
        if not self.classwise or self.format_only or len(self.metrics) < 2:
            return super().compute_metrics(results)
        all_metrics, found = self.metrics, {}
        try:
            for metric in all_metrics:
                self.metrics = [metric]
                scores = super().compute_metrics(results)
                names = {f'{category["name"]}_precision' for category in self._coco_api.cats.values()}
                found |= {f'{metric}_{name}' if name in names else name: value for name, value in scores.items()}
        finally:
            self.metrics = all_metrics
        return found

    def _report_missing(self, results: list) -> None:
        if self._coco_api is None:
            return
        missing = len(self._coco_api.imgs.keys() - {truth['img_id'] for truth, _ in results})
        if missing:
            print_log(f'{missing} of {len(self._coco_api.imgs)} images of the annotation file have no results; their '
                      'objects count as missed', 'current', logging.WARNING)

    def _evaluator(self, results: list) -> type[Any]:
        if self._coco_api is not None:
            ids = [*self._coco_api.imgs, *self._coco_api.cats]
        else:
            ids = [truth['img_id'] for truth, _ in results]
        whole = 100 in self.proposal_nums  # pycocotools computes mAP for 100 detections alone
        if not whole and {'bbox', 'segm'} & set(self.metrics):
            print_log(f'proposal_nums={tuple(self.proposal_nums)} lacks 100, for which mAP is defined; as in mmdet, '
                      'mAP is -1', 'current', logging.WARNING)
        plain = all(type(id_) is int and 0 <= id_ <= LARGEST_ID for id_ in ids)
        return evaluator_class() if whole and plain else host.COCOeval


def evaluator_class() -> type[Any]:
    """Return faster-coco-eval's evaluator if installed, otherwise mmdet's."""
    try:
        from faster_coco_eval import COCOeval_faster
    except ImportError:
        return host.COCOeval
    return COCOeval_faster


def repair_annotations(coco: Any) -> None:
    """Repair the values of a ``COCO`` that an evaluator fails on or counts wrongly, and log what was changed."""
    if changed := repair(coco.dataset):
        coco.createIndex()
        found = ', '.join(f'{len(values)} {kind}' for kind, values in changed.items())
        print_log(f'annotations were repaired in memory for the evaluation ({found})', 'current', logging.WARNING)
    renumber_annotations(coco)


def renumber_annotations(coco: Any) -> None:
    """Renumber the annotation ids of a ``COCO`` as 1, 2, … if they would make a metric wrong, and log the reason."""
    annotations = coco.dataset.get('annotations') or []
    ids = [annotation.get('id') for annotation in annotations]
    problems = {'0': sum(id_ == 0 for id_ in ids),
                'negative': sum(type(id_) is int and id_ < 0 for id_ in ids),
                f'above {LARGEST_ID}': sum(type(id_) is int and id_ > LARGEST_ID for id_ in ids),
                'duplicated': sum(count - 1 for count in Counter(map(str, ids)).values()),
                'missing or not integers': sum(type(id_) is not int for id_ in ids)}
    found = ', '.join(f'{count} {what}' for what, count in problems.items() if count)
    if not found:
        return
    for number, annotation in enumerate(annotations, start=1):
        annotation['id'] = number
    coco.createIndex()
    print_log(f'annotation ids were renumbered in memory for the evaluation ({found}, of {len(ids)})', 'current',
              logging.WARNING)


class _AnyIds(host.COCO):
    """Finds a category whose id is text or a fraction; pycocotools finds single integers only."""

    def loadCats(self, ids: Any = ()) -> list[dict]:
        return [self.cats[id_] for id_ in (ids if isinstance(ids, (list, tuple)) else [ids])]


def _keeping(evaluator: type[Any], kept: list[Any]) -> type[Any]:
    """A subclass of an evaluator that appends each instance to ``kept``."""
    class Keeping(evaluator):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            kept.append(self)
    return Keeping


@contextmanager
def _use_evaluator(evaluator: type[Any]) -> Iterator[None]:
    """Replace the evaluator in the module of mmdet's metric, which has no argument for it."""
    before = host.COCOeval
    host.COCOeval = evaluator
    try:
        yield
    finally:
        host.COCOeval = before
