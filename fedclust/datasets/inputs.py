"""The inputs of a table: which columns are meant, and their values as numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedclust.core.task import Targets
from fedclust.datasets.checks import TOO_SMALL, vanishing
from fedclust.datasets.columns import Array, Columns, Owners, few, listed, shown
from fedclust.datasets.signs import shown_sign, signs_of
from fedclust.datasets.sites import tell_of_inputs
from fedclust.datasets.suspects import tell, tell_of_gaps, without_slips
from fedclust.helpers.errors import DataError, counted, require, typed
from fedclust.helpers.ranges import MOST, Range

Fill = Literal["median", "mean", "most_frequent", "indicator"]
Coding = Literal["onehot", "ordinal", "ids"]
Word = str | Annotated[float, Range(-MOST, MOST)]
# of all columns of words, or by the name of a column; a list is the order of its words
Categories = Coding | Mapping[str, Coding | Sequence[Word]]
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ].*)?")
_COMMA = re.compile(r"[-+]?\d*,\d+")
_MOST = 100  # different words that a column of categories may hold
_FEW = 10  # numbers with a sign that may be categories, as doses of 5 mg and 10 mg
_REST = "*"  # stands for the columns of words that dataset.categories does not name
_NUMBERS = (int, float, np.integer, np.floating)
_SHOWN = 5  # words of an order that a message shows
_CLASSES = 4  # numbers with holes between them, of more of which they may be a scale


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a config says of the inputs, see `fedclust.datasets.csv.Csv`."""

    features: Sequence[str] | None
    exclude: Sequence[str] | None
    fill: Fill | None
    categories: Categories | None
    normalise: str = "mean_std"

    def __post_init__(self) -> None:
        require(
            self.features is None or self.exclude is None,
            "dataset.exclude",
            self.exclude,
            "null with dataset.features, which names all inputs",
        )

    @property
    def codings(self) -> dict[str, Coding | Sequence[Word]]:
        """How the words of columns become numbers, under `_REST` those of all others."""
        if isinstance(self.categories, Mapping):
            return {str(name): coding for name, coding in self.categories.items()}
        return {} if self.categories is None else {_REST: self.categories}

    def also(self, names: Sequence[str], *, rest: bool) -> str:
        """What is typed to read further columns, and with `rest` all others of words, as words."""
        if rest and not names and not isinstance(self.categories, Mapping):
            return "dataset.categories=onehot"
        codings = {**self.codings, **dict.fromkeys(names, "onehot")}
        others = {_REST: codings.pop(_REST, "onehot")} if rest or _REST in codings else {}
        return typed("dataset.categories", {**codings, **others})


@dataclass(frozen=True)
class Read:
    """How a column becomes features, of rows that were never seen before too.

    Attributes:
        name: of the column.
        kind: number; onehot, a feature for each word; ordinal, the number of its word; ids, the
            same for a network that looks it up.
        words: that it may hold, in order.
        indicator: whether a feature says where there was no value.
    """

    name: str
    kind: Literal["number", "onehot", "ordinal", "ids"]
    words: tuple[str, ...] = ()
    indicator: bool = False


@dataclass(frozen=True)
class Inputs:
    """Features by name.

    Attributes:
        x: [N, F] float64, NaN where a gap is to be filled.
        names: of the features.
        coded: [F] bool, of categories: a value that no training row has is unknown.
        flags: [F] bool, whether something holds, as 0 or 1: a word of a column, or that it has a
            gap; and ids. They are not scaled.
        columns: how each column became some of them.
    """

    x: npt.NDArray[np.float64]
    names: tuple[str, ...]
    coded: npt.NDArray[np.bool_]
    flags: npt.NDArray[np.bool_]
    columns: tuple[Read, ...]


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
            numbers = np.array(known, dtype=np.float64)
            tell_of_gaps(table, names[0], numbers[y.numpy()], "the label")
            if len(known) > _CLASSES and numbers.max() - numbers.min() >= len(known):
                table.remarks.append(
                    f"{table.what}: the {len(known)} numbers of column {names[0]}, {few(known)}, "
                    "are taken as classes without an order; task=regression predicts numbers"
                )
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
    events = [one.name for one in read if set(one.number.tolist()) == {0, 1}]
    times = [one.name for one in read if one.name not in events and one.number.min() >= 0]
    if targets == "numbers" and len(events) == len(times) == 1 and len(read) == 2:
        table.remarks.append(
            f"{table.what}: targets {times[0]} and {events[0]}, which is 0 or 1, are predicted as "
            "two numbers; if they are a time and whether something happened by then, nothing here "
            "knows of censoring"
        )
    y = torch.from_numpy(np.stack([one.number for one in read], axis=1))
    return y.to(torch.float64 if targets == "numbers" else torch.uint8), tuple(names)


