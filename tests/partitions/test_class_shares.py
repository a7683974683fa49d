"""CLoVE's label skews: which classes, in which shares, and how many examples."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from fakes import fake
from omegaconf import OmegaConf

from fedclust.core.federation import build, label_histogram
from fedclust.core.types import Dataset
from fedclust.helpers.errors import ConfigError
from fedclust.partitions.class_shares import ClassShares, dirichlet
from fedclust.partitions.class_subsets import ClassSubsets
from fedclust.partitions.majority_class import MajorityClass

CONF = Path(__file__).parents[2] / "conf" / "partition"


def subsets(name: str) -> list[list[int]]:
    """Classes of every cluster, as a config has them."""
    return [list(map(int, s)) for s in OmegaConf.load(CONF / f"{name}.yaml").subsets]


def by_cluster(dataset: Dataset, partition: ClassSubsets | MajorityClass) -> torch.Tensor:
    """Training examples of every class in every cluster, [G, Y]."""
    fed = build(dataset, partition, 0)
    table = label_histogram(fed, torch.arange(fed.num_clients))
    return torch.zeros(int(fed.group.max()) + 1, 10, dtype=torch.int64).index_add(
        0, fed.group, table
    )


def test_the_sets_are_those_that_the_skews_describe() -> None:
    assert [set(s) for s in subsets("class_pairs")] == [{2 * g, 2 * g + 1} for g in range(5)]
    overlap = [set(s) for s in subsets("class_overlap")]
    assert [len(s) for s in overlap] == [4] * 5
    assert all(len(a & b) == 2 for a, b in combinations(overlap, 2))
    assert len(set().union(*overlap)) == 8
    every = set(range(10))
    assert [every - set(s) for s in subsets("class_missing")] == [{9}, {0}, {1}, {2}, set()]


def test_classes_are_divided_among_their_owners_only() -> None:
    dataset, sets = fake(6000, 1000), subsets("class_overlap")
    table = by_cluster(dataset, ClassShares(num_clients=10, subsets=sets, min_per_cluster=400))
    owners = torch.tensor([[c in s for c in range(10)] for s in sets])
    assert (table[~owners] == 0).all()
    assert table.sum(0).tolist() == [600 if any(c in s for s in sets) else 0 for c in range(10)]
    # the reserve alone gives every owner this many
    least = 60 // owners.sum(0).clamp(min=1)
    assert (table[owners] >= least.expand(5, -1)[owners]).all()
    assert int(table.sum(1).min()) >= 400


def test_a_whole_reserve_gives_equal_shares() -> None:
    dataset, sets = fake(6000, 1000), subsets("class_missing")
    shared = ClassShares(num_clients=10, subsets=sets, reserve=1.0)
    assert torch.equal(
        by_cluster(dataset, shared),
        by_cluster(dataset, ClassSubsets(num_clients=10, subsets=sets)),
    )


def test_the_reserve_grows_until_every_cluster_has_enough() -> None:
    dataset, sets = fake(6000, 1000), subsets("class_missing")
    least = [
        int(
            by_cluster(
                dataset, ClassShares(num_clients=10, subsets=sets, alpha=0.05, min_per_cluster=m)
            )
            .sum(1)
            .min()
        )
        for m in (0, 900, 1080)
    ]
    assert least[0] < 900 <= least[1]
    assert least[2] >= 1080
    with pytest.raises(
        ConfigError, match=r"min_per_cluster=2000 .* even if its classes are shared"
    ):
        build(dataset, ClassShares(num_clients=10, subsets=sets, min_per_cluster=2000), 0)
    with pytest.raises(ConfigError, match=r"partition.cluster_sizes=.* equal, since"):
        ClassShares(num_clients=10, subsets=sets, cluster_sizes=[1, 2, 3, 4, 5])


@pytest.mark.parametrize(("name", "least"), [("class_overlap", 5100), ("class_missing", 6000)])
def test_the_published_sizes_fit_mnist(name: str, least: int, mnist_sized: Dataset) -> None:
    sets = subsets(name)
    shared = ClassShares(num_clients=25, subsets=sets, min_per_cluster=least)
    assert int(by_cluster(mnist_sized, shared).sum(1).min()) >= least
    capped = ClassShares(
        num_clients=25, subsets=sets, min_per_cluster=least, examples_per_client=500
    )
    assert build(mnist_sized, capped, 1).train.count.tolist() == [500] * 25


@pytest.mark.parametrize(
    ("smallest", "own", "other"),
    [
        (5421, 3248, 181),  # MNIST, training
        (892, 534, 29),  # and test images
        (6000, 3596, 200),  # FashionMNIST
        (5000, 2997, 167),  # CIFAR-10
    ],
)
def test_sizes_of_majority_classes(smallest: int, own: int, other: int) -> None:
    table = MajorityClass(num_clients=10).counts(smallest, 10)
    assert table.diagonal().tolist() == [own] * 10
    assert (table.sum(0) - table.diagonal()).tolist() == [9 * other] * 10
    assert table.sum(0).max() <= smallest


def test_a_cluster_has_mostly_its_own_class() -> None:
    dataset = fake(2000, 500)
    partition = MajorityClass(num_clients=20)
    assert torch.equal(by_cluster(dataset, partition), torch.from_numpy(partition.counts(200, 10)))
    fed = build(dataset, partition, 0)
    assert fed.group.tolist() == [i // 2 for i in range(20)]
    assert int(fed.train.count.max()) - int(fed.train.count.min()) <= 1
    capped = build(dataset, MajorityClass(num_clients=20, examples_per_client=30), 0)
    assert capped.train.count.tolist() == [30] * 20
    with pytest.raises(ConfigError, match=r"partition.num_clients=15 .* multiple of the 10"):
        build(dataset, MajorityClass(num_clients=15), 0)


@pytest.mark.parametrize("alpha", [1e-3, 0.04, 0.5])
def test_shares_of_a_small_alpha_have_the_variance_of_their_law(alpha: float) -> None:
    """Of two owners, a share is Beta(alpha, alpha): its variance is 1 / (4 (2 alpha + 1))."""
    rng = np.random.default_rng(0)
    shares = dirichlet(alpha, np.ones((2, 20_000)), rng)
    assert shares.sum(0) == pytest.approx(1)
    assert shares[0].var() == pytest.approx(1 / (4 * (2 * alpha + 1)), abs=0.003)
    assert not (shares == 0.5).any(), "a draw below what a float holds is no equal share"
    alone = dirichlet(alpha, np.array([[1.0, 0.0], [0.0, 0.0]]), rng)
    assert alone.tolist() == [[1, 0], [0, 0]]
