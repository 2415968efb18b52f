"""From image files to results that can be written down: one predictor a host, all with the same steps.

``load`` reads and prepares an image, ``predict`` runs a batch, ``record`` tells a result as plain values for JSON,
``files`` writes what belongs to it, and ``draw`` paints it.
"""
from .base import Predictor
from .classification import ClassificationPredictor
from .detection import DetectionPredictor
from .images import write_image
from .segmentation import SegmentationPredictor

__all__ = ['PREDICTORS', 'ClassificationPredictor', 'DetectionPredictor', 'Predictor', 'SegmentationPredictor',
           'write_image']

PREDICTORS: dict[str, type[Predictor]] = {
    'mmdet': DetectionPredictor,
    'mmseg': SegmentationPredictor,
    'mmpretrain': ClassificationPredictor,
}
