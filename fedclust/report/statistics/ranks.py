"""Many methods over several federations: ranks, Friedman's test, the critical difference.

A block is a federation, with seeds averaged before. Seeds of one federation are no further blocks:
they share its difficulty, so counting them would claim more evidence than there is.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedclust.report.statistics.paired import ALPHA

LEAST_FEDERATIONS = 3
LEAST_METHODS = 3


def ranks(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """[F, k] ranks of scores [F, k], higher is better, 1 the best; equal ones share their mean."""
    above = (scores[:, None, :] > scores[:, :, None]).sum(axis=2)
    equal = (scores[:, None, :] == scores[:, :, None]).sum(axis=2)
    shared: NDArray[np.float64] = above + (equal + 1) / 2
    return shared


def friedman(scores: NDArray[np.float64]) -> float:
    """p value of Friedman's test on [F, k] scores, k ≥ 3; 1 where all methods always tie."""
    from scipy.stats import friedmanchisquare

    if (scores == scores[:, :1]).all():
        return 1.0
    return float(friedmanchisquare(*scores.T).pvalue)


def critical_difference(methods: int, federations: int) -> float:
    """How far two mean ranks must lie apart to differ significantly (Nemenyi's test; Demšar 2006).

    CD = q √(k (k + 1) / (6 F)), with q the 95 % quantile of the studentized range over √2.
    """
    return _quantile(methods) * math.sqrt(methods * (methods + 1) / (6 * federations))


def federations_needed(methods: int) -> int:
    """The least number of federations in which two mean ranks can differ: CD ≤ k - 1."""
    k = methods
    # the root of the quotient is free of rounding at whole numbers only with a little slack
    return math.ceil(_quantile(k) ** 2 * k * (k + 1) / (6 * (k - 1) ** 2) - 1e-9)


def _quantile(methods: int) -> float:
    from scipy.stats import studentized_range

    return float(studentized_range.ppf(1 - ALPHA, methods, np.inf)) / math.sqrt(2)


def bars(mean_ranks: NDArray[np.float64], difference: float) -> list[tuple[int, int]]:
    """First and last places of the largest runs, of two or more, of ascending mean ranks [k] that
    span less than the critical difference.
    """
    groups: list[tuple[int, int]] = []
    for first in range(len(mean_ranks)):
        last = int(np.searchsorted(mean_ranks, mean_ranks[first] + difference, side="left")) - 1
        if last > first and (not groups or last > groups[-1][1]):
            groups.append((first, last))
    return groups
