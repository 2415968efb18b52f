"""COCO evaluation by faster-coco-eval, where it is installed, and with what mmdet's metric loses."""
from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from mmdet.evaluation.metrics import coco_metric as host
from mmengine.logging import print_log

from ..registry import METRICS


@METRICS.register_module()
class CocoMetric(host.CocoMetric):
    """mmdet's ``CocoMetric``, same arguments and results, computed by the C++ ``faster-coco-eval`` if it is installed
    (``pip install 'mmkcla[coco]'``) and by pycocotools otherwise.

    Two differences, both where mmdet's results would be wrong or lost:

    * Annotation ids that are 0, repeated or no whole numbers are renumbered in memory, with a line in the log:
      pycocotools counts a match with the annotation 0 as no match, and of two annotations of one id it sees one.
    * ``classwise=True`` with several metrics gives ``<metric>_<class>_precision`` for each; mmdet's
      ``<class>_precision`` is overwritten by the last metric. With one metric the keys are mmdet's.

    ``iou_thrs`` may also be a number or a list. Data with image or category ids other than whole numbers are evaluated
    by pycocotools.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.iou_thrs = np.atleast_1d(np.asarray(self.iou_thrs, dtype=float))
        if self._coco_api is not None:
            renumber_annotations(self._coco_api)

    def compute_metrics(self, results: list) -> dict[str, float]:
        """See mmdet."""
        with _evaluated_by(self._evaluator(results)):
            if not self.classwise or self.format_only or len(self.metrics) < 2:
                return super().compute_metrics(results)
            wanted, found = self.metrics, {}
            try:
                for metric in wanted:
                    self.metrics = [metric]
                    scores = super().compute_metrics(results)
                    names = {f'{category["name"]}_precision' for category in self._coco_api.cats.values()}
                    found |= {f'{metric}_{name}' if name in names else name: value for name, value in scores.items()}
            finally:
                self.metrics = wanted
            return found

    def _evaluator(self, results: list) -> type[Any]:
        if self._coco_api is not None:
            ids = [*self._coco_api.imgs, *self._coco_api.cats]
        else:
            ids = [truth['img_id'] for truth, _ in results]
        return evaluator_class() if all(type(one) is int for one in ids) else host.COCOeval


def evaluator_class() -> type[Any]:
    """faster-coco-eval's evaluator, or else the host's."""
    try:
        from faster_coco_eval import COCOeval_faster
    except ImportError:
        return host.COCOeval
    return COCOeval_faster


def renumber_annotations(coco: Any) -> None:
    """Give the annotations of a ``COCO`` the ids 1, 2, … if theirs would make a metric wrong; log why."""
    annotations = coco.dataset.get('annotations') or []
    ids = [annotation.get('id') for annotation in annotations]
    faults = {'0': sum(one == 0 for one in ids),
              'used more than once': sum(count - 1 for count in Counter(map(str, ids)).values()),
              'missing or no whole numbers': sum(type(one) is not int for one in ids)}
    found = ', '.join(f'{count} {what}' for what, count in faults.items() if count)
    if not found:
        return
    for number, annotation in enumerate(annotations, start=1):
        annotation['id'] = number
    coco.createIndex()
    print_log(f'annotation ids renumbered from 1 in memory for the evaluation ({found} of {len(ids)})', 'current',
              logging.WARNING)


@contextmanager
def _evaluated_by(evaluator: type[Any]) -> Iterator[None]:
    """mmdet's metric takes its evaluator from its module; there is no argument for it."""
    before = host.COCOeval
    host.COCOeval = evaluator
    try:
        yield
    finally:
        host.COCOeval = before
