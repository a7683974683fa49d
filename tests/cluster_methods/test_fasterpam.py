"""FasterPAM: swaps by hand, and sums of distances that another program found."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from fedclust.cluster_methods import Floats
from fedclust.cluster_methods.fasterpam import _Nearest, _swaps, build, fasterpam

# of the package kmedoids 0.5.5: the least of ten starts, the first by its BUILD
KEPT = (
    *(397.190336, 323.210679, 446.698382, 546.294331, 335.089234, 454.301548),
    *(223.188016, 611.484153, 386.65, 303.505979, 346.2853, 117.141859),
)


def instance(seed: int) -> tuple[Floats, int]:
    """Distances of 20 to 300 points, and a number of clusters; odd seeds have groups."""
    rng = np.random.default_rng(seed)
    size, k = int(rng.integers(20, 300)), int(rng.integers(2, 10))
    noise, centres = rng.normal(size=(size, 5)), 3 * rng.normal(size=(k, 5))
    point = noise + centres[rng.integers(0, k, size)] * (seed % 2)
    return np.sqrt(((point[:, None] - point[None]) ** 2).sum(-1)), k


def best_of_ten(distance: Floats, k: int) -> float:
    """The least loss of ten starts, the first by BUILD; each is what its labels say."""
    rng = np.random.default_rng(0)
    losses = []
    for start in range(10):
        medoids = rng.choice(len(distance), k, replace=False) if start else build(distance, k)
        label, loss = fasterpam(distance, medoids, rng.permutation(len(distance)), 300)
        inner = [distance[label == j][:, label == j].sum(1).min() for j in range(k)]
        assert loss == pytest.approx(sum(inner))
        losses.append(loss)
    return min(losses)


@pytest.mark.full
def test_no_worse_than_another_program() -> None:
    """From random starts of their own both end in the best place, or near it."""
    found = np.array([best_of_ten(*instance(seed)) for seed in range(len(KEPT))])
    more = found / np.array(KEPT) - 1
    assert (more < 1e-8).sum() >= 9, more
    assert more.max() < 5e-3, more


def test_gains_are_what_a_swap_changes() -> None:
    distance, k = instance(3)
    medoids = np.arange(k)
    state = _Nearest(distance, medoids)
    candidates = np.arange(k, len(distance))
    gains = state.gains(candidates)
    for candidate, gain in zip(candidates, gains, strict=True):
        for j in range(k):
            swapped = medoids.copy()
            swapped[j] = candidate
            assert gain[j] == pytest.approx(distance[swapped].min(0).sum() - state.loss)


@pytest.mark.parametrize("seed", range(8))
def test_a_pass_looks_at_every_candidate_once(seed: int) -> None:
    """A swap is made at once, and the pass goes on behind its candidate."""
    distance, k = instance(seed)
    order = np.arange(len(distance))[::-1].copy()
    medoids = np.arange(k)
    state, seen = _Nearest(distance, medoids), []
    for candidate, j in _swaps(state, order):
        seen.append(candidate)
        before = state.loss
        medoids[j] = candidate
        state.update(medoids)
        assert state.loss < before
    assert seen
    assert seen == sorted(seen, reverse=True)


def test_from_every_start_no_swap_is_left() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        noise = rng.random((10, 10))
        distance = (noise + noise.T) * (1 - np.eye(10))
        label, loss = fasterpam(distance, np.array([0, 1, 2]), rng.permutation(10), 300)
        best = min(distance[list(c)].min(0).sum() for c in combinations(range(10), 3))
        assert best <= loss <= 1.35 * best
        assert len(np.unique(label)) == 3


def test_equal_clients_end() -> None:
    """Where nothing can be gained, rounding is no gain."""
    distance = np.full((30, 30), 0.1) * (1 - np.eye(30))
    label, loss = fasterpam(distance, np.array([4, 7]), np.arange(30), 10**6)
    assert loss == pytest.approx(2.8)
    assert len(np.unique(label)) == 2
    assert build(np.zeros((5, 5)), 3).tolist() == [0, 1, 2]
