"""mmseg's IoUMetric with the scores of each class among its results."""
from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
from mmseg.evaluation.metrics import IoUMetric as HostMetric

from ..registry import METRICS


@METRICS.register_module()
class IoUMetric(HostMetric):
    """mmseg's ``IoUMetric`` with the same arguments and results, and ``IoU.<class>``, ``Acc.<class>`` etc. besides.

    mmseg prints the scores of the classes, but does not return them. All are in percent; NaN for a class that neither
    the ground truth nor the predictions contain.
    """

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Compute the metrics; see mmseg."""
        scores: dict[str, Any] = {}

        def keep(*args: Any, **kwargs: Any) -> OrderedDict:
            found = HostMetric.total_area_to_metrics(*args, **kwargs)
            scores.update(found)
            return found

        self.total_area_to_metrics = keep
        try:
            metrics = super().compute_metrics(results)
        finally:
            del self.total_area_to_metrics
        classes = (self.dataset_meta or {}).get('classes') or ()
        for name, values in scores.items():
            if np.ndim(values) == 1:  # not aAcc
                metrics |= {f'{name}.{label}': round(float(value) * 100, 2)
                            for label, value in zip(classes, values, strict=True)}
        return metrics
