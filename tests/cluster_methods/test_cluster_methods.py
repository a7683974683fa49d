"""Every clustering method finds planted blocks; k-medoids and the rules for k by hand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from sklearn.cluster import KMeans as SklearnKMeans
from torch import Tensor

from fedclust.cluster_methods.agglomerative import Agglomerative
from fedclust.cluster_methods.dbscan import Dbscan
from fedclust.cluster_methods.hdbscan import Hdbscan
from fedclust.cluster_methods.kmeans import KMeans, coordinates
from fedclust.cluster_methods.kmedoids import KMedoids, alternate
from fedclust.cluster_methods.kmedoids_sklearn_extra import KMedoidsSklearnExtra
from fedclust.cluster_methods.optics import Optics
from fedclust.cluster_methods.spectral import Spectral, _affinity
from fedclust.helpers.errors import ConfigError, DivergedError
from fedclust.helpers.rng import Stream

CONF = Path(__file__).parents[2] / "conf" / "cluster_method"
STREAM = Stream.of(0, "clustering", 5)
NEEDS_EXTRA = "kmedoids_sklearn_extra"
NAMES = sorted(file.stem for file in CONF.glob("*.yaml") if file.stem != NEEDS_EXTRA)
WITH_AUTO = [KMedoids, Agglomerative, Spectral, KMeans]


def configured(name: str, num_clusters: int, **overrides: Any) -> Any:
    config = OmegaConf.merge(
        {"num_clusters": num_clusters}, {"method": OmegaConf.load(CONF / f"{name}.yaml")}
    )
    config.method = OmegaConf.merge(config.method, overrides)
    return instantiate(config.method)


def blocks(
    *sizes: int, inside: float = 0.2, between: float = 1.0, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Distances about `inside` within blocks, `between` across them, and the blocks [C]."""
    draw = torch.Generator().manual_seed(seed)
    block = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    block = block[torch.randperm(len(block), generator=draw)]
    level = torch.where(block.unsqueeze(1) == block, inside, between)
    noisy = level * (0.8 + 0.4 * torch.rand(level.shape, generator=draw))
    return ((noisy + noisy.T) / 2).fill_diagonal_(0), block


def on_a_line(*places: float) -> Tensor:
    """Distances of points on a line."""
    place = torch.tensor(places)
    return (place.unsqueeze(1) - place).abs()


def same_partition(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.unsqueeze(1) == a, b.unsqueeze(1) == b)


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_three_planted_blocks_are_recovered(name: str) -> None:
    # its radii are rules of thumb: a percentile that merges blocks, see test_dbscan_radius, a knee
    overrides = {"eps": 0.5} if name.startswith("dbscan") else {}
    for seed in range(3):
        distance, block = blocks(9, 7, 8, seed=seed)
        label = configured(name, 3, **overrides)(distance, STREAM)
        assert label.dtype == torch.int64
        assert same_partition(label, block)
        first = [label.tolist().index(k) for k in range(3)]
        assert first == sorted(first), "numbered in the order of their first clients"


@pytest.mark.thinned
@pytest.mark.parametrize("name", NAMES)
def test_same_distances_and_stream_same_labels(name: str) -> None:
    noise = torch.rand(40, 40, generator=torch.Generator().manual_seed(3))
    distance = (noise + noise.T).fill_diagonal_(0)
    before, method = distance.clone(), configured(name, 4)
    first = method(distance, STREAM)
    assert torch.equal(first, method(distance, STREAM))
    assert torch.equal(distance, before)
    assert sorted(first.unique().tolist()) == list(range(int(first.max()) + 1))


@pytest.mark.thinned
@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_the_clients_does_not_matter(name: str) -> None:
    distance, _ = blocks(10, 6, 9, 7)
    order = torch.randperm(32, generator=torch.Generator().manual_seed(1))
    method = configured(name, 4)
    moved = method(distance[order][:, order], STREAM)
    assert same_partition(moved, method(distance, STREAM)[order])


@pytest.mark.parametrize("name", NAMES)
def test_distances_that_are_no_numbers_are_refused(name: str) -> None:
    distance, _ = blocks(8, 8)
    distance[3, 5] = distance[5, 3] = torch.nan
    with pytest.raises(DivergedError, match="not finite"):
        configured(name, 2)(distance, STREAM)


