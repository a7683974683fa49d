"""Paired statistics against numbers worked out by hand, and against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from fedclust.report.statistics.paired import (
    holm,
    interval,
    least_p,
    paired,
    seeds_needed,
    sign_flip,
)


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([1, 2, 3], 2 / 8),  # all signs alike: only this flip and its mirror image
        ([1, 2, -3], 8 / 8),  # the sum is 0: every flip is as far
        ([1, 2, -1], 6 / 8),  # sums 4 2 2 0 and their mirror images; measured 2
        ([3, 1, 1, 1, 1], 2 / 32),
        ([3, 1, 1, 1, -1], 10 / 32),  # sum 5: all signs, or one of the four ones flipped
        ([1] * 10, 2 / 1024),
        ([1] * 9 + [-1], 22 / 1024),  # sum 8: no or one minus, (1 + 10) twice
        ([1] * 8 + [-1] * 2, 112 / 1024),  # sum 6: (1 + 10 + 45) twice
        ([0.1, 0.2, -0.3], 1.0),  # 0.1 + 0.2 is not 0.3 in floating point
        ([5], 1.0),
        ([0, 0, 0, 0], 1.0),
    ],
)
def test_the_sign_flip_test_counts_all_flips(differences: list[float], p: float) -> None:
    assert sign_flip(np.array(differences, dtype=float)) == p


def test_the_sign_flip_test_is_that_of_scipy() -> None:
    rng = np.random.default_rng(3)
    for n in (3, 5, 10):
        values = rng.normal(0.4, 1.0, n)
        theirs = scipy.stats.permutation_test(
            (values,), np.mean, permutation_type="samples", n_resamples=np.inf
        )
        assert sign_flip(values) == pytest.approx(theirs.pvalue, abs=1e-12)


def test_many_seeds_are_flipped_at_random() -> None:
    assert sign_flip(np.ones(30)) == pytest.approx(1 / (2**18 + 1))
    mixed = np.array([1.0] * 20 + [-1.0] * 10)
    exact = scipy.stats.binomtest(10, 30).pvalue  # the sum says how many are negative
    assert sign_flip(mixed) == pytest.approx(exact, abs=0.002)


def test_equal_methods_give_small_p_values_as_often_as_they_may() -> None:
    rng = np.random.default_rng(0)
    p = np.array([sign_flip(rng.normal(size=8)) for _ in range(400)])
    for level in (0.05, 0.25, 0.5):
        assert (p <= level).mean() == pytest.approx(level, abs=0.06)


def test_five_seeds_cannot_be_significant_and_six_can() -> None:
    assert [least_p(n) for n in (1, 3, 5, 6, 8, 10)] == [1, 0.25, 0.0625, 0.03125, 2**-7, 2**-9]
    assert [seeds_needed(m) for m in (1, 4, 7, 10, 25, 26)] == [6, 8, 9, 9, 10, 11]
    for m in (1, 4, 7, 10, 25):
        assert m * least_p(seeds_needed(m)) <= 0.05 < m * least_p(seeds_needed(m) - 1)


def test_the_interval_is_students() -> None:
    values = np.array([1.0, 2.0, 3.0])
    # t of 2 degrees 4.302653, s = 1
    assert interval(values) == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5))
    for n, half in ((5, 1.24), (10, 0.72), (20, 0.47)):
        drawn = np.random.default_rng(n).normal(size=n)
        low, high = interval(drawn)
        assert (high - low) / 2 / drawn.std(ddof=1) == pytest.approx(half, abs=0.005)
        theirs = scipy.stats.ttest_1samp(drawn, 0).confidence_interval(0.95)
        assert (low, high) == pytest.approx((theirs.low, theirs.high))
    assert np.isnan(interval(np.array([1.0]))).all()
    assert interval(np.array([2.0, 2.0])) == (2.0, 2.0)


def test_a_planted_effect_of_one_standard_deviation_is_found_with_ten_seeds() -> None:
    rng = np.random.default_rng(1)
    found = [sign_flip(rng.normal(1.0, 1.0, 10)) < 0.05 for _ in range(200)]
    assert 0.7 < np.mean(found) < 0.95  # the power of the t test is 0.80


def test_paired_holds_all_of_it() -> None:
    one = paired(np.array([1.0, 2.0, 3.0]))
    assert (one.n, one.mean, one.p) == (3, 2.0, 0.25)
    assert (one.low, one.high) == pytest.approx((-0.484138, 4.484138))


def test_students_p_is_that_of_scipy() -> None:
    values = np.random.default_rng(0).normal(0.5, size=10)
    assert paired(values).student() == pytest.approx(scipy.stats.ttest_1samp(values, 0).pvalue)
    assert paired(values, 0.25).student() > paired(values).student()
    # a single seed tells nothing, equal differences above 0 everything
    alone, equal, none = (np.full(n, value) for n, value in ((1, 3.0), (4, 3.0), (4, 0.0)))
    assert [paired(one).student() for one in (alone, equal, none)] == [1.0, 0.0, 1.0]


def test_holm_by_hand() -> None:
    # sorted 0.01 0.02 0.03 0.04 times 4 3 2 1: 0.04 0.06 0.06 0.04, then never below one before
    np.testing.assert_allclose(holm([0.03, 0.01, 0.04, 0.02]), [0.06, 0.04, 0.06, 0.06])
    np.testing.assert_allclose(holm([0.5, 0.9]), [1.0, 1.0])
    np.testing.assert_allclose(holm([0.05]), [0.05])
    np.testing.assert_allclose(holm([0.01, 0.01, 0.5]), [0.03, 0.03, 0.5])
    assert holm([]).shape == (0,)
