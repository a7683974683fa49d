"""Running the command line inside the test's process, in an empty folder."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torchvision
import yaml

from fedclust.__main__ import main
from fedclust.datasets.publishers import FOLDER as NATURAL
from fedclust.datasets.publishers import PUBLISHERS, bring


@dataclass
class Finished:
    """What a command left: exit status and what it printed."""

    status: int
    out: str
    err: str


class Cli:
    """The command line, called within this process."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, *arguments: str) -> Finished:
        self._capfd.readouterr()
        status = 0
        try:
            main(arguments)
        except SystemExit as stop:
            status = int(stop.code or 0)
        printed = self._capfd.readouterr()
        return Finished(status, printed.out, printed.err)

    def done(self, *arguments: str) -> Finished:
        """A command that succeeds."""
        finished = self(*arguments)
        assert finished.status == 0, finished.err
        return finished

    def fails(self, *arguments: str, says: str) -> Finished:
        """A command that ends with status 1 and these words."""
        finished = self(*arguments)
        assert finished.status == 1
        assert says in finished.err
        return finished

    def refused(self, *arguments: str, says: str) -> Finished:
        """A command that is refused in one line, which has these words."""
        finished = self(*arguments)
        assert (finished.status, finished.err.count("\n")) == (2, 1), finished.err
        assert finished.err.startswith("fedclust: ")
        assert says in finished.err
        return finished


def put(file: Path, text: str) -> Path:
    """A file with this text, in a folder that may have to be made."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def rounds_of(folder: Path, metric: str) -> pd.Series:
    """The values of a metric by seed and round, of the one job in or below a folder."""
    (file,) = folder.rglob("rounds.csv")
    rounds = pd.read_csv(file).set_index(["metric", "seed", "round"])["value"].sort_index()
    return rounds[metric]


def config_of(folder: Path) -> dict[str, Any]:
    """The config of the one job in or below a folder."""
    (file,) = folder.rglob("config.yaml")
    config: dict[str, Any] = yaml.safe_load(file.read_text())
    return config


def npz(file: Path, **changes: Any) -> Path:
    """80 + 40 images of 8 x 8 in 4 classes, with other arrays for these; None leaves one out."""
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 256, (80, 8, 8), dtype=np.uint8),
        "y_train": np.arange(80) % 4,
        "x_test": rng.integers(0, 256, (40, 8, 8), dtype=np.uint8),
        "y_test": np.arange(40) % 4,
        **changes,
    }
    np.savez(file, **{name: array for name, array in arrays.items() if array is not None})
    return file


@pytest.fixture
def fedclust(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    no_figures: None,
) -> Cli:
    """The command line, in an empty current folder."""
    monkeypatch.chdir(tmp_path)
    return Cli(capfd)


_SPLITS = {"byclass": 62, "bymerge": 47, "balanced": 47}
_PER_CLASS = 150
_TESTS = 2000


@pytest.fixture(scope="session")
def every_data_root(data_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which every data set can be read: those of `data_root`, noise in place of what
    it lacks, and a table of four clients, data.csv. Of MNIST and FashionMNIST a part of the test
    images, on which small jobs spend most of their time.
    """
    root = tmp_path_factory.mktemp("data")
    for folder in data_root.iterdir():
        if folder.name == NATURAL:
            for name in (one for one in PUBLISHERS if (folder / one).is_dir()):
                bring(name, root, folder / name)
        elif folder.name in ("MNIST", "FashionMNIST"):
            _write_with_fewer_tests(folder / "raw", root / folder.name / "raw")
        elif folder.name != "EMNIST":
            (root / folder.name).symlink_to(folder)
    rows = [f"site{i % 4},{i % 7},{i % 11},{i * i % 3 > 0:d}" for i in range(200)]
    (root / "data.csv").write_text("\n".join(["client,a,b,label", *rows]))
    letters = root / "EMNIST" / "raw"
    letters.mkdir(parents=True)
    for file in (data_root / "EMNIST" / "raw").glob("emnist-*"):  # some of its splits, or none
        (letters / file.name).symlink_to(file)
    with pytest.MonkeyPatch.context() as patch:
        for split, classes in _SPLITS.items():
            if not list(letters.glob(f"emnist-{split}-*")):
                _write_emnist(letters, split, classes)
        if not (root / torchvision.datasets.CIFAR10.base_folder).exists():
            _write_cifar10(root / torchvision.datasets.CIFAR10.base_folder)
            # noise has other checksums
            patch.setattr(torchvision.datasets.cifar, "check_integrity", lambda *_: True)
        yield root


def _write_with_fewer_tests(folder: Path, to: Path) -> None:
    to.mkdir(parents=True)
    for file in folder.glob("train-*"):
        (to / file.name).symlink_to(file)
    for file in folder.glob("t10k-*-ubyte"):
        data = file.read_bytes()
        head = 4 + 4 * data[3]  # as many sizes as it has dimensions, the number of images first
        count = int.from_bytes(data[4:8], "big")
        rest = data[head : head + (len(data) - head) // count * _TESTS]
        (to / file.name).write_bytes(data[:4] + _TESTS.to_bytes(4, "big") + data[8:head] + rest)


def _noise(*shape: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def _write_emnist(folder: Path, split: str, classes: int) -> None:
    for part, count in (("train", _PER_CLASS * classes), ("test", _PER_CLASS * classes // 6)):
        labels = (np.arange(count) % classes).astype(np.uint8)
        for what, array in (("images-idx3", _noise(count, 28, 28)), ("labels-idx1", labels)):
            header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">i4").tobytes()
            (folder / f"emnist-{split}-{part}-{what}-ubyte").write_bytes(header + array.tobytes())


def _write_cifar10(folder: Path) -> None:
    folder.mkdir()
    kind = torchvision.datasets.CIFAR10
    for name, _ in kind.train_list + kind.test_list:
        batch = {"data": _noise(1000, 3072), "labels": [i % 10 for i in range(1000)]}
        (folder / name).write_bytes(pickle.dumps(batch))
    names = {kind.meta["key"]: [str(i) for i in range(10)]}
    (folder / kind.meta["filename"]).write_bytes(pickle.dumps(names))
