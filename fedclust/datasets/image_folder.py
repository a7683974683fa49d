"""A user's own images: torchvision's ImageFolder layout, `train/<class>/*` and `test/<class>/*`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torchvision
from torch import Tensor

from fedclust.core.types import Dataset, Names
from fedclust.datasets.checks import checked, read
from fedclust.datasets.copies import told_of_copies
from fedclust.datasets.normalise import Word, affine
from fedclust.datasets.pictures import pictures, white
from fedclust.helpers.errors import DataError
from fedclust.helpers.ranges import Ranged, Side

_KINDS = (*torchvision.datasets.folder.IMG_EXTENSIONS, ".gif", ".avif")


@dataclass(frozen=True, kw_only=True)
class ImageFolder(Ranged):
    """Images of any size, resized to a square; the classes are the folder names in sorted order."""

    path: str  # folder that holds `train/` and `test/`
    size: Side = 32  # side of the images after resizing, pixels
    grayscale: bool = False  # one channel instead of three
    # mean_std (per channel) and pixel (statistics of the training images), unit or inverted
    normalise: Word = "mean_std"

    def load(self) -> Dataset:
        """The arrays, [N, 1 or 3, size, size] uint8; every image is read and resized once.

        Raises:
            DataError: a folder is missing or empty, train and test differ in classes, or an image
                is unreadable.
        """
        path = Path(self.path)
        train, test = self._find(path / "train"), self._find(path / "test")
        if train.classes != test.classes:
            odd = sorted(set(train.classes) ^ set(test.classes))[0]
            raise DataError(
                f"image_folder: class {odd} is not in both {path / 'train'} and {path / 'test'}: "
                "add it"
            )
        hidden = [one for part in ("train", "test") for one in _passed_over(path / part)]
        what = f"image_folder: {path}: passed over {len(hidden)} hidden or loose files and folders"
        remarks = [f"{what}, such as {one.relative_to(path)}" for one in hidden[:1]]
        most = white(file for file, _ in train.samples)
        x_train, x_test = self._read(train, most), self._read(test, most)
        scale, shift = affine(self.normalise, x_train)
        made = checked(
            Dataset(
                name=path.name,
                x_train=x_train,
                y_train=torch.tensor(train.targets),
                x_test=x_test,
                y_test=torch.tensor(test.targets),
                num_classes=len(train.classes),
                scale=scale,
                shift=shift,
                names=Names(classes=tuple(train.classes)),
                remarks=tuple(remarks),
            )
        )
        return told_of_copies(made)

    def _find(self, folder: Path) -> _Shown:
        if not folder.is_dir():
            raise DataError(
                f"image_folder: {folder} not found: set dataset.path to a folder with train/ and "
                "test/"
            )
        _check_files(folder)
        is_shown = partial(_is_shown, folder=folder)
        work = partial(_Shown, folder, is_valid_file=is_shown)
        return read("image_folder", folder, work, key="dataset.path")

    def _read(self, found: _Shown, most: int) -> Tensor:
        sources = ((str(file), str(file)) for file, _ in found.samples)
        number, grey = len(found.samples), self.grayscale
        return pictures("image_folder", "dataset.path", sources, number, self.size, grey, most)


class _Shown(torchvision.datasets.ImageFolder):  # type: ignore[misc]
    """The pictures of all classes whose folders are not hidden."""

    def find_classes(self, directory: str | Path) -> tuple[list[str], dict[str, int]]:
        """Names of the classes in sorted order, and their numbers."""
        found, _ = super().find_classes(directory)
        names = [name for name in found if not name.startswith(".")]
        return names, {name: number for number, name in enumerate(names)}


def _is_shown(path: str | Path, folder: Path) -> bool:
    """Whether neither a file nor a folder around it, inside of `folder`, is hidden."""
    return not any(part.startswith(".") for part in Path(path).relative_to(folder).parts)


def _passed_over(folder: Path) -> list[Path]:
    """Hidden files and folders, and files beside the folders of the classes."""
    loose = [one for one in folder.iterdir() if one.is_file()]
    return sorted({*loose, *(one for one in folder.rglob(".*") if _is_shown(one.parent, folder))})


def _check_files(folder: Path) -> None:
    """Refuse a file that is no picture, and a folder that is met twice: what is passed over without
    a word is missed, and what is met again counts twice.
    """
    met: dict[Path, Path] = {}
    for place, folders, files in os.walk(folder, followlinks=True):
        inner = Path(place)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        first = met.setdefault(inner.resolve(), inner)
        if first != inner:
            raise DataError(
                f"image_folder: {inner} is the folder {first}, by a link: remove one of them"
            )
        for file in (inner / name for name in sorted(files) if inner != folder):
            if not _is_shown(file, folder):
                continue
            if file.suffix.lower() not in _KINDS or not file.is_file():
                raise DataError(
                    f"image_folder: {file} is no picture that is read here "
                    f"({', '.join(_KINDS)}): convert it or take it out"
                )