@pytest.mark.full
@pytest.mark.parametrize("method", WITH_AUTO)
def test_auto_finds_three_blocks_and_one_where_there_is_no_structure(method: Any) -> None:
    distance, block = blocks(9, 7, 8)
    assert same_partition(method(num_clusters="auto")(distance, STREAM), block)
    noise = 1 + 0.2 * torch.rand(24, 24, generator=torch.Generator().manual_seed(0))
    unstructured = (noise + noise.T).fill_diagonal_(0)
    assert (method(num_clusters="auto")(unstructured, STREAM) == 0).all()
    assert int(method(num_clusters="auto", max_clusters=2)(distance, STREAM).max()) <= 1


def test_auto_takes_the_number_with_the_best_silhouette() -> None:
    """Three pairs on a line; with at most two clusters the two near pairs are one."""
    distance = on_a_line(0.0, 1.0, 10.0, 11.0, 30.0, 31.0)
    for most, label in ((2, [0, 0, 0, 0, 1, 1]), (3, [0, 0, 1, 1, 2, 2]), (5, [0, 0, 1, 1, 2, 2])):
        method = Agglomerative(num_clusters="auto", max_clusters=most)
        assert method(distance, STREAM).tolist() == label


def test_affinities_by_hand() -> None:
    """Distances 1, 2 and 6: sigma is their median, 2, so the affinities are exp(-d^2 / 8)."""
    found = _affinity(np.array([[0, 1, 6], [1, 0, 2], [6, 2, 0.0]]))
    assert found[0, 1] == pytest.approx(0.882497, abs=1e-6)
    assert found[1, 2] == pytest.approx(0.606531, abs=1e-6)
    assert found[0, 2] == pytest.approx(0.011109, abs=1e-6)
    assert found.diagonal().tolist() == [1.0] * 3


def test_density_methods_read_their_options() -> None:
    """Two blocks of four: too small for a cluster of five; not steep enough for a xi of 0.95."""
    distance = on_a_line(0.0, 0.1, 0.2, 0.3, 5.0, 5.1, 5.2, 5.3)
    two, one = [0] * 4 + [1] * 4, [0] * 8
    assert Hdbscan(min_cluster_size=3)(distance, STREAM).tolist() == two
    assert Hdbscan(min_cluster_size=5, min_samples=3)(distance, STREAM).tolist() == one
    assert Optics(min_samples=3)(distance, STREAM).tolist() == two
    assert Optics(min_samples=3, xi=0.99)(distance, STREAM).tolist() == one


@pytest.mark.parametrize("method", WITH_AUTO)
def test_extreme_numbers_of_clusters(method: Any) -> None:
    distance, _ = blocks(3, 3)
    assert method(num_clusters=1)(distance, STREAM).tolist() == [0] * 6
    assert method(num_clusters=6)(distance, STREAM).tolist() == list(range(6))
    with pytest.raises(
        ConfigError, match="num_clusters=7 is not allowed: at most the 6 clients"
    ) as error:
        method(num_clusters=7)(distance, STREAM)
    assert "\n" not in str(error.value)
    assert method(num_clusters="auto")(torch.zeros(1, 1), STREAM).tolist() == [0]


@pytest.mark.parametrize("method", WITH_AUTO)
def test_copies_stay_together_where_more_clusters_are_asked_for(method: Any) -> None:
    distance = on_a_line(0.0, 5.0, 0.0, 9.0, 0.0)
    for k in (4, 5):
        assert method(num_clusters=k)(distance, STREAM).tolist() == [0, 1, 0, 2, 0]


def test_alternate_by_hand() -> None:
    """Points 0 1 2 3 | 10 11 12 on a line, k = 2.

    Row sums 39, 34, 31, 30, 37, 40, 45 start it at 3 and 2: {3 10 11 12} and {0 1 2}. Then 3 gives
    way to 10 (10 and 11 have the least inner sum, 10; the first wins) and 2 to 1; then point 3
    moves to {0 1 2 3}, 10 gives way to 11, and 1 stays, because the sum of 2 is not strictly less;
    nothing moves any more.
    """
    points = np.array([0, 1, 2, 3, 10, 11, 12.0])
    distance = np.abs(points[:, None] - points)
    assert distance.sum(1).tolist() == [39, 34, 31, 30, 37, 40, 45]
    # before any exchange: medoids 3 and 2
    assert alternate(distance, 2, 0).tolist() == [1, 1, 1, 0, 0, 0, 0]
    assert alternate(distance, 2, 1).tolist() == [
        1,
        1,
        1,
        1,
        0,
        0,
        0,
    ]  # after one exchange: medoids 10 and 1
    assert alternate(distance, 2, 300).tolist() == [1, 1, 1, 1, 0, 0, 0]
    label = KMedoids(num_clusters=2, variant="alternate")(torch.from_numpy(distance), STREAM)
    assert label.tolist() == [0, 0, 0, 0, 1, 1, 1]


