"""CIFAR-100 (Krizhevsky 2009) from torchvision's files: 100 classes in 20 superclasses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from fedclust.core.types import Dataset
from fedclust.datasets.checks import checked
from fedclust.datasets.cifar10 import arrays
from fedclust.datasets.normalise import WORDS, affine, check_word
from fedclust.datasets.view import PER_IMAGE, Augment, check_view, view_of
from fedclust.helpers.ranges import Side

# channel statistics of the 50,000 training images
MEAN = (0.50707516, 0.48654887, 0.44091784)
STD = (0.26733429, 0.25643846, 0.27615047)
# superclass of every class, both in alphabetical order
# fmt: off
SUPERCLASS = (
    4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7, 6, 13,
    15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10, 16, 4,
    17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16, 12, 9, 13,
    15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13,
)
# fmt: on


@dataclass(frozen=True, kw_only=True)
class CIFAR100:
    """CIFAR-100: 50,000 + 10,000 colour images 32x32.

    Attributes:
        root: folder that holds `cifar-100-python/`.
        download: fetch missing files.
        labels: fine (100 classes, from apple to worm) or coarse (their 20 superclasses).
        normalise: mean_std (per channel), unit, pixel (statistics of the training images), inverted
            or per_image (every image minus its own mean, over its own standard deviation).
        crop, augment: see `fedclust.datasets.view.View`.
    """

    root: str
    download: bool = False
    labels: Literal["fine", "coarse"] = "fine"
    normalise: str = "mean_std"
    crop: Side | None = None
    augment: Augment = "none"

    def __post_init__(self) -> None:
        check_word(self.normalise, (*WORDS, PER_IMAGE))
        check_view(self.normalise, self.crop, self.augment)

    def load(self) -> Dataset:
        """The arrays.

        Raises:
            DataError: a file is missing, corrupt (torchvision compares checksums) or cannot be
                downloaded.
        """
        x_train, y_train, x_test, y_test = arrays("CIFAR100", Path(self.root), self.download)
        if self.labels == "coarse":
            superclass = torch.tensor(SUPERCLASS)
            y_train, y_test = superclass[y_train], superclass[y_test]
        scale, shift = affine(self.normalise, x_train, MEAN, STD)
        return checked(
            Dataset(
                name="CIFAR100",
                x_train=x_train,
                y_train=y_train,
                x_test=x_test,
                y_test=y_test,
                num_classes=100 if self.labels == "fine" else 20,
                scale=scale,
                shift=shift,
                view=view_of((3, 32, 32), self.normalise, self.crop, self.augment),
            )
        )
