"""Evaluation of segmentation into foreground and background."""
from .bootstrap import bootstrap_interval
from .counts import binary_scores, scores_from_counts
from .metric import BinarySegMetric
from .surface import boundary_scores

__all__ = ['BinarySegMetric', 'binary_scores', 'bootstrap_interval', 'boundary_scores', 'scores_from_counts']
