"""A partition read from a table, as a run writes it or a user made it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from fedclust.core.federation import read_table
from fedclust.core.types import Dataset, Pool, Split
from fedclust.core.verbs import Partition
from fedclust.helpers.errors import DataError
from fedclust.helpers.ranges import Ranged
from fedclust.helpers.rng import Stream


@dataclass(frozen=True, kw_only=True)
class FromFile(Ranged):
    """Exactly the rows of the table, the same for every seed."""

    # CSV or parquet with the columns split (train or test), client, row and optionally group
    path: str
    # the partition whose pool the rows count; `iid` counts training, then test examples
    base: Partition
    # whether somebody's test row may be a training row, as with `sharing=prefix` of FEMNIST-10
    shared: bool = False

    def pool(self, dataset: Dataset) -> Pool:
        return replace(self.base.pool(dataset), in_order=False)

    def split(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split, Tensor]:
        """Train split, test split and group [M], -1 where the table has no group. Raises
        `DataError` if the table is missing, unreadable or inconsistent, or tests on training rows.
        """
        train, test, group = read_table(Path(self.path))
        both = test.index[torch.isin(test.index, train.index)]
        if len(both) and not self.shared:
            raise DataError(
                f"{self.path} has row {int(both[0])} in a training and a test set ({len(both)} "
                "such rows): rows count the training images, then the test images; "
                "partition.shared=true allows it"
            )
        return train, test, group