def test_alternate_keeps_a_medoid_that_another_only_equals() -> None:
    """Points 11 8 6 3 on a line: from 8 and 6 to {11 8} and {6 3}, in which both members have the
    inner sum 3. If 11 took over from 8 as its equal, 8 would go to 6.
    """
    points = np.array([11, 8, 6, 3.0])
    assert alternate(np.abs(points[:, None] - points), 2, 300).tolist() == [0, 0, 1, 1]


def test_linkages_differ_by_hand() -> None:
    """On the first line the clusters {0 2}, {4.5 7.5} and 11.2 are left over at last: by the means
    the first two are the nearest (5 and 5.2), by the farthest the last two (7.5 and 6.7). On the
    second single linkage goes on along the chain, while averages merge neighbours first.
    """
    expected = {
        (0, 2, 4.5, 7.5, 11.2): {"average": [0, 0, 0, 0, 1], "complete": [0, 0, 1, 1, 1]},
        (0, 1, 2.1, 3.3, 4.6, 6): {
            "average": [0, 0, 0, 0, 1, 1],
            "single": [0, 0, 0, 0, 0, 1],
        },
    }
    for points, labels in expected.items():
        distance = on_a_line(*points)
        for linkage, label in labels.items():
            method = Agglomerative(num_clusters=2, linkage=linkage)  # type: ignore[arg-type]
            assert method(distance, STREAM).tolist() == label


def cost_of(distance: Tensor, label: Tensor) -> float:
    """Sum of distances to the best medoid of each cluster."""
    inner = [distance[label == k][:, label == k].sum(1).min() for k in label.unique()]
    return float(torch.stack(inner).sum())


def test_fasterpam_is_optimal_on_small_cases() -> None:
    """Against all pairs and triples of medoids."""
    from itertools import combinations

    for seed in range(5):
        noise = torch.rand(14, 14, generator=torch.Generator().manual_seed(seed))
        distance = (noise + noise.T).fill_diagonal_(0)
        for k in (2, 3):
            best = min(float(distance[list(c)].amin(0).sum()) for c in combinations(range(14), k))
            found = KMedoids(num_clusters=k, starts=20)(distance, STREAM)
            assert cost_of(distance, found) == pytest.approx(best, rel=1e-5)


def test_dbscan_radius() -> None:
    """The published radius is a percentile of all entries; noise is one more cluster."""
    distance, block = blocks(10, 10, 10)
    eps = float(np.percentile(distance.double().numpy(), 100 / 3))
    published = Dbscan(num_clusters=4)(distance, STREAM)
    assert torch.equal(published, Dbscan(num_clusters=4, eps=eps)(distance, STREAM))
    assert same_partition(Dbscan(num_clusters=3, eps=0.5)(distance, STREAM), block)
    apart = distance.clone()
    apart[[0, 7]], apart[:, [0, 7]] = 50.0, 50.0  # two clients far from everybody
    apart.fill_diagonal_(0)
    alone = Dbscan(num_clusters=3, eps=0.5)(apart, STREAM)
    assert alone[0] == alone[7]
    assert int((alone == alone[0]).sum()) == 2
    assert len(alone.unique()) == 4


def test_dbscan_radius_by_hand() -> None:
    """Points 0 1 3 6: the 16 entries are four times 0, then twice 1 2 3 3 5 6. With k = 3 the 50th
    percentile is 2.5, which joins 0, 1 and 3; with k = 4 the 33rd is 1, which joins 0 and 1.
    """
    distance = on_a_line(0.0, 1.0, 3.0, 6.0)
    expected = {2: [0, 0, 0, 0], 3: [0, 0, 0, 1], 4: [0, 0, 1, 2]}
    for k, label in expected.items():
        assert Dbscan(num_clusters=k, min_samples=1)(distance, STREAM).tolist() == label


@pytest.mark.parametrize(
    ("build", "key"),
    [
        (lambda: KMedoids(num_clusters=0), "KMedoids.num_clusters"),
        (lambda: KMedoids(num_clusters="auto", max_clusters=1), "KMedoids.max_clusters"),
        (lambda: Spectral(num_clusters="many"), "Spectral.num_clusters"),  # type: ignore[arg-type]
        (lambda: Spectral(num_clusters=2, min_silhouette=2), "Spectral.min_silhouette"),
        (lambda: Dbscan(num_clusters=1), "cluster_method.eps"),
        (lambda: Dbscan(num_clusters=3, eps=0), "Dbscan.eps"),
        (lambda: KMeans(num_clusters=2, starts=0), "KMeans.starts"),
        (lambda: KMeans(num_clusters=2, max_iter=0), "KMeans.max_iter"),
        (lambda: Hdbscan(min_cluster_size=1), "Hdbscan.min_cluster_size"),
        (lambda: Hdbscan()(torch.zeros(3, 3), STREAM), "cluster_method.min_cluster_size"),
        (lambda: Optics(xi=0), "Optics.xi"),
        (lambda: Optics()(torch.zeros(3, 3), STREAM), "cluster_method.min_samples"),
    ],
)
def test_wrong_options_name_their_key(build: Any, key: str) -> None:
    with pytest.raises(ConfigError, match=key) as error:
        build()
    assert "\n" not in str(error.value)


