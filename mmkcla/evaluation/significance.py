"""Paired comparison of two methods on the same test images or with the same seeds.

The tests and intervals are those of :mod:`scipy.stats`; this module chooses among them and states what was chosen.

* :func:`compare_paired`: one score per image or seed. Wilcoxon's signed-rank test, and an interval of the mean
  difference: bootstrap for images, Student's t for the few values of seeds.
* :func:`compare_binary`: right or wrong per image. McNemar's exact test.
* :func:`compare_pooled`: scores of a whole set, such as AP. A paired randomization test over images.
* :func:`holm`: correction for several comparisons.
"""
from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

ALPHA, LEVEL = 0.05, 0.95
RESAMPLES = 5000  # bootstrap samples of a mean
POOLED_RESAMPLES = 1000  # bootstrap samples, and random exchanges, of a score of a whole set
EXACT_TIES = 15  # most non-zero differences for which all 2^n signs are enumerated if some have equal size
EXACT = 50  # most non-zero differences for the exact distribution without ties
ZEROS_DROPPED = 'zero differences are dropped (Wilcoxon)'


@dataclass(frozen=True)
class PairedResult:
    """Result of a paired comparison; differences are first minus second.

    Attributes:
        n: number of pairs compared.
        dropped: number of pairs left out, since one value is NaN.
        zeros: number of pairs with equal values.
        first, second: means (or scores of the whole set) over the compared pairs; NaN if there are none.
        difference: ``first − second``.
        low, high: 95 % interval of the difference; None with fewer than two pairs, or without variation over seeds.
        interval: name of the interval.
        p: two-sided p value; None if there is nothing to test.
        smallest_p: smallest p value that this number of pairs allows; None if there is nothing to test.
        test: name of the test.
        detail: how p was computed, and the rule for zeros.
        effect: rank-biserial correlation, −1 to 1; None for scores of a whole set.
    """

    n: int
    dropped: int
    zeros: int
    first: float
    second: float
    difference: float
    low: float | None
    high: float | None
    interval: str
    p: float | None
    smallest_p: float | None
    test: str
    detail: str
    effect: float | None


def compare_paired(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray, student: bool = False,
                   resamples: int = RESAMPLES, seed: int = 0) -> PairedResult:
    """Compare two methods by one score per image or seed.

    Pairs with a NaN are left out and counted. p is that of Wilcoxon's signed-rank test, two-sided, without the zero
    differences: exact for at most 50 of them (15 if some have equal size), otherwise the normal approximation.

    Args:
        first, second: ``(n,)`` scores in the same order.
        student: Student's t interval instead of the bootstrap, for a few seeds.
        resamples, seed: of the bootstrap.

    Raises:
        ValueError: for different lengths.
    """
    first, second, dropped = _complete(first, second)
    n = len(first)
    differences = _clean(first, second)
    low, high = _t_interval(differences) if student else _bootstrap_of_mean(differences, resamples, seed)
    p, detail = wilcoxon(differences)
    return PairedResult(
        n, dropped, int((differences == 0).sum()), _mean(first), _mean(second), _mean(differences), low, high,
        "Student's t" if student else f'percentile bootstrap, {resamples} samples', p, smallest_p(n), 'Wilcoxon',
        detail, rank_biserial(differences) if n else None)


def compare_binary(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray,
                   resamples: int = RESAMPLES, seed: int = 0) -> PairedResult:
    """Compare two classifiers by their right (1) and wrong (0) answers with McNemar's exact test.

    Args:
        first, second: ``(n,)`` of 0 and 1 in the same order.
        resamples, seed: of the bootstrap.
    """
    first, second, dropped = _complete(first, second)
    differences = first - second
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    n, discordant = len(first), wins + losses
    p = None if not n else float(stats.binomtest(wins, discordant).pvalue) if discordant else 1.
    low, high = _bootstrap_of_mean(differences, resamples, seed)
    return PairedResult(
        n, dropped, n - discordant, _mean(first), _mean(second), _mean(differences), low, high,
        f'percentile bootstrap, {resamples} samples', p, smallest_p(n), 'McNemar',
        f'exact binomial on {wins} against {losses} images', rank_biserial(differences) if n else None)


def compare_pooled(score: Callable[[np.ndarray], float], images: int, resamples: int = POOLED_RESAMPLES,
                   seed: int = 0) -> PairedResult:
    """Compare two methods by a score of the whole set, with a paired randomization test over images.

    The results of the two methods on an image are exchanged at random; p is the share of exchanges with a difference at
    least as large as the observed one. The interval resamples images with replacement.

    Args:
        score: maps codes of images to the score of that set. The codes 0 … images − 1 are the images with the results
            of the first method, images … 2 · images − 1 with those of the second. A code may occur more than once.
        images: number of images.
        resamples: number of bootstrap samples, and of exchanges.
        seed: random seed of both.
    """
    ours, theirs = np.arange(images), np.arange(images) + images
    values = (score(ours), score(theirs)) if images else (math.nan, math.nan)
    difference = values[0] - values[1]
    low = high = p = smallest = None
    if images and math.isfinite(difference):
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            found = stats.permutation_test(
                (ours, theirs), lambda x, y: _rounded(score(x) - score(y)), permutation_type='samples',
                n_resamples=resamples, vectorized=False, rng=np.random.default_rng(seed))
            p = float(found.pvalue) if np.isfinite(found.null_distribution).all() else None
        smallest = max(2. ** (1 - min(images, 1000)), 2 / (resamples + 1) if 2 ** images > resamples else 0.)
    if images > 1 and math.isfinite(difference):
        low, high = _bootstrap_pooled(lambda codes: score(codes) - score(codes + images), images, resamples, seed)
    exact = images and 2 ** min(images, 63) <= resamples
    return PairedResult(
        images, 0, 0, *map(float, values), float(difference), low, high,
        f'percentile bootstrap, {resamples} samples', p, smallest, 'paired randomization',
        'all exchanges of images' if exact else f'{resamples} random exchanges of images', None)


