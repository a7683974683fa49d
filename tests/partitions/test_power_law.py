from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import fake

from fedclust.core.federation import build
from fedclust.core.types import Dataset, Federation
from fedclust.datasets.images import MNIST
from fedclust.helpers.errors import ConfigError, DataError
from fedclust.partitions.iid import IID
from fedclust.partitions.power_law import PowerLaw, class_counts


@pytest.fixture(scope="module")
def mnist(data_root: Path) -> Dataset:
    return MNIST(root=str(data_root), normalise="pixel").load()


def totals(fed: Federation) -> tuple[int, int]:
    return int(fed.train.count.sum()), int(fed.test.count.sum())


@pytest.mark.full
def test_published_totals_on_mnist(mnist: Dataset) -> None:
    pairs = [totals(build(mnist, PowerLaw(num_clients=1000), seed)) for seed in range(5)]
    for train, test in pairs:  # published: 61,664 and 7,371
        assert abs(train - 61_664) < 250
        assert abs(test - 7_371) < 60
    assert np.mean([train + test for train, test in pairs]) == pytest.approx(69_060, abs=60)


@pytest.mark.parametrize("classes", [1, 2, 3, 5])
def test_every_client_owns_its_classes_and_ten_images_at_least(
    classes: int, mnist: Dataset
) -> None:
    fed = build(mnist, PowerLaw(num_clients=1000, classes_per_client=classes), 0)
    for u in range(0, 1000, 37):
        rows = torch.cat([fed.train.of_client(u), fed.test.of_client(u)])
        owned = sorted((u + j) % 10 for j in range(classes))
        assert sorted(fed.pool.y[rows].unique().tolist()) == owned
        assert len(rows) >= 10
        assert len(fed.train.of_client(u)) == int(0.9 * len(rows))
    assert fed.group.tolist() == [u % 10 for u in range(1000)]


def test_test_images_of_the_file_are_pooled(mnist: Dataset) -> None:
    fed = build(mnist, PowerLaw(num_clients=1000), 0)
    assert len(fed.pool.y) == 70_000
    assert 0.1 < float((fed.train.index >= 60_000).float().mean()) < 0.18  # a seventh


def test_sizes_are_heavy_tailed(mnist: Dataset) -> None:
    count = build(mnist, PowerLaw(num_clients=1000), 0).train.count.double()
    assert float(count.max()) > 10 * float(count.mean())
    assert float(count.median()) < 0.5 * float(count.mean())


@pytest.mark.parametrize("spread", [0.0, 1.5])
def test_spread_of_the_shares(spread: float) -> None:
    """Beyond the first ten images the logarithms of shares spread as asked for; 0: all equal."""
    supply = np.full(10, 1_000_000)
    counts = class_counts(fake(1000, 0), supply, 2000, 1, np.random.default_rng(0), spread)
    shares = np.sort(counts.sum(1) - 10)[10:]  # a class's last share is left out if it is used up
    assert np.log(shares[shares > 0]).std() == pytest.approx(spread, abs=0.1)


class Even:
    """Shares that are all equal, in place of random ones; remembers what it was asked for."""

    asked: tuple[Any, ...] = ()

    def lognormal(self, mean: float, sigma: float, size: tuple[int, ...]) -> Any:
        self.asked = (mean, sigma, size)
        return np.ones(size)


def test_counts_by_hand() -> None:
    """20 clients with two of ten classes of 100: four own a class and have five images of it at
    first. The other 80 fall to them in equal shares of 20, but the last share would use the class
    up, and is left out.
    """
    even: Any = Even()
    counts = class_counts(fake(1000, 0), np.full(10, 100), 20, 2, even)
    assert even.asked == (0, 2.0, (10, 2, 2))
    assert np.sort(counts, axis=0)[-4:].tolist() == [[5] * 10] + [[25] * 10] * 3
    assert (counts > 0).sum() == 40
    assert counts[0].tolist() == [25, 25, 0, 0, 0, 0, 0, 0, 0, 0]
    assert counts[19].tolist() == [5, 0, 0, 0, 0, 0, 0, 0, 0, 5]


def test_iid_has_the_sizes_but_not_the_labels(mnist: Dataset) -> None:
    fed = build(mnist, IID(num_clients=1000, sizes="power_law"), 0)
    train, test = totals(fed)
    assert abs(train - 61_664) < 250
    assert abs(test - 7_371) < 60
    largest = int(fed.train.count.argmax())
    share = fed.pool.y[fed.train.of_client(largest)].bincount(minlength=10) / int(
        fed.train.count[largest]
    )
    assert float(share.min()) > 0.05
    assert fed.group.unique().tolist() == [-1]


def test_errors_name_the_key() -> None:
    with pytest.raises(
        DataError, match=r"too few examples: 10 of class 0.*lower partition.num_clients"
    ):
        build(fake(80, 20), PowerLaw(num_clients=100), 0)
    with pytest.raises(
        ConfigError, match=r"partition.classes_per_client=4 is not allowed: at most the 3"
    ):
        build(fake(900, 20, num_classes=3), PowerLaw(num_clients=3, classes_per_client=4), 0)
    with pytest.raises(ConfigError, match=r"PowerLaw.classes_per_client=0"):
        PowerLaw(num_clients=3, classes_per_client=0)
    with pytest.raises(ConfigError, match=r"PowerLaw.max_per_class=0"):
        PowerLaw(num_clients=3, max_per_class=0)
