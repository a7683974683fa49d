"""The inputs of a table: which columns are meant, and their values as numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedclust.core.task import Targets
from fedclust.datasets.checks import TOO_SMALL, vanishing
from fedclust.datasets.columns import Array, Columns, few, listed, shown
from fedclust.datasets.suspects import tell, tell_of_gaps, without_slips
from fedclust.helpers.errors import DataError, counted, require

Fill = Literal["median", "mean", "most_frequent", "indicator"]
Categories = Literal["onehot", "ordinal"]
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ].*)?")
_COMMA = re.compile(r"[-+]?\d*,\d+")
_MOST = 100  # different words that a column of categories may hold


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a config says of the inputs, see `fedclust.datasets.csv.Csv`."""

    features: Sequence[str] | None
    exclude: Sequence[str] | None
    fill: Fill | None
    categories: Categories | None

    def __post_init__(self) -> None:
        require(
            self.features is None or self.exclude is None,
            "dataset.exclude",
            self.exclude,
            "null with dataset.features, which names all inputs",
        )


@dataclass(frozen=True)
class Inputs:
    """Features by name.

    Attributes:
        x: [N, F] float64, NaN where a gap is to be filled.
        names: of the features.
        coded: [F] bool, of categories: a value that no training row has is unknown.
        flags: [F] bool, whether something holds, as 0 or 1: a word of a column, or that it has a
            gap. They are not scaled.
    """

    x: npt.NDArray[np.float64]
    names: tuple[str, ...]
    coded: npt.NDArray[np.bool_]
    flags: npt.NDArray[np.bool_]


def read_targets(
    table: Columns, columns: str | Sequence[str], targets: Targets
) -> tuple[Tensor, tuple[str, ...]]:
    """What a task predicts, and its names: classes [N] int64, numbers [N, T] float64 or flags
    [N, T] uint8.

    Args:
        table: the columns.
        columns: of dataset.label.
        targets: what the task needs.

    Raises:
        ConfigError: several columns of classes.
        DataError: a column has gaps, or holds what the task does not predict.
    """
    names = listed(columns)
    if targets == "classes":
        allowed = "one column with task=classification"
        require(len(names) == 1, "dataset.label", columns, allowed)
        y, known = table.classes(names[0])
        if all(map(_is_number, known)):
            tell_of_gaps(table, names[0], np.array(known, dtype=np.float64)[y.numpy()], "the label")
        return y, known
    require(len(names) > 0, "dataset.label", columns, "at least one column")
    read = [Column(name, table.values("dataset.label", name)) for name in dict.fromkeys(names)]
    kind = "numbers" if targets == "numbers" else "0 or 1"
    for one in read:
        fine = np.isfinite(one.number) & (np.abs(one.number) < np.finfo(np.float32).max)
        if targets == "flags":
            fine &= np.isin(one.number, (0, 1))
        if not fine.all():
            row = int(np.flatnonzero(~fine)[0])
            raise DataError(
                f"{table.what} has {shown(one.values[row])} in column {one.name}, row {row + 1}, "
                f"which dataset.label names: this task needs {kind}"
            )
    for one in read:
        tell_of_gaps(table, one.name, one.number, "a target")
    y = torch.from_numpy(np.stack([one.number for one in read], axis=1))
    return y.to(torch.float64 if targets == "numbers" else torch.uint8), tuple(names)


