"""The inputs of a table: which columns are meant, and their values as numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedclust.core.task import Targets
from fedclust.datasets.checks import TOO_SMALL, vanishing
from fedclust.datasets.column import Coding, Column, Read, Word, is_number
from fedclust.datasets.columns import (
    ColumnName,
    NamedColumns,
    Owners,
    Unlabelled,
    few,
    listed,
    name_columns,
    shown,
)
from fedclust.datasets.signs import by_number, rank_of, shown_sign, signs_of
from fedclust.datasets.sites import tell_of_inputs
from fedclust.datasets.suspects import tell, tell_of_gaps, without_slips
from fedclust.helpers.errors import DataError, counted, require, typed
from fedclust.helpers.ranges import BelowOne, Ranged, Seed

Fill = Literal["median", "mean", "most_frequent", "indicator"]
# of all columns of words, or by the name of a column; a list is the order of its words
Categories = Coding | Mapping[str, Coding | Sequence[Word]]
_COMMA = re.compile(r"[-+]?\d*,\d+")
_MOST = 100  # different words that a column of categories may hold
_FEW = 10  # numbers with a sign that may be categories, as doses of 5 mg and 10 mg
_REST = "*"  # stands for the columns of words that dataset.categories does not name
_SHOWN = 5  # words of an order that a message shows
_CLASSES = 4  # numbers with holes between them, of more of which they may be a scale


@dataclass(frozen=True, kw_only=True)
class Tabular(Ranged):
    """What a config says of a table: what its columns mean, and how they become inputs. Classes and
    clients are numbered in sorted order.

    Attributes:
        path: of the data.
        label: column of the class, words or whole numbers; of another task the column, or
            columns, of what it predicts.
        features: columns of the inputs, None for all that are not used otherwise.
        exclude: columns that are no inputs; None leaves out those that number the rows or repeat
            the label, and says so.
        client: column of the natural client, for partition=natural, or several that name it
            together; None where there are none.
        group: column of the client's true group, None where there is none.
        unit: column of whom a row is, such as a patient, which is no input; all rows of one are on
            one side of every split. None where each row is by itself.
        test_share: share of the test set, drawn from the rows of every client, or from all; not
            used where the data name it. 0 leaves it to partition=natural.
        data_seed: seed of one draw for all seeds of a run, or with test_share=0 of the cut by
            partition=natural; None where each draws anew, so that differences between seeds tell of
            the choice of test rows, too.
        normalise: mean_std (per feature, of the training rows of all clients), client (of those
            of each client) or none.
        fill: what a gap becomes: median, mean or most_frequent value of the training rows of all
            clients (of the client's own with normalise=client); indicator takes the mean and adds a
            feature that says where there was none. None refuses gaps.
        categories: onehot (a feature for each word), ordinal (their numbers in sorted order, or
            in the order that parquet knows) or ids (these numbers, 0, 1, …, which are not scaled,
            for a network that looks them up); a word that no training row has is unknown. A mapping
            says so of columns by name, also of such with whole numbers, and under * of all other
            words; a list is the order of a column's words. None refuses words.
        unlabelled: drop leaves out rows without a value of the label, refuse refuses them.
    """

    path: str
    label: ColumnName | Sequence[ColumnName] = "label"
    features: Sequence[ColumnName] | None = None
    exclude: Sequence[ColumnName] | None = None
    client: ColumnName | Sequence[ColumnName] | None = None
    group: ColumnName | None = None
    unit: ColumnName | None = None
    test_share: BelowOne = 0.2
    data_seed: Seed | None = None
    normalise: str = "mean_std"
    fill: Fill | None = None
    categories: Categories | None = None
    unlabelled: Unlabelled = "refuse"

    def __post_init__(self) -> None:
        super().__post_init__()
        name_columns(self, "label", "features", "exclude", "client", "group", "unit")
        allowed = "null with dataset.features, which names all inputs"
        one = self.features is None or self.exclude is None
        require(one, "dataset.exclude", self.exclude, allowed)
        client = self.owners
        some = client is None or len(client) > 0
        require(some, "dataset.client", client, "a column, several, or null")
        apart = not {*listed(self.label)} & {*listed(client)}
        allowed = "another column than dataset.client, by which every row would be told right"
        require(apart, "dataset.label", self.label, allowed)
        allowed = "null without dataset.client, since a client's group is meant"
        require(self.group is None or client is not None, "dataset.group", self.group, allowed)
        fits = self.test_share > 0 or self.names_tests or client is not None
        allowed = "above 0 without dataset.client; with it partition=natural can cut a test set "
        require(fits, "dataset.test_share", self.test_share, f"{allowed}per client")

    @property
    def owners(self) -> str | Sequence[str] | None:
        """The column, or columns, of the client."""
        return self.client

    @property
    def names_tests(self) -> bool:
        """Whether the data say themselves what is for testing."""
        return False

    @property
    def used(self) -> list[str]:
        """The columns that are no inputs, those of the label first."""
        return [
            name for one in (self.label, self.owners, self.group, self.unit) for name in listed(one)
        ]

    def tests(self, table: NamedColumns) -> Tensor | None:
        """Which rows are for testing, [N] bool; None where they are drawn."""
        raise NotImplementedError

    def examples(self, table: NamedColumns, label: Tensor, whose: Owners) -> Inputs | Tensor:
        """Features, or pictures [N, C, H, W] uint8."""
        return read_inputs(table, self, label, whose)

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
class Inputs:
    """Features by name."""

    x: npt.NDArray[np.float64]  # [N, F] float64, NaN where a gap is to be filled
    names: tuple[str, ...]  # of the features
    # [F] bool, of categories: a value that no training row has is unknown
    coded: npt.NDArray[np.bool_]
    # [F] bool, whether something holds, as 0 or 1: a word of a column, or that it has a gap; and
    # ids. They are not scaled.
    flags: npt.NDArray[np.bool_]
    columns: tuple[Read, ...]  # how each column became some of them


def read_targets(
    table: NamedColumns, columns: str | Sequence[str], targets: Targets
) -> tuple[Tensor, tuple[str, ...]]:
    """What a task predicts from columns of dataset.label, and its names: classes [N] int64, numbers
    [N, T] float64 or flags [N, T] uint8.

    Raises:
        ConfigError: several columns of classes.
        DataError: a column has gaps, or holds what the task does not predict.
    """
    names = listed(columns)
    if targets == "classes":
        allowed = "one column with task=classification"
        require(len(names) == 1, "dataset.label", columns, allowed)
        y, known = table.classes(names[0])
        if all(map(is_number, known)):
            numbers = np.array(known, dtype=np.float64)
            tell_of_gaps(table, names[0], numbers[y.numpy()], "the label")
            if len(known) > _CLASSES and numbers.max() - numbers.min() >= len(known):
                table.remark(
                    f"the {len(known)} numbers of column {names[0]}, {few(known)}, are taken as "
                    "classes without an order; task=regression predicts numbers"
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
        tell_of_gaps(table, one.name, one.number, "a target")
    events = [one.name for one in read if set(one.number.tolist()) == {0, 1}]
    times = [one.name for one in read if one.name not in events and one.number.min() >= 0]
    if targets == "numbers" and len(events) == len(times) == 1 and len(read) == 2:
        table.remark(
            f"targets {times[0]} and {events[0]}, which is 0 or 1, are predicted as "
            "two numbers; if they are a time and whether something happened by then, nothing here "
            "knows of censoring"
        )
    y = torch.from_numpy(np.stack([one.number for one in read], axis=1))
    return y.to(torch.float64 if targets == "numbers" else torch.uint8), tuple(names)


def read_inputs(table: NamedColumns, wanted: Tabular, label: Tensor, whose: Owners) -> Inputs:
    """The features of a table, with remarks on columns that repeat the label, see `read_targets`,
    or differ between clients.

    Raises:
        DataError: there are none, or some hold no finite numbers; all such columns are named.
    """
    table.known("dataset.features", wanted.features or ())
    table.known("dataset.exclude", wanted.exclude or ())
    used = wanted.used
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
    tell_of_inputs(table, columns, whose, apart=apart, indicated=indicated)
    for one in (one for one in columns if one.is_words):
        table.tell_alike(one.name, one.known)
        if one.is_mixed and not one.is_named:
            number = one.words[np.isfinite(one.number)][0]
            mixes = f"column {one.name} mixes words with numbers such as {number}"
            table.remark(f"{mixes}: all of it is read as words")
        if one.is_sorted and len(one.known) > 2:
            order_of = "the order of its numbers" if by_number(one.known) else "sorted order"
            order = typed("dataset.categories", {one.name: ["first", "second", "third"]})
            shown_order = f"{order_of}, {_in_order(one.known)}"
            table.remark(f"column {one.name} is numbered in {shown_order}; {order} gives another")
        if one.coding == "onehot" and not indicated and one.gaps.any():
            rows = counted(int(one.gaps.sum()), "row")
            whatever = "all its inputs are 0 there, whatever dataset.fill says"
            table.remark(f"column {one.name} has no word in {rows}: {whatever}")
    return features_of([(one, one.how(indicated=indicated)) for one in columns])


def _in_order(words: Sequence[str]) -> str:
    """Some words of an order: the first, or those around the first number below the one before."""
    ranks = [rank_of(word) for word in words]
    falls = (
        place
        for place, (one, after) in enumerate(pairwise(ranks))
        if one is not None and after is not None and after[0] < one[0]
    )
    start = max(0, next(falls, 0) - _SHOWN // 2)
    some = words[start : start + _SHOWN]
    before, behind = ["…"] * (start > 0), ["…"] * (start + _SHOWN < len(words))
    return " < ".join([*before, *some, *behind])


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


def _check(table: NamedColumns, columns: Sequence[Column], wanted: Tabular) -> None:
    """Refuse columns that hold no numbers, or have gaps: all at once."""
    faults = []
    dates = [f"{one.name} ({_first(one)})" for one in columns if one.is_dates]
    if dates:
        faults.append(f"dates in {_columns(dates)}: give a number of days, or leave them out")
    others = [one for one in columns if one.odd.any() and not one.is_dates and not one.is_named]
    commas = [one for one in others if 2 * _commas(one) > one.odd.sum()]
    if commas:
        faults.append(
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
        where = f"{shown(one.values[row])} in column {one.name}, row {row + 1}"
        faults.append(f"{where}: features must be numbers{cure}")
    words = [one for one in columns if one.is_words and not one.is_dates]
    words = [one for one in words if one not in commas and one not in mixed]
    many = [one.name for one in words if len(set(one.words[~one.gaps].tolist())) > _MOST]
    unsaid = [one for one in words if one.coding is None]
    if unsaid:
        each = [f"{one.name} ({_first(one)})" for one in unsaid]
        faults.append(f"words in {_columns(each)}: features must be numbers")
    elif many:
        what = f"more than {_MOST} different words in {_columns(many)}"
        faults.append(f"{what}: they are no categories")
    some = [one.name for one in mixed if len(set(one.words.tolist())) <= _MOST]
    if unsaid or some:
        what = "words" if not some else f"all of {_columns(some)} as words"
        faults[-1] += f"; {wanted.also(some, rest=bool(unsaid))} reads {what}"
    if unsaid and not listed(wanted.owners):
        faults[-1] += "; dataset.client names the column of the clients"
    for one in words:
        if lacking := sorted({*one.words[~one.gaps].tolist()} - {*one.known}):
            where = f"{few(lacking)} in column {one.name}"
            faults.append(f"{where}, which dataset.categories does not list: {few(one.known)}")
    gaps = [one for one in columns if one.gaps.any() and not one.is_dates]
    gaps = [one for one in gaps if not (one.is_words and one.coding == "onehot")]
    if wanted.fill is None and gaps:
        gaps.sort(key=lambda one: -int(one.gaps.sum()))  # those that a message has no room for last
        each = [f"{one.name} ({counted(int(one.gaps.sum()), 'row')})" for one in gaps]
        first = f", first in row {int(np.flatnonzero(gaps[0].gaps)[0]) + 1}"
        faults.append(f"no value in {_columns(each)}{first}: dataset.fill=median fills gaps")
    if faults:
        out = "; dataset.exclude or dataset.features leaves columns out"
        raise DataError(f"{table.what} has {'; and '.join(faults)}{out}")
    for one in columns:
        if one.gaps.all():
            raise DataError(
                f"{table.what} has no value in any row of column {one.name}: "
                "dataset.exclude leaves it out"
            )
        numbers = one.number[~np.isnan(one.number)]
        if largest := vanishing(numbers):
            most = f"at most {largest:.2g} in column {one.name}"
            raise DataError(f"{table.what} has {most}: {TOO_SMALL}")
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


def _columns(names: Sequence[str]) -> str:
    return f"{'columns' if names[1:] else 'column'} {few(names)}"


def _first(one: Column) -> str:
    row = int(np.flatnonzero(one.odd)[0]) if one.odd.any() else int(np.flatnonzero(~one.gaps)[0])
    return f"{shown(one.values[row])} in row {row + 1}"


def _commas(one: Column) -> int:
    """How many of its values are numbers with a comma."""
    return sum(bool(_COMMA.fullmatch(str(value).strip())) for value in one.values[one.odd])
