from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import fake

from fedclust.core.federation import build, label_histogram
from fedclust.core.types import Dataset, Federation
from fedclust.datasets.images import MNIST
from fedclust.helpers.errors import ConfigError, DataError
from fedclust.partitions.femnist10 import Femnist10


@pytest.fixture(scope="module")
def mnist(data_root: Path) -> Dataset:
    return MNIST(root=str(data_root), normalise="inverted").load()


def shared(fed: Federation) -> float:
    """Fraction of the test examples that another client trains on."""
    owners: dict[int, set[int]] = {}
    for u in range(fed.num_clients):
        for row in fed.train.of_client(u).tolist():
            owners.setdefault(row, set()).add(u)
    found = [
        bool(owners.get(row, set()) - {u})
        for u in range(fed.num_clients)
        for row in fed.test.of_client(u).tolist()
    ]
    return sum(found) / len(found)


class Given:
    """Draws that are given; remembers what it was asked for."""

    asked: tuple[Any, ...] = ()

    def lognormal(self, mean: float, sigma: float, size: int) -> Any:
        self.asked = (mean, sigma, size)
        return np.array([4.0, 10.0, 55.0, 0.1])


def test_sizes_by_hand() -> None:
    """(q + 5) / 3 for each of three classes, whole and at least 2."""
    draws: Any = Given()
    assert Femnist10(num_clients=4, total=None)._each(draws).tolist() == [3, 5, 20, 2]
    assert draws.asked == (4, 1, 4)


def test_client_u_owns_the_classes_from_u_on() -> None:
    fed = build(fake(3000, 0), Femnist10(num_clients=12, total=300), 0)
    for u in range(12):
        rows = torch.cat([fed.train.of_client(u), fed.test.of_client(u)])
        owned = {u % 10, (u + 1) % 10, (u + 2) % 10}
        assert set(fed.pool.y[rows].tolist()) == owned


@pytest.mark.full
@pytest.mark.parametrize("sharing", ["disjoint", "prefix"])
@pytest.mark.parametrize("seed", range(3))
def test_published_totals(sharing: str, seed: int, mnist: Dataset) -> None:
    fed = build(mnist, Femnist10(num_clients=200, sharing=sharing), seed)
    train, test = int(fed.train.count.sum()), int(fed.test.count.sum())
    assert abs(train + test - 18_345) <= 183
    assert abs(train - 16_421) <= 165
    assert abs(test - 1_924) <= 60
    assert int((fed.train.count + fed.test.count).min()) >= 6


@pytest.mark.full
def test_the_published_file_shares_its_test_images_and_ours_does_not(mnist: Dataset) -> None:
    prefix = [build(mnist, Femnist10(num_clients=200, sharing="prefix"), seed) for seed in range(4)]
    assert np.mean([shared(fed) for fed in prefix]) == pytest.approx(0.96, abs=0.02)
    distinct = [len(set(fed.train.index.tolist()) | set(fed.test.index.tolist())) for fed in prefix]
    assert 1200 < np.mean(distinct) < 3000  # about 2,000
    assert shared(build(mnist, Femnist10(num_clients=200), 0)) == 0


@pytest.mark.full
@pytest.mark.parametrize("sharing", ["disjoint", "prefix"])
def test_client_u_owns_three_neighbouring_classes_equally(sharing: str, mnist: Dataset) -> None:
    fed = build(mnist, Femnist10(num_clients=200, sharing=sharing), 0)
    assert fed.group.tolist() == [u % 10 for u in range(200)]
    for u in range(200):
        rows = torch.cat([fed.train.of_client(u), fed.test.of_client(u)])
        counts = fed.pool.y[rows].bincount(minlength=10)
        owned = [(u + j) % 10 for j in range(3)]
        assert counts[owned].unique().numel() == 1
        assert int(counts.sum()) == int(counts[owned].sum())
        assert len(fed.train.of_client(u)) == int(0.9 * len(rows))


def test_letters_are_relabelled_and_other_classes_left_out() -> None:
    dataset = fake(62 * 100, 62, num_classes=62)
    partition = Femnist10(num_clients=20, total=600, first_class=36)
    fed = build(dataset, partition, 0)
    assert fed.pool.num_classes == 10
    assert len(fed.pool.y) == 1000
    assert torch.equal(
        fed.pool.x, dataset.x_train[(dataset.y_train >= 36) & (dataset.y_train < 46)]
    )
    assert label_histogram(fed, torch.tensor([3]))[0].nonzero().flatten().tolist() == [3, 4, 5]
    with pytest.raises(ConfigError, match=r"partition.first_class=53 is not allowed: ten classes"):
        build(dataset, Femnist10(num_clients=20, total=600, first_class=53), 0)


def test_the_first_class_is_the_letter_a_of_emnist_and_0_of_ten_classes() -> None:
    for num_classes, first in ((62, 36), (26, 0), (10, 0)):
        dataset = fake(num_classes * 100, num_classes, num_classes=num_classes)
        fed, same = (
            build(dataset, Femnist10(num_clients=20, total=600, first_class=choice), 0)
            for choice in ("auto", first)
        )
        assert torch.equal(fed.pool.x, same.pool.x)
        assert torch.equal(fed.train.index, same.train.index)
    with pytest.raises(
        ConfigError, match=r"partition.first_class=auto is not allowed: a class, because"
    ):
        build(fake(4700, 47, num_classes=47), Femnist10(num_clients=20, total=600), 0)


def test_a_class_that_runs_short_is_shared_out_without_overlap() -> None:
    dataset = fake(4000, 10)
    fed = build(dataset, Femnist10(num_clients=20, total=5000), 0)  # more than there is
    rows = fed.train.index.tolist() + fed.test.index.tolist()
    assert len(rows) == len(set(rows))
    assert len(rows) > 2500
    with pytest.raises(DataError, match=r"fake has too few examples") as error:
        build(fake(100, 10), Femnist10(num_clients=100, total=2000), 0)
    assert "lower partition.total" in str(error.value)


def test_at_most_max_per_class_images_are_used() -> None:
    fed = build(fake(4000, 10), Femnist10(num_clients=20, total=600, max_per_class=70), 0)
    used = fed.pool.y[torch.cat([fed.train.index, fed.test.index]).long()]
    assert int(used.bincount(minlength=10).max()) <= 70


def test_sizes_as_drawn_and_ranges() -> None:
    each = Femnist10(num_clients=20_000, total=None)._each(np.random.default_rng(0))
    assert each.min() >= 2
    assert np.median(each) == pytest.approx((np.exp(4) + 5) / 3, rel=0.05)
    for changes in (
        {"sharing": "both"},
        {"total": 1199},
        {"first_class": -1},
        {"first_class": "a"},
        {"max_per_class": 0},
    ):
        with pytest.raises(ConfigError, match=rf"^(partition|Femnist10)\.{next(iter(changes))}="):
            Femnist10(num_clients=200, **changes)
