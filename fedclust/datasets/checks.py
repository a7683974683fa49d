"""One-line errors for data that are missing, unreadable or of the wrong shape."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedclust.core.types import Dataset
from fedclust.helpers.errors import ConfigError, DataError, UserError
from fedclust.helpers.extras import install

T = TypeVar("T")


def one_line(error: BaseException) -> str:
    """The error's own words on one line of at most 200 characters."""
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= 200 else words[:197] + "..."


def fetch(
    what: str, files: list[Path], root: Path, download: bool, work: Callable[[], object]
) -> None:
    """Make sure that the files of the dataset `what` exist below data.root; with `download`, `work`
    fetches what is missing.

    Raises:
        DataError: a file is missing and downloading is off, or failed.
    """
    missing = [file for file in files if not file.exists()]
    if not missing:
        return
    if not download:
        raise DataError(
            f"{what}: {missing[0]} not found: data.root={root} must be the folder that holds "
            f"{missing[0].relative_to(root).parts[0]}/; data.download=true or `fedclust data` "
            "fetches it"
        )
    try:
        work()
    except UserError:  # no download began
        raise
    except Exception as error:  # a download can fail in many ways
        raise DataError(
            f"{what}: download into {root} failed ({one_line(error)}): check the network or place "
            f"{missing[0]} there by hand, see data.root"
        ) from error


def installed(package: str, dataset: str, extra: str) -> Path:
    """The folder of an installed package, which is not imported. Raises `ConfigError` if it is not
    there; the message says which extra brings it.
    """
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ConfigError(f"dataset={dataset} needs the package {package}: {install(extra)}")
    return Path(spec.origin).parent


def read(what: str, where: Path | str, work: Callable[[], T], key: str = "data.root") -> T:
    """What `work` reads from `where`, which the config key `key` decides. Raises `DataError` if the
    file is corrupt or cannot be opened.
    """
    try:
        return work()
    except DataError:
        raise
    except UnicodeDecodeError as error:
        raise DataError(
            f"{what}: {where} is no text in UTF-8 ({one_line(error)}): save it as such, or change "
            f"{key}"
        ) from error
    except Exception as error:  # a damaged file raises whatever its parser happens to meet first
        raise DataError(
            f"{what}: cannot read {where} ({one_line(error)}): replace it, or change {key}"
        ) from error


TOO_SMALL = "that is next to nothing in float32: give it in another unit"


def vanishing(values: npt.NDArray[Any]) -> float:
    """The largest size of a number, where all are too small for float32 to hold in full; else 0."""
    if not values.size or values.dtype.kind != "f":
        return 0.0
    largest = float(np.abs(values).max())
    return largest if largest < float(np.finfo(np.float32).tiny) else 0.0


def checked(dataset: Dataset, what: str = "", *, gaps: bool = False) -> Dataset:
    """The dataset, once its arrays fit together; with `gaps` a NaN stands for one. Messages speak
    of `what`, a file, where one was read.

    Raises:
        DataError: no examples, one class only, lengths or shapes that differ, or labels outside
            [0, num_classes).
    """
    name = what or dataset.name
    if len(dataset.x_train) == 0:
        raise DataError(
            f"{name}: there are no training examples: give a file that holds at least one"
        )
    if dataset.x_train.shape[1:] != dataset.x_test.shape[1:]:
        raise DataError(
            f"{name}: training examples have shape {tuple(dataset.x_train.shape[1:])} but test "
            f"examples {tuple(dataset.x_test.shape[1:])}: both must be equal"
        )
    classes = dataset.y_train.dim() == 1 and not dataset.y_train.is_floating_point()
    train, test = (dataset.x_train, dataset.y_train), (dataset.x_test, dataset.y_test)
    for part, (x, y) in (("train", train), ("test", test)):
        if len(x) != len(y):
            both = f"{len(x)} {part} examples but {len(y)} {part} labels"
            raise DataError(f"{name}: {both}: one label each is needed")
        if classes:
            _check_labels(f"{name}: {part} labels", y, dataset.num_classes)
    if classes and dataset.num_classes < 2:
        raise DataError(
            f"{name}: all training examples have one label, so there is nothing to learn: give "
            "at least two classes"
        )
    for part, x in (("training", dataset.x_train), ("test", dataset.x_test)):
        if x.is_floating_point() and not bool((known := x.isfinite() | (x.isnan() & gaps)).all()):
            first = int(known.flatten(1).all(1).to(torch.uint8).argmin())
            raise DataError(
                f"{name}: {part} examples hold values that are not finite, or too large for "
                f"float32, first example {first}: replace them in the file"
            )
    if not bool(torch.isfinite(dataset.scale).all()):
        raise DataError(
            f"{name}: a feature varies by less than float32 can scale: give it in another unit, or "
            "take it out"
        )
    return dataset


def _check_labels(what: str, y: Tensor, num_classes: int) -> None:
    if len(y) and (int(y.min()) < 0 or int(y.max()) >= num_classes):
        raise DataError(
            f"{what} span {int(y.min())} to {int(y.max())}: they must lie in 0 to "
            f"{num_classes - 1}, the classes of the training labels or of the dataset"
        )
