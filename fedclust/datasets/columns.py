"""Columns of a table by name: classes, natural clients and groups."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedclust.helpers.errors import DataError, counted, some_of
from fedclust.helpers.ranges import MOST, Range

Array = npt.NDArray[Any]
if TYPE_CHECKING:
    ColumnName = str
else:  # a whole number may be typed, which `name_columns` makes the name
    ColumnName = str | Annotated[int, Range(-MOST, MOST)]
Unlabelled = Literal["refuse", "drop"]  # rows without an outcome
_SHOWN = 8  # names that a message lists
_GAPS = {"nan", "na", "n/a", "null", "none", "?", "-", "missing"}
# what stands for a gap in a column of words whose gaps are to be left out
_ABSENT = ("", "NA", "N/A", "#N/A", "<NA>", "NaN", "nan", "null", "NULL", "?")
_MOST, _FEWEST = 100, 20  # whole numbers that are classes, and rows of each of more


@dataclass(frozen=True, kw_only=True)
class NamedColumns:
    """A table whose columns are read by name."""

    what: str  # file or folder, for messages
    names: Sequence[str]  # of the columns, in order
    read: Callable[[str], Array]  # the values [N] of a column
    size: int  # N
    first: int = 0  # how many of the rows are before those of a second part, which are for testing
    # what the numbers of a column stand for, in their order; None for themselves
    called: Callable[[str], Sequence[str] | None] = lambda _: None
    # the words of a column in an order that the file gives them; None where it gives none
    order: Callable[[str], Sequence[str] | None] = lambda _: None
    # what a reader of the results must know of the table, one line each
    remarks: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        twice = [name for name, times in Counter(self.names).items() if times > 1]
        if twice:
            raise DataError(
                f"{self.what} has several columns named {few(twice)}: give each a name of its own"
            )

    def known(self, key: str, names: Sequence[str]) -> None:
        """Raise a `DataError` unless all columns that the config key names are there."""
        for name in names:
            if name not in self.names:
                raise DataError(
                    f"{self.what} has no column {shown(name)}, which {key} names: it has "
                    f"{few(self.names)}"
                )

    def labelled(self, label: Sequence[str], unlabelled: Unlabelled) -> NamedColumns:
        """The table, with `unlabelled` drop without the rows that lack a value of the label."""
        import pandas as pd

        names = [name for name in label if name in self.names]
        if unlabelled != "drop" or not names:
            return self
        values = [pd.Series(self.read(name)) for name in names]
        gaps = np.any([(one.isna() | one.astype(str).isin(_ABSENT)) for one in values], axis=0)
        kept = np.flatnonzero(~gaps)
        if len(kept) == self.size:
            return self
        left_out = (
            f"{counted(int(gaps.sum()), 'row')} of {self.size} without a value in {few(names)}"
        )
        self.remark(f"{left_out} {'is' if gaps.sum() == 1 else 'are'} left out")
        first = int((kept < self.first).sum())
        return replace(self, read=lambda name: self.read(name)[kept], size=len(kept), first=first)

    def whole(self, names: Sequence[str], label: Sequence[str] = ()) -> None:
        """Raise a `DataError` that tells of all columns of these and the label with gaps."""
        import pandas as pd

        gaps = {name: np.flatnonzero(pd.isna(self.read(name))) for name in names}
        lacking = [
            f"{name}, row {rows[0] + 1}{f' and {len(rows) - 1} more' if len(rows) > 1 else ''}"
            for name, rows in gaps.items()
            if len(rows)
        ]
        if lacking:
            last = all(rows.tolist() in ([], [self.size - 1]) for rows in gaps.values())
            cure = ", which may be one of totals, out" if last and self.size > 1 else " out"
            if any(len(gaps.get(name, ())) for name in label):
                cure += "; dataset.unlabelled=drop leaves out all rows without an outcome"
            where = f"column {'; in '.join(lacking)}"
            raise DataError(f"{self.what} has no value in {where}: fill it or take the row{cure}")

    def values(self, key: str, name: str) -> Array:
        """The values of the column that the config key names, [N], none of them missing; words
        without the blanks around them.

        Raises:
            DataError: there is no such column, or it has gaps.
        """
        self.known(key, [name])
        values = self.read(name)
        self.whole([name])
        return self.trimmed(name, values)

    def remark(self, text: str) -> None:
        """Add a remark on the table."""
        self.remarks.append(f"{self.what}: {text}")

    def trimmed(self, name: str, values: Array) -> Array:
        """Values [N] of which words lose the blanks around them; a remark tells of them."""
        if values.dtype.kind != "O":
            return values
        bare = [value.strip() if isinstance(value, str) else value for value in values]
        padded = [old for old, new in zip(values, bare, strict=True) if old is not new]
        padded = [old for old in padded if isinstance(old, str) and old != old.strip()]
        if not padded:
            return values
        self.remarks.append(
            f"{self.what}, column {name}: blanks around words are left out, as in {padded[0]!r} "
            f"({len(padded)} rows)"
        )
        kept = np.empty(len(values), dtype=object)
        kept[:] = bare
        return kept

    def classes(self, name: str) -> tuple[Tensor, tuple[str, ...]]:
        """Labels [N] int64 and the names of the classes: the distinct values of a column in sorted
        order.

        Raises:
            DataError: they are fractions, of several kinds, or numbers to predict as such.
        """
        values = self.values("dataset.label", name)
        if values.dtype.kind == "f" and (values != np.floor(values)).any():
            odd = values[values != np.floor(values)][0]
            raise DataError(
                f"{self.what} has {odd} in column {name}, which dataset.label names: classes must "
                "be words or whole numbers; task=regression predicts numbers"
            )
        y, names = self._codes(name, values)
        if values.dtype.kind in "uif" and len(names) > max(_MOST, len(values) / _FEWEST):
            raise DataError(
                f"{self.what} has {len(names)} different whole numbers in {len(values)} rows of "
                f"column {name}: task=regression predicts them; more than {_MOST} classes of fewer "
                f"than {_FEWEST} rows each must be words"
            )
        return y, names

    def clients(self, client: str | Sequence[str] | None, group: str | None) -> Owners:
        """Natural client of every row and true group of every client.

        Clients and groups are numbered in the sorted order of their names. The values of several
        columns together make a client.

        Raises:
            DataError: a client is in two groups.
        """
        if client is None:
            return Owners()
        columns = [client] if isinstance(client, str) else client
        parts = [self._codes(name, self.values("dataset.client", name)) for name in columns]
        owner, names = parts[0]
        for codes, more in parts[1:]:
            both, owner = torch.unique(owner * len(more) + codes, return_inverse=True)
            names = tuple(f"{names[k // len(more)]}/{more[k % len(more)]}" for k in both.tolist())
        if group is None:
            return Owners(of_row=owner, names=names)
        of_row, groups = self._codes(group, self.values("dataset.group", group))
        of_client = torch.empty(len(names), dtype=torch.int64)
        of_client[owner] = of_row
        other = torch.nonzero(of_client[owner] != of_row).flatten()
        if len(other):
            row = int(other[0])
            both_groups = sorted([int(of_client[owner[row]]), int(of_row[row])])
            raise DataError(
                f"{self.what} has client {names[int(owner[row])]} in the groups "
                f"{' and '.join(groups[one] for one in both_groups)} of column {group}: one each "
                "is needed"
            )
        return Owners(of_row=owner, names=names, group=of_client, groups=groups)

    def units(self, name: str) -> Tensor:
        """The number of every row's unit, as dataset.unit names its column, [N] int64."""
        return self._codes(name, self.values("dataset.unit", name))[0]

    def _codes(self, name: str, values: Array) -> tuple[Tensor, tuple[str, ...]]:
        """Numbers of the values among the distinct ones, sorted, [N] int64, and their names."""
        try:
            known, codes = np.unique(values, return_inverse=True)
        except (TypeError, ValueError) as error:  # words and numbers have no order
            raise DataError(
                f"{self.what} has values of several kinds in column {name}: words or numbers are "
                "needed"
            ) from error
        whole = known.dtype.kind == "f" and bool((known == np.floor(known)).all())
        if called := self.called(name):
            names = tuple(called[value] for value in known)
        else:
            names = tuple(f"{value:.0f}" if whole else str(value) for value in known)
        for one in names:
            if one.lower() in _GAPS:
                self.remarks.append(f"{self.what}, column {name}: {one!r} is a name like any other")
        self.tell_alike(name, names)
        return torch.from_numpy(codes.reshape(-1).astype(np.int64)), names

    def tell_alike(self, name: str, words: Sequence[str]) -> None:
        """Remark on different words of a column that look alike."""
        alike: dict[str, list[str]] = {}
        for one in words:
            alike.setdefault(_seen(one), []).append(one)
        for same in (same for same in alike.values() if len(same) > 1):
            bare = {" ".join(one.casefold().split()) for one in same}
            how = "differ in capitals or blanks only" if len(bare) == 1 else "look alike"
            self.remarks.append(
                f"{self.what}, column {name}: {' and '.join(map(repr, same))} {how}, and count as "
                "different"
            )


