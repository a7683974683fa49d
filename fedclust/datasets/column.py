"""One column of a table: numbers, with NaN for gaps, or words, and the features that it becomes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, cast

import numpy as np
import numpy.typing as npt

from fedclust.datasets.columns import Array
from fedclust.datasets.signs import by_number
from fedclust.helpers.ranges import MOST, Range

Coding = Literal["onehot", "ordinal", "ids"]
Word = str | Annotated[float, Range(-MOST, MOST)]
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ].*)?")
_NUMBERS = (int, float, np.integer, np.floating)


@dataclass(frozen=True)
class Read:
    """How a column becomes features, of rows that were never seen before too."""

    name: str  # of the column
    # number; onehot, a feature for each word; ordinal, the number of its word; ids, the same for a
    # network that looks it up
    kind: Literal["number", "onehot", "ordinal", "ids"]
    words: tuple[str, ...] = ()  # that it may hold, in order
    indicator: bool = False  # whether a feature says where there was no value


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
            self.odd = np.array([self.is_timed or not is_number(v) for v in values]) & ~self.gaps
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
        words = np.empty(len(self.values), dtype=object)
        words[:] = [
            "" if gap else _text(number) if isinstance(value, _NUMBERS) else str(value).strip()
            for value, number, gap in zip(self.values, self.number, self.gaps, strict=True)
        ]
        return words

    @cached_property
    def known(self) -> list[str]:
        """Its different words in their order."""
        words = set(self.words[~self.gaps].tolist())
        if self.coding is not None and not isinstance(self.coding, str):
            return [*map(_text, self.coding)]
        if self.coding == "ordinal" and self._order is not None:
            return [word for word in self._order if word in words]
        if self.is_sorted and (ordered := by_number(words)):
            return ordered
        return sorted(words, key=None if self.odd.any() else float)

    def how(self, *, indicated: bool) -> Read:
        """How the column becomes features, by its own values and what a config says; whether with
        one that says where there was no value, `indicated`.
        """
        words = tuple(self.known) if self.is_words else ()
        kind: Literal["number", "onehot", "ordinal", "ids"] = "number"
        if self.is_words:
            kind = "onehot" if self.coding == "onehot" else "ordinal"
            kind = "ids" if self.coding == "ids" else kind
        return Read(self.name, kind, words, indicated and bool(self.gaps.any()))

    def parts(self, how: Read) -> Iterator[tuple[str, npt.NDArray[np.float64], bool, bool]]:
        """Features of the column: name, values, whether of categories, whether they stay."""
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


def _text(word: object) -> str:
    """How a word of an order is compared with those of a column: 1.0 is 1."""
    return f"{word:.15g}" if isinstance(word, int | float) else str(word).strip()


def is_number(value: object) -> bool:
    """Whether a value of a table is a number, or text that is one."""
    try:
        float(cast(Any, value))
    except (TypeError, ValueError, OverflowError):
        return False
    return "_" not in str(value)  # which Python's own numbers may hold
