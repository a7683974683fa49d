"""A user's own table: one row per example, features, label, client and group in columns."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedclust.core.task import Targets
from fedclust.core.types import Dataset
from fedclust.datasets.checks import one_line, read
from fedclust.datasets.columns import (
    ColumnName,
    NamedColumns,
    few,
    listed,
    name_columns,
    no_values,
    only_named,
    shown,
)
from fedclust.datasets.inputs import Tabular
from fedclust.datasets.parts import table_dataset
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.errors import DataError, counted, require, typed
from fedclust.helpers.files import plain_file
from fedclust.helpers.ranges import BelowOne, Ranged, Seed

_PARTS = ("train", "test")
_ENDS = (".csv", ".parquet")
_FILE = "name of the file"  # the column of a folder's clients
_SEP = re.compile(r"sep=(.)")
_USUAL = r"-?(0|[1-9]\d{0,14})(\.\d+)?"  # numbers as they are usually written


@dataclass(frozen=True, kw_only=True)
class CsvSigns(Ranged):
    """How the CSV files of a dataset are written."""

    # separator, decimal: between two fields and before fractions. A first line that says sep=; is
    # followed.
    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"  # of the text, by its name in Python

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "separator", _sign(self.separator))
        for key in ("separator", "decimal"):
            sign = getattr(self, key)
            require(len(sign) == 1 and sign not in '"\n\r', f"dataset.{key}", sign, "one sign")
        require(self.separator != self.decimal, "dataset.decimal", self.decimal, "another sign")
        try:
            "".encode(self.encoding)
        except LookupError:
            known = "one that Python knows, as utf-8, latin-1, utf-16"
            require(False, "dataset.encoding", self.encoding, known)


@dataclass(frozen=True, kw_only=True)
class Csv(CsvSigns, Tabular):
    """A table of numbers, as CSV or parquet; see `Tabular` for what its columns mean.

    Attributes:
        path: the file; the first line of a CSV names the columns. Or a folder of such files, one
            behind the other; of a file in folders named as in site=north, `site` is a column.
        client: likewise; None where there are none, or where `path` is a folder, each of whose
            files is a client by its name.
        split: column that holds train or test; None where a share is drawn.
    """

    split: ColumnName | None = None
    test_share: Annotated[BelowOne, OnlyWith("split", None)] = 0.2
    data_seed: Annotated[Seed | None, OnlyWith("split", None)] = None
    normalise: Literal["mean_std", "client", "none"] = "mean_std"

    def __post_init__(self) -> None:
        super().__post_init__()
        name_columns(self, "split")
        require(bool(self.path), "dataset.path", "''", "a CSV or parquet file, or a folder of them")

    @property
    def owners(self) -> str | Sequence[str] | None:
        return _FILE if self.client is None and Path(self.path).is_dir() else self.client

    @property
    def names_tests(self) -> bool:
        return self.split is not None

    @property
    def used(self) -> list[str]:
        return [*super().used, *listed(self.split)]

    def load(self, targets: Targets = "classes") -> Dataset:
        """The arrays, [N, F] float32, for a task that predicts `targets`. Raises `DataError` if the
        file is missing or unreadable, lacks a column, or a column holds what it may not.
        """
        path = Path(self.path)
        # classes are words; what other tasks predict is read as inputs are
        words = self.used if targets == "classes" else self.used[len(listed(self.label)) :]
        table = read("csv", path, lambda: self._table(path, words), key="dataset.path")
        if table.size == 0:
            raise DataError(f"csv: {path} holds no row below its first line: give one that does")
        return table_dataset(self, table, path.stem, targets)

    def tests(self, table: NamedColumns) -> Tensor | None:
        if self.split is None:
            return None
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

    def _table(self, path: Path, words: Sequence[str]) -> NamedColumns:
        """The columns of a file; of a CSV those of `words` are text, in which 07 is not 7 and NA is
        a name, unless all of one are numbers written as usual.
        """
        import pandas as pd

        files = table_files("csv", path)
        is_parquet = files[0].suffix.lower() == ".parquet"
        if len({file.suffix.lower() for file in files}) > 1:
            raise DataError(f"csv: {path} has {' and '.join(_ENDS)} files: give those of one kind")
        tables = [self._of_file(file, words) for file in files]
        table = tables[0]
        if path.is_dir():
            for file, one in zip(files, tables, strict=True):
                inside = file.relative_to(path)
                folders = dict(name.split("=", 1) for name in inside.parts[:-1] if "=" in name)
                for name, value in {**folders, _FILE: str(inside.with_suffix(""))}.items():
                    one[name] = value
                only_named(f"csv: {file}", map(str, one.columns)).known("dataset", self.used)
            table = pd.concat(tables, ignore_index=True, sort=False)
        names = [str(name) for name in table.columns]
        remarks = passed_over("csv", path)
        if not is_parquet:
            empty = table[[name for name in table.columns if name != _FILE]].isna().all(axis=1)
            if empty.any() and not empty.all():
                remarks.append(f"csv: {path}: {counted(int(empty.sum()), 'empty row')} left out")
                table = table[~empty].reset_index(drop=True)
        columns = NamedColumns(
            what=f"csv: {path}",
            names=names,
            read=lambda name: _plain(table.iloc[:, names.index(name)]),
            size=len(table),
            order=lambda name: _order(table.iloc[:, names.index(name)]),
            remarks=remarks,
        )
        for name in () if is_parquet else words:
            if name in names and table[name].dtype == object:
                known = columns.trimmed(name, table[name].to_numpy())
                table[name] = pd.Series(known, index=table.index, dtype=object)
                table.loc[table[name] == "", name] = None
                if self._is_number(name, table[name].dropna()):
                    table[name] = pd.to_numeric(table[name])
        return columns

    def _of_file(self, path: Path, words: Sequence[str]) -> Any:
        """The columns of one file, see `_table`."""
        import pandas as pd

        if path.suffix.lower() != ".parquet":
            signs = self.separator, self.decimal, self.encoding
            return csv_table("csv", path, self.used, words, *signs)
        with path.open("rb") as file:  # a name need not be UTF-8, which pyarrow expects
            table: Any = pd.read_parquet(file)
        asked = {*self.used, *(self.features or ())} - {*table.columns}
        index = [name for name in table.index.names if name in asked]
        # which is no column to pandas, but one of the file
        return table.reset_index(level=index) if index else table


def _sign(text: str) -> str:
    """A separator as it is typed: a shell makes no tab of backslash and t."""
    return text.replace("\\t", "\t")


def table_files(what: str, path: Path) -> list[Path]:
    """The files of a table: one, or all .csv or .parquet files of a folder, hidden ones aside.
    Raises `DataError` if there is none, or one is no plain file.
    """
    kinds = " or ".join(_ENDS)
    if not path.is_dir():
        return [plain_file(path, f"{what}: ", f"set dataset.path to a {kinds} file, or a folder")]
    files = [one for one in _inside(path) if one.suffix.lower() in _ENDS]
    if not files:
        raise DataError(
            f"{what}: {path} is no file and no folder of {kinds} files: set dataset.path to one"
        )
    return [plain_file(file, f"{what}: ", "take it out of the folder") for file in files]


def passed_over(what: str, path: Path) -> list[str]:
    """A remark on what lies in a folder and is no table, hidden things aside."""
    others = [one.name for one in _inside(path) if one.suffix.lower() not in _ENDS]
    kinds = " or ".join(_ENDS)
    remark = f"{what}: {path}: passed over what is no {kinds} file: {few(others)}"
    return [remark] if others else []


def _inside(folder: Path) -> Iterator[Path]:
    """What lies in a folder, and in those of it named as in site=north; hidden things aside."""
    for one in sorted(folder.iterdir()) if folder.is_dir() else ():
        if one.is_dir() and "=" in one.name:
            yield from _inside(one)
        elif not one.name.startswith("."):
            yield one


def csv_table(
    what: str,
    path: Path,
    needed: Sequence[str],
    words: Sequence[str],
    separator: str,
    decimal: str,
    encoding: str,
) -> Any:
    """The table of a CSV file.

    Args:
        needed: columns that are asked for.
        words: columns that stay text, of which only an empty field is a gap.

    Raises:
        DataError: it is another encoding, two columns have one name, or a row has more fields than
            the first line, so that its columns would be shifted.
    """
    import pandas as pd

    with path.open("rb") as file:
        if file.read(2) == b"PK":
            raise DataError(
                f"{what}: {path} is an archive or a spreadsheet, and no text: save its table as CSV"
            )
    how: dict[str, Any] = {"sep": separator, "index_col": False, "encoding": encoding}
    look: dict[str, Any] = {"nrows": 1, "header": None, "dtype": str, "keep_default_na": False}
    try:
        first = pd.read_csv(path, **look, **how)
        line = separator.join(map(str, first.iloc[0])) if len(first) else ""
        if excel := _SEP.fullmatch(line):  # Excel's own first line
            how |= {"sep": excel[1], "skiprows": 1}
            first = pd.read_csv(path, **look, **how)
        table = _read_table(what, path, first, needed, words, decimal, how)
    except UnicodeError as error:
        with path.open("rb") as file:
            marked = file.read(2) in (b"\xff\xfe", b"\xfe\xff")
        other, reads = ("utf-16", "it") if marked else ("latin-1", "texts of Western Europe")
        raise DataError(
            f"{what}: {path} is no text in {encoding.upper()} ({one_line(error)}): "
            f"{typed('dataset.encoding', other)} reads {reads}"
        ) from error
    if decimal != ".":
        text = [name for name in table.columns if name in words]
        _check_points(f"{what}: {path}", table.drop(columns=text), decimal)
        for name in table.columns.drop(text):
            table[name] = _pointed(table[name], decimal)
    return table


def _pointed(column: Any, decimal: str) -> Any:
    """A column in whose words the numbers have a point, as they have in a column of numbers alone,
    so that a value such as <0,5 stands among numbers and not among words.
    """
    if column.dtype.kind != "O":
        return column
    number = re.compile(rf"\s*[-+]?\d*{re.escape(decimal)}\d+\s*")

    def pointed(value: object) -> object:
        is_one = isinstance(value, str) and number.fullmatch(value)
        return str(value).replace(decimal, ".") if is_one else value

    return column.map(pointed)


def _read_table(
    what: str,
    path: Path,
    first: Any,
    needed: Sequence[str],
    words: Sequence[str],
    decimal: str,
    how: Mapping[str, Any],
) -> Any:
    """The table of a CSV file whose first line is known, see `csv_table`."""
    import pandas as pd

    given = [str(name) for name in first.iloc[0]] if len(first) else []
    # pandas gives the second of two columns another name, and those without one
    only_named(f"{what}: {path}", filter(None, given))
    names = list(pd.read_csv(path, nrows=0, **how).columns)
    if len(names) == 1 and needed[0] not in names:
        if re.search(r"[\x00-\x08\x0e-\x1f]", names[0]):
            raise DataError(f"{what}: {path} holds no text but bytes: is it a table of text?")
        other = next((sign for sign in (";", "\\t", "|", ",") if _sign(sign) in names[0]), None)
        if other is not None:
            raise DataError(
                f"{what}: {path} has a single column, {shown(names[0])}: "
                f"{typed('dataset.separator', other)} reads it"
            )
    text = [name for name in names if name in words]
    gaps = no_values()
    with warnings.catch_warnings():
        # another file than was meant is told by its columns first
        all_there = set(needed) <= set(names)
        warnings.simplefilter("error" if all_there else "ignore", pd.errors.ParserWarning)
        try:
            return pd.read_csv(
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


def _check_points(what: str, table: Any, decimal: str) -> None:
    """Refuse columns of numbers in some of which there is a point, where it is no decimal sign:
    1.500 may be one and a half to others.
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
                f"{typed('dataset.decimal', decimal)} a point is no decimal sign; take points "
                "between thousands out"
            )


def _order(column: Any) -> list[str] | None:
    """The words of an ordered categorical column in its order; None for other columns."""
    kind = column.dtype
    return [str(one) for one in kind.categories] if getattr(kind, "ordered", False) else None


def _plain(column: Any) -> Any:
    """A column's values as NumPy's own numbers, or objects."""
    values = column.to_numpy()
    return values if values.dtype.kind in "buifmM" else values.astype(object)