def wilcoxon(differences: np.ndarray) -> tuple[float | None, str]:
    """Return the two-sided p value of Wilcoxon's signed-rank test without zeros, and how it was computed.

    None for no differences; 1 if all are zero.
    """
    nonzero = differences[differences != 0]
    if not len(differences):
        return None, 'no pairs'
    if not len(nonzero):
        return 1., 'all differences are zero'
    ties = len(np.unique(np.abs(nonzero))) < len(nonzero)
    if not ties and len(nonzero) <= EXACT:
        method, how = 'exact', 'exact'
    elif len(nonzero) <= EXACT_TIES:
        method, how = stats.PermutationMethod(n_resamples=2 ** EXACT_TIES + 1), 'exact over all signs, with ties'
    else:
        method, how = 'asymptotic', 'normal approximation' + (' with tie correction' if ties else '')
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        p = float(stats.wilcoxon(nonzero, method=method).pvalue)
    return min(1., p), f'{how}, {ZEROS_DROPPED}' if len(nonzero) < len(differences) else how


def rank_biserial(differences: np.ndarray) -> float:
    """Matched-pairs rank-biserial correlation: ``(W⁺ − W⁻) / (W⁺ + W⁻)`` of the ranks of the non-zero differences.

    1 if all differences are positive, −1 if all are negative, 0 if there are none.
    """
    nonzero = differences[differences != 0]
    if not len(nonzero):
        return 0.
    ranks = stats.rankdata(np.abs(nonzero))
    return float((ranks * np.sign(nonzero)).sum() / ranks.sum())


def smallest_p(n: int) -> float | None:
    """Smallest two-sided p value of a paired test with ``n`` pairs: ``2 / 2ⁿ``; None for no pairs."""
    return min(1., 2. ** (1 - min(n, 1000))) if n else None


def pairs_needed(comparisons: int = 1, alpha: float = ALPHA) -> int:
    """Number of pairs from which p can be below ``alpha`` after Holm's correction for ``comparisons``.

    Example:
        >>> pairs_needed(), pairs_needed(3)
        (6, 7)
    """
    n = 1
    while 2. ** (1 - n) * comparisons >= alpha:
        n += 1
    return n


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Correct p values for several comparisons by Holm's step-down method.

    The smallest of m values is multiplied by m, the next by m − 1, and so on; a corrected value is never below that of
    a smaller p, and at most 1. None stays None and does not count.

    Example:
        >>> holm([0.01, 0.04, None, 0.03])
        [0.03, 0.06, None, 0.06]
    """
    known = sorted((p, place) for place, p in enumerate(values) if p is not None)
    corrected: list[float | None] = [None] * len(values)
    largest = 0.
    for number, (p, place) in enumerate(known):
        largest = max(largest, min(1., p * (len(known) - number)))
        corrected[place] = largest
    return corrected


def _complete(first: Any, second: Any) -> tuple[np.ndarray, np.ndarray, int]:
    first, second = np.asarray(first, float), np.asarray(second, float)
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f'scores of different shapes: {first.shape} and {second.shape}')
    complete = np.isfinite(first) & np.isfinite(second)
    return first[complete], second[complete], int((~complete).sum())


def _clean(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Differences; those within rounding errors of the scores are zero, and equal sizes are equal."""
    return _rounded(first - second, np.maximum(np.abs(first), np.abs(second)).max(initial=0.))


def _rounded(differences: Any, scale: float = 1.) -> Any:
    decimals = 12 - math.ceil(math.log10(scale)) if scale > 0 else 12
    return np.round(differences, decimals) + 0.  # no negative zero


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else math.nan


def _bootstrap_of_mean(differences: np.ndarray, resamples: int, seed: int) -> tuple[float | None, float | None]:
    n = len(differences)
    if n < 2:
        return None, None
    found = stats.bootstrap((differences,), np.mean, n_resamples=resamples, confidence_level=LEVEL,
                            method='percentile', batch=max(1, 4_000_000 // n), rng=np.random.default_rng(seed))
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def _bootstrap_pooled(statistic: Callable[[np.ndarray], float], images: int, resamples: int,
                      seed: int) -> tuple[float | None, float | None]:
    found = stats.bootstrap((np.arange(images),), statistic, n_resamples=resamples, confidence_level=LEVEL,
                            method='percentile', vectorized=False, rng=np.random.default_rng(seed))
    values = found.bootstrap_distribution[np.isfinite(found.bootstrap_distribution)]
    if not len(values):
        return None, None
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _t_interval(differences: np.ndarray) -> tuple[float | None, float | None]:
    if len(differences) < 2 or not np.ptp(differences):
        return None, None
    found = stats.ttest_1samp(differences, 0.).confidence_interval(LEVEL)
    return float(found.low), float(found.high)
