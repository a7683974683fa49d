"""Handwritten digits 8x8 (Alpaydin, Kaynak 1998; UCI) embedded in scikit-learn: no download."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from fedclust.core.types import Dataset
from fedclust.helpers.ranges import Ranged


@dataclass(frozen=True, kw_only=True)
class Digits(Ranged):
    """1,797 grey images 8x8 of ten digits; every fifth of a class is a test image; inputs in [0,
    1].
    """

    def load(self) -> Dataset:
        """The arrays: 1,442 training and 355 test images, always the same ones."""
        package = find_spec("sklearn")  # its file alone: to import scikit-learn takes a second
        assert package is not None
        file = Path(str(package.origin)).parent / "datasets" / "data" / "digits.csv.gz"
        with gzip.open(file) as text:
            table = np.loadtxt(text, delimiter=",")
        x = torch.from_numpy(table[:, :-1].astype(np.uint8)).view(-1, 1, 8, 8)  # values 0..16
        y = torch.from_numpy(table[:, -1].astype(np.int64))
        # position of an image within its class, in file order
        rank = torch.nn.functional.one_hot(y, 10).cumsum(0).gather(1, y.unsqueeze(1)).squeeze(1)
        test = rank % 5 == 0
        return Dataset(
            name="digits",
            x_train=x[~test],
            y_train=y[~test],
            x_test=x[test],
            y_test=y[test],
            num_classes=10,
            scale=torch.full((1, 1, 1), 1 / 16),
            shift=torch.zeros(1, 1, 1),
        )
