"""Clients that all draw from the same distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedclust.core.types import Dataset, Split
from fedclust.helpers.ranges import AtLeastOne, Clients
from fedclust.helpers.rng import Stream
from fedclust.partitions.cut import (
    OfExamples,
    Rows,
    consecutive,
    even,
    hold_out,
    labels,
    no_group,
    too_few,
)
from fedclust.partitions.power_law import class_counts


@dataclass(frozen=True, kw_only=True)
class IID(OfExamples):
    """Examples drawn uniformly without replacement; no true groups."""

    num_clients: Clients  # M
    # equal cuts the dataset's training and test set into equal parts; power_law pools both sets,
    # draws the sizes as `PowerLaw` with two classes does and keeps 90 % of each client for training
    # (FlexCFL, arXiv 2108.09749, Table I)
    sizes: Literal["equal", "power_law"] = "equal"
    # at most this many training examples per client, None for all
    examples_per_client: AtLeastOne | None = None

    @property
    def needs_classes(self) -> bool:
        """Whether the sizes are drawn as those of clients with two classes."""
        return self.sizes == "power_law"

    def split(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split, Tensor]:
        """Train split, test split and group [M], all -1."""
        num_train, num_test = len(dataset.x_train), len(dataset.x_test)
        group = no_group(self.num_clients)
        if self.sizes == "power_law":
            return *self._power_law(dataset, stream), group
        if num_train < self.num_clients:
            what = f"{num_train} for {self.num_clients} clients"
            raise too_few(dataset, what, "lower partition.num_clients")
        rows = stream.fold(0).numpy().permutation(num_train)
        train = consecutive(rows, even(num_train, self.num_clients), self.examples_per_client)
        rows = stream.fold(1).numpy().permutation(num_test) + num_train
        return train, consecutive(rows, even(num_test, self.num_clients)), group

    def _power_law(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split]:
        y = labels(torch.cat([dataset.y_train, dataset.y_test]))
        supply = np.bincount(y, minlength=dataset.num_classes)
        counts = class_counts(dataset, supply, self.num_clients, 2, stream.fold(0).numpy())
        sizes: Rows = counts.sum(1)
        rows = stream.fold(1).numpy().permutation(len(y))[: sizes.sum()]
        train, test = hold_out(rows, sizes, 0.9, stream.fold(2).numpy())
        if self.examples_per_client is not None:
            train = consecutive(train.index.numpy(), train.count.numpy(), self.examples_per_client)
        return train, test
