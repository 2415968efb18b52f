"""Paired tests by value: worked by hand, against scipy, and on the cases where a claim would be wrong."""
import itertools

import numpy as np
import pytest
from scipy import stats

from mmkcla.evaluation import significance as s


def test_holm_by_hand():
    """0.01·4 = 0.04; 0.015·3 = 0.045; 0.04·2 = 0.08; 0.03·… Sorted: .01 .015 .03 .04 with factors 4 3 2 1."""
    assert s.holm([0.01, 0.04, 0.03, 0.015]) == pytest.approx([0.04, 0.06, 0.06, 0.045])
    assert s.holm([0.6, 0.7]) == [1., 1.] and s.holm([]) == [] and s.holm([0.03]) == [0.03]
    assert s.holm([None, 0.02, None, 0.02]) == [None, 0.04, None, 0.04]  # None does not count


def test_wilcoxon_by_hand():
    """Differences 1, 2, 3, 4, −5: W⁻ = 5. Signs with a rank sum of at most 5: 10 of 32 sums 0…5, so p = 2·10/32."""
    sums = [sum(rank for rank, used in zip(range(1, 6), signs, strict=True) if used)
            for signs in itertools.product((0, 1), repeat=5)]
    expected = 2 * sum(total <= 5 for total in sums) / 32
    p, how = s.wilcoxon(np.array([1., 2, 3, 4, -5]))
    assert (p, how) == (pytest.approx(expected), 'exact') and expected == 0.625
    assert s.rank_biserial(np.array([1., 2, 3, 4, -5])) == pytest.approx((10 - 5) / 15)


def test_zeros_and_ties():
    p, how = s.wilcoxon(np.array([0., 0, 1, 2, 3, 4, 5, 6]))
    assert p == pytest.approx(2 / 2**6) and how == 'exact, zero differences are dropped (Wilcoxon)'
    p, how = s.wilcoxon(np.ones(7))  # all of equal size: a sign test
    assert p == pytest.approx(2 / 2**7) and how == 'exact over all signs, with ties'
    mixed = np.array([1., 1, 1, -1, 2, 2])
    ranks = stats.rankdata(np.abs(mixed))
    sums = [np.dot(ranks, signs) for signs in itertools.product((1, -1), repeat=6)]
    observed = np.dot(ranks, np.sign(mixed))
    assert s.wilcoxon(mixed)[0] == pytest.approx(np.mean(np.abs(sums) >= observed - 1e-9))
    many = np.tile([1., 2, -1], 20)
    assert s.wilcoxon(many) == (pytest.approx(stats.wilcoxon(many, method='asymptotic').pvalue),
                                'normal approximation with tie correction')
    assert s.wilcoxon(np.zeros(4)) == (1., 'all differences are zero') and s.wilcoxon(np.zeros(0))[0] is None


@pytest.mark.parametrize('n', [1, 2, 5, 6, 10, 50])
def test_smallest_p_is_attained(n):
    assert s.wilcoxon(np.arange(1., n + 1))[0] == pytest.approx(s.smallest_p(n), rel=1e-9)


def test_pairs_needed():
    assert s.smallest_p(5) == 0.0625 and s.smallest_p(0) is None
    assert [s.pairs_needed(m) for m in (1, 2, 3, 6, 10)] == [6, 7, 7, 8, 9]
    assert all(s.smallest_p(s.pairs_needed(m)) * m < 0.05 <= s.smallest_p(s.pairs_needed(m) - 1) * m
               for m in range(1, 40))


def test_interval_and_means():
    rng = np.random.default_rng(0)
    first = rng.normal(0.8, 0.1, 80)
    second = first - rng.normal(0.02, 0.03, 80)
    found = s.compare_paired(first, second)
    assert (found.n, found.dropped, found.zeros, found.test) == (80, 0, 0, 'Wilcoxon')
    assert found.difference == pytest.approx((first - second).mean()) == pytest.approx(found.first - found.second)
    assert found.p == pytest.approx(stats.wilcoxon(first - second, method='asymptotic').pvalue)
    half = 1.96 * (first - second).std() / 80**.5  # the bootstrap interval of a mean is near the normal one
    assert (found.low, found.high) == pytest.approx((found.difference - half, found.difference + half), abs=half / 8)
    assert s.compare_paired(first, second) == found  # deterministic
    swapped = s.compare_paired(second, first)
    assert swapped.p == found.p and swapped.effect == -found.effect and swapped.difference == -found.difference


