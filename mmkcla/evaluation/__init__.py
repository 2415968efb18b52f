"""What registers in :data:`mmkcla.registry.METRICS`."""
from .coco_metric import CocoMetric

__all__ = ['CocoMetric']
