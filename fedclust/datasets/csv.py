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
    Unlabelled,
    few,
    listed,
    name_columns,
    no_values,
    shown,
)
from fedclust.datasets.inputs import Categories, Fill, Wanted, read_inputs, read_targets
from fedclust.datasets.parts import DrawnPart, check_parts, parted
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
class Csv(Ranged):
    """A table of numbers, as CSV or parquet; classes and clients are numbered in sorted order.

    Attributes:
        path: the file; the first line of a CSV names the columns. Or a folder of such files, one
            behind the other; of a file in folders named as in site=north, `site` is a column.
        label: column of the class, words or whole numbers; of another task the column, or
            columns, of what it predicts.
        features: columns of the inputs, None for all that are not used otherwise.
        exclude: columns that are no inputs; None leaves out those that number the rows or repeat
            the label, and says so.
        client: column of the natural client, for partition=natural, or several that name it
            together; None where there are none, or where `path` is a folder, each of whose files is
            a client by its name.
        group: column of the client's true group, None where there is none.
        unit: column of whom a row is, such as a patient, which is no input; all rows of one are on
            one side of every split. None where each row is by itself.
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
        categories: onehot (a feature for each word), ordinal (their numbers in sorted order, or
            in the order that parquet knows) or ids (these numbers, 0, 1, …, which are not scaled,
            for a network that looks them up); a word that no training row has is unknown. A mapping
            says so of columns by name, also of such with whole numbers, and under * of all other
            words; a list is the order of a column's words. None refuses words.
        unlabelled: drop leaves out rows without a value of the label, refuse refuses them.
        separator, decimal: between two fields and before fractions, of a CSV. A first line that
            says sep=; is followed.
        encoding: of a CSV, by its name in Python.
    """

    path: str
    label: ColumnName | Sequence[ColumnName] = "label"
    features: Sequence[ColumnName] | None = None
    exclude: Sequence[ColumnName] | None = None
    client: ColumnName | Sequence[ColumnName] | None = None
    group: ColumnName | None = None
    unit: ColumnName | None = None
    split: ColumnName | None = None
    test_share: Annotated[BelowOne, OnlyWith("split", None)] = 0.2
    data_seed: Annotated[Seed | None, OnlyWith("split", None)] = None
    normalise: Literal["mean_std", "client", "none"] = "mean_std"
    fill: Fill | None = None
    categories: Categories | None = None
    unlabelled: Unlabelled = "refuse"
    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        super().__post_init__()
        name_columns(self, "label", "features", "exclude", "client", "group", "unit", "split")
        object.__setattr__(self, "separator", self.separator.replace("\\t", "\t"))
        check_signs(self.separator, self.decimal, self.encoding)
        check_parts(self._client, self.group, self.test_share, self.split is not None)

    @property
    def _client(self) -> str | Sequence[str] | None:
        """The column, or columns, of the client."""
        return _FILE if self.client is None and Path(self.path).is_dir() else self.client

    def load(self, targets: Targets = "classes") -> Dataset:
        """The arrays, [N, F] float32.

        Args:
            targets: what the task predicts.

        Raises:
            DataError: the file is missing or unreadable, lacks a column, or a column holds what it
                may not.
        """
        path, label, client = Path(self.path), listed(self.label), self._client
        used = [*label, *listed(client), *listed(self.group), *listed(self.unit)]
        used += listed(self.split)
        # classes are words; what other tasks predict is read as inputs are
        words = used if targets == "classes" else used[len(label) :]
        table = read("csv", path, lambda: self._table(path, used, words), key="dataset.path")
        if table.size == 0:
            raise DataError(f"csv: {path} holds no row below its first line: give one that does")
        wanted = Wanted(
            features=self.features,
            exclude=self.exclude,
            fill=self.fill,
            categories=self.categories,
            normalise=self.normalise,
        )
        table, _ = table.labelled(label, self.unlabelled)
        table.whole([name for name in used if name in table.names], label)
        y = read_targets(table, self.label, targets)
        whose = table.clients(client, self.group)
        tests = self._tests(table)
        x = read_inputs(table, wanted, used, y[0], whose)
        return parted(table, path.stem, x, y, whose, tests, self.normalise, self.fill, self.unit)

    def _tests(self, table: NamedColumns) -> Tensor | DrawnPart:
        """Which rows are for testing, [N] bool, or how they are drawn."""
        if self.split is None:
            return DrawnPart(self.test_share, self.data_seed)
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

    def _table(self, path: Path, used: Sequence[str], words: Sequence[str]) -> NamedColumns:
        """The columns of a file, among them those of `used`; of a CSV those of `words` are text, in
        which 07 is not 7 and NA is a name, unless all of one are numbers written as usual.
        """
        import pandas as pd

        files = table_files("csv", path)
        is_parquet = files[0].suffix.lower() == ".parquet"
        if len({file.suffix.lower() for file in files}) > 1:
            raise DataError(f"csv: {path} has {' and '.join(_ENDS)} files: give those of one kind")
        tables = [self._of_file(file, used, words) for file in files]
        table = tables[0]
        if path.is_dir():
            for file, one in zip(files, tables, strict=True):
                inside = file.relative_to(path)
                folders = dict(name.split("=", 1) for name in inside.parts[:-1] if "=" in name)
                for name, value in {**folders, _FILE: str(inside.with_suffix(""))}.items():
                    one[name] = value
                NamedColumns(
                    what=f"csv: {file}", names=[*map(str, one.columns)], read=_nothing, size=0
                ).known("dataset", used)
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

    def _of_file(self, path: Path, used: Sequence[str], words: Sequence[str]) -> Any:
        """The columns of one file, see `_table`."""
        import pandas as pd

        if path.suffix.lower() != ".parquet":
            return csv_table("csv", path, used, words, self.separator, self.decimal, self.encoding)
        with path.open("rb") as file:  # a name need not be UTF-8, which pyarrow expects
            table: Any = pd.read_parquet(file)
        asked = {*used, *(self.features or ())} - {*table.columns}
        index = [name for name in table.index.names if name in asked]
        # which is no column to pandas, but one of the file
        return table.reset_index(level=index) if index else table