def only_named(what: str, names: Iterable[str]) -> NamedColumns:
    """Columns of which only the names are looked at; a `DataError` if two have one name."""
    return NamedColumns(what=what, names=[*names], read=lambda _: np.empty(0), size=0)


def no_values() -> list[str]:
    """The texts that stand for no value in a column of inputs: those of pandas, and ?."""
    from pandas._libs.parsers import STR_NA_VALUES  # type: ignore[import-not-found]

    return [*STR_NA_VALUES, "?"]


@dataclass(frozen=True, kw_only=True)
class Owners:
    """Whose the rows of a table are."""

    of_row: Tensor | None = None  # [N] int64 natural client of every row; None where there are none
    names: tuple[str, ...] = ()  # of the clients
    group: Tensor | None = None  # [M] int64 true group of every client; None where there are none
    groups: tuple[str, ...] = ()  # names of the groups


def _seen(name: str) -> str:
    """What tells a name from others at sight: no capitals, blanks, or ways to write a letter."""
    letters = unicodedata.normalize("NFKC", name.casefold())
    return " ".join("".join(one for one in letters if unicodedata.category(one) != "Cf").split())


def name_columns(options: object, *keys: str) -> None:
    """Make names of the whole numbers among the columns that options of a frozen part name."""
    for key in keys:
        given = getattr(options, key)
        if isinstance(given, int) or (given is not None and not isinstance(given, str)):
            names = str(given) if isinstance(given, int) else [str(name) for name in given]
            object.__setattr__(options, key, names)


def listed(columns: str | Sequence[str] | None) -> list[str]:
    """The columns that an option names."""
    return [columns] if isinstance(columns, str) else list(columns or ())


def shown(value: object) -> str:
    """A value as a message shows it: the first 40 letters on one line, quoted if blanks matter."""
    text = " ".join(str(value).split())[:40]
    return repr(str(value)[:40]) if isinstance(value, str) and value.strip() != value else text


def few(names: Sequence[str]) -> str:
    """The first few names."""
    return some_of([repr(n) if n.strip() != n else n for n in map(str, names)], _SHOWN)
