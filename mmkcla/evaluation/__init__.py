"""Metrics registered in :data:`mmkcla.registry.METRICS` and their functions. Stereo metrics: :mod:`mmkcla.stereo`."""
from importlib.util import find_spec
from typing import Any

from ..compat import moved
from . import directions as directions
from . import functional as functional
from .per_image_accuracy import PerImageAccuracy
from .segmentation import (
    BinarySegMetric,
    binary_scores,
    bootstrap_interval,
    boundary_scores,
    distance_scores,
    e_measure,
    mean_absolute_error,
    s_measure,
    scores_from_counts,
    weighted_f_measure,
)

__all__ = ['BinarySegMetric', 'PerImageAccuracy', 'binary_scores', 'bootstrap_interval', 'boundary_scores',
           'distance_scores', 'e_measure', 'mean_absolute_error', 's_measure', 'scores_from_counts',
           'weighted_f_measure']
if find_spec('mmdet'):  # optional for segmentation
    __all__.append('CocoMetric')
if find_spec('mmseg'):
    __all__.append('IoUMetric')


def __getattr__(name: str) -> Any:
    if name == 'CocoMetric':  # only on use: it imports mmdet
        from .coco import CocoMetric
        return CocoMetric
    if name == 'IoUMetric':
        from .iou import IoUMetric
        return IoUMetric
    return moved(__name__, name)