def read_inputs(table: Columns, wanted: Wanted, used: Sequence[str], label: Tensor) -> Inputs:
    """The features of a table.

    Args:
        table: the columns.
        wanted: which of them, and how.
        used: columns that mean something else.
        label: targets of the rows, see `read_targets`, to find columns that repeat them.

    Raises:
        DataError: there are none, or some hold no finite numbers; all such columns are named.
    """
    table.known("dataset.features", wanted.features or ())
    table.known("dataset.exclude", wanted.exclude or ())
    out = {*used, *(wanted.exclude or ())}
    names = [n for n in table.names if n not in out] if wanted.features is None else wanted.features
    both = [name for name in names if name in used]
    if both:
        raise DataError(
            f"{table.what} has column {both[0]} among its features: dataset.features must name "
            f"others than {few(used)}"
        )
    columns = [Column(name, table.read(name)) for name in dict.fromkeys(names)]
    if wanted.features is None and (wanted.exclude is None or wanted.exclude):
        columns = without_slips(table, columns, label.numpy(), wanted.exclude)
    if not columns:
        raise DataError(f"{table.what} has no column left for features: see dataset.features")
    _check(table, columns, wanted)
    left = {*names} - {one.name for one in columns}
    gone = [*(wanted.exclude or ()), *(name for name in table.names if name in left)]

    def without(name: str) -> str:
        if wanted.features is not None:
            return f"dataset.features without {name}"
        return f"dataset.exclude=[{','.join([*gone, name])}]"

    tell(table, columns, label.numpy(), gaps=wanted.fill == "indicator", out=without)
    if wanted.categories == "onehot" and wanted.fill != "indicator":
        for one in columns:
            if one.is_words and one.gaps.any():
                table.remarks.append(
                    f"{table.what}: column {one.name} has no word in "
                    f"{counted(int(one.gaps.sum()), 'row')}: all its inputs are 0 there, whatever "
                    "dataset.fill says"
                )
    parts = [(column, *part) for column in columns for part in column.parts(wanted)]
    return Inputs(
        np.stack([values for _, _, values, _ in parts], axis=1),
        tuple(name for _, name, _, _ in parts),
        np.array([coded for _, _, _, coded in parts]),
        np.array([name != column.name for column, name, _, _ in parts]),
    )


class Column:
    """One column: numbers, with NaN for gaps, or words."""

    def __init__(self, name: str, values: Array) -> None:
        import pandas as pd

        self.name, self.values = name, values
        self.gaps: npt.NDArray[np.bool_] = pd.isna(values)
        self.number = np.full(len(values), np.nan)
        self.is_timed = values.dtype.kind in "mM" or any(
            isinstance(value, np.datetime64 | pd.Timestamp) for value in values[~self.gaps][:1]
        )
        if values.dtype.kind in "buif":
            self.number = values.astype(np.float64)
            self.odd = np.zeros(len(values), dtype=bool)
        else:  # words, and whole numbers that no integer type holds
            self.odd = np.array([self.is_timed or not _is_number(v) for v in values]) & ~self.gaps
            fine = ~self.odd & ~self.gaps
            self.number[fine] = [float(value) for value in values[fine]]
            self.gaps |= fine & np.isnan(self.number)  # NaN with blanks around it
        filled = np.count_nonzero(~self.gaps)
        self.is_words = (
            not self.is_timed
            and bool(2 * np.count_nonzero(self.odd) > filled)
            and all(isinstance(value, str) for value in values[self.odd])
        )
        self.is_dates = self.is_timed or bool(
            self.is_words and all(_DATE.fullmatch(str(v).strip()) for v in values[self.odd][:50])
        )

    def parts(self, wanted: Wanted) -> Iterator[tuple[str, npt.NDArray[np.float64], bool]]:
        """Features that the column becomes: name, values, and whether it is of categories."""
        if self.is_words:
            words = np.array(["" if gap else str(v).strip() for v, gap in self._each()])
            known = sorted(set(words[~self.gaps].tolist()))
            if wanted.categories == "onehot":
                for word in known:
                    yield f"{self.name}={word}", (words == word).astype(np.float64), True
            else:
                codes = np.searchsorted(known, words).astype(np.float64)
                yield self.name, np.where(self.gaps, np.nan, codes), True
        else:
            yield self.name, self.number, False
        if wanted.fill == "indicator" and self.gaps.any():
            yield f"{self.name} is missing", self.gaps.astype(np.float64), False

    def _each(self) -> Iterator[tuple[Any, bool]]:
        return zip(self.values, self.gaps.tolist(), strict=True)


