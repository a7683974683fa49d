"""Shoulder exercises seen by a smartwatch (Burns et al., arXiv 1802.01489), embedded in seglearn.

Ten persons did seven exercises with each arm, twenty times each; acceleration and rate of rotation
along three axes are sampled at 50 Hz. The axes of a watch on the left arm mirror those on the
right: arms are clusters that nobody has planted.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from fedclust.core.types import Dataset
from fedclust.datasets.checks import checked, installed, read
from fedclust.datasets.normalise import affine
from fedclust.helpers.errors import DataError, require
from fedclust.helpers.ranges import AtLeastOne, BelowOne, InnerFraction, Ranged
from fedclust.helpers.rounding import rounded_down

_CHANNELS = 6
_NEEDED = {  # what the file is made of; a pickle may name anything else too
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


@dataclass(frozen=True, kw_only=True)
class Watch(Ranged):
    """Windows of 140 series: 6 channels of `length` samples, 50 a second; the class is the
    exercise.

    The end of every series is its test part; no window reaches from one part into the other.
    """

    length: AtLeastOne = 100  # samples of a window
    overlap: BelowOne = 0.5  # share of a window that the next one also holds
    # natural clients, for partition=natural. subject: ten persons without true groups; arm: their
    # twenty arms, whose true group is the side (0 left, 1 right).
    clients: Literal["subject", "arm"] = "subject"
    test_share: InnerFraction = 0.25  # share of every series that is its test part

    def load(self) -> Dataset:
        """The arrays, [N, 1, 6, length] float32, in the order of the series.

        Raises:
            ConfigError: seglearn is missing, or a window is longer than a part of a series.
            DataError: its file is not what it should be.
        """
        file = installed("seglearn", "watch", "watch") / "data" / "watch_dataset.npy"
        series, exercise, subject, side = read("watch", file, lambda: _series(file), key="dataset")
        shortest = min(map(len, series))
        fits = rounded_down(min(self.test_share, 1 - self.test_share), shortest)
        leaves = f"at most {fits}, what dataset.test_share={self.test_share} leaves"
        allowed = f"{leaves} of the shortest series of {shortest}"
        require(self.length <= fits, "dataset.length", self.length, allowed)
        cuts = [len(one) - rounded_down(self.test_share, len(one)) for one in series]
        parts = []
        for tests in (False, True):
            each = zip(series, cuts, strict=True)
            windows = [self._windows(one[cut:] if tests else one[:cut]) for one, cut in each]
            rows = torch.from_numpy(np.repeat(np.arange(len(series)), [len(w) for w in windows]))
            parts.append((torch.from_numpy(np.concatenate(windows)).unsqueeze(1), rows))
        (x_train, train), (x_test, test) = parts
        owner = subject if self.clients == "subject" else 2 * subject + side
        arms = torch.arange(int(owner.max()) + 1) % 2
        # of every channel, over windows and time
        scale, shift = (one.view(1, -1, 1) for one in affine("mean_std", x_train.transpose(1, 2)))
        return checked(
            Dataset(
                name="watch",
                x_train=x_train,
                y_train=exercise[train],
                x_test=x_test,
                y_test=exercise[test],
                num_classes=int(exercise.max()) + 1,
                scale=scale,
                shift=shift,
                owner=owner[train],
                test_owner=owner[test],
                group=None if self.clients == "subject" else arms,
            )
        )

    def _windows(self, part: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Windows [n, 6, length] of a part of a series [T, 6]."""
        step = max(1, round(self.length * (1 - self.overlap)))
        windows = np.lib.stride_tricks.sliding_window_view(part, self.length, axis=0)[::step]
        return windows.astype(np.float32)


def _series(file: Path) -> tuple[list[npt.NDArray[Any]], torch.Tensor, torch.Tensor, torch.Tensor]:
    """Series [T, 6] each, and of every one exercise, subject from 0 and side, [140] int64."""
    with file.open("rb") as content:
        version = np.lib.format.read_magic(content)
        if version != (1, 0):
            raise ValueError(f"its format is {version}, not (1, 0)")
        np.lib.format.read_array_header_1_0(content)
        table = _Arrays(content).load().item()
    series = [np.asarray(one) for one in table["X"]]
    if any(one.ndim != 2 or one.shape[1] != _CHANNELS for one in series):
        raise DataError(f"watch: {file} holds series of other than {_CHANNELS} channels")
    numbers = (np.asarray(table[name]).astype(np.int64) for name in ("y", "subject", "side"))
    exercise, subject, side = map(torch.from_numpy, numbers)
    return series, exercise, subject - int(subject.min()), side


class _Arrays(pickle.Unpickler):
    """Reads arrays, lists and words, and refuses whatever else a pickle can name."""

    def find_class(self, module: str, name: str) -> Any:
        """The function or class of a name that arrays need."""
        if (module, name) not in _NEEDED:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return super().find_class(module, name)
