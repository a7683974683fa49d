"""Columns of a table that are probably no inputs: numbers of rows, and what a label was made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedclust.datasets.columns import Array, NamedColumns
from fedclust.helpers.errors import counted, typed

if TYPE_CHECKING:
    from fedclust.datasets.column import Column

_INDEX = re.compile(r"unnamed: \d+|index|level_\d+|__index_level_\d+__|rownames?|", re.IGNORECASE)
_KEY = re.compile(r"(?i:(.*[^a-z])?(id|key|nr|no|number|uuid))|.*[a-z](Id|ID)")
_WHO = re.compile(r"(?i:patient|subject|subj|person|participant|pupil|customer)s?|(?i:pid|mrn)")
_FEW_KEYS = 10  # different keys, of fewer of which each may be a kind and not a person
_DIVIDED = 0.1  # of the keys, of fewer of which a second row is a slip of the table
_FEWEST = 20  # rows from which on a column that counts them, or equals the label, is no accident
_OFTEN = 8  # rows of a value, on average, from which on its having one class is no accident
_APART = 10  # rows beside the largest class, from which on one row more or less says nothing
_ERRORS = 0.02  # of these rows may be of another class than a column says
_ALIKE = 0.999  # a rank correlation with a target
_GAPS = [sign * (10**digits - 1) for sign in (-1, 1) for digits in range(1, 6)]  # -9, 99, 999, …
_TABLES = 4  # that were joined, of each of which a column numbers the rows


def without_slips(
    table: NamedColumns, columns: list[Column], label: Array, exclude: Sequence[str] | None
) -> list[Column]:
    """The columns without those that number the rows or repeat the label, each with a remark. Where
    others are excluded by name, they stay, and the remark says so.
    """
    index = [one.name for one in columns if _is_index(one)]
    empty = [n for one in columns if one.gaps.all() and _INDEX.fullmatch(n := one.name.strip())]
    slips = {*index, *empty}
    same = [one.name for one in columns if one.name not in slips and _repeats(one, label)]
    copy = "repeats the label" if label.ndim == 1 else "is a target in another unit"
    what = f"is no input; {typed('dataset.exclude', [])} keeps every column"
    if exclude:
        out = typed("dataset.exclude", [*exclude, *index, *empty, *same])
        what = f"is an input all the same; {out} leaves it out, too"
    why = {**dict.fromkeys(index, "numbers the rows"), **dict.fromkeys(empty, "is empty")}
    for name, reason in {**why, **dict.fromkeys(same, copy)}.items():
        table.remark(f"column {name} {reason} and {what}")
    if exclude:
        return columns
    return [one for one in columns if one.name not in {*slips, *same}]


def _is_index(one: Column) -> bool:
    """Whether a column holds the numbers of the table's rows in any order; where it is named as
    pandas names its index, also with holes, or of several tables that were joined.
    """
    x, size = one.number, len(one.number)
    if not size or not np.isfinite(x).all() or one.values.dtype.kind == "b":
        return False
    low, different = x.min(), len(np.unique(x))
    if _INDEX.fullmatch(one.name.strip()):
        whole = bool((x == np.floor(x)).all()) and low >= 0
        return whole and (different >= size / _TABLES or _counts_up(x))
    return bool(
        size >= _FEWEST and low in (0, 1) and x.max() == low + size - 1 and different == size
    )


def _counts_up(x: npt.NDArray[np.float64]) -> bool:
    """Whether nearly every number is one more than that before it."""
    return len(x) >= _FEWEST and float((np.diff(x) == 1).mean()) > 0.9


def _repeats(one: Column, label: Array) -> bool:
    """Whether every class has one value of its own, or a column is a target in another unit."""
    if len(label) < _FEWEST or one.gaps.any():
        return False
    if label.ndim > 1:
        off = one.number - one.number.mean()
        both = label - label.astype(np.float64).mean(0)
        sizes = np.linalg.norm(off) * np.linalg.norm(both, axis=0)
        return bool((np.abs(off @ both) > (1 - 1e-9) * sizes).any() and (sizes > 0).all())
    import pandas as pd

    try:
        codes, known = pd.factorize(one.values)
    except TypeError:  # lists, which are refused later
        return False
    classes = len(np.unique(label))
    return len(known) == classes == len(np.unique(codes * (label.max() + 1) + label))


def tell(
    table: NamedColumns,
    columns: Sequence[Column],
    label: Array,
    *,
    gaps: bool,
    out: Callable[[str], str],
) -> None:
    """Remark on inputs that may be none: numbers of a patient or a row, what the label, as
    `read_targets` gives it, was made of, and numbers that stand for a gap.

    Args:
        gaps: whether the gaps of a column become an input of their own.
        out: what leaves a column out, beside those that are out already.
    """
    rows = len(label)
    named = " ".join(table.remarks)
    for one in columns:
        tell_of_gaps(table, one.name, one.number, "an input")
        if rows < _FEWEST or f"column {one.name} " in named:
            continue
        plain = bool(np.isfinite(one.number).all())
        whole = plain and bool((one.number == np.floor(one.number)).all())
        different = len(set(one.values.tolist()))
        counts = whole and not _INDEX.fullmatch(one.name.strip()) and _counts_up(one.number)
        key = _KEY.fullmatch(one.name) is not None and (whole or one.is_words)
        # what begins anew for every client, as the days of a study, says when and not which row
        if (counts and different >= rows / _TABLES) or (key and different > rows / 2):
            what, cure = "of the row", f"{out(one.name)} leaves it out"
            if key and rows - different >= _FEW_KEYS:
                what = "of whom a row is"
                cure = f"{typed('dataset.unit', one.name)} leaves it out and keeps the rows of each"
                cure += " on one side of every split"
            table.remark(f"column {one.name}, an input, looks like a number {what}; {cure}")
        else:
            for remark in _telling(one, label, gaps=gaps, out=out):
                table.remark(remark)


def stands_for_a_gap(numbers: npt.NDArray[np.float64]) -> float | None:
    """A number such as -999 or 99 that comes more than once and is farther from all others than
    these lie apart; None where there is none.
    """
    if not numbers.size:
        return None
    for value in (float(numbers.min()), float(numbers.max())):
        others = numbers[numbers != value]
        if value not in _GAPS or len(numbers) - len(others) < 2 or not len(others):
            continue
        low, high = float(others.min()), float(others.max())
        if low < high and min(abs(value - low), abs(value - high)) > high - low:
            return value
    return None


def tell_of_gaps(
    table: NamedColumns, name: str, numbers: npt.NDArray[np.float64], what: str
) -> None:
    """Remark on a number of a column that seems to stand for a gap."""
    if (value := stands_for_a_gap(numbers[np.isfinite(numbers)])) is not None:
        count = counted(int((numbers == value).sum()), "row")
        cure = "leave the field empty (dataset.fill fills gaps)"
        if what != "an input":
            cure = "take these rows out"
        odd = f"column {name}, {what}, has {value:g} in {count}, far from all else"
        table.remark(f"{odd}; if it stands for a gap, {cure}")


def tell_of_units(
    table: NamedColumns,
    owner: Tensor | None,
    tests: Tensor,
    allowed: Literal["drawn", "cut", "fixed"],
) -> None:
    """Remark on columns of keys of which one is in training and test of a client: a model may know
    the patient.

    Args:
        table, owner: its natural client of every row [N] int64; None where all are of one.
        tests: [N] bool, which rows are for testing; none where a partition cuts them later.
        allowed: whether test rows are drawn, cut by the partition later, or fixed by the data.
    """
    import pandas as pd

    whose = np.zeros(table.size, dtype=np.int64) if owner is None else owner.numpy()
    named = [name for name in table.names if _KEY.fullmatch(name) or _WHO.fullmatch(name.strip())]
    for name in named:
        codes, known = pd.factorize(table.read(name))
        there, fewest = codes >= 0, 2 * len(np.unique(whose))
        several = int((np.bincount(codes[there]) > 1).sum())
        if not fewest <= len(known) or several < max(_FEW_KEYS, _DIVIDED * len(known)):
            continue
        key = whose[there] * len(known) + codes[there]  # of a client
        tested = tests.numpy()[there]
        both = np.intersect1d(key[tested], key[~tested])
        cure = f"{typed('dataset.unit', name)} keeps them together"
        where = "are in training and test of one client"
        if allowed == "cut":
            both = np.flatnonzero(np.bincount(key) > 1)
            where = "have several rows in one client, which may be in training and test of it"
        elif allowed == "fixed":
            cure = "the data should divide by it"
        if len(both):
            each = f"{there.sum() / len(known):.3g}"
            units = len(np.unique(both % len(known)))
            what = f"{name} has {each} rows each, and {units} of {len(known)} {where}"
            table.remark(f"{what}: {cure}")


def _telling(one: Column, label: Array, *, gaps: bool, out: Callable[[str], str]) -> Iterator[str]:
    """A remark where a column alone says the label, or a target, of nearly every row."""
    if label.ndim > 1 and label.dtype.kind == "f":
        known = np.isfinite(one.number)
        if not one.is_words and known.sum() >= _FEWEST:
            alike = max(_rank_correlation(one.number[known], y[known]) for y in label.T)
            if alike > _ALIKE:
                yield (
                    f"column {one.name}, an input, rises or falls with a target in nearly all rows "
                    f"(rank correlation {alike:.4f}); if it is the target in another unit, "
                    f"{out(one.name)} leaves it out"
                )
        return
    missing = one.gaps.astype(np.int64)
    for classes in label.reshape(len(label), -1).T:
        rest = len(classes) - np.bincount(classes).max()
        allowed = int(max(1, _ERRORS * rest)) if rest >= _APART else 0
        for name, wrong in (
            (f"column {one.name}, an input,", _wrong(one, classes)),
            (f"“{one.name} is missing”, an input,", _purest(missing, classes) if gaps else rest),
        ):
            if rest and wrong <= allowed < rest:
                but = f" in all but {counted(wrong, 'row')}" if wrong else ""
                what = f"{name} alone tells the classes apart{but}"
                yield f"{what}; if the label was made of it, {out(one.name)} leaves it out"
                return


def _wrong(one: Column, label: Array) -> int:
    """In how many rows the best rule by one column alone is wrong: a class for every value, where
    values come often, else a stretch of numbers for every class.
    """
    import pandas as pd

    values = one.number
    if one.is_words:
        values = np.array([str(value).strip() for value in one.values], dtype=object)
    codes = pd.factorize(values)[0] + 1  # 0 is a gap
    if codes.max() < len(label) / _OFTEN:
        return _purest(codes, label)
    known = np.isfinite(one.number)
    classes = np.unique(label[known])
    if one.is_words or len(label) - known.sum() > _ERRORS * len(label) or len(classes) < 2:
        return len(label)
    x, y = one.number[known], label[known]
    order = sorted(classes.tolist(), key=lambda k: float(np.median(x[y == k])))
    wrong = int(len(label) - known.sum())
    for below, above in pairwise(order):
        both = np.isin(y, (below, above))
        wrong += _cut(x[both], y[both] == above)
    return wrong


def _cut(x: npt.NDArray[np.float64], above: npt.NDArray[np.bool_]) -> int:
    """How many numbers are on the wrong side of the best threshold."""
    places = np.argsort(x, kind="stable")
    x, above = x[places], above[places]
    below = np.concatenate([np.cumsum(~above[::-1])[::-1], [0]])
    wrong = np.concatenate([[0], np.cumsum(above)]) + below
    ends = np.concatenate([[True], x[1:] != x[:-1], [True]])  # equal numbers stay together
    return int(wrong[ends].min())


def _purest(codes: npt.NDArray[np.int64], label: Array) -> int:
    """How many rows are of another class than most with their value."""
    table = np.zeros((int(codes.max()) + 1, int(label.max()) + 1), dtype=np.int64)
    np.add.at(table, (codes, label), 1)
    return int(table.sum() - table.max(1).sum())


def _rank_correlation(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> float:
    """Size of Spearman's coefficient; 0 where either is constant."""
    from scipy.stats import rankdata

    both = np.stack([rankdata(x), rankdata(y)])
    spread = both.std(1)
    return abs(float(np.corrcoef(both)[0, 1])) if (spread > 0).all() else 0.0
