"""Bootstrap confidence intervals for the scores of a test set."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .counts import scores_from_counts, thresholded_jaccard

INTERVALS = ('IoU_pooled', 'DSC_pooled', 'IoU_mean', 'DSC_mean', 'TJ65_mean')
_CHUNK = 2_000_000  # indices drawn at a time


def bootstrap_interval(statistic: Callable[[np.ndarray], np.ndarray], images: int, repeats: int = 1000,
                       level: float = 0.95, seed: int = 0) -> np.ndarray:
    """Percentile bootstrap interval of statistics, resampling images with replacement.

    Args:
        statistic: maps indices ``(draws, images)`` to values ``(draws, statistics)``.
        images: number of images, at least 1.
        repeats: number of bootstrap samples.
        level: confidence level.
        seed: random seed; the same seed gives the same bounds.

    Returns:
        ``(2, statistics)``: lower and upper bounds. Draws where a statistic is NaN are excluded.
    """
    rng = np.random.default_rng(seed)
    step = max(1, _CHUNK // images)
    values = np.concatenate([statistic(rng.integers(images, size=(min(step, repeats - done), images)))
                             for done in range(0, repeats, step)])
    bounds = [(1 - level) / 2, (1 + level) / 2]
    return np.stack([np.quantile(column, bounds) if (column := drawn[~np.isnan(drawn)]).size else [np.nan, np.nan]
                     for drawn in values.T], axis=1)


def score_intervals(counts: np.ndarray, empty: str = 'one', repeats: int = 1000, level: float = 0.95,
                    seed: int = 0) -> dict[str, float]:
    """Compute ``<score>_lo`` and ``<score>_hi`` for each score in :data:`INTERVALS`.

    Args:
        counts: ``(images, 4)`` TP, FP, FN, TN.
        empty: see :func:`~mmkcla.evaluation.segmentation.counts.scores_from_counts`.
        repeats, level, seed: see :func:`bootstrap_interval`.
    """
    counts = np.asarray(counts, dtype=np.int64)
    single = scores_from_counts(counts, empty)
    means = dict(IoU_mean=single['IoU'], DSC_mean=single['DSC'], TJ65_mean=thresholded_jaccard(single['IoU']))

    def statistic(index: np.ndarray) -> np.ndarray:
        pooled = scores_from_counts(np.stack([column[index].sum(1) for column in counts.T], axis=-1), empty)
        values = dict(IoU_pooled=pooled['IoU'], DSC_pooled=pooled['DSC'])
        values |= {name: _row_means(column[index]) for name, column in means.items()}
        return np.stack([values[name] for name in INTERVALS], axis=1)

    low, high = bootstrap_interval(statistic, len(counts), repeats, level, seed)
    bounds = {}
    for name, lower, upper in zip(INTERVALS, low, high, strict=True):
        bounds[f'{name}_lo'], bounds[f'{name}_hi'] = float(lower), float(upper)
    return bounds


def _row_means(values: np.ndarray) -> np.ndarray:
    defined = ~np.isnan(values)
    return np.divide(np.where(defined, values, 0.0).sum(1), defined.sum(1), out=np.full(len(values), np.nan),
                     where=defined.any(1))
