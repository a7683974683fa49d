from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from fakes import fake
from refusals import refused

from fedclust.core.federation import build, label_histogram
from fedclust.core.types import Dataset
from fedclust.datasets.images import MNIST
from fedclust.helpers.errors import ConfigError
from fedclust.partitions.class_subsets import ClassSubsets
from fedclust.partitions.shares import equal_shares, solved_shares

A, B, C, D = (
    [0, 1, 2, 3, 4, 5, 6, 8],
    [0, 1, 2, 3, 4, 6, 7, 9],
    [1, 2, 4, 5, 6, 7, 8, 9],
    [0, 1, 3, 4, 5, 7, 8, 9],
)


def test_the_default_file_names_the_printed_sets(root: Path) -> None:
    node = yaml.safe_load((root / "conf/partition/class_subsets.yaml").read_text())
    assert node["subsets"] == [A, B, C, D]


def test_balanced_data_give_the_printed_sizes(mnist_sized: Dataset) -> None:
    fed = build(mnist_sized, ClassSubsets(num_clients=80, subsets=[A, B, C, D]), 0)
    assert fed.group.tolist() == [u // 20 for u in range(80)]
    for group in range(4):
        assert int(fed.train.count[fed.group == group].sum()) == 15_000
        # thirds of 1,000 round
        assert abs(int(fed.test.count[fed.group == group].sum()) - 2_500) <= 4
    assert set(fed.train.count.tolist()) == {750}
    assert set(fed.test.count.tolist()) <= {124, 125, 126}
    assert int(fed.train.count.sum()) == 60_000
    assert int(fed.test.count.sum()) == 10_000


def test_clients_hold_the_classes_of_their_cluster_in_equal_shares(mnist_sized: Dataset) -> None:
    fed = build(mnist_sized, ClassSubsets(num_clients=80, subsets=[A, B, C, D]), 0)
    histogram = label_histogram(fed, torch.arange(80)).view(4, 20, 10)
    for group, subset in enumerate((A, B, C, D)):
        assert histogram[group].sum(0).nonzero().flatten().tolist() == subset
    owners = torch.tensor([sum(c in s for s in (A, B, C, D)) for c in range(10)])
    expected = 6000 / owners
    shares = histogram.sum(1)
    assert float((shares - expected).abs()[shares > 0].max()) <= 1
    # test classes follow the training classes
    for u in (0, 25, 79):
        train = fed.pool.y[fed.train.of_client(u)].unique().tolist()
        test = fed.pool.y[fed.test.of_client(u)].unique().tolist()
        assert set(test) <= set(train)


def test_printed_cluster_sizes_can_be_met_on_real_mnist(data_root: Path) -> None:
    dataset = MNIST(root=str(data_root)).load()
    sizes = [17_500, 14_500, 14_000, 14_000]
    fed = build(dataset, ClassSubsets(num_clients=80, subsets=[A, B, C, D], cluster_sizes=sizes), 0)
    assert [int(fed.train.count[fed.group == g].sum()) for g in range(4)] == sizes
    tests = [int(fed.test.count[fed.group == g].sum()) for g in range(4)]
    np.testing.assert_allclose(tests, np.array(sizes) / 6, rtol=0.03)


@pytest.mark.parametrize("seed", range(5))
def test_random_subsets_have_their_size_and_cover_every_class(seed: int) -> None:
    dataset = fake(47 * 60, 47 * 10, num_classes=47)
    partition = ClassSubsets(
        num_clients=200, subsets="random", num_clusters=8, classes_per_cluster=40
    )
    fed = build(dataset, partition, seed)
    owns = label_histogram(fed, torch.arange(200)).view(8, 25, 47).sum(1) > 0
    assert owns.sum(1).tolist() == [40] * 8
    assert bool(owns.any(0).all())
    overlap = owns.int() @ owns.int().T
    assert int(overlap.min()) >= 33


@pytest.mark.parametrize(("num_classes", "owned"), [(47, 40), (10, 8)])
def test_a_part_of_the_classes_is_rounded_down(num_classes: int, owned: int) -> None:
    dataset = fake(num_classes * 60, num_classes * 10, num_classes=num_classes)
    parts = {"num_clients": 40, "subsets": "random", "num_clusters": 8}
    as_part = build(dataset, ClassSubsets(**parts, classes_per_cluster=0.86), 0)
    as_number = build(dataset, ClassSubsets(**parts, classes_per_cluster=owned), 0)
    assert torch.equal(as_part.train.index, as_number.train.index)
    assert torch.equal(as_part.test.index, as_number.test.index)


def test_the_cap_shortens_training_sets_only(mnist_sized: Dataset) -> None:
    partition = ClassSubsets(num_clients=80, subsets=[A, B, C, D], examples_per_client=64)
    fed = build(mnist_sized, partition, 0)
    assert set(fed.train.count.tolist()) == {64}
    assert int(fed.test.count.sum()) == 10_000


def test_shares_by_hand() -> None:
    """Ten in three: the ends 10 / 3, 20 / 3 and 10 are rounded, not the shares."""
    assert equal_shares(np.ones((3, 1)), np.array([10])).tolist() == [[3], [4], [3]]
    assert equal_shares(np.array([[1.0], [3.0]]), np.array([10])).tolist() == [[2], [8]]


def test_the_test_images_follow_the_training_images() -> None:
    """Clusters with 300 and 100 of 400 training images have 60 and 20 of 80 test images."""
    sizes = ClassSubsets(num_clients=2, subsets=[[0, 1], [0, 1]], cluster_sizes=[300, 100])
    fed = build(fake(400, 80, num_classes=2), sizes, 0)
    assert fed.train.count.tolist() == [300, 100]
    assert fed.test.count.tolist() == [60, 20]


def test_equal_shares_lose_and_repeat_nothing() -> None:
    supply = np.array([10, 11, 0, 7])
    shares = equal_shares(np.array([[1.0, 1, 1, 0], [1, 1, 0, 0], [1, 1, 0, 0]]), supply)
    assert shares.sum(0).tolist() == [10, 11, 0, 0]
    assert np.ptp(shares[:, 1]) <= 1


@pytest.mark.full
def test_solved_shares_meet_every_total() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        owns = (rng.random((5, 9)) < 0.6).astype(float)
        owns[:, 0] = 1  # so that sizes can always be met
        supply = rng.integers(50, 100, 9)
        supply[0] = 2000
        sizes = rng.integers(100, 300, 5)
        shares = solved_shares(owns, supply, sizes)
        assert shares.sum(1).tolist() == sizes.tolist()
        assert (shares.sum(0) <= supply).all()
        assert (shares >= 0).all()
        assert (shares[owns == 0] == 0).all()


def test_errors_name_the_key(mnist_sized: Dataset) -> None:
    with pytest.raises(
        ConfigError, match=r"partition.num_clients=81 is not allowed: a multiple of the 4"
    ):
        ClassSubsets(num_clients=81, subsets=[A, B, C, D])
    with pytest.raises(ConfigError, match=r"partition.subsets=default"):
        ClassSubsets(num_clients=80, subsets="default")
    with pytest.raises(
        ConfigError, match=r"partition.cluster_sizes=.* is not allowed: equal, or 4 numbers"
    ):
        ClassSubsets(num_clients=80, subsets=[A, B, C, D], cluster_sizes=[1, 2, 3])
    for each in (8.5, 0.0, -0.5):
        with pytest.raises(ConfigError, match=rf"classes_per_cluster={each} is not allowed"):
            ClassSubsets(num_clients=80, subsets="random", classes_per_cluster=each)
    with pytest.raises(ConfigError, match=r"classes 0 to 4 of dataset=fake"):
        build(fake(100, 50, num_classes=5), ClassSubsets(num_clients=4, subsets=[A, B, C, D]), 0)
    few = ClassSubsets(num_clients=80, subsets="random", classes_per_cluster=2)
    with pytest.raises(
        ConfigError, match=r"partition.classes_per_cluster=2 is not allowed: enough that 4"
    ):
        build(mnist_sized, few, 0)
    for sizes in ([17_500, 14_500, 14_000, 14_001], [40_000, 1, 1, 1]):
        partition = ClassSubsets(num_clients=80, subsets=[A, [7], [8], [9]], cluster_sizes=sizes)
        with refused(ConfigError, r"^partition.cluster_sizes="):
            build(mnist_sized, partition, 0)
