"""The knee of a curve, beside the knees that the library kneed found."""

from __future__ import annotations

import numpy as np

from fedclust.cluster_methods import Floats
from fedclust.cluster_methods.dbscan import kneedle

# of kneed 0.9.0: KneeLocator(range(n), curve, curve="convex", direction="increasing").knee
KEPT = (
    *(42, 57, 46, 44, 34, 81, 26, 42, 37, 49, 43, 13, 24, 107, 7, 50, 24, 89, 51, 28),
    *(44, 39, 33, 8, 16, 61, 50, 2, 33, 111, 6, 28, 44, 101, 4, 11, 18, 13, 12, 51),
)


def made_curve(seed: int) -> Floats:
    """3 to 118 sorted values: any, of equal pairs, with level stretches, with a straight end."""
    rng = np.random.default_rng(seed)
    values = rng.gamma(1.0, size=int(rng.integers(3, 60))) ** (1 + seed % 3)
    if seed % 4 == 1:
        values = np.repeat(values, 2)
    if seed % 4 == 2:
        values = np.append(np.round(values, 1), 9.0)
    if seed % 4 == 3:
        values = np.append(values, values.max() + np.arange(1, 5))
    return np.sort(values)


def test_the_knees_are_those_of_the_library() -> None:
    assert [kneedle(made_curve(seed)) for seed in range(len(KEPT))] == list(KEPT)


def test_by_hand() -> None:
    """Turned around, 1, 1, 2, 6 is 0, 0.8, 1, 1: above the diagonal by 0, 0.47, 0.33, 0, which
    falls from its top by more than a third only at the end. The top is the value 2.
    """
    assert kneedle(np.array([1.0, 1.0, 2.0, 6.0])) == 2
    assert kneedle(np.array([0.0, 1.0])) is None
    assert kneedle(np.array([1.0, 2.0, 3.0, 4.0])) is None
