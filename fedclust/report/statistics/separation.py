"""How well the distances of clients tell the true groups apart, before anything is clustered."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def separation(distance: NDArray[np.float64], group: NDArray[np.int64]) -> float:
    """The probability that two clients of different groups are farther apart than two of one group.

    Over all pairs of such pairs, ties half: the area under the ROC curve of the distance. 1: some
    threshold divides the groups without a mistake; one half: the distance says nothing of them.
    NaN where there is no pair of either kind.

    Args:
        distance: [C, C]; of a matrix that is not symmetric both entries count.
        group: [C] true group, -1 for none, which is left out.
    """
    known = np.flatnonzero(group >= 0)
    distance, group = distance[np.ix_(known, known)], group[known]
    alike = group[:, None] == group[None, :]
    apart = ~np.eye(len(group), dtype=bool)
    within, between = np.sort(distance[alike & apart]), distance[~alike]
    if not len(within) or not len(between):
        return float("nan")
    below = np.searchsorted(within, between, side="left")
    equal = np.searchsorted(within, between, side="right") - below
    return float((below + equal / 2).mean() / len(within))
