"""A user's own arrays: one npz file in the layout of Keras (x_train, y_train, x_test, y_test)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedclust.core.task import Targets
from fedclust.core.types import Dataset, Names
from fedclust.datasets.checks import TOO_SMALL, checked, read, vanishing
from fedclust.datasets.copies import told_of_copies
from fedclust.datasets.fit import Fit
from fedclust.datasets.normalise import Word, affine, as_float32, centre, unchanged
from fedclust.datasets.publishers import PUBLISHERS
from fedclust.datasets.tokens import as_ids
from fedclust.datasets.view import PER_IMAGE, Augment, check_view, view_of
from fedclust.helpers.errors import DataError, require
from fedclust.helpers.files import plain_file
from fedclust.helpers.ranges import AtLeastTwo, Ranged, Side

_KEYS = ("x_train", "y_train", "x_test", "y_test")
_BEGINNINGS = (b"PK", b"\x93NUMPY")  # of files of np.savez, and of np.save
_CLIENTS = ("client_train", "client_test", "clients")  # where natural clients are known
_SHOWN = 5  # absent classes
_APART = 10  # times the least standard deviation of a row
_Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Npz(Ranged):
    """Images (N, H, W) or (N, H, W, C), or features (N, F); integer labels 0, 1, … without gaps, or
    the targets of another task: numbers (N,) or (N, T), or flags (N, T).

    client_train and client_test, whole numbers 0, 1, … (N,), are the natural clients, and clients
    (M,) are their names; without test examples partition=natural cuts some of every client.

    Attributes:
        path: the npz file, written by `np.savez` or `np.savez_compressed`.
        normalise: mean_std (per channel or feature) and pixel take the statistics of the training
            examples; by_row is mean_std of every row H, which is the channel of a series;
            unit, inverted and per_image (every image minus its own mean, over its own standard
            deviation) need uint8; none leaves the values as they are.
        crop, augment: of images, see `fedclust.datasets.view.ImageToInput`.
        vocabulary: number of token ids 0, 1, … where x are these, integers (N, L), which a model
            sees as they are; None where x are numbers.
        classes: None where all classes have training examples; else labels are 0, 1, … below it,
            as the next token of a vocabulary.
    """

    path: str
    normalise: Word | Literal["by_row", "per_image", "none"] = "mean_std"
    crop: Side | None = None
    augment: Augment = "none"
    vocabulary: AtLeastTwo | None = None
    classes: AtLeastTwo | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_view(self.normalise, self.crop)
        plain = self.vocabulary is None or self.normalise in ("mean_std", "none")
        allowed = "none, or left as it is, with dataset.vocabulary: token ids have no scale"
        require(plain, "dataset.normalise", self.normalise, allowed)

    def load(self, targets: Targets = "classes") -> Dataset:
        """The arrays for a task that needs `targets`: uint8 stays uint8, everything else becomes
        float32; the classes are those of y_train.

        Raises:
            DataError: the file is missing, corrupt or lacks an array, an array has a wrong shape
                or label, or a class has no training example.
        """
        cure = f"set dataset.path to a file that holds {', '.join(_KEYS)}"
        if (name := Path(self.path).stem) in PUBLISHERS:
            cure = f"`fedclust data {name}` makes it"
        path = plain_file(Path(self.path), "npz: ", cure)
        arrays = read("npz", path, lambda: _arrays(path), key="dataset.path")
        x_train, x_test, less = self._examples(path, arrays)
        read_y = _labels if targets == "classes" else partial(_targets, targets)
        y_train, y_test = (read_y(path, key, arrays[key]) for key in ("y_train", "y_test"))
        if len(x_train) == 0 or len(y_train) == 0:
            raise DataError(
                f"npz: {path} holds no training examples: x_train and y_train must not be empty"
            )
        present = set(y_train.tolist()) if targets == "classes" else {0}
        nearest = range(min(max(present) + 1, len(present) + _SHOWN + 1))  # labels may be huge
        absent = [] if self.classes else [one for one in nearest if one not in present]
        if absent:
            raise DataError(
                f"npz: {path} has y_train from {int(y_train.min())} to {int(y_train.max())} but no "
                f"example of class {', '.join(map(str, absent[:_SHOWN]))}"
                f"{', …' * (len(absent) > _SHOWN)}: classes are numbered 0, 1, … without gaps, as "
                "np.unique(y, return_inverse=True)[1] numbers them; dataset.classes=N takes 0 to "
                "N - 1, with examples or without"
            )
        if x_train.dtype != x_test.dtype:
            kinds = f"x_train {x_train.dtype} but x_test {x_test.dtype}"
            raise DataError(f"npz: {path} has {kinds}: both must be equal")
        num_classes = self.classes or int(y_train.max()) + 1
        if targets != "classes":
            num_classes = y_train.shape[1]
            allowed = "null, since only task=classification has classes"
            require(self.classes is None, "dataset.classes", self.classes, allowed)
        tokens = self.vocabulary is not None
        series = self.normalise == "mean_std" and arrays["x_train"].ndim == 3 and not tokens
        word = "by_row" if series and _rows_differ(x_train) else self.normalise
        word = "none" if tokens else word
        scale, shift = self._affine(word, x_train)
        remarks = list[str]()
        if word == "by_row" != self.normalise:
            remarks.append(
                f"npz: {path} has rows of x_train (N, H, W) on scales of their own, as channels of "
                "a series: each is scaled by itself, as dataset.normalise=by_row does"
            )
        elif series and _rows_differ(x_train.transpose(2, 3)):
            remarks.append(
                f"npz: {path} has columns of x_train (N, H, W) on scales of their own, and one "
                "scale is taken for all: channels of a series belong first, (N, channels, length)"
            )
        owner, test_owner, clients = _owners(path, arrays, len(x_train), len(x_test))
        made = checked(
            Dataset(
                name=path.stem,
                x_train=x_train,
                y_train=y_train,
                x_test=x_test,
                y_test=y_test,
                num_classes=num_classes,
                scale=scale,
                shift=shift,
                view=view_of(tuple(x_train.shape[1:]), self.normalise, self.crop, self.augment),
                remarks=tuple(remarks),
                vocabulary=self.vocabulary,
                fit=Fit(word) if word in ("mean_std", "by_row", "pixel") else None,
                raw={"less": less},
                owner=owner,
                test_owner=test_owner,
                names=Names(clients=clients),
            ),
            f"npz: {path}",
        )
        return told_of_copies(made)

    def _examples(
        self, path: Path, arrays: dict[str, _Array]
    ) -> tuple[Tensor, Tensor, float | list[float]]:
        """x_train and x_test, [N, F] or [N, C, H, W], uint8 or float32; token ids [N, L]; and what
        was taken off the numbers of the file.
        """
        if self.vocabulary is not None:
            shape = arrays["x_train"].shape
            if len(shape) != 2:
                raise DataError(f"npz: {path} has x_train of shape {shape}: token ids are (N, L)")
            train, test = (
                as_ids(f"npz: {path} has {key}", arrays[key], self.vocabulary)
                for key in ("x_train", "x_test")
            )
            return train, test, 0.0
        x, tests = (_checked(path, key, arrays[key]) for key in ("x_train", "x_test"))
        alike = x.shape[1:] == tests.shape[1:] and np.uint8 not in (x.dtype, tests.dtype)
        off = centre(x) if alike and self.normalise != "none" else 0.0
        train, test = (_tensor(one, off) for one in (x, tests))
        return train, test, np.asarray(off, dtype=np.float64).tolist()

    def _affine(self, word: str, x_train: Tensor) -> tuple[Tensor, Tensor]:
        allowed, given = "mean_std, pixel or none", self.normalise
        fits = x_train.dtype == torch.uint8 or given not in ("unit", "inverted", PER_IMAGE)
        require(fits, "dataset.normalise", given, f"{allowed} when x_train is not uint8")
        fits = word != "by_row" or x_train.dim() == 4
        require(fits, "dataset.normalise", word, f"{allowed} with features (N, F)")
        return unchanged(x_train) if word == "none" else affine(word, x_train)


def _arrays(path: Path) -> dict[str, _Array]:
    with path.open("rb") as file:
        if not file.read(6).startswith(_BEGINNINGS):
            raise DataError(
                f"npz: {path} is no file that np.savez has written: save {', '.join(_KEYS)} by it"
            )
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        raise DataError(
            f"npz: {path} holds one array, as np.save writes it: np.savez writes the file that is "
            f"needed, with {', '.join(_KEYS)}"
        )
    with loaded as file:
        missing = ", ".join(key for key in _KEYS if key not in file)
        if missing:
            raise DataError(f"npz: {path} lacks {missing}: it must hold {', '.join(_KEYS)}")
        keys = [*_KEYS, *(key for key in _CLIENTS if key in file)]
        return {key: _array(path, file, key) for key in keys}


def _array(path: Path, file: Any, key: str) -> _Array:
    try:
        array: _Array = file[key]
    except ValueError as error:
        if "Object arrays" not in str(error):
            raise
        raise DataError(
            f"npz: {path} has {key} of type object: save numbers or names, as {key}.astype("
            f"{'str' if key == 'clients' else 'int' if key.startswith('y') else 'float'}) makes "
            "them"
        ) from error
    return array


def _owners(
    path: Path, arrays: dict[str, _Array], train: int, test: int
) -> tuple[Tensor | None, Tensor | None, tuple[str, ...]]:
    """The natural client of every training and test example, and the names of the clients.

    None where there are none, or no tests, which are then cut of every client.
    """
    whose = [
        (key, arrays.get(key), size) for key, size in zip(_CLIENTS, (train, test), strict=False)
    ]
    names = arrays.get("clients")
    if all(array is None for _, array, _ in whose) and names is None:
        return None, None, ()
    found = list[Tensor]()
    for key, array, size in whose:
        given = np.empty(0, np.int64) if array is None and size == 0 else array
        if given is None or given.shape != (size,) or given.dtype.kind not in "ui":
            what = "none" if given is None else f"type {given.dtype} and shape {given.shape}"
            raise DataError(
                f"npz: {path} has {key} of {what}: one whole number for each of the {size} "
                "examples is needed, the client's"
            )
        found.append(torch.from_numpy(given.astype(np.int64)))
    both = torch.cat(found)
    most = int(both.max()) + 1 if names is None else names.size
    if int(both.min()) < 0 or int(both.max()) >= most:
        raise DataError(
            f"npz: {path} has clients from {int(both.min())} to {int(both.max())}: they are "
            f"numbered from 0{'' if names is None else f', and clients names {most}'}"
        )
    called = () if names is None else tuple(map(str, names.reshape(-1).tolist()))
    odd = [name for place, name in enumerate(called) if not name.strip() or name in called[:place]]
    if odd:
        raise DataError(f"npz: {path} has {odd[0]!r} in clients twice, or empty: name each once")
    return found[0], found[1] if test else None, called


def _checked(path: Path, key: str, x: _Array) -> _Array:
    """Examples [N, F] or [N, H, W, C]."""
    if x.ndim == 3:
        x = x[..., None]
    known = x.ndim == 2 or (x.ndim == 4 and x.shape[3] in (1, 3))
    if not known or 0 in x.shape[1:]:
        raise DataError(
            f"npz: {path} has {key} of shape {x.shape}: "
            "(N, H, W), (N, H, W, 1), (N, H, W, 3) or (N, F) is needed, H, W and F at least 1"
        )
    if x.dtype.kind not in "uif":
        what = f"npz: {path} has {key} of type {x.dtype}"
        raise DataError(f"{what}: uint8 or a real number is needed")
    if largest := vanishing(x):
        raise DataError(f"npz: {path} has {key} of at most {largest:.2g}: {TOO_SMALL}")
    return x


def _tensor(x: _Array, off: npt.NDArray[np.float64] | float) -> Tensor:
    examples = torch.from_numpy(x) if x.dtype == np.uint8 else as_float32(x, off)
    return examples.permute(0, 3, 1, 2).contiguous() if x.ndim == 4 else examples


def _rows_differ(x: Tensor) -> bool:
    """Whether the rows of numbers [N, 1, H, W] are on scales so different that those of small
    values vanish beside the others. Rows no longer than twice their number may be a picture's.
    """
    if x.dtype == torch.uint8 or x.shape[2] < 2 or x.shape[3] < 2 * x.shape[2]:
        return False
    scale, shift = (part[0, :, 0] for part in affine("by_row", x))
    std, mean = 1 / scale, -shift / scale
    return bool(std.max() > _APART * std.min() or mean.max() - mean.min() > _APART * std.min())


def _labels(path: Path, key: str, y: _Array) -> Tensor:
    wide = y.ndim == 2 and y.shape[1] > 1 and len(y) and y.dtype.kind in "uifb"
    if wide and np.isin(y, (0, 1)).all() and (y.sum(1) == 1).all():
        raise DataError(
            f"npz: {path} has {key} of shape {y.shape} with a single 1 in every row: save "
            f"np.argmax({key}, 1), the numbers of the classes"
        )
    if y.dtype.kind not in "uib" or not (y.ndim == 1 or (y.ndim == 2 and y.shape[1] == 1)):
        raise DataError(
            f"npz: {path} has {key} of shape {y.shape} and type {y.dtype}: "
            "integers of shape (N,) or (N, 1) are needed; task=regression reads numbers, and "
            "task=multilabel zeros and ones (N, T)"
        )
    if y.size and y.max() > np.iinfo(np.int64).max:
        raise DataError(f"npz: {path} has {key} up to {y.max()}: labels must fit int64")
    return torch.from_numpy(y.reshape(-1).astype(np.int64))


def _targets(targets: Targets, path: Path, key: str, y: _Array) -> Tensor:
    """Numbers [N, T] float64, or flags [N, T] uint8."""
    kinds, what = {"numbers": ("uif", "real numbers"), "flags": ("uib", "0 or 1")}[targets]
    if y.dtype.kind not in kinds or y.ndim not in (1, 2):
        raise DataError(
            f"npz: {path} has {key} of shape {y.shape} and type {y.dtype}: {what} of shape (N,) or "
            "(N, T) are needed"
        )
    y = y.reshape(len(y), -1)
    if targets == "flags" and y.size and not np.isin(y, (0, 1)).all():
        raise DataError(f"npz: {path} has {key} from {y.min()} to {y.max()}: {what} is needed")
    return torch.from_numpy(y.astype(np.float64 if targets == "numbers" else np.uint8))
