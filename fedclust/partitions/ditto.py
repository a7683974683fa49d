"""Ditto's FashionMNIST, five classes each (Li et al., ICML 2021), as in FlexCFL (arXiv
2108.09749).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedclust.core.types import Dataset, Split
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastOne, Clients, Seed
from fedclust.helpers.rng import Stream
from fedclust.partitions.cut import OfExamples, Rows, check_test, labels


@dataclass(frozen=True, kw_only=True)
class Ditto(OfExamples):
    """Client u owns the classes u, u + 1, … modulo their number, in lognormal shares of a lognormal
    size.

    Training images come from the dataset's training set, test images from its test set, in file
    order; a class that runs out starts again from its first image, so a few clients share images of
    one set. Group of a client: u modulo the number of classes.
    """

    needs_classes: ClassVar[bool] = True

    num_clients: Clients  # M; 500 as published
    classes_per_client: AtLeastOne = 5  # classes of every client; 5 as published
    total: AtLeastOne = 60_000  # training examples before rounding up; 60,000 as published
    data_seed: Seed | None = 233  # seed of the sizes; 233 as published, None takes the run's seed

    def split(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split, Tensor]:
        check_test(dataset)
        each, num_classes = self.classes_per_client, dataset.num_classes
        allowed = f"at most the {num_classes} classes of dataset={dataset.name}"
        require(each <= num_classes, "partition.classes_per_client", each, allowed)
        # the published numbers come from NumPy's legacy generator
        rng = stream.numpy() if self.data_seed is None else np.random.RandomState(self.data_seed)
        size = rng.lognormal(3, 1, self.num_clients) + 10
        size = self.total * size / size.sum()
        images = _Reader(labels(dataset.y_train), 0)
        tests = _Reader(labels(dataset.y_test), len(dataset.y_train))
        train, test = [], []
        for u in range(self.num_clients):
            share = rng.lognormal(1, 1, each)
            share = share / share.sum()
            owned = [((u + j) % num_classes, p * size[u]) for j, p in enumerate(share)]
            train.append(np.concatenate([images.take(c, int(n) + 1) for c, n in owned]))
            test.append(np.concatenate([tests.take(c, int(n / 6) + 1) for c, n in owned]))
        group = torch.arange(self.num_clients) % num_classes
        splits = [Split.of([torch.from_numpy(rows) for rows in part]) for part in (train, test)]
        return splits[0], splits[1], group


class _Reader:
    """Reads each class's rows in file order and starts again where too few are left."""

    def __init__(self, y: Rows, first: int) -> None:
        self.rows = [np.flatnonzero(y == c) + first for c in range(int(y.max()) + 1)]
        self.next = [0] * len(self.rows)

    def take(self, c: int, count: int) -> Rows:
        """`count` rows of class c, or all of them where the class has fewer."""
        if c >= len(self.rows):
            return np.empty(0, dtype=np.int64)
        start = 0 if self.next[c] + count > len(self.rows[c]) else self.next[c]
        self.next[c] = start + count
        return self.rows[c][start : start + count]
