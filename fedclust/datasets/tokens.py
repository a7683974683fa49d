"""Token ids: integers of a file, or the characters or words of texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedclust.helpers.errors import DataError

Kind = Literal["characters", "words"]
PADDING, UNKNOWN = 0, 1  # ids of words
WORDS = 25  # of a text, as LEAF's models of Sent140 read them
# those of LEAF's models of Shakespeare
LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
_SHOWN = 40
_WORD = re.compile(r"[\w']+|[.,!?;]")


def as_ids(what: str, x: npt.NDArray[Any], vocabulary: int) -> Tensor:
    """Token ids [N, *shape] in the smallest type that holds the vocabulary V; `what` begins
    messages. Raises `DataError` if they are no integers, or one lies outside 0 to V - 1.
    """
    if x.dtype.kind not in "ui":
        raise DataError(f"{what} of type {x.dtype}: token ids are integers")
    if x.size and (x.min() < 0 or x.max() >= vocabulary):
        odd = x.min() if x.min() < 0 else x.max()
        allows = f"dataset.vocabulary={vocabulary} allows 0 to {vocabulary - 1}"
        raise DataError(f"{what} with token id {odd}, but {allows}")
    kinds = (np.uint8, np.int16, np.int32, np.int64)
    kind = next(one for one in kinds if vocabulary - 1 <= np.iinfo(one).max)
    return torch.from_numpy(np.ascontiguousarray(x.astype(kind)))


@dataclass(frozen=True)
class Characters:
    """The letters of texts: LEAF's 80 where they suffice, else those that occur, sorted."""

    letters: str  # all of them; the place of one is its id

    @classmethod
    def of(cls, texts: Iterable[str]) -> Characters:
        """The letters of all texts, tests among them: they are an alphabet, and say nothing."""
        seen = set().union(*texts)
        return cls(LETTERS if seen <= set(LETTERS) else "".join(sorted(seen)))

    @property
    def size(self) -> int:
        """V."""
        return len(self.letters)

    @cached_property
    def _place(self) -> dict[str, int]:
        return {letter: place for place, letter in enumerate(self.letters)}

    def ids(self, what: str, texts: Sequence[str]) -> Tensor:
        """The ids of texts of one length, [N, L]; `DataError` if they differ or are empty."""
        lengths = {len(text) for text in texts}
        if len(lengths) > 1 or 0 in lengths:
            raise DataError(
                f"{what} has texts of {min(lengths)} to {max(lengths)} characters: those of one "
                "length, at least 1, are needed; dataset.text=words takes any"
            )
        place = self._place
        rows = np.array([[place[letter] for letter in text] for text in texts], np.int64)
        return as_ids(what, rows.reshape(len(texts), -1), self.size)

    def classes(self, what: str, labels: Sequence[Any]) -> Tensor:
        """The ids of labels, [N] int64. Raises `DataError` if one is no character."""
        odd = next((y for y in labels if str(y) not in self._place), None)
        if odd is not None:
            raise DataError(f"{what} has the label {odd}: with characters all must be one of them")
        return torch.tensor([self._place[str(y)] for y in labels], dtype=torch.int64)


@dataclass(frozen=True)
class Words:
    """The most frequent words of training texts, in small letters.

    Id 0 is padding, in front of short texts; 1 is a word that is not among them.
    """

    words: tuple[str, ...]  # by falling frequency; that of place i has the id i + 2
    length: int  # L, words of a text; what is longer is cut behind

    @classmethod
    def of(cls, texts: Iterable[str], vocabulary: int | None, length: int) -> Words:
        """The words of training texts, `vocabulary` ids at most."""
        count = Counter(word for text in texts for word in _split(text))
        order = sorted(count, key=lambda word: (-count[word], word))
        return cls(tuple(order if vocabulary is None else order[: vocabulary - 2]), length)

    @property
    def size(self) -> int:
        """V."""
        return len(self.words) + 2

    @cached_property
    def _place(self) -> dict[str, int]:
        return {word: place + 2 for place, word in enumerate(self.words)}

    def ids(self, what: str, texts: Sequence[str]) -> Tensor:
        """The ids of texts, [N, L]."""
        rows = np.full((len(texts), self.length), PADDING, np.int64)
        for row, text in enumerate(texts):
            known = [self._place.get(word, UNKNOWN) for word in _split(text)[: self.length]]
            if known:
                rows[row, -len(known) :] = known
        return as_ids(what, rows, self.size)


def text_of(what: str, given: Any) -> str:
    """The text of an input: itself, or the last of a list, as in Sent140; else `DataError`."""
    text = given[-1] if isinstance(given, list) and given else given
    if not isinstance(text, str):
        odd = f"{what} has the input {str(given)[:_SHOWN]}, which is no text"
        raise DataError(f"{odd}: dataset.text=null reads them")
    return text


def _split(text: str) -> list[str]:
    """Words and signs, as LEAF cuts them."""
    return _WORD.findall(text.lower())
