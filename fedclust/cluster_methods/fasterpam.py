"""FasterPAM: k-medoids by eager swaps (Schubert, Rousseeuw, arXiv 2008.05171, Algorithm 4)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedclust.cluster_methods import Floats, Labels

_TOGETHER = 64  # candidates whose swaps are looked at in one product
_ROUNDING = 1e-12  # of the loss: a swap that gains less may come back for ever


def build(distance: Floats, k: int) -> Labels:
    """The greedy start of PAM, [k]: each medoid lowers the sum of distances most, the first of
    equals.

    Args:
        distance: [C, C] of clients to clients.
        k: number of medoids, at most C.
    """
    nearest = np.full(len(distance), np.inf)
    medoids: list[int] = []
    for _ in range(k):
        losses = np.minimum(distance, nearest).sum(1)
        losses[medoids] = np.inf
        medoids.append(int(losses.argmin()))
        nearest = np.minimum(nearest, distance[medoids[-1]])
    return np.array(medoids)


def fasterpam(
    distance: Floats, medoids: Labels, order: NDArray[np.int64], max_iter: int
) -> tuple[Labels, float]:
    """Swap medoids for other clients as long as that lowers the sum of distances to the nearest.

    The first candidate with a gain is swapped at once for the medoid with which it gains most, and
    the pass goes on behind it.

    Args:
        distance: [C, C], symmetric, 0 on the diagonal.
        medoids: [k] clients to begin with, k from 2 on.
        order: [C] the order in which a pass looks at the candidates.
        max_iter: at most so many passes.

    Returns:
        Labels [C] by nearest medoid, and the sum of distances.
    """
    medoids = medoids.copy()
    state = _Nearest(distance, medoids)
    for _ in range(max_iter):
        swaps = 0
        for candidate, medoid in _swaps(state, order):
            medoids[medoid] = candidate
            state.update(medoids)
            swaps += 1
        if not swaps:
            break
    return state.label, state.loss


class _Nearest:
    """Every client's nearest medoid, and the distances to the nearest and the second, each [C]."""

    def __init__(self, distance: Floats, medoids: Labels) -> None:
        self.distance = distance
        self.update(medoids)

    def update(self, medoids: Labels) -> None:
        """Look again, after a swap."""
        to = self.distance[medoids]  # [k, C]
        rows = np.arange(to.shape[1])
        self.medoids = medoids
        self.label = to.argmin(0)
        self.first = to[self.label, rows]
        to[self.label, rows] = np.inf
        self.second = to.min(0)
        self.loss = float(self.first.sum())
        self.members = np.zeros(to.shape[::-1])  # [C, k] one-hot
        self.members[rows, self.label] = 1
        self.removal = (self.second - self.first) @ self.members  # [k] what each medoid is worth

    def gains(self, candidates: NDArray[np.int64]) -> Floats:
        """Change of the loss [B, k] if each candidate replaced each medoid."""
        to = self.distance[candidates]
        nearer = np.minimum(to - self.first, 0).sum(1)
        kept = np.clip(to, self.first, self.second) - self.second
        changed: Floats = nearer[:, None] + self.removal + kept @ self.members
        return changed


def _swaps(state: _Nearest, order: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """One pass: each swap as soon as it is found, candidate and index of the medoid."""
    begin = 0
    while begin < len(order):
        candidates = order[begin : begin + _TOGETHER]
        changed = state.gains(candidates)
        changed[np.isin(candidates, state.medoids)] = 0
        better = np.flatnonzero(changed.min(1) < -_ROUNDING * state.loss)
        if not len(better):
            begin += _TOGETHER
            continue
        found = int(better[0])
        yield int(candidates[found]), int(changed[found].argmin())
        begin += found + 1
