"""EMNIST (Cohen, Afshar, Tapson, van Schaik 2017, arXiv 1702.05373) from torchvision's idx
files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torchvision

from fedclust.datasets.checks import checked, fetch, read
from fedclust.datasets.normalise import affine, check_word
from fedclust.errors import require
from fedclust.types import Dataset

NUM_CLASSES = {"byclass": 62, "bymerge": 47, "balanced": 47, "letters": 26}


@dataclass(frozen=True, kw_only=True)
class EMNIST:
    """EMNIST: grey images 28x28 of handwritten digits and letters, turned upright.

    Attributes:
        root: folder that holds `EMNIST/raw/`.
        download: fetch missing files.
        split: byclass (62 classes: digits, A-Z, a-z), bymerge or balanced (47: 15 letters whose two
            cases look alike are joined) or letters (26; labels 1-26 of the files become 0-25).
        normalise: mean_std and pixel (statistics of the training images), unit or inverted.
    """

    root: str
    download: bool = False
    split: str = "byclass"
    normalise: str = "mean_std"

    def __post_init__(self) -> None:
        check_word(self.normalise)
        require(
            self.split in NUM_CLASSES,
            "dataset.split",
            self.split,
            "one of " + ", ".join(NUM_CLASSES),
        )

    def load(self) -> Dataset:
        """The arrays.

        Raises:
            DataError: a file is missing, corrupt or cannot be downloaded.
        """
        root, kind = Path(self.root), torchvision.datasets.EMNIST
        raw = root / "EMNIST" / "raw"
        names = [
            f"emnist-{self.split}-{part}-{what}"
            for part in ("train", "test")
            for what in ("images-idx3-ubyte", "labels-idx1-ubyte")
        ]
        files = [raw / name for name in names]
        fetch(
            "EMNIST",
            files,
            root,
            self.download,
            lambda: kind(root, split=self.split, download=True),
        )
        train = read("EMNIST", files[0], lambda: kind(root, split=self.split, train=True))
        test = read("EMNIST", files[2], lambda: kind(root, split=self.split, train=False))
        # the files hold every image with rows and columns exchanged
        x_train = train.data.transpose(1, 2).unsqueeze(1).contiguous()
        first = 1 if self.split == "letters" else 0
        scale, shift = affine(self.normalise, x_train)
        return checked(
            Dataset(
                name=f"EMNIST {self.split}",
                x_train=x_train,
                y_train=train.targets - first,
                x_test=test.data.transpose(1, 2).unsqueeze(1).contiguous(),
                y_test=test.targets - first,
                num_classes=NUM_CLASSES[self.split],
                scale=scale,
                shift=shift,
            )
        )
