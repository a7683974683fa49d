from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import fake

from fedclust.core.federation import build, digest
from fedclust.core.types import Dataset
from fedclust.datasets.images import FashionMNIST
from fedclust.helpers.errors import ConfigError
from fedclust.partitions.ditto import Ditto


@pytest.fixture(scope="module")
def fashion(data_root: Path) -> Dataset:
    return FashionMNIST(root=str(data_root), normalise="pixel").load()


def test_published_totals_and_sizes(fashion: Dataset) -> None:
    fed = build(fashion, Ditto(num_clients=500), 0)
    assert int(fed.train.count.sum()) == 61_251
    assert int(fed.test.count.sum()) == 11_254
    assert (int(fed.train.count.min()), int(fed.train.count.max())) == (31, 1378)
    assert (int(fed.test.count.min()), int(fed.test.count.max())) == (7, 231)
    assert float(fed.train.count.double().mean()) == pytest.approx(122.5, abs=0.05)


class Given:
    """A stream whose draws are given; remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, float, int]] = []

    def numpy(self) -> Any:
        return self

    def lognormal(self, mean: float, sigma: float, size: int) -> Any:
        self.asked.append((mean, sigma, size))
        return np.array([10.0, 30.0]) if size == 2 else np.ones(size)


def test_sizes_by_hand() -> None:
    """10 + 10 and 30 + 10 scaled to 600 are 200 and 400, in five equal parts of 40 and 80: one more
    for training, a sixth and one more for testing.
    """
    draws: Any = Given()
    partition = Ditto(num_clients=2, total=600, data_seed=None)
    train, test, group = partition.split(fake(2000, 400), draws)
    assert draws.asked == [(3, 1, 2), (1, 1, 5), (1, 1, 5)]
    assert train.count.tolist() == [5 * 41, 5 * 81]
    assert test.count.tolist() == [5 * 7, 5 * 14]
    assert group.tolist() == [0, 1]


def test_published_seed_gives_every_run_the_same_table(fashion: Dataset) -> None:
    published = [digest(build(fashion, Ditto(num_clients=500), seed)) for seed in (0, 1)]
    drawn = [
        digest(build(fashion, Ditto(num_clients=500, data_seed=None), seed)) for seed in (0, 1)
    ]
    assert published[0] == published[1]
    assert len({published[0], *drawn}) == 3


def test_five_classes_in_file_order_from_the_right_set(fashion: Dataset) -> None:
    fed = build(fashion, Ditto(num_clients=500), 0)
    assert fed.group.tolist() == [u % 10 for u in range(500)]
    for u in (0, 7, 499):
        rows, tests = fed.train.of_client(u), fed.test.of_client(u)
        owned = sorted((u + j) % 10 for j in range(5))
        assert sorted(fed.pool.y[rows].unique().tolist()) == owned
        assert sorted(fed.pool.y[tests].unique().tolist()) == owned
        assert int(rows.max()) < 60_000 <= int(tests.min())
    first = fed.train.of_client(0)
    zeros = (fashion.y_train == 0).nonzero().flatten()
    mine = first[fed.pool.y[first] == 0]
    assert torch.equal(mine, zeros[: len(mine)])
    # the second client that reads class 0 or the sixth: it goes on, not back
    one = fed.train.of_client(9)
    assert set(one.tolist()).isdisjoint(first.tolist())


def test_first_sizes_equal_the_published_generator(fashion: Dataset) -> None:
    np.random.seed(233)
    size = np.random.lognormal(3, 1, 500) + 10
    size = 60_000 * size / sum(size)
    share = np.random.lognormal(1, 1, 5)
    expected = [int(p * size[0]) + 1 for p in share / sum(share)]
    fed = build(fashion, Ditto(num_clients=500), 0)
    assert fed.pool.y[fed.train.of_client(0)].bincount(minlength=10)[:5].tolist() == expected


def test_ranges() -> None:
    for changes in ({"classes_per_client": 0}, {"total": 0}, {"data_seed": -1}):
        with pytest.raises(ConfigError, match=rf"^Ditto.{next(iter(changes))}="):
            Ditto(num_clients=5, **changes)
    with pytest.raises(
        ConfigError, match=r"partition.classes_per_client=5 is not allowed: at most the 3"
    ):
        build(fake(300, 30, num_classes=3), Ditto(num_clients=5), 0)
