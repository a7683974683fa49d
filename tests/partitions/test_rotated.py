import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from fakes import fake

from fedclust.core.federation import build
from fedclust.core.types import Dataset
from fedclust.datasets.images import MNIST
from fedclust.helpers.errors import ConfigError
from fedclust.helpers.rng import Stream
from fedclust.partitions.rotated import Rotated


@pytest.mark.parametrize(
    ("num_train", "clients", "rotations", "train", "test"),
    [
        (60_000, 1200, 4, {200}, {33, 34}),
        (60_000, 2400, 4, {100}, {16, 17}),
        (50_000, 200, 2, {500}, {100}),
    ],
)
def test_printed_client_sizes(
    num_train: int, clients: int, rotations: int, train: set[int], test: set[int]
) -> None:
    fed = build(fake(num_train, 10_000), Rotated(num_clients=clients, num_rotations=rotations), 0)
    assert set(fed.train.count.tolist()) == train
    assert set(fed.test.count.tolist()) == test
    assert int(fed.test.count.sum()) == rotations * 10_000
    assert fed.group.bincount().tolist() == [clients // rotations] * rotations
    assert fed.group.tolist() == sorted(fed.group.tolist())


def test_every_image_once_per_rotation_and_rows_match_the_group() -> None:
    fed = build(fake(103, 41), Rotated(num_clients=20, num_rotations=4), 0)
    for r in range(4):
        clients = (fed.group == r).nonzero().flatten().tolist()
        train = torch.cat([fed.train.of_client(i) for i in clients])
        test = torch.cat([fed.test.of_client(i) for i in clients])
        assert train.sort().values.tolist() == list(range(r * 144, r * 144 + 103))
        assert test.tolist() == list(range(r * 144 + 103, (r + 1) * 144))  # cut without shuffling
    assert fed.train.count.tolist() == [21, 21, 21, 20, 20] * 4  # as np.array_split


def test_rotations_draw_their_order_independently() -> None:
    fed = build(fake(100, 10), Rotated(num_clients=2, num_rotations=2), 0)
    assert not torch.equal(fed.train.of_client(0), fed.train.of_client(1) - 110)


def test_groups_see_the_images_turned_counter_clockwise() -> None:
    dataset = fake(6, 2, shape=(1, 4, 4))
    image = torch.zeros(1, 4, 4, dtype=torch.uint8)
    image[0, 0, 3] = 9  # upper right corner
    dataset.x_train[0] = image
    corners = {0: (0, 3), 1: (0, 0), 2: (3, 0), 3: (3, 3)}  # counter-clockwise: upper left next
    pool = Rotated(num_clients=4, num_rotations=4).pool(dataset)
    for r, (row, column) in corners.items():
        assert pool.x[r * 8, 0].nonzero().tolist() == [[row, column]]
    half = Rotated(num_clients=2, num_rotations=2).pool(dataset)
    assert half.x[8, 0].nonzero().tolist() == [[3, 0]]
    assert torch.equal(half.y, torch.cat([dataset.y_train, dataset.y_test] * 2))


def test_four_quarter_turns_are_the_identity_on_real_images(data_root: Path) -> None:
    dataset = MNIST(root=str(data_root)).load()
    dataset = replace(dataset, x_train=dataset.x_train[:500], y_train=dataset.y_train[:500])
    pool = Rotated(num_clients=4, num_rotations=4).pool(dataset)
    size = 10_500
    assert torch.equal(pool.x[:500], dataset.x_train)
    assert torch.equal(pool.x[500:size], dataset.x_test)
    for r in range(1, 4):
        turned = pool.x[r * size : (r + 1) * size]
        assert torch.equal(turned, torch.rot90(pool.x[:size], r, (2, 3)))
        assert torch.equal(torch.rot90(turned, 4 - r, (2, 3)), pool.x[:size])


def test_the_cap_keeps_the_first_examples_of_the_same_clients() -> None:
    dataset, stream = fake(103, 40), Stream.of(0, "partition")
    full, full_test, _ = Rotated(num_clients=8, num_rotations=4).split(dataset, stream)
    capped, test, _ = Rotated(num_clients=8, num_rotations=4, examples_per_client=10).split(
        dataset, stream
    )
    assert capped.count.tolist() == [10] * 8
    assert torch.equal(test.index, full_test.index)
    for i in range(8):
        assert torch.equal(capped.of_client(i), full.of_client(i)[:10])


def test_2400_clients_take_far_less_than_a_second(mnist_sized: Dataset) -> None:
    partition = Rotated(num_clients=2400, num_rotations=4)
    start = time.perf_counter()
    for seed in range(5):
        partition.split(mnist_sized, Stream.of(seed, "partition"))
    assert time.perf_counter() - start < 1.0


def test_what_cannot_be_rotated_is_told() -> None:
    partition = Rotated(num_clients=4, num_rotations=4)
    for shape in ((1, 2, 3), (5,)):
        with pytest.raises(
            ConfigError, match=r"partition=rotated is not allowed: it needs square images"
        ):
            partition.pool(fake(10, 10, shape=shape))
    with pytest.raises(ConfigError, match=r"dataset.normalise=pixel is not allowed"):
        partition.pool(fake(10, 10, per_pixel=True))
    with pytest.raises(ConfigError, match=r"partition.num_rotations=3 is not allowed: 1, 2 or 4"):
        Rotated(num_clients=3, num_rotations=3)
    with pytest.raises(ConfigError, match=r"partition.num_clients=6 is not allowed: a multiple of"):
        Rotated(num_clients=6, num_rotations=4)
    with pytest.raises(ConfigError, match=r"Rotated.examples_per_client=0"):
        Rotated(num_clients=4, num_rotations=4, examples_per_client=0)


def test_sizes_equal_array_split() -> None:
    fed = build(fake(997, 331), Rotated(num_clients=13, num_rotations=1), 0)
    assert fed.train.count.tolist() == [len(p) for p in np.array_split(np.arange(997), 13)]
    assert fed.test.count.tolist() == [len(p) for p in np.array_split(np.arange(331), 13)]
