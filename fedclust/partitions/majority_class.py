"""Clusters that have all classes, and mostly one: label skew 4 of CLoVE (arXiv 2506.22427)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedclust.core.types import Dataset, Pool, Split
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastOne, Clients, Fraction, Ranged
from fedclust.helpers.rng import Stream
from fedclust.helpers.rounding import rounded_down
from fedclust.partitions.cut import (
    Rows,
    check_test,
    consecutive,
    even,
    labels,
    plain_pool,
    shuffled_classes,
    too_few,
)


@dataclass(frozen=True, kw_only=True)
class MajorityClass(Ranged):
    """Cluster g has s examples: majority s of class g, and equal parts of the rest of every
    other class; s = used times the smallest class. All are rounded down. Training and test alike.

    There are as many clusters as classes, and nobody shares an example. A cluster's examples are
    spread over its clients equally and at random. Group of a client: its cluster.

    Attributes:
        num_clients: M, a multiple of the number of classes.
        majority: share of a cluster's own class.
        used: part of the smallest class.
        examples_per_client: at most this many training examples per client, None for all.
    """

    needs_classes: ClassVar[bool] = True

    num_clients: Clients
    majority: Fraction = 0.666
    used: Fraction = 0.9
    examples_per_client: AtLeastOne | None = None

    def pool(self, dataset: Dataset) -> Pool:
        """The training images, then the test images."""
        return plain_pool(dataset)

    def split(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split, Tensor]:
        """Train split, test split and group [M]."""
        check_test(dataset)
        num_classes = dataset.num_classes
        require(
            self.num_clients % num_classes == 0,
            "partition.num_clients",
            self.num_clients,
            f"a multiple of the {num_classes} classes of dataset={dataset.name}",
        )
        y = [labels(part) for part in (dataset.y_train, dataset.y_test)]
        train = self._cut(y[0], num_classes, 0, stream.fold(0), self.examples_per_client)
        if int(train.count.min()) < 1:
            raise too_few(dataset, "a client would get none", "lower partition.num_clients")
        test = self._cut(y[1], num_classes, len(y[0]), stream.fold(1), None)
        each = self.num_clients // num_classes
        return train, test, torch.arange(self.num_clients) // each

    def counts(self, smallest: int, num_classes: int) -> Rows:
        """Examples of every class in every cluster, [Y, Y].

        Args:
            smallest: examples of the smallest class.
            num_classes: Y.
        """
        size = rounded_down(self.used, smallest)
        own = rounded_down(self.majority, size)
        other = (size - own) // max(num_classes - 1, 1)
        table: Rows = np.full((num_classes, num_classes), other, dtype=np.int64)
        np.fill_diagonal(table, own)
        return table

    def _cut(self, y: Rows, num_classes: int, first: int, stream: Stream, cap: int | None) -> Split:
        """The split of one set whose rows start at pool row `first`."""
        classes = shuffled_classes(y, num_classes, stream.fold(0).numpy())
        counts = self.counts(min(map(len, classes)), num_classes)
        ends = counts.cumsum(0)
        parts, sizes = [], []
        for g, row in enumerate(counts):
            own = [rows[e - n : e] for rows, e, n in zip(classes, ends[g], row, strict=True)]
            parts.append(stream.fold(1, g).numpy().permutation(np.concatenate(own)) + first)
            sizes.append(even(len(parts[-1]), self.num_clients // num_classes))
        return consecutive(np.concatenate(parts), np.concatenate(sizes), cap)
