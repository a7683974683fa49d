"""How evenly a method serves the clients, beside the mean that hides it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

MARGIN = 0.02  # a client this far below its own training alone is hurt
_ROUNDING = 1e-9  # of an accuracy: far below its step, far above the error of a difference


def spread(accuracy: NDArray[np.float64]) -> float:
    """Standard deviation (population form) of [M] clients' accuracies."""
    return float(accuracy.std())


def worst_decile(accuracy: NDArray[np.float64]) -> float:
    """Mean accuracy of the worst tenth of [M] clients: the ⌈M / 10⌉ lowest."""
    lowest = np.sort(accuracy)[: math.ceil(len(accuracy) / 10)]
    return float(lowest.mean())


def worst_group(
    correct: NDArray[np.int64], count: NDArray[np.int64], group: NDArray[np.int64]
) -> float:
    """Lowest accuracy of a true group ([M] int64, -1 for none) over its examples; NaN without."""
    pooled = [
        correct[group == g].sum() / total
        for g in np.unique(group[group >= 0])
        if (total := count[group == g].sum())
    ]
    return float(min(pooled, default=math.nan))


def hurt(
    accuracy: NDArray[np.float64], alone: NDArray[np.float64], margin: float = MARGIN
) -> float:
    """The share of [M] clients whose accuracy is more than `margin` below what they reach alone.

    A difference equal to the margin is none, however its floats are rounded: 7/50 - 6/50 is 0.02.
    Without a margin the scores may be of any size, and so is what counts as none.
    """
    size = 1.0 if margin else np.abs(alone)
    return float((alone - accuracy > margin + _ROUNDING * size).mean())
