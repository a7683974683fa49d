"""A user's own table: one row per example, features, label, client and group in columns."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from fedclust.core.task import Targets
from fedclust.core.types import Dataset
from fedclust.datasets.checks import read
from fedclust.datasets.columns import Columns, listed, shown
from fedclust.datasets.inputs import Categories, Fill, Wanted, read_inputs, read_targets
from fedclust.datasets.normalise import check_word
from fedclust.datasets.parts import Drawn, check_parts, parted
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.errors import DataError, require
from fedclust.helpers.ranges import BelowOne, Seed

_PARTS = ("train", "test")
_USUAL = r"-?(0|[1-9]\d{0,14})(\.\d+)?"  # numbers as they are usually written


@dataclass(frozen=True, kw_only=True)
class Csv:
    """A table of numbers, as CSV or parquet; classes and clients are numbered in sorted order.

    Attributes:
        path: the file; the first line of a CSV names the columns.
        label: column of the class, words or whole numbers; of another task the column, or
            columns, of what it predicts.
        features: columns of the inputs, None for all that are not used otherwise.
        exclude: columns that are no inputs; None leaves out those that number the rows or repeat
            the label, and says so.
        client: column of the natural client, for partition=natural, or several that name it
            together; None where there are none.
        group: column of the client's true group, None where there is none.
        split: column that holds train or test; None where a share is drawn.
        test_share: share of the test set, drawn from the rows of every client, or from all; not
            used with `split`. 0 leaves it to partition=natural.
        data_seed: seed of one draw for all seeds of a run, or with test_share=0 of the cut by
            partition=natural; None where each draws anew, so that differences between seeds tell of
            the choice of test rows, too.
        normalise: mean_std (per feature, of the training rows of all clients), client (of those
            of each client) or none.
        fill: what a gap becomes: median, mean or most_frequent value of the training rows of all
            clients (of the client's own with normalise=client);
            indicator takes the mean and adds a feature that says where there was none. None
            refuses gaps.
        categories: onehot (a feature for each word) or ordinal (their numbers in sorted order); a
            word that no training row has is unknown. None refuses words.
        separator, decimal: between two fields and before fractions, of a CSV.
    """

    path: str
    label: str | Sequence[str] = "label"
    features: Sequence[str] | None = None
    exclude: Sequence[str] | None = None
    client: str | Sequence[str] | None = None
    group: str | None = None
    split: str | None = None
    test_share: Annotated[BelowOne, OnlyWith("split", None)] = 0.2
    data_seed: Annotated[Seed | None, OnlyWith("split", None)] = None
    normalise: str = "mean_std"
    fill: Fill | None = None
    categories: Categories | None = None
    separator: str = ","
    decimal: str = "."

    def __post_init__(self) -> None:
        check_word(self.normalise, ("mean_std", "client", "none"))
        object.__setattr__(self, "separator", self.separator.replace("\\t", "\t"))
        check_signs(self.separator, self.decimal)
        check_parts(self.client, self.group, self.test_share, self.split is not None)

    def load(self, targets: Targets = "classes") -> Dataset:
        """The arrays, [N, F] float32.

        Args:
            targets: what the task predicts.

        Raises:
            DataError: the file is missing or unreadable, lacks a column, or a column holds what it
                may not.
        """
        path = Path(self.path)
        if not path.is_file():
            raise DataError(f"csv: {path} not found: set dataset.path to a .csv or .parquet file")
        used = [*listed(self.label), *listed(self.client), *listed(self.group), *listed(self.split)]
        # classes are words; what other tasks predict is read as inputs are
        words = used if targets == "classes" else used[len(listed(self.label)) :]
        table = read("csv", path, lambda: self._table(path, used, words), key="dataset.path")
        if table.size == 0:
            raise DataError(f"csv: {path} holds no row below its first line: give one that does")
        wanted = Wanted(
            features=self.features,
            exclude=self.exclude,
            fill=self.fill,
            categories=self.categories,
        )
        table.whole([name for name in used if name in table.names])
        y = read_targets(table, self.label, targets)
        whose = table.clients(self.client, self.group)
        tests = self._tests(table)
        x = read_inputs(table, wanted, used, y[0])
        return parted(table, path.stem, x, y, whose, tests, self.normalise, self.fill)

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

    def _is_number(self, name: str, texts: Any) -> bool:
        """Whether all texts of a column are numbers, and none of a client or group is that of
        another, as ward 1.10 and ward 1.1 are.
        """
        import pandas as pd

        if not texts.str.fullmatch(_USUAL).all():
            return False
        if name in listed(self.label):
            return True
        plain = texts.drop_duplicates().str.replace(r"\.0+$", "", regex=True)
        return bool(pd.to_numeric(plain).nunique() == plain.nunique())

    def _table(self, path: Path, used: Sequence[str], words: Sequence[str]) -> Columns:
        """The columns of a file, among them those of `used`; of a CSV those of `words` are text, in
        which 07 is not 7 and NA is a name, unless all of one are numbers written as usual.
        """
        import pandas as pd

        is_parquet = path.suffix.lower() == ".parquet"
        if is_parquet:
            with path.open("rb") as file:  # a name need not be UTF-8, which pyarrow expects
                table: Any = pd.read_parquet(file)
            asked = {*used, *(self.features or ())} - {*table.columns}
            index = [name for name in table.index.names if name in asked]
            if index:  # which is no column to pandas, but one of the file
                table = table.reset_index(level=index)
        else:
            table = csv_table("csv", path, used, words, self.separator, self.decimal)
        names = [str(name) for name in table.columns]
        columns = Columns(
            what=f"csv: {path}",
            names=names,
            read=lambda name: _plain(table.iloc[:, names.index(name)]),
            size=len(table),
        )
        for name in () if is_parquet else words:
            if name in names and table[name].dtype == object:
                known = columns.trimmed(name, table[name].to_numpy())
                table[name] = pd.Series(known, index=table.index, dtype=object)
                table.loc[table[name] == "", name] = None
                if self._is_number(name, table[name].dropna()):
                    table[name] = pd.to_numeric(table[name])
        return columns


def csv_table(
    what: str,
    path: Path,
    needed: Sequence[str],
    words: Sequence[str],
    separator: str,
    decimal: str,
) -> Any:
    """The table of a CSV file.

    Args:
        what: the dataset's kind, for messages.
        path: the file.
        needed: columns that are asked for.
        words: columns that stay text, of which only an empty field is a gap.
        separator, decimal: between two fields and before fractions.

    Raises:
        DataError: two columns have one name, or a row has more fields than the first line, so
            that its columns would be shifted.
    """
    import pandas as pd
    from pandas._libs.parsers import STR_NA_VALUES  # type: ignore[import-not-found]

    with path.open("rb") as file:
        if file.read(2) == b"PK":
            raise DataError(
                f"{what}: {path} is an archive or a spreadsheet, and no text: save its table as CSV"
            )
    how: dict[str, Any] = {"sep": separator, "index_col": False}
    first = pd.read_csv(path, nrows=1, header=None, dtype=str, keep_default_na=False, **how)
    given = [str(name) for name in first.iloc[0]] if len(first) else []
    # pandas gives the second of two columns another name, and those without one
    Columns(what=f"{what}: {path}", names=[n for n in given if n], read=_nothing, size=0)
    names = list(pd.read_csv(path, nrows=0, **how).columns)
    if len(names) == 1 and needed[0] not in names:
        other = next((sign for sign in ";\t|," if sign in names[0]), None)
        if other is not None:
            raise DataError(
                f"{what}: {path} has a single column, {shown(names[0])}: dataset.separator="
                f"{other!r} reads it"
            )
    text = [name for name in names if name in words]
    gaps = [*STR_NA_VALUES, "?"]
    with warnings.catch_warnings():
        # another file than was meant is told by its columns first
        all_there = set(needed) <= set(names)
        warnings.simplefilter("error" if all_there else "ignore", pd.errors.ParserWarning)
        try:
            table = pd.read_csv(
                path,
                low_memory=False,  # else the kind of a column may change within it
                dtype=dict.fromkeys(text, "object"),
                keep_default_na=False,
                na_values={name: [""] if name in text else gaps for name in names},
                decimal=decimal,
                **how,
            )
        except pd.errors.ParserWarning as error:
            raise DataError(
                f"{what}: {path} has a row with more fields than its first line names columns: "
                "name every column, or take the field out"
            ) from error
    if decimal != ".":
        _check_points(f"{what}: {path}", table.drop(columns=text), decimal)
    return table


def _check_points(what: str, table: Any, decimal: str) -> None:
    """Refuse columns of numbers in some of which there is a point, where it is no decimal sign:
    1.500 may be one and a half to others.

    Raises:
        DataError: naming a value.
    """
    for name in table.columns:
        if table[name].dtype.kind != "O":
            continue
        values = table[name].dropna()
        odd = values[values.map(lambda value: isinstance(value, str))].str.strip()
        if not len(odd) or not odd.str.fullmatch(r"[-+]?[\d.]*\d(,\d+)?").all():
            continue
        pointed = odd[odd.str.contains(".", regex=False)]
        if len(pointed):
            raise DataError(
                f"{what} has {pointed.iloc[0]} in column {name}, row {pointed.index[0] + 1}: with "
                f"dataset.decimal={decimal!r} a point is no decimal sign; take points between "
                "thousands out"
            )


def check_signs(separator: str, decimal: str) -> None:
    """Raise a `ConfigError` unless both are one sign each, and not the same."""
    for key, value in (("separator", separator), ("decimal", decimal)):
        require(len(value) == 1 and value not in '"\n\r', f"dataset.{key}", value, "one sign")
    require(separator != decimal, "dataset.decimal", decimal, "another sign")


def _nothing(name: str) -> Any:
    raise AssertionError(name)


def _plain(column: Any) -> Any:
    """A column's values as NumPy's own numbers, or objects."""
    values = column.to_numpy()
    return values if values.dtype.kind in "buifmM" else values.astype(object)
