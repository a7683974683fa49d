"""A partition read from a table, as a run writes it or a user made it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from fedclust.federation import read_table
from fedclust.rng import Stream
from fedclust.types import Dataset, Pool, Split
from fedclust.verbs import Partition


@dataclass(frozen=True, kw_only=True)
class FromFile:
    """Exactly the rows of the table, the same for every seed.

    Attributes:
        path: CSV or parquet with the columns split (train or test), client, row and optionally group.
        base: the partition whose pool the rows count; `iid` counts training, then test examples.
    """

    path: str
    base: Partition

    def pool(self, dataset: Dataset) -> Pool:
        """The pool of `base`."""
        return self.base.pool(dataset)

    def split(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split, Tensor]:  # noqa: ARG002
        """Train split, test split and group [M], -1 where the table has no group.

        Raises:
            DataError: the table is missing, unreadable or inconsistent.
        """
        return read_table(Path(self.path))
