"""Precision, recall and F1 of each class of a classification."""
from __future__ import annotations

import math
from typing import Any

from mmpretrain.evaluation import SingleLabelMetric

from ..registry import METRICS

ITEMS = ('precision', 'recall', 'f1-score', 'support')


@METRICS.register_module()
class ClassScores(SingleLabelMetric):
    """``precision.<class>``, ``recall.<class>``, ``f1-score.<class>`` in percent, and ``support.<class>``, the number
    of images of the class, with the prefix ``single-label``.

    The prediction is the class with the highest score. mmpretrain's ``SingleLabelMetric(average=None)`` returns the
    same numbers as lists, without names. NaN: the recall of a class without images, the precision of a class that is
    never predicted, the F1 of a class for which both is true.

    Args:
        collect_device, prefix: see mmengine's ``BaseMetric``.
    """

    def __init__(self, collect_device: str = 'cpu', prefix: str | None = None) -> None:
        super().__init__(thrs=None, items=ITEMS, average=None, collect_device=collect_device, prefix=prefix)

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Compute the scores from the records of all processes."""
        found = super().compute_metrics(results)
        scores = {item: found[f'{item}_classwise'] for item in ITEMS}
        predicted = self._predicted(results, len(scores['support']))
        names = list((self.dataset_meta or {}).get('classes') or ())
        metrics: dict[str, float] = {}
        for label, support in enumerate(scores['support']):
            name = names[label] if label < len(names) else str(label)
            known = {'precision': predicted[label] > 0, 'recall': support > 0, 'support': True,
                     'f1-score': support > 0 or predicted[label] > 0}
            for item in ITEMS:
                metrics[f'{item}.{name}'] = scores[item][label] if known[item] else math.nan
        return metrics

    @staticmethod
    def _predicted(results: list, classes: int) -> list[int]:
        """How often each class is predicted."""
        counts = [0] * classes
        for result in results:
            label: Any = result['pred_score'].argmax() if 'pred_score' in result else result['pred_label']
            counts[int(label)] += 1
        return counts
