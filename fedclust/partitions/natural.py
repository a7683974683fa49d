"""Clients that the dataset itself brings along: devices, writers, persons, hospitals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from fedclust.core.types import Dataset, Split
from fedclust.core.validation import apart
from fedclust.helpers.effects import IfTestsAreCut
from fedclust.helpers.errors import ConfigError, DataError
from fedclust.helpers.ranges import AtLeastOne, InnerFraction
from fedclust.helpers.rng import Stream
from fedclust.helpers.rounding import rounded_down
from fedclust.partitions.cut import OfExamples, grouped, hold_out, labels, no_group, too_few


@dataclass(frozen=True, kw_only=True)
class Natural(OfExamples):
    """Client i owns the examples of natural client i.

    Where the dataset says whose its test examples are, every client has those. Else the examples of
    a client are cut into a training and a test set, anew for every seed unless the dataset names
    one. Examples without an owner are nobody's. Group of a client: the one that the dataset names.
    """

    # share of the training set where it is cut here, rounded down
    train_fraction: Annotated[InnerFraction, IfTestsAreCut()] = 0.9
    # clients with fewer training examples are left out, and those behind them move up; None where
    # every client has to have some
    min_train: AtLeastOne | None = None

    def split(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split, Tensor]:
        """Train split, test split and group [M], -1 where the dataset names none.

        Raises:
            ConfigError: the dataset does not say who owns its examples.
            DataError: a client has too few examples.
        """
        if dataset.owner is None:
            raise ConfigError(
                f"partition=natural needs clients, which dataset={dataset.name} lacks: use "
                "partition=iid, or name their column where the dataset has the option client"
            )
        train, test = self._cut(dataset, stream)
        group = no_group(len(train.count)) if dataset.group is None else dataset.group
        if self.min_train is not None:
            kept = train.count >= self.min_train
            if not bool(kept.any()):
                raise DataError(
                    f"{dataset.name} has no client with {self.min_train} training examples: lower "
                    "partition.min_train"
                )
            train, test, group = _only(train, kept), _only(test, kept), group[kept]
        elif int(train.count.min()) < 1:
            client = int(train.count.argmin())
            name = dataset.names.clients[client] if dataset.names.clients else client
            what = f"client {name} has {int(test.count[client])}, none of them to train on"
            raise too_few(dataset, what, "partition.min_train=1 leaves such clients out")
        return train, test, group

    def _cut(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split]:
        """Train and test split of all natural clients."""
        assert dataset.owner is not None
        owner = labels(dataset.owner)
        if dataset.test_owner is None:
            rows = np.argsort(owner, kind="stable")
            sizes = np.bincount(owner, minlength=len(dataset.names.clients))
            if dataset.cut_seed is not None:
                stream = Stream.of(dataset.cut_seed, "partition")
            if dataset.unit is None:
                return hold_out(rows, sizes, self.train_fraction, stream.numpy())
            whole = grouped(rows, owner[rows], len(sizes))
            tested = whole.count - rounded_down(self.train_fraction, whole.count)
            y = torch.zeros_like(dataset.owner)
            tests = apart(whole, y, tested, stream, dataset.unit).numpy()
            parts = [grouped(part, owner[part], len(sizes)) for part in (rows[~tests], rows[tests])]
            return parts[0], parts[1]
        tests = labels(dataset.test_owner)
        clients = max(1 + int(part.max(initial=-1)) for part in (owner, tests))
        clients = max(clients, len(dataset.names.clients))  # the last may have no example at all
        behind = np.arange(len(tests)) + len(owner)
        return grouped(np.arange(len(owner)), owner, clients), grouped(behind, tests, clients)


def _only(split: Split, kept: Tensor) -> Split:
    """The rows of some clients, [M] bool."""
    return Split.of([split.of_client(client) for client in torch.nonzero(kept).flatten().tolist()])