def test_interval_over_seeds_is_students():
    first, second = [0.8, 0.82, 0.81, 0.85], [0.79, 0.80, 0.80, 0.80]
    found = s.compare_paired(first, second, student=True)
    differences = np.subtract(first, second)
    half = stats.t.ppf(0.975, 3) * differences.std(ddof=1) / 2
    assert (found.low, found.high) == pytest.approx((differences.mean() - half, differences.mean() + half))
    assert found.interval == "Student's t"


@pytest.mark.parametrize('student', [False, True])
def test_cases_in_which_nothing_may_be_claimed(student):
    none = s.compare_paired([], [], student)
    assert none.n == 0 and none.p is none.low is none.smallest_p is none.effect is None and np.isnan(none.difference)
    one = s.compare_paired([0.9], [0.1], student)
    assert one.p == 1 and one.smallest_p == 1 and one.low is None
    same = s.compare_paired([0.5] * 9, [0.5] * 9, student)
    assert (same.p, same.zeros, same.difference, same.effect) == (1, 9, 0, 0)
    nan = s.compare_paired([np.nan, 0.3, 0.4], [0.1, 0.2, np.nan], student)
    assert (nan.n, nan.dropped) == (1, 2) and nan.difference == pytest.approx(0.1)
    constant = s.compare_paired([0.6] * 8, [0.5] * 8, student)  # rounding errors must not make ranks
    assert constant.p == pytest.approx(2 / 2**8) and constant.effect == 1
    assert (constant.low, constant.high) == ((None, None) if student else pytest.approx((0.1, 0.1)))
    with pytest.raises(ValueError, match='different shapes'):
        s.compare_paired([1, 2], [1], student)


def test_rounding_errors_are_zero_differences():
    values = np.random.default_rng(0).random(100)
    assert s.compare_paired(values, (values * 3) / 3).zeros == 100
    assert s.compare_paired(values * 1e6, values * 1e6 + 1e-12).zeros == 100
    assert s.compare_paired(values * 1e-3, values * 1e-3 + 1e-8).zeros == 0


def test_mcnemar_by_hand():
    """8 images right only with the first, 1 only with the second: p = 2 · (1 + 9) / 2⁹."""
    first, second = [1] * 20 + [1] * 8 + [0], [1] * 20 + [0] * 8 + [1]
    found = s.compare_binary(first, second)
    assert found.p == pytest.approx(2 * 10 / 512) and found.test == 'McNemar'
    assert (found.n, found.zeros) == (29, 20) and found.effect == pytest.approx(7 / 9)
    assert found.detail == 'exact binomial on 8 against 1 images'
    assert s.compare_binary(first, first).p == 1 and s.compare_binary([], []).p is None


def test_randomization_by_hand():
    """Three images: the means of all 8 exchanges of the differences 1, 2, 4; only ±7/3 are as large as observed."""
    values = np.array([1., 2, 4, 0, 0, 0])
    found = s.compare_pooled(lambda codes: float(values[codes].mean()), 3)
    assert found.p == pytest.approx(2 / 8) and found.difference == pytest.approx(7 / 3)
    assert found.detail == 'all exchanges of images' and found.smallest_p == 0.25
    rng = np.random.default_rng(1)
    both = np.concatenate([rng.normal(0.05, .1, 60), np.zeros(60)])
    found = s.compare_pooled(lambda codes: float(both[codes].mean()), 60, resamples=2000)
    mean = s.compare_paired(both[:60], both[60:])
    assert found.p == pytest.approx(stats.ttest_1samp(both[:60], 0).pvalue, abs=0.01)
    assert (found.low, found.high) == pytest.approx((mean.low, mean.high), abs=0.006)
    same = s.compare_pooled(lambda codes: float(np.tile(both[:60], 2)[codes].mean()), 60, resamples=100)
    assert same.difference == 0 and same.p == 1
    assert s.compare_pooled(lambda codes: float('nan'), 5).p is None
    assert s.compare_pooled(lambda codes: 1., 0).p is None
