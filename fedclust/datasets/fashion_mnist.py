"""Fashion-MNIST (Xiao, Rasul, Vollgraf 2017, arXiv 1708.07747) from its idx files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedclust.core.types import Dataset
from fedclust.datasets.checks import checked
from fedclust.datasets.idx import load_idx
from fedclust.datasets.normalise import affine, check_word


@dataclass(frozen=True, kw_only=True)
class FashionMNIST:
    """Fashion-MNIST: 60,000 + 10,000 grey images 28x28 of ten kinds of clothing.

    Attributes:
        root: folder that holds `FashionMNIST/raw/`.
        download: fetch missing files.
        normalise: mean_std (0.2860, 0.3530), unit, pixel (statistics of the training images) or
            inverted.
    """

    root: str
    download: bool = False
    normalise: str = "mean_std"

    def __post_init__(self) -> None:
        check_word(self.normalise)

    def load(self) -> Dataset:
        """The arrays.

        Raises:
            DataError: a file is missing, corrupt or cannot be downloaded.
        """
        x_train, y_train, x_test, y_test = load_idx(
            "FashionMNIST", Path(self.root), ("train", "t10k"), self.download
        )
        scale, shift = affine(self.normalise, x_train, (0.2860,), (0.3530,))
        return checked(
            Dataset(
                name="FashionMNIST",
                x_train=x_train,
                y_train=y_train,
                x_test=x_test,
                y_test=y_test,
                num_classes=10,
                scale=scale,
                shift=shift,
            )
        )
