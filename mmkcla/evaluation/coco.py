"""COCO evaluation by faster-coco-eval, where it is installed."""
from __future__ import annotations

from typing import Any
from unittest import mock

from mmdet.evaluation.metrics import coco_metric as host

from ..registry import METRICS


@METRICS.register_module()
class CocoMetric(host.CocoMetric):
    """mmdet's ``CocoMetric``, same arguments and results, computed by the C++ ``faster-coco-eval`` if it is installed
    (``pip install 'mmkcla[coco]'``) and by pycocotools otherwise."""

    def compute_metrics(self, results: list) -> dict[str, float]:
        """See mmdet."""
        with mock.patch.object(host, 'COCOeval', evaluator_class()):
            return super().compute_metrics(results)


def evaluator_class() -> type[Any]:
    """faster-coco-eval's evaluator, or else the host's."""
    try:
        from faster_coco_eval import COCOeval_faster
    except ImportError:
        return host.COCOeval
    return COCOeval_faster