def test_missing_extra_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn_extra", None)
    monkeypatch.setitem(sys.modules, "sklearn_extra.cluster", None)
    with pytest.raises(ConfigError, match=r"pip install .*sklearn-extra\]'") as error:
        KMedoidsSklearnExtra(num_clusters=3)
    assert "\n" not in str(error.value)


def test_clusters_nearer_than_the_threshold_are_merged_and_others_are_not() -> None:
    distance = on_a_line(0.0, 1.0, 10.0, 11.5, 30.0)
    expected = {
        0.5: [0, 1, 2, 3, 4],
        1.2: [0, 0, 1, 2, 3],
        2.0: [0, 0, 1, 1, 2],
        12.0: [0, 0, 0, 0, 1],
    }
    for threshold, label in expected.items():
        method = Agglomerative(num_clusters=2, linkage="complete", threshold=threshold)
        assert method(distance, STREAM).tolist() == label
    assert Agglomerative(num_clusters=2, threshold=99.0)(distance, STREAM).tolist() == [0] * 5


def test_the_threshold_is_met_by_the_chosen_linkage() -> None:
    """{0 1} and {10 11.5} are 9 apart at least, 10.25 on average and 11.5 at most."""
    distance = on_a_line(0.0, 1.0, 10.0, 11.5)
    for threshold, merged in ((9.5, ["single"]), (11.0, ["single", "average"])):
        for linkage in ("single", "average", "complete"):
            method = Agglomerative(num_clusters=2, linkage=linkage, threshold=threshold)  # type: ignore[arg-type]
            expected = [0] * 4 if linkage in merged else [0, 0, 1, 1]
            assert method(distance, STREAM).tolist() == expected


def test_one_client_is_one_cluster() -> None:
    assert Agglomerative(num_clusters=1, threshold=1.0)(torch.zeros(1, 1), STREAM).tolist() == [0]


def test_a_threshold_of_zero_names_its_key() -> None:
    with pytest.raises(ConfigError, match=r"Agglomerative\.threshold=0"):
        Agglomerative(num_clusters=2, threshold=0.0)


def points(count: int, dimensions: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(
        count, dimensions, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def inertia(place: torch.Tensor, label: torch.Tensor) -> float:
    return sum(
        float((place[label == k] - place[label == k].mean(0)).square().sum())
        for k in label.unique()
    )


def test_coordinates_have_the_distances() -> None:
    place = points(15, 4)
    distance = torch.cdist(place, place)
    found = coordinates(distance.numpy())
    assert found.shape == (15, 4), "as many dimensions as the points span"
    np.testing.assert_allclose(
        torch.cdist(torch.from_numpy(found), torch.from_numpy(found)), distance
    )
    assert (coordinates(np.zeros((3, 3))) == 0).all()


def test_it_needs_no_more_than_distances() -> None:
    """On points without structure it reaches the inertia of k-means on the points themselves."""
    place = points(60, 5)
    label = KMeans(num_clusters=4, starts=30)(torch.cdist(place, place).float(), STREAM)
    on_points = SklearnKMeans(4, n_init=30, random_state=0).fit(place.numpy())
    assert inertia(place, label) == pytest.approx(on_points.inertia_, rel=0.01)


def test_one_dimension_by_hand() -> None:
    place = torch.tensor([[0.0], [1.0], [2.0], [10.0], [11.0], [30.0]])
    assert KMeans(num_clusters=3)(torch.cdist(place, place), STREAM).tolist() == [0, 0, 0, 1, 1, 2]


def test_distances_that_no_points_have_are_approximated() -> None:
    """Violates the triangle inequality; the two far blocks are found all the same."""
    distance = torch.full((6, 6), 5.0)
    distance[:3, :3] = distance[3:, 3:] = 0.5
    distance[0, 4] = distance[4, 0] = 8.0
    assert KMeans(num_clusters=2)(distance.fill_diagonal_(0), STREAM).tolist() == [0, 0, 0, 1, 1, 1]
