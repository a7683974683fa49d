"""Clusters that have all classes, and mostly one: label skew 4 of CLoVE (arXiv 2506.22427)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedclust.core.types import Dataset, Split
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastOne, Clients, Fraction
from fedclust.helpers.rng import Stream
from fedclust.helpers.rounding import rounded_down
from fedclust.partitions.cut import OfExamples, Rows, check_test, labels, spread, too_few


@dataclass(frozen=True, kw_only=True)
class MajorityClass(OfExamples):
    """Cluster g has s examples: majority s of class g, and equal parts of the rest of every
    other class; s = used times the smallest class. All are rounded down. Training and test alike.

    There are as many clusters as classes, and nobody shares an example. A cluster's examples are
    spread over its clients equally and at random. Group of a client: its cluster.
    """

    needs_classes: ClassVar[bool] = True

    num_clients: Clients  # M, a multiple of the number of classes
    majority: Fraction = 0.666  # share of a cluster's own class
    used: Fraction = 0.9  # part of the smallest class
    # at most this many training examples per client, None for all
    examples_per_client: AtLeastOne | None = None

    def split(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split, Tensor]:
        check_test(dataset)
        num_clients, num_classes = self.num_clients, dataset.num_classes
        allowed = f"a multiple of the {num_classes} classes of dataset={dataset.name}"
        require(num_clients % num_classes == 0, "partition.num_clients", num_clients, allowed)
        splits, first = list[Split](), 0
        for i, part in enumerate((dataset.y_train, dataset.y_test)):
            y, cap = labels(part), None if i else self.examples_per_client
            smallest = int(np.bincount(y, minlength=num_classes).min())
            shares = self.counts(smallest, num_classes)
            splits.append(spread(y, first, shares, num_clients, stream.fold(i), cap))
            first += len(y)
        if int(splits[0].count.min()) < 1:
            raise too_few(dataset, "a client would get none", "lower partition.num_clients")
        return splits[0], splits[1], torch.arange(num_clients) // (num_clients // num_classes)

    def counts(self, smallest: int, num_classes: int) -> Rows:
        """Examples of every class in every cluster, [Y, Y], of `smallest` of the smallest class."""
        size = rounded_down(self.used, smallest)
        own = rounded_down(self.majority, size)
        other = (size - own) // max(num_classes - 1, 1)
        table: Rows = np.full((num_classes, num_classes), other, dtype=np.int64)
        np.fill_diagonal(table, own)
        return table
