"""Classification with mmpretrain."""
from pathlib import Path
from typing import Any

import numpy as np

from .base import Predictor


class ClassificationPredictor(Predictor):
    """Predictor for mmpretrain: class scores."""

    visualizer_type = 'mmpretrain.UniversalVisualizer'

    def record(self, sample: Any, folder: Path, stem: str) -> list[dict]:
        """Return the five classes with the highest scores, in descending order."""
        scores, labels = sample.pred_score.cpu().topk(min(5, sample.pred_score.numel()))
        return [dict(label=int(label), **{'class': self.class_name(int(label))}, score=round(float(score), 6))
                for score, label in zip(scores, labels, strict=True)]

    def draw(self, image: np.ndarray, sample: Any) -> np.ndarray:
        """Draw the best class on the image."""
        names = [self.class_name(label) for label in range(sample.pred_score.numel())]
        self.visualizer.visualize_cls(image, sample, classes=names, draw_gt=False)
        return self.visualizer.get_image()
