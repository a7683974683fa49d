"""Rules for the number of clusters: closed forms, planted points, one cloud, copies."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedclust.cluster_methods import choosing
from fedclust.cluster_methods.agglomerative import Agglomerative
from fedclust.cluster_methods.choosing import eigengap, jaccard, scatter
from fedclust.cluster_methods.kmeans import KMeans
from fedclust.cluster_methods.kmedoids import KMedoids
from fedclust.cluster_methods.spectral import Spectral
from fedclust.helpers.rng import Stream

STREAM = Stream.of(0, "clustering", 5)
RULES = ("silhouette", "gap", "eigengap", "stability")


def cloud(*centres: tuple[float, float], of: int = 12, seed: int = 0) -> Tensor:
    """Distances of points about centres, standard deviation 1."""
    draw = torch.Generator().manual_seed(seed)
    noise = torch.randn(len(centres) * of, 2, generator=draw).double()
    points = torch.tensor(centres).double().repeat_interleave(of, 0) + noise
    return torch.cdist(points, points).fill_diagonal_(0)


THREE = cloud((0, 0), (14, 0), (28, 28))  # of three that are as far apart the gap says 1


@pytest.mark.thinned
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("method", [KMeans, KMedoids, Agglomerative])
def test_every_rule_finds_three_groups(rule: Any, method: Any) -> None:
    more = {} if method is Agglomerative else {"starts": 2}
    found = method(num_clusters="auto", auto_by=rule, max_clusters=5, **more)(THREE, STREAM)
    assert found.tolist() == [0] * 12 + [1] * 12 + [2] * 12


@pytest.mark.parametrize("rule", ["silhouette", "eigengap"])
def test_spectral_clustering_takes_a_rule_as_well(rule: Any) -> None:
    found = Spectral(num_clusters="auto", auto_by=rule, max_clusters=4)(THREE, STREAM)
    assert found.tolist() == [0] * 12 + [1] * 12 + [2] * 12


@pytest.mark.parametrize("rule", ["gap", "stability"])
def test_one_cloud_is_one_cluster(rule: Any) -> None:
    distance = cloud((0, 0), of=30)
    method = KMeans(num_clusters="auto", auto_by=rule, max_clusters=4, starts=2)
    assert int(method(distance, STREAM).max()) == 0


@pytest.mark.parametrize(("gain", "found"), [(1.01, 1), (1.03, 2)])
def test_the_gaps_error_is_that_of_the_mean_and_of_a_draw(
    gain: float, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of B references s = sd √(1 + 1 / B): here 1.0247, between the two gains."""
    own, draws = np.zeros((4, 4)), count()

    def pretended(distance: Any, label: Any) -> float:
        if label.max() == 0:
            return 1.0
        return np.exp(-gain) if distance is own else np.exp((-1.0) ** next(draws))

    monkeypatch.setattr(choosing, "scatter", pretended)
    monkeypatch.setattr(choosing, "_labels", lambda _, k, size: np.arange(size) % k)
    assert choosing.gap(own, 2, lambda _: None, STREAM) == found  # type: ignore[arg-type]


def test_scatter_by_hand() -> None:
    place = np.array([0.0, 1.0, 10.0, 11.0])
    distance = np.abs(place[:, None] - place)
    assert scatter(distance, np.zeros(4, np.int64)) == pytest.approx(101)  # about 5.5
    assert scatter(distance, np.array([0, 0, 1, 1])) == pytest.approx(1)


def test_two_blocks_have_two_eigenvalues_of_0() -> None:
    """Eigenvalues 0, 0 and then 3/2 twice a block: at distance 1 the affinities are alike."""
    block = np.arange(6) // 3
    distance = np.where(block[:, None] == block, 1.0, 1e3)
    np.fill_diagonal(distance, 0)
    assert eigengap(distance, 5) == 2
    many = np.arange(20) // 10
    distance = np.where(many[:, None] == many, 1.0, 1e3)
    np.fill_diagonal(distance, 0)
    assert eigengap(distance, 5) == 2
    assert eigengap(1 - np.eye(20), 5) == 1


@pytest.mark.parametrize("groups", [2, 3, 5, 10])
@pytest.mark.parametrize("size", [2, 3, 5, 7, 8, 12])
def test_an_eigengap_sees_small_groups(groups: int, size: int) -> None:
    block = np.arange(groups * size) // size
    distance = np.where(block[:, None] == block, 0.01, 1.0)
    np.fill_diagonal(distance, 0)
    assert eigengap(distance, min(10, groups * size - 1)) == groups


def test_pairs_together_in_both_of_those_in_one() -> None:
    one, other = np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1])
    assert jaccard(one, other) == 0.25
    assert jaccard(one, 1 - one) == 1
    assert jaccard(np.arange(3), np.arange(3)) == 1


@pytest.mark.full
@pytest.mark.parametrize("rule", RULES)
def test_copies_and_few_clients(rule: Any) -> None:
    block = torch.arange(12) // 4
    distance = (block.unsqueeze(1) != block).double()
    method = Agglomerative(num_clusters="auto", auto_by=rule)
    found = method(distance, STREAM)
    assert int(found.max()) <= 2
    assert all(len(found[block == b].unique()) == 1 for b in range(3))
    assert method(torch.zeros(1, 1), STREAM).tolist() == [0]
    assert method(1 - torch.eye(2), STREAM).tolist() == [0, 0]


@pytest.mark.full
@pytest.mark.parametrize("rule", RULES)
def test_the_same_stream_gives_the_same_clusters(rule: Any) -> None:
    method = KMeans(num_clusters="auto", auto_by=rule, max_clusters=4, starts=1)
    distance = cloud((0, 0), (4, 0), seed=3)
    before = distance.clone()
    assert torch.equal(method(distance, STREAM), method(distance, STREAM))
    assert torch.equal(distance, before)
