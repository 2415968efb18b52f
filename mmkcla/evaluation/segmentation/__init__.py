"""Evaluation of binary (foreground/background) segmentation."""
from .bootstrap import bootstrap_interval
from .counts import binary_scores, scores_from_counts
from .metric import BinarySegMetric
from .structure import e_measure, mean_absolute_error, s_measure, weighted_f_measure
from .surface import boundary_scores, distance_scores

__all__ = ['BinarySegMetric', 'binary_scores', 'bootstrap_interval', 'boundary_scores', 'distance_scores', 'e_measure',
           'mean_absolute_error', 's_measure', 'scores_from_counts', 'weighted_f_measure']
