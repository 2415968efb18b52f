"""Detection with mmdet: boxes, and masks if the model predicts them."""
from pathlib import Path
from typing import Any

import numpy as np

from .base import Predictor
from .images import rle

_MIN_SIDE = 640  # longer side of a picture, in pixels


class DetectionPredictor(Predictor):
    """Predictor for mmdet: boxes, and masks if the model predicts them.

    Args:
        args: see :class:`Predictor`.
        score_threshold: detections with a score up to this value are dropped.
        kwargs: see :class:`Predictor`.
    """

    visualizer_type = 'mmdet.DetLocalVisualizer'

    def __init__(self, *args: Any, score_threshold: float = 0.3, **kwargs: Any) -> None:
        self.score_threshold = score_threshold
        super().__init__(*args, **kwargs)

    def record(self, sample: Any, folder: Path, stem: str) -> list[dict]:
        """Return one dict per detection: label, class, score, bbox [x1, y1, x2, y2] in pixels, mask as COCO RLE."""
        found = sample.pred_instances
        found = found[found.scores > self.score_threshold].cpu()
        masks = [rle(np.asarray(mask)) for mask in found.masks] if 'masks' in found else None
        return [dict(label=int(label), **{'class': self.class_name(int(label))}, score=round(float(score), 6),
                     bbox=[round(float(value), 3) for value in box], **({'mask': masks[i]} if masks else {}))
                for i, (label, score, box) in enumerate(zip(found.labels, found.scores, found.bboxes, strict=True))]

    def draw(self, image: np.ndarray, sample: Any) -> np.ndarray:
        """Draw boxes, names, scores and masks; enlarge small images, so that the text does not hide the objects."""
        times = max(1, _MIN_SIDE // max(image.shape[:2]))
        if times > 1:
            image = image.repeat(times, 0).repeat(times, 1)
            sample = sample.clone()
            found = sample.pred_instances.cpu()
            found.bboxes = found.bboxes * times
            if 'masks' in found:
                found.masks = found.masks.repeat_interleave(times, 1).repeat_interleave(times, 2)
            sample.pred_instances = found
        self.visualizer.add_datasample('result', image, sample, draw_gt=False, pred_score_thr=self.score_threshold)
        return self.visualizer.get_image()