def _check(table: Columns, columns: Sequence[Column], wanted: Wanted) -> None:
    """Refuse columns that hold no numbers, or have gaps: all at once.

    Raises:
        DataError: with what each holds, and the keys that read it.
    """
    said = []
    dates = [f"{one.name} ({_first(one)})" for one in columns if one.is_dates]
    if dates:
        said.append(f"dates in {_columns(dates)}: give a number of days, or leave them out")
    mixed = [one for one in columns if one.odd.any() and not one.is_words and not one.is_dates]
    for one in mixed:
        row = int(np.flatnonzero(one.odd)[0])
        said.append(
            f"{shown(one.values[row])} in column {one.name}, row {row + 1}: features must be "
            "numbers"
        )
    words = [one for one in columns if one.is_words and not one.is_dates]
    commas = [one.name for one in words if all(map(_is_comma, one.values[one.odd][:50]))]
    if commas:
        said.append(
            f"numbers with commas in {_columns(commas)}: dataset.decimal=',' with another "
            "dataset.separator reads decimal commas; those between thousands must be taken out"
        )
    words = [one for one in words if one.name not in commas]
    many = [one.name for one in words if len(set(one.values[one.odd].tolist())) > _MOST]
    if wanted.categories is None and words:
        each = [f"{one.name} ({_first(one)})" for one in words]
        said.append(
            f"words in {_columns(each)}: features must be numbers; dataset.categories=onehot reads "
            "words"
        )
    elif many:
        said.append(
            f"more than {_MOST} different words in {_columns(many)}: they are no categories"
        )
    gaps = [one for one in columns if one.gaps.any() and not one.is_dates]
    gaps = [one for one in gaps if not (one.is_words and wanted.categories == "onehot")]
    if wanted.fill is None and gaps:
        each = [f"{one.name} ({counted(int(one.gaps.sum()), 'row')})" for one in gaps]
        first = f", first in row {int(np.flatnonzero(gaps[0].gaps)[0]) + 1}"
        said.append(f"no value in {_columns(each)}{first}: dataset.fill=median fills gaps")
    if said:
        out = "; dataset.exclude or dataset.features leaves columns out"
        raise DataError(f"{table.what} has {'; and '.join(said)}{out}")
    for one in columns:
        if one.gaps.all():
            raise DataError(
                f"{table.what} has no value in any row of column {one.name}: "
                "dataset.exclude leaves it out"
            )
        numbers = one.number[~np.isnan(one.number)]
        if largest := vanishing(numbers):
            raise DataError(
                f"{table.what} has at most {largest:.2g} in column {one.name}: {TOO_SMALL}"
            )
        # NaN of an array of floats is a gap here, as pandas has it
        odd = np.flatnonzero(np.abs(np.nan_to_num(one.number)) > np.finfo(np.float32).max)
        if len(odd):
            raise DataError(
                f"{table.what} has {one.number[odd[0]]} in column {one.name}, row {odd[0] + 1}: "
                "features must be finite numbers that fit float32"
            )


def _columns(names: Sequence[str]) -> str:
    return f"{'columns' if names[1:] else 'column'} {few(names)}"


def _first(one: Column) -> str:
    row = int(np.flatnonzero(one.odd)[0]) if one.odd.any() else int(np.flatnonzero(~one.gaps)[0])
    return f"{shown(one.values[row])} in row {row + 1}"


def _is_comma(value: object) -> bool:
    return isinstance(value, str) and bool(_COMMA.fullmatch(value.strip()))


def _is_number(value: object) -> bool:
    try:
        float(cast(Any, value))
    except (TypeError, ValueError, OverflowError):
        return False
    return "_" not in str(value)  # which Python's own numbers may hold
