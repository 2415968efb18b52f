"""COCO evaluation by faster-coco-eval, where it is installed."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mmdet.evaluation.metrics import coco_metric as host

from ..registry import METRICS


@METRICS.register_module()
class CocoMetric(host.CocoMetric):
    """mmdet's ``CocoMetric``, same arguments and results, computed by the C++ ``faster-coco-eval`` if it is installed
    (``pip install 'mmkcla[coco]'``) and by pycocotools otherwise."""

    def compute_metrics(self, results: list) -> dict[str, float]:
        """See mmdet."""
        with _evaluated_by(evaluator_class()):
            return super().compute_metrics(results)


def evaluator_class() -> type[Any]:
    """faster-coco-eval's evaluator, or else the host's."""
    try:
        from faster_coco_eval import COCOeval_faster
    except ImportError:
        return host.COCOeval
    return COCOeval_faster


@contextmanager
def _evaluated_by(evaluator: type[Any]) -> Iterator[None]:
    """mmdet's metric takes its evaluator from its module; there is no argument for it."""
    before = host.COCOeval
    host.COCOeval = evaluator
    try:
        yield
    finally:
        host.COCOeval = before
