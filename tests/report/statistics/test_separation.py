"""How well distances tell groups apart, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fedclust.report.statistics.separation import separation


def matrix(first: float, second: float, between: float) -> np.ndarray[tuple[int, int], np.dtype]:
    """Two groups of two clients."""
    distance = np.full((4, 4), between)
    distance[:2, :2], distance[2:, 2:] = first, second
    np.fill_diagonal(distance, 0.0)
    return distance


TWO = np.array([0, 0, 1, 1])


@pytest.mark.parametrize(
    ("first", "second", "between", "chance"),
    [(1, 1, 2, 1.0), (1, 3, 2, 0.5), (3, 3, 2, 0.0), (2, 2, 2, 0.5), (1, 2, 2, 0.75)],
)
def test_the_share_of_pairs_in_the_right_order(
    first: float, second: float, between: float, chance: float
) -> None:
    assert separation(matrix(first, second, between), TWO) == chance


def test_clients_without_a_group_and_the_scale_do_not_count() -> None:
    distance = np.full((5, 5), 9.0)
    distance[1:, 1:] = matrix(1, 3, 2)
    assert separation(100 * distance, np.array([-1, 0, 0, 1, 1])) == 0.5


def test_of_a_matrix_that_is_not_symmetric_both_sides_count() -> None:
    distance = matrix(2, 2, 3)
    distance[2:, :2] = 1
    assert separation(distance, TWO) == 0.5


def test_one_group_says_nothing() -> None:
    assert np.isnan(separation(matrix(1, 1, 2), np.zeros(4, dtype=np.int64)))
    assert np.isnan(separation(matrix(1, 1, 2), np.arange(4)))
