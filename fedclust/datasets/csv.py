"""A user's own table: one row per example, features, label, client and group in columns."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedclust.core.types import Dataset
from fedclust.datasets.checks import read
from fedclust.datasets.columns import Columns, Drawn, check_parts, parted, shown
from fedclust.datasets.normalise import check_word
from fedclust.helpers.errors import DataError
from fedclust.helpers.ranges import BelowOne, Seed

_PARTS = ("train", "test")
_USUAL = r"-?(0|[1-9]\d{0,14})(\.\d+)?"  # numbers as they are usually written


@dataclass(frozen=True, kw_only=True)
class Csv:
    """A table of numbers, as CSV or parquet; classes and clients are numbered in sorted order.

    Attributes:
        path: the file; the first line of a CSV names the columns.
        label: column of the class, words or whole numbers.
        features: columns of the inputs, None for all that are not used otherwise.
        client: column of the natural client, for partition=natural; None where there are none.
        group: column of the client's true group, None where there is none.
        split: column that holds train or test; None where a share is drawn.
        test_share: share of the test set, drawn from the rows of every client, or from all; not
            used with `split`. 0 leaves it to partition=natural.
        data_seed: seed of one draw for all seeds of a run; None where each draws anew, so that
            differences between seeds tell of the choice of test rows, too.
        normalise: mean_std (per feature, of the training examples, or of all where every seed
            draws its own) or none.
    """

    path: str
    label: str = "label"
    features: Sequence[str] | None = None
    client: str | None = None
    group: str | None = None
    split: str | None = None
    test_share: BelowOne = 0.2
    data_seed: Seed | None = None
    normalise: str = "mean_std"

    def __post_init__(self) -> None:
        check_word(self.normalise, ("mean_std", "none"))
        check_parts(self.client, self.group, self.test_share, self.split is not None)

    def load(self) -> Dataset:
        """The arrays, [N, F] float32.

        Raises:
            DataError: the file is missing or unreadable, lacks a column, or a column holds what it
                may not.
        """
        path = Path(self.path)
        if not path.is_file():
            raise DataError(f"csv: {path} not found: set dataset.path to a .csv or .parquet file")
        words = [name for name in (self.label, self.client, self.group, self.split) if name]
        table = read("csv", path, lambda: _table(path, words), key="dataset.path")
        if table.size == 0:
            raise DataError(f"csv: {path} holds no row below its first line: give one that does")
        others = (self.label, self.client, self.group, self.split)
        classes, whose = table.classes(self.label), table.clients(self.client, self.group)
        x = torch.from_numpy(table.numbers(self.features, others))
        tests = self._tests(table)
        return parted(table, path.stem, x, classes, whose, tests, self.normalise)

    def _tests(self, table: Columns) -> Tensor | Drawn:
        """Which rows are for testing, [N] bool, or how they are drawn."""
        if self.split is None:
            return Drawn(self.test_share, self.data_seed)
        values = table.values("dataset.split", self.split)
        odd = np.flatnonzero(~np.isin(values, _PARTS))
        if len(odd):
            raise DataError(
                f"{table.what} has {shown(values[odd[0]])} in column {self.split}, row "
                f"{odd[0] + 1}: train or test is needed there"
            )
        return torch.from_numpy(values == "test")


def _table(path: Path, words: Sequence[str]) -> Columns:
    """The columns of a file; of a CSV those of `words` are text, in which 07 is not 7 and NA is a
    name, unless all of one are numbers written as usual.
    """
    import pandas as pd

    with path.open("rb") as file:  # a name need not be UTF-8, which pyarrow expects
        table: Any = pd.read_parquet(file) if path.suffix == ".parquet" else _of_csv(path, words)
    table.columns = [str(name) for name in table.columns]
    return Columns(
        what=f"csv: {path}",
        names=list(table.columns),
        read=lambda name: _plain(table[name]),
        size=len(table),
    )


def _of_csv(path: Path, words: Sequence[str]) -> Any:
    """The table of a CSV file.

    Raises:
        DataError: a row has more fields than the first line, so that its columns would be shifted.
    """
    import pandas as pd
    from pandas._libs.parsers import STR_NA_VALUES  # type: ignore[import-not-found]

    names = list(pd.read_csv(path, nrows=0, index_col=False).columns)
    text = [name for name in names if name in words]
    with warnings.catch_warnings():
        # another file than was meant is told by its columns first
        all_there = len(text) == len(set(words))
        warnings.simplefilter("error" if all_there else "ignore", pd.errors.ParserWarning)
        try:
            table: Any = pd.read_csv(
                path,
                index_col=False,
                low_memory=False,  # else the kind of a column may change within it
                dtype=dict.fromkeys(text, "object"),
                keep_default_na=False,
                na_values={name: [""] if name in text else STR_NA_VALUES for name in names},
            )
        except pd.errors.ParserWarning as error:
            raise DataError(
                f"csv: {path} has a row with more fields than its first line names columns: name "
                "every column, or take the field out"
            ) from error
    for name in text:
        if table[name].dropna().str.fullmatch(_USUAL).all():
            table[name] = pd.to_numeric(table[name])
    return table


def _plain(column: Any) -> Any:
    """A column's values as NumPy's own numbers, or objects."""
    values = column.to_numpy()
    return values if values.dtype.kind in "buif" else values.astype(object)
