"""MNIST (LeCun, Bottou, Bengio, Haffner 1998) from torchvision's idx files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torchvision

from fedclust.datasets.checks import checked, fetch, read
from fedclust.datasets.normalise import affine, check_word
from fedclust.types import Dataset


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
        root = Path(self.root)
        x_train, y_train, x_test, y_test = load_idx(
            torchvision.datasets.MNIST, "MNIST", root, self.download
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


def load_idx(
    kind: type[torchvision.datasets.MNIST], name: str, root: Path, download: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """x_train [N, 1, 28, 28] uint8, y_train [N] int64, x_test, y_test of a dataset in MNIST's four
    idx files.

    Args:
        kind: torchvision's class, which knows where to download from.
        name: folder below `root`.
        root: the configured data.root.
        download: fetch missing files.
    """
    raw = root / name / "raw"
    names = [
        f"{part}-{what}"
        for part in ("train", "t10k")
        for what in ("images-idx3-ubyte", "labels-idx1-ubyte")
    ]
    fetch(name, [raw / file for file in names], root, download, lambda: kind(root, download=True))
    train = read(name, raw / names[0], lambda: kind(root, train=True))
    test = read(name, raw / names[2], lambda: kind(root, train=False))
    return train.data.unsqueeze(1), train.targets, test.data.unsqueeze(1), test.targets
