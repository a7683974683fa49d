"""MNIST (LeCun, Bottou, Bengio, Haffner 1998) from its idx files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from fedclust.core.types import Dataset
from fedclust.datasets.checks import checked
from fedclust.datasets.idx import load_idx
from fedclust.datasets.normalise import affine, check_word


@dataclass(frozen=True, kw_only=True)
class MNIST:
    """MNIST: 60,000 + 10,000 grey images 28x28 of ten digits.

    Attributes:
        root: folder that holds `MNIST/raw/`.
        download: fetch missing files.
        normalise: mean_std (0.1307, 0.3081), unit, pixel (statistics of all 70,000 images) or
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
            "MNIST", Path(self.root), ("train", "t10k"), self.download
        )
        # FedProx's generator takes the statistics over training and test images together
        scale, shift = affine(self.normalise, torch.cat([x_train, x_test]), (0.1307,), (0.3081,))
        return checked(
            Dataset(
                name="MNIST",
                x_train=x_train,
                y_train=y_train,
                x_test=x_test,
                y_test=y_test,
                num_classes=10,
                scale=scale,
                shift=shift,
            )
        )
