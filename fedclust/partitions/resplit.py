"""Test examples drawn anew for every seed, where the data or a table fix them: repeated splits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedclust.core.types import Dataset, Pool, Split
from fedclust.core.validation import apart, part_of
from fedclust.core.verbs import Partition
from fedclust.helpers.errors import DataError, counted
from fedclust.helpers.ranges import InnerFraction, Ranged
from fedclust.helpers.rng import Stream
from fedclust.helpers.rounding import rounded_up
from fedclust.partitions.cut import too_few


@dataclass(frozen=True, kw_only=True)
class Resplit(Ranged):
    """The clients of another partition, each with a part of all its examples as test examples,
    drawn anew for every seed; the classes have about their shares in both parts.

    Rows of one unit, where the dataset names units, stay on one side. Group of a client: that of
    the other partition.
    """

    base: Partition  # who owns which example
    test_share: InnerFraction = 0.2  # of a client's examples, rounded up

    def pool(self, dataset: Dataset) -> Pool:
        return self.base.pool(dataset)

    def split(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split, Tensor]:
        """Train split, test split and group [M] of the base.

        Raises:
            DataError: a client has one example, or one unit, or an example has several owners.
        """
        *both, group = self.base.split(dataset, stream)
        rows = [
            torch.cat([one.of_client(i) for one in both]).sort().values for i in range(len(group))
        ]
        whole = Split.of(rows)
        several = int((whole.index.bincount() > 1).sum())
        if several:
            raise DataError(
                f"partition.base gives {counted(several, 'example')} to several clients: whoever "
                "trains on one must not be tested on it; take a partition in which each has one "
                "owner"
            )
        pool = self.base.pool(dataset)
        unit = None if dataset.unit is None else dataset.unit.repeat_interleave(pool.concepts)
        wanted = rounded_up(self.test_share, whole.count)
        tested = apart(whole, pool.strata, wanted, stream.fold(1), unit, rare=True)
        train, test = part_of(whole, ~tested), part_of(whole, tested)
        if int(torch.minimum(train.count, test.count).min()) < 1:
            client = int(torch.minimum(train.count, test.count).argmin())
            what = f"client {client} has {int(whole.count[client])}, not enough for both parts"
            raise too_few(dataset, what, "leave it out, or give it more")
        return train, test, group
