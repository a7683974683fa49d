"""Two methods seed by seed: mean difference, interval, exact sign-flip test, Holm's correction.

All methods of a sweep share partition, cohorts and initial models in a seed. The difference within
a seed is therefore much less noisy than the difference of two means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

ALPHA = 0.05  # a smaller p value is called significant
_MOST_EXACT = 20  # seeds; 2^20 flips take a second
_FLIPS = 1 << 18  # random ones, where there are more seeds
_ROUNDING = 1e-10  # two flips whose means differ by so little, relative to the largest, are equal


@dataclass(frozen=True)
class Paired:
    """Differences of two methods in their common seeds.

    Attributes:
        n: common seeds.
        mean: mean difference, in the unit of the values.
        low, high: 95 % interval of the mean by Student's t; NaN for a single seed.
        p: two-sided p value of the sign-flip test, or that of Student's t where seeds split the
            same rows anew and it is larger.
    """

    n: int
    mean: float
    low: float
    high: float
    p: float

    def student(self) -> float:
        """The two-sided p value of Student's t, of the interval; 1 for a single seed. With few
        seeds it can be below what signs can give, and so below the level of many comparisons.
        """
        from scipy.special import stdtr, stdtrit

        if self.n < 2:
            return 1.0
        error = (self.mean - self.low) / float(stdtrit(self.n - 1, 1 - ALPHA / 2))
        if error == 0:
            return float(self.mean == 0)
        return 2 * float(stdtr(self.n - 1, -abs(self.mean) / error))


def paired(differences: NDArray[np.float64], redrawn: float = 0.0) -> Paired:
    """The statistics of [n] differences, n at least 1.

    Args:
        redrawn: test / training examples where every seed splits the same rows anew, else 0. Seeds
            then err together, and the variance of their mean is (1 / n + redrawn) s² (Nadeau,
            Bengio, Machine Learning 52, 2003).
    """
    n, mean = len(differences), float(differences.mean())
    low, high = interval(differences)
    found = Paired(n, mean, low, high, sign_flip(differences))
    if redrawn and n > 1:
        wider = math.sqrt(1 + n * redrawn)
        low, high = mean - wider * (mean - low), mean + wider * (high - mean)
        found = replace(found, low=low, high=high)
        found = replace(found, p=max(found.p, found.student()))
    return found


def interval(values: NDArray[np.float64], confidence: float = 0.95) -> tuple[float, float]:
    """The interval of the mean of [n] values: mean ± t_{n-1} s / √n, with s of n - 1 degrees."""
    from scipy.special import stdtrit

    n = len(values)
    if n < 2:
        return math.nan, math.nan
    half = float(stdtrit(n - 1, (1 + confidence) / 2) * values.std(ddof=1) / math.sqrt(n))
    mean = float(values.mean())
    return mean - half, mean + half


def sign_flip(differences: NDArray[np.float64]) -> float:
    """Two-sided p value of the sign-flip test on [n] differences.

    If two methods are equally good, a difference is as likely to be d as -d. p is the share of all
    2^n ways to flip the signs whose mean is at least as far from zero as the measured one. Exact up
    to 20 seeds; beyond, 2^18 random flips with a fixed seed are counted.
    """
    n = len(differences)
    if n <= _MOST_EXACT:
        sums = np.zeros(1)
        for value in differences[1:]:  # the first sign is kept: the test is symmetric
            sums = np.concatenate([sums + value, sums - value])
        sums += differences[0]
        return _share(sums, float(differences.sum()), differences, beside=0)
    signs = np.random.default_rng(0).choice((-1.0, 1.0), size=(_FLIPS, n))
    return _share(signs @ differences, float(differences.sum()), differences, beside=1)


def _share(
    sums: NDArray[np.float64], measured: float, differences: NDArray[np.float64], beside: int
) -> float:
    """The share of flipped sums as far from zero as the measured one, counted `beside` them."""
    slack = _ROUNDING * float(np.abs(differences).sum())
    far = int((np.abs(sums) >= abs(measured) - slack).sum())
    return (far + beside) / (len(sums) + beside)


def least_p(n: int) -> float:
    """The smallest p value that n seeds can give: 2 / 2^n, all signs alike."""
    return min(1.0, 2.0 ** (1 - n))


def seeds_needed(comparisons: int) -> int:
    """The least number of seeds with which one of so many comparisons can be significant.

    Holm's correction multiplies the smallest p value by their number m: m · 2 / 2^n ≤ 0.05.
    """
    return math.ceil(math.log2(2 * comparisons / ALPHA))


def holm(p: Sequence[float]) -> NDArray[np.float64]:
    """[m] p values after Holm's correction (1979), in the order given.

    The j-th smallest is multiplied by m - j + 1; none is smaller than one before it, none above 1.
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    raised = values[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(raised))
    return adjusted
