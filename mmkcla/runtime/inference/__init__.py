"""Inference on image files: one predictor per host, all with the same steps.

``load`` reads and prepares an image, ``predict`` runs a batch, ``record`` converts a result to plain values for JSON,
``files`` writes additional files, and ``draw`` draws the result on the image.
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
