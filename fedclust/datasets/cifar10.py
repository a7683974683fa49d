"""CIFAR-10 (Krizhevsky 2009) from torchvision's batches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torchvision
from torch import Tensor

from fedclust.core.types import Dataset
from fedclust.datasets.checks import checked, fetch, read
from fedclust.datasets.normalise import WORDS, affine, check_word
from fedclust.datasets.view import PER_IMAGE, Augment, check_view, view_of
from fedclust.helpers.ranges import Side

# channel statistics of the 50,000 training images, as LCFL's simulator has them
MEAN = (0.49139968, 0.48215827, 0.44653124)
STD = (0.24703233, 0.24348505, 0.26158768)


@dataclass(frozen=True, kw_only=True)
class CIFAR10:
    """CIFAR-10: 50,000 + 10,000 colour images 32x32 of ten classes.

    Attributes:
        root: folder that holds `cifar-10-batches-py/`.
        download: fetch missing files.
        normalise: mean_std (per channel), unit, pixel (statistics of the training images), inverted
            or per_image (every image minus its own mean, over its own standard deviation).
        crop, augment: see `fedclust.datasets.view.View`.
    """

    root: str
    download: bool = False
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
        x_train, y_train, x_test, y_test = arrays("CIFAR10", Path(self.root), self.download)
        scale, shift = affine(self.normalise, x_train, MEAN, STD)
        return checked(
            Dataset(
                name="CIFAR10",
                x_train=x_train,
                y_train=y_train,
                x_test=x_test,
                y_test=y_test,
                num_classes=10,
                scale=scale,
                shift=shift,
                view=view_of((3, 32, 32), self.normalise, self.crop, self.augment),
            )
        )


def arrays(name: str, root: Path, download: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x_train [N, 3, 32, 32] uint8, y_train [N] int64, x_test and y_test of torchvision's CIFAR10
    or CIFAR100.

    Raises:
        DataError: a file is missing, corrupt (torchvision compares checksums) or cannot be
            downloaded.
    """
    kind = getattr(torchvision.datasets, name)
    folder = root / kind.base_folder
    files = [folder / file for file, _ in kind.train_list + kind.test_list]
    fetch(name, files, root, download, lambda: kind(root, download=True))
    train = read(name, folder, lambda: kind(root, train=True))
    test = read(name, folder, lambda: kind(root, train=False))
    return (
        _channels_first(train),
        torch.tensor(train.targets),
        _channels_first(test),
        torch.tensor(test.targets),
    )


def _channels_first(part: torchvision.datasets.CIFAR10) -> Tensor:
    return torch.from_numpy(part.data).permute(0, 3, 1, 2).contiguous()
