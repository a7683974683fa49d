"""Columns of a table as examples, classes, natural clients and groups: what csv and hf share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedclust.core.types import Dataset
from fedclust.core.validation import drawn_test
from fedclust.datasets.checks import TOO_SMALL, checked, vanishing
from fedclust.datasets.normalise import affine, unchanged
from fedclust.helpers.errors import DataError, require

Array = npt.NDArray[Any]
_SHOWN = 8  # names that a message lists


@dataclass(frozen=True, kw_only=True)
class Columns:
    """A table whose columns are read by name.

    Attributes:
        what: file or folder, for messages.
        names: of the columns, in order.
        read: the values [N] of a column.
        size: N.
    """

    what: str
    names: Sequence[str]
    read: Callable[[str], Array]
    size: int

    def values(self, key: str, name: str) -> Array:
        """The values of the column that the config key names, [N], none of them missing.

        Raises:
            DataError: there is no such column, or it has gaps.
        """
        import pandas as pd

        if name not in self.names:
            raise DataError(
                f"{self.what} has no column {name}, which {key} names: it has {_few(self.names)}"
            )
        values = self.read(name)
        missing = np.flatnonzero(pd.isna(values))
        if len(missing):
            raise DataError(
                f"{self.what} has no value in column {name}, row {missing[0] + 1}: fill it or take "
                "the row out"
            )
        return values

    def numbers(self, names: Sequence[str] | None, others: Sequence[str | None]) -> Array:
        """The features [N, F] float32.

        Args:
            names: of dataset.features; None for all but `others`.
            others: columns that are used for something else.

        Raises:
            DataError: there are none, or one holds no finite numbers.
        """
        chosen = [name for name in self.names if name not in others] if names is None else names
        used = [name for name in chosen if name in others]
        if used or not len(chosen):
            told = f"column {used[0]} among its features" if used else "no column left for features"
            raise DataError(
                f"{self.what} has {told}: dataset.features must name others than "
                f"{_few([name for name in others if name])}"
            )
        x = np.empty((self.size, len(chosen)), dtype=np.float32)
        for place, name in enumerate(chosen):
            values = self.values("dataset.features", name)
            if values.dtype.kind not in "buif":
                timed = values.dtype.kind in "mM"  # a time is a number of nanoseconds to Python
                row = next(
                    (i for i, value in enumerate(values) if timed or not _is_number(value)), None
                )
                if row is not None:
                    raise DataError(
                        f"{self.what} has {shown(values[row])} in column {name}, row {row + 1}: "
                        "features must be numbers; dataset.features can name the columns that hold "
                        "some"
                    )
                values = values.astype(np.float64)  # whole numbers that no integer type holds
            if largest := vanishing(values):
                raise DataError(
                    f"{self.what} has at most {largest:.2g} in column {name}: {TOO_SMALL}"
                )
            with np.errstate(over="ignore"):
                x[:, place] = values
            odd = np.flatnonzero(~np.isfinite(x[:, place]))
            if len(odd):
                raise DataError(
                    f"{self.what} has {values[odd[0]]} in column {name}, row {odd[0] + 1}: "
                    "features must be finite numbers that fit float32"
                )
        return x

    def classes(self, name: str) -> tuple[Tensor, int]:
        """Labels [N] int64 and their number: the distinct values of a column in sorted order.

        Raises:
            DataError: they are fractions, or not of one kind.
        """
        values = self.values("dataset.label", name)
        if values.dtype.kind == "f" and (values != np.floor(values)).any():
            odd = values[values != np.floor(values)][0]
            raise DataError(
                f"{self.what} has {odd} in column {name}, which dataset.label names: classes must "
                "be words or whole numbers"
            )
        codes, known = self._codes(name, values)
        return codes, len(known)

    def clients(self, client: str | None, group: str | None) -> tuple[Tensor | None, Tensor | None]:
        """Natural client of every row [N] and true group of every client [M], None without a
        column.

        Clients and groups are numbered in the sorted order of their names.

        Raises:
            DataError: a client is in two groups.
        """
        if client is None:
            return None, None
        owner, names = self._codes(client, self.values("dataset.client", client))
        if group is None:
            return owner, None
        of_row, groups = self._codes(group, self.values("dataset.group", group))
        of_client = torch.empty(len(names), dtype=torch.int64)
        of_client[owner] = of_row
        other = torch.nonzero(of_client[owner] != of_row).flatten()
        if len(other):
            row = int(other[0])
            both = sorted([int(of_client[owner[row]]), int(of_row[row])])
            raise DataError(
                f"{self.what} has client {names[int(owner[row])]} in the groups "
                f"{groups[both[0]]} and {groups[both[1]]} of column {group}: one each is needed"
            )
        return owner, of_client

    def _codes(self, name: str, values: Array) -> tuple[Tensor, Array]:
        """The number of every value among the distinct ones in sorted order [N] int64, and
        those.
        """
        try:
            known, codes = np.unique(values, return_inverse=True)
        except (TypeError, ValueError) as error:  # words and numbers have no order
            raise DataError(
                f"{self.what} has values of several kinds in column {name}: words or numbers are "
                "needed"
            ) from error
        return torch.from_numpy(codes.reshape(-1).astype(np.int64)), known


@dataclass(frozen=True)
class Drawn:
    """How test rows are drawn: their share, and the seed that decides for all seeds of a run, None
    where each draws its own.
    """

    share: float
    seed: int | None


def check_parts(client: str | None, group: str | None, test_share: float, named: bool) -> None:
    """Raise a `ConfigError` for options that do not go together.

    Args:
        client, group: dataset.client and dataset.group.
        test_share: dataset.test_share.
        named: whether the data say themselves what is for testing.
    """
    require(
        group is None or client is not None,
        "dataset.group",
        group,
        "null without dataset.client, since a client's group is meant",
    )
    require(
        test_share > 0 or named or client is not None,
        "dataset.test_share",
        test_share,
        "above 0 without dataset.client; with it partition=natural can cut a test set per client",
    )


def parted(
    table: Columns,
    name: str,
    x: Tensor,
    classes: tuple[Tensor, int],
    whose: tuple[Tensor | None, Tensor | None],
    tests: Tensor | Drawn,
    normalise: str,
) -> Dataset:
    """The dataset of rows that are cut into training and test examples.

    Args:
        table: where they are from.
        name: of the dataset.
        x: [N, *shape] examples.
        classes, whose: what `Columns.classes` and `Columns.clients` return.
        tests: [N] bool, which rows are for testing, or how they are drawn. Where every seed draws
            its own, all rows give the statistics of `normalise`, and seed 0 those of the dataset.
        normalise: a word of `fedclust.datasets.normalise`, or none.

    Raises:
        DataError: nothing is left to train on.
    """
    y, num_classes = classes
    owner, group = whose
    anew = None
    if isinstance(tests, Drawn):
        anew = tests.share if tests.seed is None and tests.share else None
        tests = drawn_test(owner, table.size, tests.share, tests.seed or 0)
    if bool(tests.all()):
        raise DataError(
            f"{table.what} leaves no row to train on: lower dataset.test_share, or see which rows "
            "the data name for training"
        )
    seen = x[~tests] if anew is None else x
    scale, shift = unchanged(x) if normalise == "none" else affine(normalise, seen)
    return checked(
        Dataset(
            name=name,
            x_train=x[~tests],
            y_train=y[~tests],
            x_test=x[tests],
            y_test=y[tests],
            num_classes=num_classes,
            scale=scale,
            shift=shift,
            owner=None if owner is None else owner[~tests],
            test_owner=None if owner is None or not bool(tests.any()) else owner[tests],
            group=group,
            test_share=anew,
        )
    )


def shown(value: object) -> str:
    """A value as a message shows it: the first 40 letters on one line, quoted if blanks matter."""
    text = " ".join(str(value).split())[:40]
    return repr(str(value)[:40]) if isinstance(value, str) and value.strip() != value else text


def _is_number(value: object) -> bool:
    try:
        float(cast(Any, value))
    except (TypeError, ValueError, OverflowError):
        return False
    return "_" not in str(value)  # which Python's own numbers may hold


def _few(names: Sequence[str]) -> str:
    """The first few names."""
    more = len(names) - _SHOWN
    return ", ".join(map(str, names[:_SHOWN])) + (f" and {more} more" if more > 0 else "")
