"""Boundary scores of two masks: HD95, surface distances and boundary F1."""
from __future__ import annotations

import cv2
import numpy as np


def outline(mask: np.ndarray) -> np.ndarray:
    """Pixels of ``mask`` ``(H, W)`` bool that have a 4-neighbour outside the mask, or lie at the image border."""
    padded = np.pad(mask, 1)
    inside = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    return mask & ~inside


def surface_distances(prediction: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Euclidean distances in pixels from each outline pixel of one mask to the nearest outline pixel of the other.

    Args:
        prediction: ``(H, W)`` bool, not empty.
        truth: ``(H, W)`` bool, not empty.

    Returns:
        distances from prediction to truth, and from truth to prediction; float32, one entry per outline pixel.
    """
    outlines = outline(prediction), outline(truth)
    both = outlines[0] | outlines[1]
    box = tuple(slice(found[0], found[-1] + 1) for found in (np.flatnonzero(both.any(1)), np.flatnonzero(both.any(0))))
    first, second = (edge[box] for edge in outlines)
    return _distance_to(second)[first], _distance_to(first)[second]


def boundary_scores(prediction: np.ndarray, truth: np.ndarray, tolerance: float = 2.0,
                    empty: str = 'one') -> dict[str, float]:
    """HD95 and boundary F1 of one image.

    ``HD95 = max(P95(d(prediction → truth)), P95(d(truth → prediction)))`` over the outlines, where P95 is the 95th
    percentile with linear interpolation. ``BF1 = 2PR/(P + R)``: precision P is the share of the predicted outline
    within ``tolerance`` of the true one, and recall R the share of the true outline within ``tolerance`` of the
    predicted one.

    Args:
        prediction: ``(H, W)`` bool.
        truth: ``(H, W)`` bool.
        tolerance: in pixels.
        empty: rule for two empty masks: ``'one'`` (HD95 0, BF1 1) or ``'skip'`` (NaN). If only one mask is empty, HD95
            is the image diagonal √(H² + W²), and BF1 is 0.

    Returns:
        ``HD95`` in pixels, ``BF1`` from 0 to 1.
    """
    non_empty = bool(prediction.any()), bool(truth.any())
    if not any(non_empty):
        return dict(HD95=0.0, BF1=1.0) if empty == 'one' else dict(HD95=np.nan, BF1=np.nan)
    if not all(non_empty):
        return dict(HD95=float(np.hypot(*truth.shape)), BF1=0.0)
    there, back = surface_distances(prediction, truth)
    near = [float((distances <= tolerance).mean()) for distances in (there, back)]
    return dict(HD95=float(max(np.percentile(there, 95), np.percentile(back, 95))),
                BF1=2 * near[0] * near[1] / sum(near) if any(near) else 0.0)


def distance_scores(prediction: np.ndarray, truth: np.ndarray, empty: str = 'one') -> dict[str, float]:
    """Distances between the outlines of two masks, in pixels and in the conventions used by papers; lower is better.

    * ``HD95``: maximum of the 95th percentiles of both directions (MONAI, and most papers).
    * ``HD95_pooled``: 95th percentile of the distances of both directions together (medpy).
    * ``ASD``: mean distance from the predicted outline to the true one.
    * ``ASSD``: mean of the distances of both directions together (MONAI with ``symmetric=True``, medpy 0.5.2).
    * ``ASSD_halves``: mean of the mean distances of both directions, so that both count equally.

    Args:
        prediction, truth: ``(H, W)`` bool.
        empty: rule for two empty masks: ``'one'`` (all 0) or ``'skip'`` (NaN). If only one mask is empty, all distances
            are the image diagonal √(H² + W²).
    """
    names = ('HD95', 'HD95_pooled', 'ASD', 'ASSD', 'ASSD_halves')
    non_empty = bool(prediction.any()), bool(truth.any())
    if not any(non_empty):
        return dict.fromkeys(names, 0.0 if empty == 'one' else np.nan)
    if not all(non_empty):
        return dict.fromkeys(names, float(np.hypot(*truth.shape)))
    there, back = surface_distances(prediction, truth)
    both = np.concatenate([there, back])
    return dict(HD95=float(max(np.percentile(there, 95), np.percentile(back, 95))),
                HD95_pooled=float(np.percentile(both, 95)), ASD=float(there.mean()), ASSD=float(both.mean()),
                ASSD_halves=float((there.mean() + back.mean()) / 2))


def _distance_to(outline_pixels: np.ndarray) -> np.ndarray:
    return cv2.distanceTransform((~outline_pixels).astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
