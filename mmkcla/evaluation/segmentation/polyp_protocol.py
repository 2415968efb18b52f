"""The protocol of the polyp papers (PraNet's ``eval/main.m``): Dice and IoU averaged over 256 thresholds."""
from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

LEVELS = 256


def threshold_curves(scores: Tensor, foreground: Tensor, valid: Tensor | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Dice and IoU of one image at each of 256 thresholds.

    The map is stretched to 0…1 over the image, ``(s - min s)/(max s - min s + 1e-8)``, and rounded to 8 bits, as the
    papers' code does when it saves maps as PNG; a pixel is foreground at threshold t/255 if its level is at least t.
    As there, both scores are 0 where no pixel is hit, for an empty truth too.

    Args:
        scores: ``(H, W)`` foreground probabilities.
        foreground: ``(H, W)`` bool, the truth.
        valid: ``(H, W)`` bool, pixels that count; None: all. (The stretch is over the whole map.)

    Returns:
        two float64 arrays ``(256,)``, thresholds 0/255 to 255/255.
    """
    low, high = scores.min(), scores.max()
    levels = ((scores - low) / (high - low + 1e-8) * (LEVELS - 1)).round().long()
    valid = torch.ones_like(foreground) if valid is None else valid
    hits, alarms = (_at_least(levels[valid & side]) for side in (foreground, ~foreground))
    misses = hits[0] - hits
    some = hits > 0
    wrong = alarms + misses
    dice = np.divide(2 * hits, 2 * hits + wrong, out=np.zeros(LEVELS), where=some)
    return dice, np.divide(hits, hits + wrong, out=np.zeros(LEVELS), where=some)


def protocol_scores(dice: np.ndarray, iou: np.ndarray) -> dict[str, float]:
    """The published numbers from ``(images, 256)`` curves: ``mDice_256`` and ``mIoU_256`` (mean over images, then
    over thresholds; foreground alone in spite of the names), ``maxDice_256`` and ``maxIoU_256`` (the best threshold
    for the whole set)."""
    curves = dict(Dice=np.mean(dice, axis=0), IoU=np.mean(iou, axis=0))
    return ({f'm{name}_256': float(curve.mean()) for name, curve in curves.items()}
            | {f'max{name}_256': float(curve.max()) for name, curve in curves.items()})


def _at_least(levels: Tensor) -> np.ndarray:
    """How many of ``levels`` are at least t, for t from 0 to 255."""
    return np.cumsum(torch.bincount(levels, minlength=LEVELS).cpu().numpy()[::-1])[::-1].astype(np.float64)
