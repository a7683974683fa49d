"""Partitioners of flwr-datasets: by a small one of the same protocol, and by the library itself."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fakes import fake
from refusals import refused

from fedclust.core.federation import build
from fedclust.helpers.errors import ConfigError
from fedclust.helpers.rng import Stream
from fedclust.partitions.flwr import Flwr


class Table:
    """What a partitioner needs of `datasets.Dataset`."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns, self.column_names = columns, list(columns)

    from_dict = classmethod(lambda cls, columns: cls(columns))

    def __getitem__(self, name: str) -> list[Any]:
        return self.columns[name]

    def select(self, rows: list[int]) -> Table:
        return Table({name: [of[i] for i in rows] for name, of in self.columns.items()})


class InTurn:
    """Rows in an order of the seed, dealt in turn; `keep` leaves the last ones out."""

    def __init__(
        self, num_partitions: int, partition_by: str, keep: int = 100, seed: int | None = 42
    ) -> None:
        if num_partitions < 1:
            raise ValueError("The number of partitions\nneeds to be greater than zero.")
        self.num_partitions, self.by, self.keep, self.seed = (
            num_partitions,
            partition_by,
            keep,
            seed,
        )
        self.dataset: Any = None

    def load_partition(self, client: int) -> Table:
        assert len(self.dataset[self.by]) == 60
        order = np.random.default_rng(self.seed).permutation(60)[: self.keep]
        table: Table = self.dataset.select(order[client :: self.num_partitions].tolist())
        return table


class Columns(InTurn):
    """Divides columns."""

    def load_partition(self, client: int) -> Table:
        return Table({"label": self.dataset["label"]})


class All(InTurn):
    """Gives everybody everything."""

    def load_partition(self, client: int) -> Table:
        table: Table = self.dataset
        return table


@pytest.fixture(autouse=True)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("flwr"):
        return
    module = ModuleType("flwr_datasets.partitioner")
    vars(module).update(InTurn=InTurn, Columns=Columns, All=All, Partitioner=object)
    vars(module)["__all__"] = ["InTurn", "Columns", "All", "Partitioner"]
    monkeypatch.setitem(sys.modules, "flwr_datasets", ModuleType("flwr_datasets"))
    monkeypatch.setitem(sys.modules, "flwr_datasets.partitioner", module)
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(Dataset=Table))  # type: ignore[arg-type]


def test_training_rows_are_the_partitioners_own() -> None:
    """In its order, with the seed that was given, in every seed of the run."""
    options = {"num_partitions": 7, "seed": 3}
    for seed in (0, 1):
        fed = build(fake(60, 30), Flwr(partitioner="InTurn", options=options), seed)
        order = np.random.default_rng(3).permutation(60)
        for client in range(7):
            assert fed.train.of_client(client).tolist() == order[client::7].tolist()
        assert fed.group.tolist() == [-1] * 7


def test_without_a_seed_every_seed_of_the_run_has_its_own() -> None:
    partition = Flwr(partitioner="InTurn", options={"num_partitions": 2})
    one, two = Stream.of(0, "partition"), Stream.of(1, "partition")
    assert partition.seed_of(one) != partition.seed_of(two)
    train, _, _ = partition.split(fake(60, 30), one)
    order = np.random.default_rng(partition.seed_of(one)).permutation(60)
    assert train.of_client(1).tolist() == order[1::2].tolist()


def test_test_examples_follow_the_shares_of_every_class() -> None:
    """Of 3 classes with 20 training and 10 test examples each: a client's test count of a class is
    the rounded end of its part less that of the clients before it.
    """
    dataset = fake(60, 30, num_classes=3)
    fed = build(dataset, Flwr(partitioner="InTurn", options={"num_partitions": 4}), 0)
    y = fed.pool.y
    train = torch.stack([y[fed.train.of_client(c)].bincount(minlength=3) for c in range(4)])
    test = torch.stack([y[fed.test.of_client(c)].bincount(minlength=3) for c in range(4)])
    ends = (train.cumsum(0).double() * 10 / 20).round().long()
    assert torch.equal(test, ends.diff(dim=0, prepend=torch.zeros(1, 3, dtype=torch.int64)))
    assert int(test.sum()) == 30
    assert int(fed.test.index.min()) >= 60


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("InTurns", {}, r"partition.partitioner=InTurns is not allowed: did you mean InTurn\?"),
        ("Partitioner", {}, "partition.partitioner=Partitioner is not allowed"),
        ("InTurn", {"alpha": 1}, "partition.options.alpha=1 is .* InTurn takes num_partitions, pa"),
        ("InTurn", {}, "partition: TypeError: .*num_partitions"),
        ("InTurn", {"num_partitions": 0}, "partition: ValueError: The number of partitions needs"),
        ("InTurn", {"num_partitions": 5, "keep": 3}, r"client \[3\] has none"),
        ("Columns", {"num_partitions": 2}, "Columns is not allowed: one that divides rows"),
        ("All", {"num_partitions": 2}, "All is not allowed: one that divides rows"),
    ],
)
def test_what_is_refused_is_one_line(name: str, options: dict[str, Any], says: str) -> None:
    with refused(ConfigError, says):
        build(fake(60, 30), Flwr(partitioner=name, options=options), 0)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flwr_datasets.partitioner", None)
    with pytest.raises(ConfigError, match=r"needs the package flwr_datasets: .*flwr\]'$"):
        build(fake(60, 30), Flwr(partitioner="InTurn"), 0)


@pytest.mark.flwr
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("DirichletPartitioner", {"num_partitions": 6, "alpha": 0.3, "min_partition_size": 2}),
        ("PathologicalPartitioner", {"num_partitions": 6, "num_classes_per_partition": 3}),
        ("ShardPartitioner", {"num_partitions": 6, "num_shards_per_partition": 2}),
        ("IidPartitioner", {"num_partitions": 6}),
    ],
)
def test_the_librarys_own_partitions(name: str, options: dict[str, Any]) -> None:
    import datasets
    from flwr_datasets import partitioner

    dataset = fake(600, 100)
    seeded = options if name == "IidPartitioner" else options | {"seed": 7, "partition_by": "label"}
    own = getattr(partitioner, name)(**seeded)
    rows = list(range(600))
    own.dataset = datasets.Dataset.from_dict({"label": dataset.y_train.tolist(), "row": rows})
    given = options if name == "IidPartitioner" else options | {"seed": 7}
    fed = build(dataset, Flwr(partitioner=name, options=given), 0)
    for client in range(6):
        assert fed.train.of_client(client).tolist() == own.load_partition(client)["row"]
    assert len(fed.test.index.unique()) == len(fed.test.index)
