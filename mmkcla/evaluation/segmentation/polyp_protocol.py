"""Evaluation protocol of the polyp papers (PraNet's ``eval/main.m``): Dice and IoU averaged over 256 thresholds."""
from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

LEVELS = 256


def threshold_curves(scores: Tensor, foreground: Tensor, valid: Tensor | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Dice and IoU of one image at each of 256 thresholds.

    The map is normalised to 0…1 over the image, ``(s - min s)/(max s - min s + 1e-8)``, and rounded to 8 bits, as in
    the papers' code, which saves maps as PNG. A pixel is foreground at threshold t/255 if its level is at least t. As
    in that code, both scores are 0 if there is no true positive, even for a ground truth without foreground.

    Args:
        scores: ``(H, W)`` foreground probabilities.
        foreground: ``(H, W)`` bool, the ground truth.
        valid: ``(H, W)`` bool, False for ignored pixels; None: no pixel is ignored. The normalisation always uses the
            whole map.

    Returns:
        two float64 arrays ``(256,)`` for the thresholds 0/255 to 255/255.
    """
    low, high = scores.min(), scores.max()
    levels = ((scores - low) / (high - low + 1e-8) * (LEVELS - 1)).round().long()
    valid = torch.ones_like(foreground) if valid is None else valid
    hits, alarms = (_at_least(levels[valid & side]) for side in (foreground, ~foreground))
    misses = hits[0] - hits
    has_hits = hits > 0
    errors = alarms + misses
    dice = np.divide(2 * hits, 2 * hits + errors, out=np.zeros(LEVELS), where=has_hits)
    return dice, np.divide(hits, hits + errors, out=np.zeros(LEVELS), where=has_hits)


def protocol_scores(dice: np.ndarray, iou: np.ndarray) -> dict[str, float]:
    """Compute the published scores from curves ``(images, 256)``.

    ``mDice_256`` and ``mIoU_256`` are the mean over images, then over thresholds, of the foreground only, despite the
    names. ``maxDice_256`` and ``maxIoU_256`` are taken at the best threshold for the whole set.
    """
    curves = dict(Dice=np.mean(dice, axis=0), IoU=np.mean(iou, axis=0))
    return ({f'm{name}_256': float(curve.mean()) for name, curve in curves.items()}
            | {f'max{name}_256': float(curve.max()) for name, curve in curves.items()})


def _at_least(levels: Tensor) -> np.ndarray:
    """Number of ``levels`` that are at least t, for t from 0 to 255."""
    return np.cumsum(torch.bincount(levels, minlength=LEVELS).cpu().numpy()[::-1])[::-1].astype(np.float64)