def read_inputs(
    table: Columns, wanted: Wanted, used: Sequence[str], label: Tensor, whose: Owners | None = None
) -> Inputs:
    """The features of a table.

    Args:
        table: the columns.
        wanted: which of them, and how.
        used: columns that mean something else.
        label: targets of the rows, see `read_targets`, to find columns that repeat them.
        whose: the clients, between which columns may differ.

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
    codings = wanted.codings
    table.known("dataset.categories", [name for name in codings if name != _REST])
    columns = [
        Column(name, table.read(name), codings.get(name), codings.get(_REST), table.order(name))
        for name in dict.fromkeys(names)
    ]
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
        return typed("dataset.exclude", [*gone, name])

    indicated = wanted.fill == "indicator"
    tell(table, columns, label.numpy(), gaps=indicated, out=without)
    apart = wanted.normalise == "client"
    tell_of_inputs(table, columns, whose or Owners(), apart=apart, indicated=indicated)
    for one in (one for one in columns if one.is_words):
        table.tell_alike(one.name, one.known)
        if one.is_mixed and not one.is_named:
            number = one.words[np.isfinite(one.number)][0]
            table.remarks.append(
                f"{table.what}: column {one.name} mixes words with numbers such as {number}: all "
                "of it is read as words"
            )
        if one.is_sorted and len(one.known) > 2:
            some = " < ".join([*one.known[:_SHOWN], *["…"] * (len(one.known) > _SHOWN)])
            order = typed("dataset.categories", {one.name: ["first", "second", "third"]})
            table.remarks.append(
                f"{table.what}: column {one.name} is numbered in sorted order, {some}; "
                f"{order} gives another"
            )
        if one.coding == "onehot" and not indicated and one.gaps.any():
            table.remarks.append(
                f"{table.what}: column {one.name} has no word in "
                f"{counted(int(one.gaps.sum()), 'row')}: all its inputs are 0 there, whatever "
                "dataset.fill says"
            )
    return features_of([(one, one.how(wanted)) for one in columns])


def features_of(columns: Sequence[tuple[Column, Read]]) -> Inputs:
    """The features that columns become."""
    parts = [part for column, how in columns for part in column.parts(how)]
    return Inputs(
        np.stack([values for _, values, _, _ in parts], axis=1),
        tuple(name for name, _, _, _ in parts),
        np.array([coded for _, _, coded, _ in parts]),
        np.array([flag for _, _, _, flag in parts]),
        tuple(how for _, how in columns),
    )


class Column:
    """One column: numbers, with NaN for gaps, or words.

    Attributes:
        name: of the column.
        values: [N] as the table holds them.
        gaps: [N] bool, where there is none.
        number: [N] float64, NaN for gaps and for what is no number.
        odd: [N] bool, what is neither a number nor a gap.
        is_words: whether most of what is there are words, or it is to be read as words.
        is_mixed: whether it holds words and numbers.
        is_timed, is_dates: whether it holds times, or words that look like dates.
        coding: how its words become numbers: onehot, ordinal, ids or their order; None is not said.
        is_named: whether `coding` was given for this column.
    """

    def __init__(
        self,
        name: str,
        values: Array,
        coding: Coding | Sequence[Word] | None = None,
        rest: Coding | Sequence[Word] | None = None,
        order: Sequence[str] | None = None,
    ) -> None:
        """Args:
        name, values: see above.
        coding: what is said of the column by its name.
        rest: what is said of all columns of words.
        order: of its words, where the file knows one.
        """
        import pandas as pd

        self.name, self.values, self.is_named = name, values, coding is not None
        self.coding = rest if coding is None else coding
        self._order = order
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
        most = bool(2 * np.count_nonzero(self.odd) > filled)
        self.is_mixed = bool(0 < np.count_nonzero(self.odd) < filled)
        self.is_words = not self.is_timed and (self.is_named or most)
        self.is_words &= all(isinstance(value, str) for value in values[self.odd])
        self.is_dates = self.is_timed or bool(
            self.odd.any()
            and self.is_words
            and all(_DATE.fullmatch(str(v).strip()) for v in values[self.odd][:50])
            and not self.is_named
        )

    @property
    def is_sorted(self) -> bool:
        """Whether its words are numbered in an order that nobody gave."""
        return self.coding == "ordinal" and self._order is None and bool(self.odd.any())

    @cached_property
    def words(self) -> Array:
        """Its values as words [N], "" for gaps."""
        found = np.empty(len(self.values), dtype=object)
        found[:] = [
            "" if gap else _text(number) if isinstance(value, _NUMBERS) else str(value).strip()
            for value, number, gap in zip(self.values, self.number, self.gaps, strict=True)
        ]
        return found

    @cached_property
    def known(self) -> list[str]:
        """Its different words in their order."""
        found = set(self.words[~self.gaps].tolist())
        if self.coding is not None and not isinstance(self.coding, str):
            return [*map(_text, self.coding)]
        if self.coding == "ordinal" and self._order is not None:
            return [word for word in self._order if word in found]
        return sorted(found, key=None if self.odd.any() else float)

    def how(self, wanted: Wanted) -> Read:
        """How the column becomes features, by its own values and what a config says."""
        words = tuple(self.known) if self.is_words else ()
        kind: Literal["number", "onehot", "ordinal", "ids"] = "number"
        if self.is_words:
            kind = "onehot" if self.coding == "onehot" else "ordinal"
            kind = "ids" if self.coding == "ids" else kind
        return Read(self.name, kind, words, wanted.fill == "indicator" and bool(self.gaps.any()))

    def parts(self, how: Read) -> Iterator[tuple[str, npt.NDArray[np.float64], bool, bool]]:
        """Features that the column becomes: name, values, whether it is of categories, and whether
        it stays as it is.
        """
        if how.kind == "onehot":
            for word in how.words:
                yield f"{self.name}={word}", (self.words == word).astype(np.float64), True, True
        elif how.kind == "number":
            yield self.name, self.number, False, False
        else:
            code = {word: float(place) for place, word in enumerate(how.words)}
            values = np.array([code.get(word, np.nan) for word in self.words])
            yield self.name, values, True, how.kind == "ids"
        if how.indicator:
            yield f"{self.name} is missing", self.gaps.astype(np.float64), False, True


def _check(table: Columns, columns: Sequence[Column], wanted: Wanted) -> None:
    """Refuse columns that hold no numbers, or have gaps: all at once.

    Raises:
        DataError: with what each holds, and the keys that read it.
    """
    said = []
    dates = [f"{one.name} ({_first(one)})" for one in columns if one.is_dates]
    if dates:
        said.append(f"dates in {_columns(dates)}: give a number of days, or leave them out")
    others = [one for one in columns if one.odd.any() and not one.is_dates and not one.is_named]
    commas = [one for one in others if all(map(_is_comma, one.values[one.odd][:50]))]
    if commas:
        said.append(
            f"numbers with commas in {_columns([one.name for one in commas])}: "
            f"{typed('dataset.decimal', ',')} with another dataset.separator reads decimal commas; "
            "those between thousands must be taken out"
        )
    others = [one for one in others if one not in commas]
    mixed = [one for one in others if not one.is_words or _signs(one)]
    for one in mixed:
        row = int(np.flatnonzero(one.odd)[0])
        signs = " and ".join(map(shown_sign, _signs(one)))
        cure = f" (take {signs} out)" if signs else ""
        said.append(
            f"{shown(one.values[row])} in column {one.name}, row {row + 1}: features must be "
            f"numbers{cure}"
        )
    words = [one for one in columns if one.is_words and not one.is_dates]
    words = [one for one in words if one not in commas and one not in mixed]
    many = [one.name for one in words if len(set(one.words[~one.gaps].tolist())) > _MOST]
    unsaid = [one for one in words if one.coding is None]
    if unsaid:
        each = [f"{one.name} ({_first(one)})" for one in unsaid]
        said.append(f"words in {_columns(each)}: features must be numbers")
    elif many:
        said.append(
            f"more than {_MOST} different words in {_columns(many)}: they are no categories"
        )
    some = [one.name for one in mixed if len(set(one.words.tolist())) <= _MOST]
    if unsaid or some:
        what = "words" if not some else f"all of {_columns(some)} as words"
        said[-1] += f"; {wanted.also(some, rest=bool(unsaid))} reads {what}"
    for one in words:
        if lacking := sorted({*one.words[~one.gaps].tolist()} - {*one.known}):
            said.append(
                f"{few(lacking)} in column {one.name}, which dataset.categories does not list: "
                f"{few(one.known)}"
            )
    gaps = [one for one in columns if one.gaps.any() and not one.is_dates]
    gaps = [one for one in gaps if not (one.is_words and one.coding == "onehot")]
    if wanted.fill is None and gaps:
        gaps.sort(key=lambda one: -int(one.gaps.sum()))  # those that a message has no room for last
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


def _signs(one: Column) -> list[str]:
    """The signs beside the numbers of a column that holds measurements rather than categories:
    others have none, or there are many of them.
    """
    odd = [str(value) for value in one.values[one.odd]]
    return signs_of(odd) if one.is_mixed or len(set(odd)) > _FEW else []


def _text(word: object) -> str:
    """How a word of an order is compared with those of a column: 1.0 is 1."""
    return f"{word:.15g}" if isinstance(word, int | float) else str(word).strip()


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
