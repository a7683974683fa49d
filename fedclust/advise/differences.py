"""In what the groups differ: their inputs, and the shares of their labels. Described, not tested:
the groups were made of the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray

from fedclust.core.types import Federation

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Difference:
    """One thing in which two groups differ most.

    Attributes:
        what: the name of an input, or the label.
        groups: the two, the one with more of it first.
        size: of an input the difference of means, in standard deviations over all rows; of classes
            the total variation, the share of rows whose label would have to be another one; of a
            number that is predicted as of an input.
        chance: what the largest difference of all inputs and pairs of groups exceeds in at most 5 %
            of cases where all are alike (Bonferroni); NaN for classes.
    """

    what: str
    groups: tuple[int, int]
    size: float
    chance: float


def differences(fed: Federation, groups: NDArray[np.int64]) -> list[Difference]:
    """In what any two of the groups [M] of clients differ most, over all rows: the label first,
    then every input, the largest difference first. None for one group.
    """
    if groups.max(initial=0) < 1:
        return []
    parts = [_rows(fed, np.flatnonzero(groups == one)) for one in range(int(groups.max()) + 1)]
    x = [fed.pool.inputs(rows).flatten(1).double().cpu().numpy() for rows in parts]
    y = [fed.pool.y[rows].cpu() for rows in parts]
    label = _classes(y, fed.pool.num_classes) if y[0].dim() == 1 else _targets(y)
    names = list(fed.names.features)
    if len(names) != x[0].shape[1]:
        names = [f"input {number}" for number in range(x[0].shape[1])]
    found = [
        _of_means(name, [part[:, place] for part in x], len(names))
        for place, name in enumerate(names)
    ]
    return [label, *sorted(found, key=lambda one: -one.size)]


def _rows(fed: Federation, clients: NDArray[np.int64]) -> torch.Tensor:
    """Rows of the pool that some clients have, of whatever split."""
    return torch.cat(
        [split.of_client(client) for split in fed.splits.values() for client in clients.tolist()]
    )


def _classes(y: Sequence[torch.Tensor], num_classes: int) -> Difference:
    shares = [part.bincount(minlength=num_classes).double().numpy() / len(part) for part in y]
    pairs = combinations(range(len(y)), 2)
    size, pair = max((float(np.abs(shares[a] - shares[b]).sum() / 2), (a, b)) for a, b in pairs)
    return Difference("label", pair, size, float("nan"))


def _targets(y: Sequence[torch.Tensor]) -> Difference:
    return _of_means("label", [part.double().mean(1).numpy() for part in y])


def _of_means(name: str, values: Sequence[Floats], looked_at: int = 1) -> Difference:
    """The two groups whose means lie furthest apart; `looked_at` says of how many numbers."""
    from scipy.special import ndtri

    means = [float(part.mean()) for part in values]
    more, less = int(np.argmax(means)), int(np.argmin(means))
    spread = float(np.concatenate(values).std())
    size = (means[more] - means[less]) / spread if spread > 0 else 0.0
    pairs = len(values) * (len(values) - 1) // 2
    half = float(ndtri(1 - 0.025 / (looked_at * pairs)))
    chance = half * float(np.sqrt(1 / len(values[more]) + 1 / len(values[less])))
    return Difference(name, (more, less), size, chance)
