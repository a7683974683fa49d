import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from toys import federation_of, pool_of

from fedclust.core.federation import (
    build,
    column,
    describe,
    digest,
    label_histogram,
    summary,
)
from fedclust.core.types import Dataset, Pool, Split
from fedclust.core.validation import redrawn
from fedclust.datasets.digits import Digits
from fedclust.helpers.errors import DataError
from fedclust.helpers.rng import Stream
from fedclust.partitions.iid import IID
from fedclust.partitions.power_law import PowerLaw
from fedclust.partitions.rotated import Rotated


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return Digits().load()


@dataclass(frozen=True)
class Fixed:
    """A partition of given rows."""

    train: tuple[tuple[int, ...], ...]
    test: tuple[tuple[int, ...], ...]

    def pool(self, dataset: Dataset) -> Pool:
        return IID(num_clients=1).pool(dataset)

    def split(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split, torch.Tensor]:
        train, test = (
            Split.of([torch.tensor(r) for r in rows]) for rows in (self.train, self.test)
        )
        return train, test, torch.full((len(self.train),), -1)


@pytest.mark.parametrize(
    ("train", "test", "says"),
    [
        (((1, 2), (3,)), ((4,), (3,)), "gives client 1 row 3 of dataset=digits to train on and to"),
        (((1, 2, 1), (3,)), ((4,), (5,)), "gives client 0 row 1 of dataset=digits twice (1 such"),
        (((1, 2), (3,)), ((4, 4), (5,)), "gives client 0 row 4 of dataset=digits twice (1 such"),
        (((1, 2), (3,)), ((4,), (5,), (6,)), "training rows for 2 clients, test rows for 3 and"),
    ],
)
def test_a_row_stands_once_with_a_client(train: Any, test: Any, says: str, digits: Dataset) -> None:
    with pytest.raises(DataError, match=re.escape(says)):
        build(digits, Fixed(train, test), 0)


def test_clients_may_share_rows(digits: Dataset) -> None:
    fed = build(digits, Fixed(((1, 2), (1, 3)), ((4,), (2, 4))), 0)
    assert fed.test.of_client(1).tolist() == [2, 4]


