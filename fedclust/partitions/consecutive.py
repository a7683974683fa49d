"""Consecutive pieces of a data set, training and test examples of each drawn from the piece: the
rotated MNIST of CFL-GP (Kim, Kim, de Veciana, ICML 2024) below `partition=transform`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fedclust.core.types import Dataset, Split
from fedclust.helpers.ranges import Clients, InnerFraction
from fedclust.helpers.rng import Stream
from fedclust.partitions.cut import OfExamples, even, hold_out, no_group, too_few


@dataclass(frozen=True, kw_only=True)
class Consecutive(OfExamples):
    """Client i owns the i-th of M equal pieces of all examples, training then test set, in file
    order; a random part of them is for training. No true groups.
    """

    num_clients: Clients  # M
    train_fraction: InnerFraction = 0.7  # share of the training part, rounded down

    def split(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split, Tensor]:
        """Splits, group [M] of -1; `DataError` if a piece has no training example."""
        total = len(dataset.y_train) + len(dataset.y_test)
        sizes = even(total, self.num_clients)
        train, test = hold_out(np.arange(total), sizes, self.train_fraction, stream.numpy())
        if int(train.count.min()) < 1:
            what = f"{total} for {self.num_clients} clients"
            raise too_few(dataset, what, "lower partition.num_clients")
        return train, test, no_group(self.num_clients)