def table_files(what: str, path: Path) -> list[Path]:
    """The files of a table: one, or all .csv or .parquet files of a folder, hidden ones aside.

    Raises:
        DataError: there is none, or one is no plain file.
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
    said = f"{what}: {path}: passed over what is no {kinds} file: {few(others)}"
    return [said] if others else []


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
        what: the dataset's kind, for messages.
        path: the file.
        needed: columns that are asked for.
        words: columns that stay text, of which only an empty field is a gap.
        separator, decimal: between two fields and before fractions.
        encoding: of the text.

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
        said = _SEP.fullmatch(separator.join(map(str, first.iloc[0]))) if len(first) else None
        if said:  # Excel's own first line
            how |= {"sep": said[1], "skiprows": 1}
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
    return column.map(
        lambda value: (
            value.replace(decimal, ".")
            if isinstance(value, str) and number.fullmatch(value)
            else value
        )
    )


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
    NamedColumns(what=f"{what}: {path}", names=[n for n in given if n], read=_nothing, size=0)
    names = list(pd.read_csv(path, nrows=0, **how).columns)
    if len(names) == 1 and needed[0] not in names:
        other = next((sign for sign in ";\t|," if sign in names[0]), None)
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
                f"{typed('dataset.decimal', decimal)} a point is no decimal sign; take points "
                "between thousands out"
            )


def check_signs(separator: str, decimal: str, encoding: str) -> None:
    """Raise a `ConfigError` unless the signs are one each, and not the same, and the encoding is
    known.
    """
    for key, value in (("separator", separator), ("decimal", decimal)):
        require(len(value) == 1 and value not in '"\n\r', f"dataset.{key}", value, "one sign")
    require(separator != decimal, "dataset.decimal", decimal, "another sign")
    try:
        known = bool("".encode(encoding) is not None)
    except LookupError:
        known = False
    require(known, "dataset.encoding", encoding, "one that Python knows, as utf-8, latin-1, utf-16")


def _nothing(name: str) -> Any:
    raise AssertionError(name)


def _order(column: Any) -> list[str] | None:
    """The words of an ordered categorical column in its order; None for other columns."""
    kind = column.dtype
    return [str(one) for one in kind.categories] if getattr(kind, "ordered", False) else None


def _plain(column: Any) -> Any:
    """A column's values as NumPy's own numbers, or objects."""
    values = column.to_numpy()
    return values if values.dtype.kind in "buifmM" else values.astype(object)
