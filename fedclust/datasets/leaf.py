"""The JSON files of LEAF (Caldas et al., arXiv 1812.01097): users with examples of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedclust.core.types import Dataset, Names
from fedclust.datasets.checks import checked, read
from fedclust.datasets.columns import few
from fedclust.datasets.fit import Fit
from fedclust.datasets.normalise import affine, unchanged
from fedclust.datasets.pictures import pictures, white
from fedclust.datasets.tokens import WORDS, Characters, Kind, Words, text_of
from fedclust.helpers.errors import DataError, require
from fedclust.helpers.files import plain_file
from fedclust.helpers.ranges import AtLeastOne, AtLeastThree, AtLeastTwo, Ranged, Side

_KEYS = {"users": list, "num_samples": list, "user_data": dict}
Users = dict[str, tuple[list[Any], list[Any]]]  # inputs and labels of every user


@dataclass(frozen=True, kw_only=True)
class Leaf(Ranged):
    """Users are natural clients, numbered in the sorted order of their names.

    Inputs are lists of numbers (FEMNIST, Synthetic), names of pictures (CelebA) or texts
    (Shakespeare, Sent140), which become token ids.

    Attributes:
        path: folder with `train/` and `test/`, each with JSON files; without `test/`,
            partition=natural cuts a test set of every user.
        side: of square images: flat pixels become [1, side, side], pictures are resized to
            [3, side, side]; None leaves numbers as they are.
        images: folder of the pictures whose names are the inputs; None where these are numbers.
        classes: None where all classes have training examples; else labels are 0, 1, … below
            it.
        normalise: none, or mean_std (per feature, or per channel of an image), of the training
            examples; pictures are divided by 255 with none, too.
        text: None where inputs are no texts; characters of texts of one length, of which the label
            may be one too, or words.
        length: words of a text, None for 25.
        vocabulary: most ids of words, the most frequent of the training examples and two of no
            word; None for all.
    """

    path: str
    side: Side | None = None
    images: str | None = None
    classes: AtLeastTwo | None = None
    normalise: Literal["none", "mean_std"] = "none"
    text: Kind | None = None
    length: AtLeastOne | None = None
    vocabulary: AtLeastThree | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = "a number of pixels with dataset.images, since pictures differ in size"
        require(self.images is None or self.side is not None, "dataset.side", self.side, allowed)
        if self.text is not None:
            for key, plain in (("side", None), ("images", None), ("normalise", "none")):
                given = getattr(self, key)
                require(given == plain, f"dataset.{key}", given, f"{plain or 'null'} of texts")
        if self.text != "words":
            for key in ("length", "vocabulary"):
                given = getattr(self, key)
                require(given is None, f"dataset.{key}", given, "null without dataset.text=words")

    def load(self) -> Dataset:
        """The arrays: [N, F] or [N, 1, side, side] float32, pictures as uint8, or token ids [N, L].

        Raises:
            DataError: a folder or file is missing or not as LEAF writes it; text without
                `text`; a label that no training example has.
        """
        folder = Path(self.path)
        train, test = _users(folder / "train"), {}
        if (folder / "test").exists():
            test = _users(folder / "test")
        names = sorted(train.keys() | test.keys())
        parts = [_part(folder / "train", train, names)]
        if any(len(y) for _, y in test.values()):
            parts.append(_part(folder / "test", test, names))
        lexicon = self._lexicon(parts)
        x_train, *more = (self._inputs(part, lexicon) for part in parts)
        x_test = more[0] if more else x_train[:0]
        codes, tests, known = self._classes(folder, parts, lexicon)
        word = "unit" if self.normalise == "none" and self.images is not None else self.normalise
        scale, shift = unchanged(x_train) if word == "none" else affine(word, x_train)
        return checked(
            Dataset(
                name=folder.name,
                x_train=x_train,
                y_train=codes,
                x_test=x_test,
                y_test=tests,
                num_classes=len(known),
                scale=scale,
                shift=shift,
                owner=parts[0].owner,
                test_owner=parts[1].owner if more else None,
                vocabulary=None if lexicon is None else lexicon.size,
                names=Names(clients=tuple(names), classes=known),
                fit=Fit(word) if word == "mean_std" and self.images is None else None,
            )
        )

    def _lexicon(self, parts: list[_Part]) -> Characters | Words | None:
        """What texts become ids by; None where inputs are no texts."""
        if self.text is None:
            return None
        texts = [[text_of(f"leaf: {part.folder}", one) for _, one in part.rows] for part in parts]
        if self.text == "words":
            return Words.of(texts[0], self.vocabulary, self.length or WORDS)
        letters = [str(y) for part in parts for y in part.labels if isinstance(y, str)]
        return Characters.of(text for some in (*texts, letters) for text in some)

    def _inputs(self, part: _Part, lexicon: Characters | Words | None) -> Tensor:
        folder, rows = part.folder, part.rows
        if lexicon is not None:
            what = f"leaf: {folder}"
            return lexicon.ids(what, [text_of(what, one) for _, one in rows])
        words = next((one for _, one in rows if _has_text(one)), None)
        if self.images is not None:
            return self._pictures(Path(self.images), [one for _, one in rows])
        if words is not None:
            shown = " ".join(str(words).split())[:40]
            raise DataError(
                f"leaf: {folder} has text as inputs ({shown}): dataset.text=characters or "
                "words makes token ids of it; names of pictures need dataset.images, the folder "
                "that holds them"
            )

        def numbers() -> list[npt.NDArray[np.float32]]:
            return [np.asarray(one, dtype=np.float32).reshape(-1) for _, one in rows]

        flat = read("leaf", folder, numbers, key="dataset.path")
        width = len(flat[0])
        if width == 0:
            raise DataError(f"leaf: {folder} has inputs without a number: give at least one")
        odd = next((i for i, one in enumerate(flat) if len(one) != width), None)
        if odd is not None:
            raise DataError(
                f"leaf: {folder} has inputs of {width} numbers, but {len(flat[odd])} in one of "
                f"user {rows[odd][0]}: all must be of one length"
            )
        x = torch.from_numpy(np.stack(flat))
        if self.side is None:
            return x
        allowed = f"inputs of {self.side**2} numbers, and {folder} has {width} in each"
        require(width == self.side**2, "dataset.side", self.side, allowed)
        return x.view(-1, 1, self.side, self.side)

    def _pictures(self, folder: Path, files: list[Any]) -> Tensor:
        odd = next((one for one in files if not isinstance(one, str)), None)
        allowed = "null, since the inputs are numbers and not names of pictures"
        require(odd is None, "dataset.images", self.images, allowed)
        most = white(str(folder / one) for one in files)
        sources = ((str(folder / one), str(folder / one)) for one in files)
        return pictures("leaf", "dataset.images", sources, len(files), self.side, False, most)

    def _classes(
        self, folder: Path, parts: list[_Part], lexicon: Characters | Words | None
    ) -> tuple[Tensor, Tensor, tuple[str, ...]]:
        """Labels of training and test examples, and the names of the classes."""
        given = [part.labels for part in parts]
        given = [*given, []] if len(given) == 1 else given
        if isinstance(lexicon, Characters) and any(isinstance(y, str) for y in given[0]):
            codes = [lexicon.classes(f"leaf: {folder}", labels) for labels in given]
            return codes[0], codes[1], tuple(lexicon.letters)
        train, test = map(np.asarray, given)
        for labels in (train, test):
            whole = labels.ndim == 1 and labels.dtype.kind in "iubf"
            if whole and labels.dtype.kind == "f":  # which holds no larger whole numbers apart
                whole = bool(((labels == np.floor(labels)) & (np.abs(labels) < 2**53)).all())
            if labels.size and not whole:
                raise DataError(f"leaf: {folder} has labels that are not whole numbers")
        if self.classes is not None:
            codes = [torch.from_numpy(labels.astype(np.int64)) for labels in (train, test)]
            # `checked` looks at their range
            return codes[0], codes[1], tuple(map(str, range(self.classes)))
        known, codes_train = np.unique(train, return_inverse=True)
        unseen = np.setdiff1d(test, known)
        if unseen.size:
            raise DataError(
                f"leaf: {folder} has test examples of class {unseen[0]}, which no training example "
                "has: dataset.classes says how many there are"
            )
        codes_test = np.searchsorted(known, test)
        names = tuple(f"{one:.0f}" if known.dtype.kind == "f" else str(one) for one in known)
        return torch.from_numpy(codes_train), torch.from_numpy(codes_test), names


@dataclass(frozen=True)
class _Part:
    """The examples of a folder, user after user: user and input, label, natural client."""

    folder: Path
    rows: list[tuple[str, Any]]
    labels: list[Any]
    owner: Tensor


def _part(folder: Path, users: Users, names: list[str]) -> _Part:
    rows = [(name, one) for name in names if name in users for one in users[name][0]]
    labels = [y for name in names if name in users for y in users[name][1]]
    if not rows:
        raise DataError(f"leaf: {folder} has no examples: give files with some")
    place = {name: i for i, name in enumerate(names)}
    return _Part(folder, rows, labels, torch.tensor([place[name] for name, _ in rows]))


def _json(file: Path) -> Any:
    return json.loads(file.read_bytes())


def _has_text(one: Any) -> bool:
    """Whether an input is a word, or a list that begins with one."""
    return isinstance(one, str) or (isinstance(one, list) and bool(one) and _has_text(one[0]))


def _users(folder: Path) -> Users:
    """The users of all JSON files of a folder."""
    return {user: data for some in users_by_file(folder) for user, data in some.items()}


def users_by_file(folder: Path) -> Iterator[Users]:
    """The users of each JSON file of a folder, inputs and labels, in the order of file names.

    Raises:
        DataError: there is no file, one is not as LEAF writes it, or a user stands twice.
    """
    files = sorted(folder.glob("*.json")) if folder.is_dir() else []
    if not files:
        raise DataError(
            f"leaf: {folder} holds no JSON file: set dataset.path to a folder with train/ and "
            "test/, as LEAF's preprocess.sh writes data/"
        )
    met = set[str]()
    for file in files:
        users: Users = {}
        plain_file(file, "leaf: ", "take it out of the folder")
        one = read("leaf", file, partial(_json, file), key="dataset.path")
        given = one if isinstance(one, dict) else {}
        lacking = [key for key, kind in _KEYS.items() if not isinstance(given.get(key), kind)]
        if lacking:
            raise DataError(
                f"leaf: {file} lacks {', '.join(lacking)}: LEAF's files have lists of users and "
                "num_samples, and user_data by user"
            )
        if len(one["users"]) != len(one["num_samples"]):
            raise DataError(f"leaf: {file} has not one entry of num_samples for each of users")
        for user, count in zip(map(str, one["users"]), one["num_samples"], strict=True):
            data = one["user_data"].get(user)
            parts = [data.get(key) for key in ("x", "y")] if isinstance(data, dict) else []
            sizes = [len(part) for part in parts if isinstance(part, list)]
            if sizes != [count, count]:
                raise DataError(
                    f"leaf: {file} has user {user} with num_samples {count}, but x and y of "
                    f"{' and '.join(map(str, sizes)) or 'none'}: all must agree"
                )
            if user in met:
                raise DataError(f"leaf: user {user} stands twice below {folder}: once is needed")
            met.add(user)
            users[user] = (data["x"], data["y"])
        untold = sorted(one["user_data"].keys() - set(map(str, one["users"])))
        if untold:
            raise DataError(
                f"leaf: {file} has user_data of {few(untold)}, whom users does not name: name them "
                "or take the data out"
            )
        yield users
