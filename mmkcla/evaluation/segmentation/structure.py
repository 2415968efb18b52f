"""Scores of the saliency and polyp papers that compare a probability map with a mask: MAE, S-measure, E-measure and
weighted F-measure.

Each function takes one image; papers report the mean over images. The map is used unchanged. The papers' scripts read
8-bit pictures and normalise each to 0…1 first, as :func:`stretched` does.
"""
from __future__ import annotations

import cv2
import numpy as np
from scipy.ndimage import distance_transform_edt

from ...errors import UserError

EPS = np.spacing(1)
LEVELS = 256


def stretched(scores: np.ndarray) -> np.ndarray:
    """Scale the map linearly to the range 0…1. A constant map is unchanged."""
    low, high = scores.min(), scores.max()
    return scores if low == high else (scores - low) / (high - low)


def mean_absolute_error(scores: np.ndarray, foreground: np.ndarray) -> float:
    """MAE: mean of ``|scores − foreground|``; lower is better.

    Args:
        scores: ``(H, W)``, from 0 to 1.
        foreground: ``(H, W)`` bool, the ground truth.

    Raises:
        UserError: if the shapes differ, or ``scores`` are not within 0…1.
    """
    scores, foreground = _checked(scores, foreground)
    return float(np.abs(scores - foreground).mean())


def s_measure(scores: np.ndarray, foreground: np.ndarray, alpha: float = 0.5) -> float:
    """S-measure (Fan et al., ICCV 2017): ``alpha · S_object + (1 − alpha) · S_region``, at least 0; 1 is best.

    S_object compares the mean and the standard deviation of the map inside and outside the foreground. S_region is the
    structural similarity of four parts, divided at the centroid of the foreground and weighted by area; empty parts
    have no weight. For a truth without foreground the score is ``1 − mean(scores)``, and for a truth without
    background ``mean(scores)``.

    Args:
        scores, foreground: see :func:`mean_absolute_error`.
        alpha: weight of S_object.
    """
    scores, foreground = _checked(scores, foreground)
    share = foreground.mean()
    if share in (0, 1):
        return float(abs(1 - share - scores.mean()))
    whole = share * _object(scores[foreground]) + (1 - share) * _object(1 - scores[~foreground])
    row, column = (int(middle) + 1 for middle in np.argwhere(foreground).mean(0).round())
    region = 0.
    for part in ((slice(None, row), slice(None, column)), (slice(None, row), slice(column, None)),
                 (slice(row, None), slice(None, column)), (slice(row, None), slice(column, None))):
        if foreground[part].size:
            region += _similarity(scores[part], foreground[part]) * foreground[part].size / foreground.size
    return float(max(0, alpha * whole + (1 - alpha) * region))


def e_measure(scores: np.ndarray, foreground: np.ndarray) -> tuple[np.ndarray, float]:
    """E-measure (Fan et al., IJCAI 2018): agreement of a binary map with the truth, per pixel and globally.

    With φ the map and the truth minus their means, the alignment is ``ξ = 2 φ_s φ_g / (φ_s² + φ_g²)`` and the score
    ``Σ (1 + ξ)² / 4 / (pixels − 1)``. If the truth has no foreground (no background), the score is the share of pixels
    predicted as background (foreground).

    Args:
        scores, foreground: see :func:`mean_absolute_error`.

    Returns:
        The scores ``(256,)`` at the thresholds 255/255 to 0/255 (a pixel is foreground if its level, rounded down, is
        at least the threshold), of which papers report the mean or the maximum after averaging over images; and the
        adaptive score, at a threshold of twice the mean of the map, at most 1.
    """
    scores, foreground = _checked(scores, foreground)
    levels = (scores * (LEVELS - 1)).astype(np.uint8)
    hits, alarms = (np.bincount(levels[side], minlength=LEVELS)[::-1].cumsum() for side in (foreground, ~foreground))
    adaptive = scores >= min(2 * scores.mean(), 1)
    return (_alignment(hits, alarms, foreground),
            float(_alignment((adaptive & foreground).sum(), (adaptive & ~foreground).sum(), foreground)))


