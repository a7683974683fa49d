"""Interquartile means, profiles, fairness and targets against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from fedclust.report.statistics import fairness
from fedclust.report.statistics.aggregates import improvement, iqm, profile, stratified
from fedclust.report.targets import reached


def test_the_interquartile_mean_by_hand() -> None:
    assert iqm(np.array([8.0, 1.0, 2.0, 3.0])) == 2.5
    assert iqm(np.arange(8.0)) == 3.5
    # five values: 1.25 are cut off at either end, so weights 0 0.75 1 0.75 0
    assert iqm(np.array([0.0, 1.0, 2.0, 4.0, 100.0])) == pytest.approx((0.75 + 2 + 3) / 2.5)
    # three: 0.75 are cut off, weights 0.25 1 0.25
    assert iqm(np.array([0.0, 3.0, 9.0])) == pytest.approx((3 + 9 / 4) / 1.5)
    assert iqm(np.array([7.0])) == 7.0
    assert iqm(np.array([1.0, 4.0])) == 2.5  # half of each
    np.testing.assert_allclose(iqm(np.array([[1.0, 2, 3, 4], [4, 4, 4, 4]])), [2.5, 4])


def test_the_interquartile_mean_is_scipys_where_a_quarter_is_whole() -> None:
    values = np.random.default_rng(0).normal(size=20)
    assert iqm(values) == pytest.approx(scipy.stats.trim_mean(values, 0.25))


def test_the_bootstrap_draws_within_federations() -> None:
    # every federation is constant: a draw across federations would vary
    assert stratified([np.full(5, 1.0), np.full(5, 3.0)]) == (2.0, 2.0)
    values = np.random.default_rng(0).normal(size=(4, 25))
    low, high = stratified(list(values), lambda v: v.mean(axis=-1))
    assert (low + high) / 2 == pytest.approx(values.mean(), abs=0.02)
    assert (high - low) / 2 == pytest.approx(1.98 * values.std(axis=1).mean() / 10, rel=0.1)
    assert stratified(list(values)) == stratified(list(values))
    assert np.isnan(stratified([])).all()
    assert np.isnan(stratified([np.ones(1), np.ones(1)])).all()


def test_the_interval_of_two_seeds_by_hand() -> None:
    """One draw in four is of one value twice, so these are the ends: √2 times as far from the mean
    as the values, and longer by t of one degree of freedom over the normal quantile.
    """
    half = 2**0.5 * scipy.stats.t.ppf(0.975, 1) / scipy.stats.norm.ppf(0.975)
    assert stratified([np.array([0.0, 2.0])]) == pytest.approx((1 - half, 1 + half))


@pytest.mark.full
@pytest.mark.parametrize(("federations", "seeds", "least"), [(10, 3, 0.92), (10, 5, 0.93)])
@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_the_interval_covers_what_it_says_with_few_seeds(
    federations: int, seeds: int, least: float, spread: float
) -> None:
    """Without regard for the few seeds it was 85 to 92 % here; √(n / (n - 1)) alone makes 91 to
    94 %. The means are symmetric about 0, and so is the mean of the middle half.
    """
    rng, times = np.random.default_rng(1), 400
    means = np.linspace(-spread, spread, federations)[:, None]
    ends = np.array(
        [stratified(list(means + rng.normal(size=(federations, seeds)))) for _ in range(times)]
    )
    covered = float(((ends[:, 0] <= 0) & (ends[:, 1] >= 0)).mean())
    assert least - 0.015 <= covered <= 0.98


def test_a_profile_is_the_share_above_each_level() -> None:
    values = np.array([-1.0, 0.0, 2.0, 2.0])
    levels = np.array([-2.0, -1.0, 0.0, 1.9, 2.0])
    assert profile(values, levels).tolist() == [1, 0.75, 0.5, 0.5, 0]


def test_the_probability_of_improvement_counts_ties_half() -> None:
    left, right = [np.array([1.0, 2.0])], [np.array([1.0, 0.0])]
    assert improvement(left, right) == 3.5 / 4
    assert improvement(left, left) == 0.5
    # federations count alike, however many seeds they have
    assert improvement([*left, np.array([0.0])], [*right, np.array([1.0])]) == 3.5 / 8


def test_fairness_by_hand() -> None:
    accuracy = np.array([0.1, 0.2, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 1.0, 1.0])
    assert fairness.worst_decile(accuracy) == pytest.approx(0.15)  # two of eleven clients
    assert fairness.worst_decile(accuracy[:10]) == pytest.approx(0.1)
    assert fairness.spread(np.array([0.2, 0.4])) == pytest.approx(0.1)
    correct, count = np.array([9, 1, 5, 0]), np.array([10, 10, 10, 10])
    assert fairness.worst_group(correct, count, np.array([0, 0, 1, -1])) == 0.5
    assert fairness.worst_group(np.array([9, 0]), np.array([10, 0]), np.array([0, 1])) == 0.9
    assert np.isnan(fairness.worst_group(correct, count, np.full(4, -1)))
    alone = np.array([0.5, 0.5, 0.5, 0.5])
    assert fairness.hurt(np.array([0.4, 0.49, 0.5, 0.9]), alone) == 0.25
    assert fairness.hurt(np.array([0.48]), alone[:1]) == 0  # the margin itself hurts nobody


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ([0.9, 0.9, 0.9, 0.9], 2),  # the first three
        ([0.1, 0.9, 0.9, 0.9, 0.9], 3),
        ([0.9, 0.9, 0.9, 0.1, 0.1], None),  # reached, then lost
        ([0.1, 0.1, 2.0, 0.9, 0.9], 2),  # the mean of three is what counts
        ([0.9, 0.9, 0.9, 0.1, 0.9, 0.9, 0.9], 6),  # for good only at the end
        ([0.9, 0.9], None),
    ],
)
def test_a_target_is_reached_when_the_running_mean_stays(
    values: list[float], place: int | None
) -> None:
    assert reached(np.array(values), 0.7) == place
