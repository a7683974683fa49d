"""EMNIST (Cohen, Afshar, Tapson, van Schaik 2017, arXiv 1702.05373) from its idx files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedclust.core.types import Dataset
from fedclust.datasets.checks import checked
from fedclust.datasets.idx import load_idx
from fedclust.datasets.normalise import affine, check_word
from fedclust.helpers.errors import require

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
        parts = (f"emnist-{self.split}-train", f"emnist-{self.split}-test")
        x_train, y_train, x_test, y_test = load_idx(
            "EMNIST", Path(self.root), parts, self.download, split=self.split
        )
        # the files hold every image with rows and columns exchanged
        x_train, x_test = (x.transpose(2, 3).contiguous() for x in (x_train, x_test))
        first = 1 if self.split == "letters" else 0
        scale, shift = affine(self.normalise, x_train)
        return checked(
            Dataset(
                name=f"EMNIST {self.split}",
                x_train=x_train,
                y_train=y_train - first,
                x_test=x_test,
                y_test=y_test - first,
                num_classes=NUM_CLASSES[self.split],
                scale=scale,
                shift=shift,
            )
        )
