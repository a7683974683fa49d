"""Any partitioner of `flwr-datasets`, the library of Flower, by the name of its class.

The training examples are divided exactly as the partitioner divides them, each client's in its
order. It knows no test set of its own for a client: the test examples of every class are divided in
the shares in which the clients have that class.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from fedclust.core.types import Dataset, Split
from fedclust.helpers.errors import ConfigError, UserError, did_you_mean, require
from fedclust.helpers.extras import install
from fedclust.helpers.rng import Stream
from fedclust.partitions.cut import (
    OfExamples,
    Rows,
    check_test,
    consecutive,
    deal,
    labels,
    no_group,
    shuffled_classes,
)
from fedclust.partitions.shares import equal_shares

_MODULE = "flwr_datasets.partitioner"


@dataclass(frozen=True, kw_only=True)
class Flwr(OfExamples):
    """The clients of a partitioner; no true groups.

    It sees a table with the columns `label`, `row` and, of data with natural clients, `client`.
    """

    needs_classes: ClassVar[bool] = True

    partitioner: str  # a class of `flwr_datasets.partitioner`
    # its arguments. Without `partition_by` it is `label`; without `seed`, where it takes one, every
    # seed of the run has one of its own, see `seed_of`.
    options: Mapping[str, Any] | None = None

    def split(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split, Tensor]:
        """Train split, test split and group [M], all -1.

        Raises:
            ConfigError: the package is not there, or its partitioner refuses the options or the
                data, divides columns, or leaves a client without examples.
        """
        check_test(dataset)
        parts = self._parts(dataset, stream)
        sizes = np.array([len(part) for part in parts])
        rows, owner = np.concatenate(parts), np.repeat(np.arange(len(parts)), sizes)
        empty = np.flatnonzero(sizes == 0)
        without = f"one that gives every client examples; client {empty[:1]} has none"
        require(not len(empty), "partition.options", dict(self.options or {}), without)
        repeated = len(np.unique(rows)) < len(rows)
        require(not repeated, "partition.partitioner", self.partitioner, "one that divides rows")
        y_train, y_test = labels(dataset.y_train), labels(dataset.y_test)
        shares = np.zeros((len(parts), dataset.num_classes))
        np.add.at(shares, (owner, y_train[rows]), 1)
        counts = equal_shares(shares, np.bincount(y_test, minlength=dataset.num_classes))
        classes = shuffled_classes(y_test, dataset.num_classes, stream.fold(1).numpy())
        tests, tested = deal(counts, classes)
        test = consecutive(tests + len(y_train), tested)
        return consecutive(rows, sizes), test, no_group(len(parts))

    def seed_of(self, stream: Stream) -> int:
        """The partitioner's seed where none is given, from the run's."""
        return int(stream.fold(0).numpy().integers(2**31))

    def _parts(self, dataset: Dataset, stream: Stream) -> list[Rows]:
        """The training rows of every client, in the partitioner's order."""
        kind, table = _library(self.partitioner)
        taken = inspect.signature(kind).parameters
        given = dict(self.options or {})
        for name, value in given.items():
            known = f"{self.partitioner} takes {', '.join(taken)}"
            require(name in taken, f"partition.options.{name}", value, known)
        defaults = {"partition_by": "label", "seed": self.seed_of(stream)}
        given = {name: v for name, v in defaults.items() if name in taken} | given
        columns = {"label": dataset.y_train.tolist(), "row": list(range(len(dataset.y_train)))}
        if dataset.owner is not None:
            columns["client"] = dataset.owner.tolist()
        try:
            made = kind(**given)
            made.dataset = table.from_dict(columns)
            loaded = [made.load_partition(client) for client in range(made.num_partitions)]
        except UserError:
            raise
        except Exception as error:  # another's code can raise anything
            words = " ".join(str(error).split())
            raise ConfigError(f"partition: {type(error).__name__}: {words}") from error
        whole = all("row" in one.column_names for one in loaded)
        require(whole, "partition.partitioner", self.partitioner, "one that divides rows")
        return [np.asarray(one["row"], dtype=np.int64) for one in loaded]


def _library(name: str) -> tuple[Any, Any]:
    """The class of a partitioner, and that of the tables it divides."""
    try:
        offered, tables = import_module(_MODULE), import_module("datasets")
    except ImportError as error:
        needs = f"partition=flwr needs the package flwr_datasets: {install('flwr')}"
        raise ConfigError(needs) from error
    names = [one for one in offered.__all__ if one != "Partitioner"]
    known = did_you_mean(name, names) or f"one of {', '.join(names)}"
    require(name in names, "partition.partitioner", name, known)
    return getattr(offered, name), tables.Dataset
