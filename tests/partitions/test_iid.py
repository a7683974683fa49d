from dataclasses import replace

import pytest
import torch
from fakes import fake

from fedclust.core.federation import build, label_histogram
from fedclust.core.types import Dataset
from fedclust.datasets.synthetic import Synthetic
from fedclust.helpers.errors import ConfigError, DataError
from fedclust.partitions.dirichlet import DirichletLabels
from fedclust.partitions.iid import IID
from fedclust.partitions.natural import Natural


def test_iid_gives_everything_away_evenly(mnist_sized: Dataset) -> None:
    fed = build(mnist_sized, IID(num_clients=90), 0)
    assert set(fed.train.count.tolist()) == {666, 667}
    assert fed.train.index.sort().values.tolist() == list(range(60_000))
    assert fed.test.index.sort().values.tolist() == list(range(60_000, 70_000))
    histogram = label_histogram(fed, torch.arange(90)).double()
    assert float((histogram - 66.7).abs().max()) < 45  # six standard deviations
    capped = build(mnist_sized, IID(num_clients=90, examples_per_client=50), 0)
    assert set(capped.train.count.tolist()) == {50}


def test_power_law_sizes_keep_nine_tenths_for_training() -> None:
    fed = build(fake(2000, 400), IID(num_clients=50, sizes="power_law"), 0)
    whole = (fed.train.count + fed.test.count).tolist()
    assert min(whole) >= 10
    assert fed.train.count.tolist() == [int(0.9 * size) for size in whole]


def test_iid_errors() -> None:
    with pytest.raises(
        ConfigError, match=r"IID.sizes=random is not allowed: one of equal, power_law"
    ):
        IID(num_clients=3, sizes="random")
    with pytest.raises(DataError, match=r"5 for 6 clients: lower partition.num_clients"):
        build(fake(5, 5), IID(num_clients=6), 0)


def test_dirichlet_shares_have_the_variance_of_the_distribution(mnist_sized: Dataset) -> None:
    for alpha in (0.3, 5.0):
        shares = []
        for seed in range(20):
            fed = build(
                mnist_sized, DirichletLabels(num_clients=10, alpha=alpha, min_examples=1), seed
            )
            shares.append(label_histogram(fed, torch.arange(10)).double() / 6000)
        # Var of one component of Dirichlet(alpha 1_M): (1/M)(1 - 1/M) / (M alpha + 1)
        assert float(torch.stack(shares).var()) == pytest.approx(0.09 / (10 * alpha + 1), rel=0.15)


def test_dirichlet_minimum_and_errors(mnist_sized: Dataset) -> None:
    fed = build(mnist_sized, DirichletLabels(num_clients=10, alpha=0.3, min_examples=2000), 0)
    assert int(fed.train.count.min()) >= 2000
    with pytest.raises(ConfigError, match=r"partition.alpha=0.01 is not allowed: 100 draws"):
        build(mnist_sized, DirichletLabels(num_clients=50, alpha=0.01, min_examples=900), 0)
    with pytest.raises(DataError, match=r"lower partition.num_clients or partition.min_examples"):
        build(mnist_sized, DirichletLabels(num_clients=50, min_examples=1201), 0)
    with pytest.raises(ConfigError, match=r"DirichletLabels.alpha=0"):
        DirichletLabels(num_clients=5, alpha=0)
    with pytest.raises(ConfigError, match=r"DirichletLabels.min_examples=0"):
        DirichletLabels(num_clients=5, min_examples=0)


def test_natural_keeps_devices_and_cuts_ninety_to_ten() -> None:
    dataset = Synthetic(num_devices=12, total=2000).load()
    fed = build(dataset, Natural(), 0)
    sizes = dataset.owner.bincount()
    assert fed.num_clients == 12
    for u in range(12):
        rows = torch.cat([fed.train.of_client(u), fed.test.of_client(u)])
        assert (dataset.owner[rows] == u).all()
        assert len(rows) == int(sizes[u])
        assert len(fed.train.of_client(u)) == int(0.9 * int(sizes[u]))
        assert rows.tolist() != sorted(rows.tolist())


def test_natural_reads_its_fraction() -> None:
    """Devices of 4, 6 and 10 examples, of which the half trains."""
    owner = torch.repeat_interleave(torch.arange(3), torch.tensor([4, 6, 10]))
    fed = build(replace(fake(20, 0), owner=owner), Natural(train_fraction=0.5), 0)
    assert fed.train.count.tolist() == [2, 3, 5]
    assert fed.test.count.tolist() == [2, 3, 5]


def test_natural_errors() -> None:
    dataset = fake(20, 5)
    with pytest.raises(
        ConfigError, match=r"partition=natural needs clients, which dataset=fake lacks"
    ):
        build(dataset, Natural(), 0)
    with pytest.raises(DataError, match=r"client 1 has 1, .*: partition.min_train=1 leaves such"):
        build(replace(dataset, owner=(torch.arange(20) == 3).long()), Natural(), 0)
    with pytest.raises(ConfigError, match=r"Natural.train_fraction=1 is not allowed"):
        Natural(train_fraction=1)


def test_natural_keeps_the_test_examples_and_groups_that_the_dataset_names() -> None:
    named = replace(
        fake(6, 4),
        owner=torch.tensor([2, 0, 2, 1, 0, 2]),
        test_owner=torch.tensor([1, 3, 2, 1]),
        group=torch.tensor([1, 0, 1, 0]),
    )
    with pytest.raises(DataError, match=r"client 3 has 1, none of them to train on"):
        build(named, Natural(), 0)
    for least, kept in ((1, [0, 1, 2]), (2, [0, 2])):
        fed = build(named, Natural(min_train=least), seed=least)
        assert fed.group.tolist() == [[1, 0, 1, 0][i] for i in kept]
        train = [fed.train.of_client(i).tolist() for i in range(len(kept))]
        test = [fed.test.of_client(i).tolist() for i in range(len(kept))]
        assert train == [[[1, 4], [3], [0, 2, 5]][i] for i in kept]
        assert test == [[[], [6, 9], [8]][i] for i in kept]  # the pool's rows 6 to 9 are for tests
    with pytest.raises(DataError, match=r"no client with 4 training examples: lower partition.min"):
        build(named, Natural(min_train=4), 0)