class Made(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps every tensor that is made while it is active."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tensors: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and not func.is_view:
            self.tensors.append(result)
        return result

    def bytes(self) -> int:
        """Of all of them; what is written to memory that another has counts once."""
        storages = {one.untyped_storage().data_ptr(): one for one in self.tensors}
        return sum(one.untyped_storage().nbytes() for one in storages.values())


def test_histogram_equals_counting_one_by_one(digits: Dataset) -> None:
    fed = build(digits, PowerLaw(num_clients=30), 0)
    clients = torch.tensor([29, 3, 3, 11])
    expected = torch.stack(
        [fed.pool.y[fed.train.of_client(int(i))].bincount(minlength=10) for i in clients]
    )
    assert torch.equal(label_histogram(fed, clients), expected)
    assert label_histogram(fed, clients[:0]).shape == (0, 10)
    assert torch.equal(label_histogram(fed, torch.arange(30)).sum(1), fed.train.count)


def test_histogram_of_an_empty_client_is_zero(digits: Dataset) -> None:
    fed = build(digits, Fixed(((), (5, 6), ()), ((1,), (2,), ())), 0, allow_empty=True)
    histogram = label_histogram(fed, torch.arange(3))
    assert histogram.sum(1).tolist() == [0, 2, 0]


def test_a_pool_made_before_is_shared_and_changes_nothing(digits: Dataset) -> None:
    partition = Rotated(num_clients=8, num_rotations=4)
    pool = partition.pool(digits)
    for seed in (3, 1):
        fed = build(digits, partition, seed, pool=pool)
        alone = build(digits, partition, seed)
        assert fed.pool is pool
        assert digest(fed) == digest(alone)
        assert torch.equal(pool.x, alone.pool.x)


def test_digest_sees_every_table(digits: Dataset) -> None:
    fed = build(digits, Rotated(num_clients=8, num_rotations=4), 0)
    others = [
        replace(fed, group=fed.group.flip(0)),
        replace(fed, train=fed.test),
        replace(fed, test=fed.train),
        replace(fed, train=Split(fed.train.index.flip(0), fed.train.start)),
        build(digits, Rotated(num_clients=8, num_rotations=4), 1),
    ]
    assert len({digest(fed), *map(digest, others)}) == 6


def test_digest_is_pinned(digits: Dataset) -> None:
    # a change here means that every published number of this program has to be measured again
    fed = build(digits, Rotated(num_clients=40, num_rotations=4), 0)
    assert digest(fed)[:16] == "abb240e8437b2983"


def test_describe_counts(digits: Dataset) -> None:
    numbers = describe(build(digits, Rotated(num_clients=20, num_rotations=4), 0))
    assert numbers == {
        "clients": 20,
        "groups": 4,
        "pool": 4 * 1797,
        "train_examples": 4 * 1442,
        "train_min": 288,
        "train_mean": 288.4,
        "train_max": 289,
        "test_examples": 4 * 355,
        "test_min": 71,
        "test_mean": 71.0,
        "test_max": 71,
    }
    alike = summary(build(digits, IID(num_clients=3), 0))
    assert alike["groups"] == 0
    assert np.sum(alike["client_examples"], axis=0).tolist() == alike["examples"]["-1"]
    assert np.sum(alike["client_examples"], axis=1).mean() == pytest.approx(alike["train"]["mean"])


def test_an_empty_client_or_a_row_outside_the_pool_is_one_line(digits: Dataset) -> None:
    with pytest.raises(DataError, match="client 1 has no training example of dataset=digits"):
        build(digits, Fixed(((1,), ()), ((2,), (3,))), 0)
    for rows in ((1797,), (-1,)):
        with pytest.raises(DataError, match="has rows 0 to 1796"):
            build(digits, Fixed((rows,), ((2,),)), 0)


def test_labels_are_never_needed_to_cut_images(digits: Dataset) -> None:
    shuffled = replace(digits, y_test=digits.y_test.flip(0))
    partition = Rotated(num_clients=8, num_rotations=4)
    assert digest(build(digits, partition, 0)) == digest(build(shuffled, partition, 0))


def test_rows_of_several_clients_and_of_training_and_test_are_counted() -> None:
    pool = pool_of(torch.zeros(4, 1), torch.tensor([0, 1, 0, 1]))
    group = torch.tensor([-1, -1])
    feds = [
        federation_of(pool, [[0, 1], [1, 2]], test, group)
        for test in ([[3], [2, 3]], [[3, 2], []], [[3], [0]])
    ]
    told = [summary(fed) for fed in feds]
    # of seven rows, 1, 2 and 3 are there once more; somebody trains on 2
    assert (told[0]["repeated"], told[0]["trained_and_tested"]) == (3, 1)
    assert told[0]["tested"] == told[1]["tested"] != told[2]["tested"]
    # of rows 0 to 3; in three copies that differ in how inputs are scaled, still of as many rows
    assert [one["used"] for one in told] == [1.0, 1.0, 1.0]
    fewer = replace(feds[0], train=Split.of([torch.tensor([3])] * 2))
    assert summary(fewer)["used"] == 0.5
    scaled = replace(pool, x=torch.zeros(12, 1), y=pool.y.repeat(3), copies=3)
    assert summary(replace(feds[0], pool=scaled))["used"] == 1.0
    seen_twice = replace(pool, concepts=2)  # rows 2 and 3 are the second example under two concepts
    assert summary(replace(fewer, pool=seen_twice, test=fewer.train))["used"] == 0.5


def test_examples_that_a_seed_draws_anew_are_the_same_rows_and_copied_once() -> None:
    x, y = torch.randn(37, 4), torch.arange(37) % 5
    dataset = Dataset(
        name="toy",
        x_train=x[:30].clone(),
        y_train=y[:30],
        x_test=x[30:].clone(),
        y_test=y[30:],
        num_classes=5,
        scale=torch.ones(1),
        shift=torch.zeros(1),
        owner=torch.arange(30) % 3,
        test_owner=torch.arange(7) % 3,
        test_share=0.25,
    )
    seen, place = redrawn(dataset, 4)
    owner = torch.cat([dataset.owner, dataset.test_owner])  # type: ignore[list-item]
    assert len(seen.y_test) == 10  # a quarter of 13, 12 and 12, rounded up
    assert sorted(place.tolist()) == list(range(37))
    assert torch.equal(torch.cat([seen.x_train, seen.x_test]), x[place])
    assert torch.equal(torch.cat([seen.y_train, seen.y_test]), y[place])
    assert torch.equal(torch.cat([seen.owner, seen.test_owner]), owner[place])

    large = replace(dataset, x_train=torch.ones(30, 10_000), x_test=torch.ones(7, 10_000))
    with Made() as made:
        redrawn(large, 4)
    assert made.bytes() < 1.5 * 4 * 37 * 10_000


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.float64(), pa.bool_()], ids=str)
@pytest.mark.parametrize("given", [np.int8, np.int32, np.int64, np.float32, bool])
@pytest.mark.parametrize("length", [0, 1, 8, 19])
def test_a_column_is_what_arrow_makes_of_it(kind: pa.DataType, given: type, length: int) -> None:
    values = (np.arange(length) * 3 % 4).astype(given)
    assert column(values, kind).equals(pa.array(values).cast(kind))
    assert column(values).equals(pa.array(values))
