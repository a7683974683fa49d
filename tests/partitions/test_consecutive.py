"""Pieces in file order, and CFL-GP's federation of them."""

from __future__ import annotations

import pytest
import torch
from fakes import fake

from fedclust.core.federation import build
from fedclust.core.types import Dataset
from fedclust.helpers.errors import DataError
from fedclust.partitions.consecutive import Consecutive
from fedclust.partitions.transform import Transform


def test_pieces_have_the_published_sizes(mnist_sized: Dataset) -> None:
    fed = build(mnist_sized, Consecutive(num_clients=128), 0)
    # 70,000 images in 128 pieces of 546 or 547; 70 % of them, rounded down
    assert set(fed.train.count.tolist()) == {382}
    assert set(fed.test.count.tolist()) == {164, 165}
    first = torch.cat([fed.train.of_client(0), fed.test.of_client(0)])
    assert sorted(first.tolist()) == list(range(547))
    last = torch.cat([fed.train.of_client(127), fed.test.of_client(127)])
    assert sorted(last.tolist()) == list(range(70_000 - 546, 70_000))


def test_consecutive_parts_have_consecutive_angles() -> None:
    base = Consecutive(num_clients=16)
    bank = ["identity", "rotate 15", "rotate 90", "rotate 105"]
    fed = build(fake(200, 40), Transform(base=base, bank=bank, assignment="in_order"), 0)
    assert fed.group.tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
    assert sorted(
        (fed.train.of_client(0) // 4).tolist() + (fed.test.of_client(0) // 4).tolist()
    ) == (list(range(15)))


def test_too_many_pieces_are_one_line() -> None:
    with pytest.raises(DataError, match=r"30 for 25 clients: lower partition.num_clients"):
        build(fake(20, 10), Consecutive(num_clients=25), 0)
