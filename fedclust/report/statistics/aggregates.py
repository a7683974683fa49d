"""All runs of a method in one number or one curve, after Agarwal et al. (NeurIPS 2021).

Scores of different federations must have a common scale, such as points above FedAvg.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

_RESAMPLES = 2000


def iqm(values: NDArray[np.float64]) -> float | NDArray[np.float64]:
    """Interquartile mean over the last axis: the mean of the middle half of the values.

    A quarter of the weight is cut off at either end; where n / 4 is not whole, the value at the
    edge counts with the fraction of it that is left.
    """
    n = values.shape[-1]
    # weight of the i-th smallest: the part of [i, i + 1] that lies between n / 4 and 3 n / 4
    place = np.arange(n)
    weight = np.clip(np.minimum(place + 1, 0.75 * n) - np.maximum(place, 0.25 * n), 0.0, 1.0)
    mean: NDArray[np.float64] = np.sort(values, axis=-1) @ weight / (n / 2)
    return mean


def stratified(
    strata: Sequence[NDArray[np.float64]],
    statistic: Callable[[NDArray[np.float64]], float | NDArray[np.float64]] = iqm,
) -> tuple[float, float]:
    """95 % interval of a statistic by the stratified bootstrap; NaN without two seeds anywhere.

    Seeds are drawn anew within every federation, 2000 times with a fixed seed; the interval is
    what lies between the 2.5th and the 97.5th percentile. Draws from n values vary too little, by
    √((n - 1) / n), so the distances to the mean of a federation are lengthened by so much; and the
    interval by Student's t over the normal quantile, for as few degrees of freedom as there are.

    Args:
        strata: per federation [S] values, one per seed.
        statistic: of [2000, N] values over the last axis.
    """
    from scipy.special import ndtri, stdtrit

    rng = np.random.default_rng(0)
    strata = [values for values in strata if len(values)]
    freedom = sum(len(values) - 1 for values in strata)
    if not freedom:
        return math.nan, math.nan
    drawn = [
        (values.mean() + math.sqrt(n / max(n - 1, 1)) * (values - values.mean()))[
            rng.integers(0, n, (_RESAMPLES, n))
        ]
        for values in strata
        for n in [len(values)]
    ]
    ends = np.quantile(statistic(np.concatenate(drawn, axis=1)), (0.025, 0.975))
    middle = float(np.squeeze(statistic(np.concatenate(strata)[None])))
    low, high = middle + (ends - middle) * stdtrit(freedom, 0.975) / ndtri(0.975)
    return float(low), float(high)


def profile(values: NDArray[np.float64], levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """[L] the share of [n] values that lie above each of [L] levels: a performance profile."""
    share: NDArray[np.float64] = (values[None, :] > levels[:, None]).mean(axis=1)
    return share


def improvement(left: Sequence[NDArray[np.float64]], right: Sequence[NDArray[np.float64]]) -> float:
    """The probability that a run of the left method beats a run of the right one.

    Over all pairs of runs in a federation: (wins + ties / 2) / pairs; then the mean over
    federations. One half: no method is ahead.

    Args:
        left, right: per federation [S] values, higher is better.
    """
    shares = []
    for own, other in zip(left, right, strict=True):
        gap = own[:, None] - other[None, :]
        shares.append(float((gap > 0).mean() + (gap == 0).mean() / 2))
    return float(np.mean(shares))
