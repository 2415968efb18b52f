"""What registers in :data:`mmkcla.registry.METRICS`, and the functions behind it."""
from importlib.util import find_spec

from .binary_counts import binary_scores, scores_from_counts
from .binary_seg_metric import BinarySegMetric
from .bootstrap import bootstrap_interval
from .stereo_metric import StereoMetric, stereo_counts, stereo_scores
from .surface import boundary_scores

__all__ = ['BinarySegMetric', 'StereoMetric', 'binary_scores', 'bootstrap_interval', 'boundary_scores',
           'scores_from_counts', 'stereo_counts', 'stereo_scores']
if find_spec('mmdet'):  # someone who segments need not have it
    from .coco_metric import CocoMetric  # noqa: F401
    __all__.append('CocoMetric')
