"""Whether groups are real: agreement of repetitions, and federations whose clients are alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedclust.core.types import Federation, Split
from fedclust.helpers.rng import Stream
from fedclust.metrics.contingency import contingency
from fedclust.metrics.recovery import adjusted_rand_index


def together(labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """[M, M] share of the repetitions in which two clients are in one group; labels [R, M]."""
    return np.asarray((labels[:, :, None] == labels[:, None, :]).mean(0))


def agreement(labels: NDArray[np.int64]) -> float:
    """Mean adjusted Rand index between two repetitions, of labels [R, M], R at least 2."""
    pairs = combinations(labels, 2)
    return float(np.mean([adjusted_rand_index(contingency(*pair)) for pair in pairs]))


def tree(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """SciPy's linkage of clients by average distance, that of two being how often they are apart;
    from `together`. M at least 2.
    """
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    apart = 1 - shares
    return np.asarray(linkage(squareform(apart, checks=False), "average", optimal_ordering=True))


def agreed(shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """[M] groups of clients that are together in more than half of the repetitions, on average,
    numbered in the order of their first clients.
    """
    from scipy.cluster.hierarchy import fcluster

    found = fcluster(tree(shares), 0.5 - 1e-9, "distance")
    _, first, number = np.unique(found, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number].astype(np.int64)


def exchanged(
    fed: Federation, seed: int, unit: Sequence[int] | NDArray[np.int64] | None = None
) -> Federation:
    """The federation after clients have exchanged their rows at random, within training and within
    test rows; how many each has stays as it was. Its true groups are gone.

    Args:
        unit: [N] of whom every row of the pool is; rows of one stay together, except where one
            client's rows end and the next one's begin. None where each is by itself.
    """
    stream = Stream.of(seed, "exchange")
    splits: dict[str, Any] = {
        name: _exchanged(split, stream.fold(place), unit)
        for place, (name, split) in enumerate(fed.splits.items())
    }
    return replace(fed, group=torch.full_like(fed.group, -1), **splits)


def _exchanged(
    split: Split, stream: Stream, unit: Sequence[int] | NDArray[np.int64] | None
) -> Split:
    rows = split.index.cpu().numpy()
    whose = rows if unit is None else np.asarray(unit)[rows]
    _, number = np.unique(whose, return_inverse=True)
    place = stream.numpy().permutation(number.max(initial=-1) + 1)[number]
    order = np.argsort(place, kind="stable")  # units one after the other, dealt to the clients
    index = torch.from_numpy(rows[order]).to(split.index.device)
    return Split(index, split.start)


def p_value(measured: float, null: NDArray[np.float64]) -> float:
    """The share of [B] exchanged federations, the measured one among them, that gain as much."""
    return float((1 + (null >= measured).sum()) / (1 + len(null)))
