"""The image data sets that torchvision knows: what tells them apart, and one way to load them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedclust.core.types import Dataset
from fedclust.datasets.checks import checked, fetch, read
from fedclust.datasets.idx import load_idx
from fedclust.datasets.normalise import WORDS, affine, check_word
from fedclust.datasets.view import PER_IMAGE, Augment, check_view, view_of
from fedclust.helpers.extras import of_torchvision
from fedclust.helpers.ranges import Ranged, Side

Arrays = tuple[Tensor, Tensor, Tensor, Tensor]  # x_train [N, …] uint8, y_train [N], and of the test


@dataclass(frozen=True, kw_only=True)
class _Images(Ranged):
    """Images of one size with a class each."""

    mean: ClassVar[Sequence[float] | None] = None  # per channel; None: of the training images
    std: ClassVar[Sequence[float] | None] = None
    words: ClassVar[tuple[str, ...]] = WORDS  # of `normalise`

    root: str  # folder that holds the files' own folder
    download: bool = False  # fetch missing files
    # mean_std (by the numbers below), unit (x / 255), pixel (statistics of the training images,
    # pixel by pixel) or inverted (1 - x / 255)
    normalise: str = "mean_std"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_word(self.normalise, self.words)

    @property
    def called(self) -> str:
        """The name, torchvision's class."""
        return type(self).__name__

    @property
    def folder(self) -> str:
        """Where torchvision has the files, below `root`."""
        return type(self).__name__

    @property
    def classes(self) -> int:
        """How many there are."""
        return 10

    def load(self) -> Dataset:
        """The arrays."""
        x_train, y_train, x_test, y_test = self._arrays()
        known = () if self.mean is None or self.std is None else (self.mean, self.std)
        scale, shift = affine(self.normalise, self._measured(x_train, x_test), *known)
        return checked(
            Dataset(
                name=self.called,
                x_train=x_train,
                y_train=y_train,
                x_test=x_test,
                y_test=y_test,
                num_classes=self.classes,
                scale=scale,
                shift=shift,
                view=self._view(),
            )
        )

    def _arrays(self) -> Arrays:
        return load_idx(self.called, Path(self.root), ("train", "t10k"), self.download)

    def _measured(self, x_train: Tensor, x_test: Tensor) -> Tensor:  # noqa: ARG002
        """The images whose statistics `pixel` takes."""
        return x_train

    def _view(self) -> Any:
        return None


@dataclass(frozen=True, kw_only=True)
class MNIST(_Images):
    """MNIST: 60,000 + 10,000 grey images 28x28 of ten digits (LeCun, Bottou, Bengio, Haffner 1998).

    `pixel` takes the statistics of all 70,000 images, as FedProx's generator does.
    """

    mean = (0.1307,)
    std = (0.3081,)

    def _measured(self, x_train: Tensor, x_test: Tensor) -> Tensor:
        return torch.cat([x_train, x_test])


@dataclass(frozen=True, kw_only=True)
class FashionMNIST(_Images):
    """Fashion-MNIST: 60,000 + 10,000 grey images 28x28 of ten kinds of clothing (Xiao, Rasul,
    Vollgraf 2017, arXiv 1708.07747).
    """

    mean = (0.2860,)
    std = (0.3530,)


@dataclass(frozen=True, kw_only=True)
class EMNIST(_Images):
    """EMNIST: grey images 28x28 of handwritten digits and letters, turned upright (Cohen, Afshar,
    Tapson, van Schaik 2017, arXiv 1702.05373).
    """

    of_split: ClassVar = {"byclass": 62, "bymerge": 47, "balanced": 47, "letters": 26}

    # byclass (62 classes: digits, A-Z, a-z), bymerge or balanced (47: 15 letters whose two cases
    # look alike are joined) or letters (26; labels 1-26 of the files become 0-25)
    split: Literal["byclass", "bymerge", "balanced", "letters"] = "byclass"

    @property
    def called(self) -> str:
        """With the split."""
        return f"EMNIST {self.split}"

    @property
    def classes(self) -> int:
        """Those of the split."""
        return int(self.of_split[self.split])

    def _arrays(self) -> Arrays:
        parts = (f"emnist-{self.split}-train", f"emnist-{self.split}-test")
        x_train, y_train, x_test, y_test = load_idx(
            "EMNIST", Path(self.root), parts, self.download, split=self.split
        )
        # the files hold every image with rows and columns exchanged
        x_train, x_test = (x.transpose(2, 3).contiguous() for x in (x_train, x_test))
        first = 1 if self.split == "letters" else 0
        return x_train, y_train - first, x_test, y_test - first


@dataclass(frozen=True, kw_only=True)
class CIFAR10(_Images):
    """CIFAR-10: 50,000 + 10,000 colour images 32x32 of ten classes (Krizhevsky 2009).

    Attributes:
        normalise: also per_image (every image minus its own mean, over its own standard deviation).
        crop, augment: see `fedclust.datasets.view.ImageToInput`.
    """

    # of the 50,000 training images, as LCFL's simulator has them
    mean = (0.49139968, 0.48215827, 0.44653124)
    std = (0.24703233, 0.24348505, 0.26158768)
    words = (*WORDS, PER_IMAGE)

    crop: Side | None = None
    augment: Augment = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_view(self.normalise, self.crop)

    @property
    def folder(self) -> str:
        return str(getattr(of_torchvision("datasets"), self.called).base_folder)

    def _view(self) -> Any:
        return view_of((3, 32, 32), self.normalise, self.crop, self.augment)

    def _arrays(self) -> Arrays:
        """Of torchvision's batches, whose checksums it compares."""
        root = Path(self.root)
        kind = getattr(of_torchvision("datasets"), self.called)
        folder = root / kind.base_folder
        files = [folder / file for file, _ in kind.train_list + kind.test_list]
        fetch(self.called, files, root, self.download, lambda: kind(root, download=True))
        arrays = list[Tensor]()
        for is_train in (True, False):
            part = read(self.called, folder, partial(kind, root, train=is_train))
            arrays.append(torch.from_numpy(part.data).permute(0, 3, 1, 2).contiguous())
            arrays.append(torch.tensor(part.targets))
        return arrays[0], arrays[1], arrays[2], arrays[3]


# superclass of every class of CIFAR-100, both in alphabetical order
# fmt: off
SUPERCLASS = (
    4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7, 6, 13,
    15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10, 16, 4,
    17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16, 12, 9, 13,
    15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13,
)
# fmt: on


@dataclass(frozen=True, kw_only=True)
class CIFAR100(CIFAR10):
    """CIFAR-100: 50,000 + 10,000 colour images 32x32 (Krizhevsky 2009)."""

    mean = (0.50707516, 0.48654887, 0.44091784)
    std = (0.26733429, 0.25643846, 0.27615047)

    # fine (100 classes, from apple to worm) or coarse (their 20 superclasses)
    labels: Literal["fine", "coarse"] = "fine"

    @property
    def classes(self) -> int:
        """Fine or coarse ones."""
        return 100 if self.labels == "fine" else 20

    def _arrays(self) -> Arrays:
        x_train, y_train, x_test, y_test = super()._arrays()
        if self.labels == "fine":
            return x_train, y_train, x_test, y_test
        superclass = torch.tensor(SUPERCLASS)
        return x_train, superclass[y_train], x_test, superclass[y_test]