def weighted_f_measure(scores: np.ndarray, foreground: np.ndarray, beta_squared: float = 1.) -> float:
    """Weighted F-measure (Margolin et al., CVPR 2014); 1 is best. It is 0 for a truth without foreground.

    Errors inside the foreground are smoothed (7×7 Gaussian with σ = 5 pixels). Errors outside are weighted by
    ``2 − 0.5^(distance/5)``, so those far from the foreground count double.

    Args:
        scores, foreground: see :func:`mean_absolute_error`.
        beta_squared: weight of recall relative to precision.
    """
    scores, foreground = _checked(scores, foreground)
    if not foreground.any():
        return 0.
    distance, nearest = distance_transform_edt(~foreground, return_indices=True)
    error = np.abs(scores - foreground)
    # outside pixels take the error of the nearest inside pixel, so that the smoothing does not mix the two regions
    smooth = cv2.filter2D(error[tuple(nearest)], -1, _gaussian(7, 5.), borderType=cv2.BORDER_CONSTANT)
    error = np.where(foreground, np.minimum(smooth, error), error)
    error *= np.where(foreground, 1, 2 - 0.5 ** (distance / 5))
    inside, outside = error[foreground], error[~foreground]
    hits = foreground.sum() - inside.sum()
    recall, precision = 1 - inside.mean(), hits / (hits + outside.sum() + EPS)
    return float((1 + beta_squared) * recall * precision / (recall + beta_squared * precision + EPS))


def _checked(scores: np.ndarray, foreground: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scores, foreground = np.asarray(scores, dtype=np.float64), np.asarray(foreground, dtype=bool)
    if scores.shape != foreground.shape or scores.ndim != 2 or not scores.size:
        raise UserError(f'scores {scores.shape} and foreground {foreground.shape} must have the same shape (H, W)')
    if not (scores.min() >= 0 and scores.max() <= 1):  # also rejects NaN
        raise UserError(f'scores range from {scores.min():.4g} to {scores.max():.4g}; they must be between 0 and 1')
    return scores, foreground


def _object(values: np.ndarray) -> float:
    mean, spread = values.mean(), values.std(ddof=1) if values.size > 1 else 0.
    return 2 * mean / (mean**2 + 1 + spread + EPS)


def _similarity(scores: np.ndarray, foreground: np.ndarray) -> float:
    """Structural similarity (luminance, contrast and structure) of two maps of the same size."""
    x, y = scores.mean(), foreground.mean()
    freedom = scores.size - 1 + EPS
    spread = (((scores - x) ** 2).sum() + ((foreground - y) ** 2).sum()) / freedom
    joint = 4 * x * y * ((scores - x) * (foreground - y)).sum() / freedom
    scale = (x**2 + y**2) * spread
    if joint:
        return joint / (scale + EPS)
    return 1. if scale == 0 else 0.


def _alignment(hits: np.ndarray, alarms: np.ndarray, foreground: np.ndarray) -> np.ndarray:
    """E-measure of binary maps from their numbers of true (``hits``) and false (``alarms``) positive pixels."""
    size, true = foreground.size, int(foreground.sum())
    predicted = hits + alarms
    if true in (0, size):
        return (predicted if true else size - predicted) / (size - 1 + EPS)
    total = 0.
    for pixels, predicts, is_true in ((hits, 1, 1), (alarms, 1, 0), (true - hits, 0, 1), (size - true - alarms, 0, 0)):
        first, second = predicts - predicted / size, is_true - true / size
        total = total + pixels * (1 + 2 * first * second / (first**2 + second**2 + EPS)) ** 2 / 4
    return total / (size - 1 + EPS)


def _gaussian(side: int, sigma: float) -> np.ndarray:
    offsets = np.arange(side) - side // 2
    kernel = np.exp(-(offsets[:, None] ** 2 + offsets**2) / (2 * sigma**2))
    return kernel / kernel.sum()
