"""Data sets of the Hugging Face library `datasets`: saved to disk, or from its Hub.

`datasets` from version 4 on runs no code that comes with data; nothing here asks it to. Of a saved
folder only its Arrow tables are read, and pictures are decoded here, from bytes or from files in
that folder alone.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedclust.core.task import Targets
from fedclust.core.types import Dataset
from fedclust.datasets.checks import read
from fedclust.datasets.columns import ColumnName, NamedColumns, Unlabelled, listed, name_columns
from fedclust.datasets.extra import installed
from fedclust.datasets.inputs import Categories, Fill, Wanted, read_inputs, read_targets
from fedclust.datasets.normalise import WORDS, check_word
from fedclust.datasets.parts import DrawnPart, check_parts, parted
from fedclust.datasets.pictures import picture, white
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.errors import DataError, require
from fedclust.helpers.ranges import BelowOne, Ranged, Seed, Side


@dataclass(frozen=True, kw_only=True)
class HuggingFace(Ranged):
    """Pictures of one column, or numbers of several; classes and clients are numbered in sorted
    order.

    Attributes:
        path: folder written by `save_to_disk`, or a name on the Hub, such as flwrlabs/femnist.
        download: whether a name may be fetched from the Hub; `datasets` keeps it in its own cache.
        config: configuration of a data set of the Hub, None for its only one.
        revision: commit or branch of a data set of the Hub, None for the newest.
        train, test: names of the splits; without `test` a share is drawn.
        image: column of pictures; None for features.
        features, exclude, fill, categories: of numbers, see `fedclust.datasets.csv.Csv`.
        label: column of the class; of another task the column, or columns, of what it predicts.
        client: column of the natural client, for partition=natural, or several that name it
            together; None where there are none.
        group: column of the client's true group, None where there is none.
        unit: column of whom a row is, such as a patient, which is no input; all rows of one are on
            one side of every split. None where each row is by itself.
        unlabelled: see `fedclust.datasets.csv.Csv`.
        test_share: share of the test set, drawn from the rows of every client, or from all; not
            used with `test`. 0 leaves it to partition=natural.
        data_seed: seed of one draw for all seeds of a run, or with test_share=0 of the cut by
            partition=natural; None where each draws anew, so that differences between seeds tell of
            the choice of test rows, too.
        size: side of the pictures after resizing, pixels; None leaves pictures that are all alike.
        grayscale: one channel instead of three.
        normalise: mean_std (per feature, of the training rows of all clients; per channel of
            pictures, of all where every seed draws its own); of pictures also unit, pixel or
            inverted, of features also client (of the training rows of each client) or none.
    """

    path: str
    download: bool = False
    config: str | None = None
    revision: str | None = None
    train: str = "train"
    test: str | None = "test"
    image: str | None = None
    features: Sequence[ColumnName] | None = None
    exclude: Sequence[ColumnName] | None = None
    fill: Fill | None = None
    categories: Categories | None = None
    label: ColumnName | Sequence[ColumnName] = "label"
    client: ColumnName | Sequence[ColumnName] | None = None
    group: ColumnName | None = None
    unit: ColumnName | None = None
    unlabelled: Unlabelled = "refuse"
    test_share: Annotated[BelowOne, OnlyWith("test", None)] = 0.2
    data_seed: Annotated[Seed | None, OnlyWith("test", None)] = None
    size: Side | None = None
    grayscale: bool = False
    normalise: str = "mean_std"

    def __post_init__(self) -> None:
        super().__post_init__()
        name_columns(self, "label", "features", "exclude", "client", "group", "unit")
        check_word(
            self.normalise, WORDS if self.image is not None else ("mean_std", "client", "none")
        )
        check_parts(self.client, self.group, self.test_share, self.test is not None)
        for key in ("features", "exclude", "fill", "categories"):
            value, allowed = getattr(self, key), "null with dataset.image, since an example is a"
            plain = self.image is None or value is None
            require(plain, f"dataset.{key}", value, f"{allowed} picture or numbers")
        require(self.test != self.train, "dataset.test", self.test, "another split than train's")
        pictures = self.image is not None
        plain = self.size is None and not self.grayscale
        require(pictures or plain, "dataset.size", self.size, "null without dataset.image")

    def load(self, targets: Targets = "classes") -> Dataset:
        """The arrays: [N, C, H, W] uint8 of pictures, [N, F] float32 of features.

        Args:
            targets: what the task predicts.

        Raises:
            ConfigError: the package is missing.
            DataError: the data are missing or unreadable, lack a split or column, or a column holds
                what it may not.
        """
        installed("datasets", "hf", "hf")
        table, first = self._tables()
        label = listed(self.label)
        used = [*label, *listed(self.client), *listed(self.group), *listed(self.unit)]
        table, kept = table.labelled(label, self.unlabelled)
        wanted = Wanted(
            features=self.features,
            exclude=self.exclude,
            fill=self.fill,
            categories=self.categories,
            normalise=self.normalise,
        )
        table.whole([name for name in used if name in table.names], label)
        y = read_targets(table, self.label, targets)
        whose = table.clients(self.client, self.group)
        x = (
            read_inputs(table, wanted, used, y[0], whose)
            if self.image is None
            else self._pictures(table, self.image)
        )
        tests = (
            DrawnPart(self.test_share, self.data_seed)
            if self.test is None
            else torch.from_numpy(kept >= first)
        )
        name = Path(self.path).name
        return parted(table, name, x, y, whose, tests, self.normalise, self.fill, self.unit)

    def _tables(self) -> tuple[NamedColumns, int]:
        """The rows of both splits, one behind the other, and how many the first has."""
        where = Path(self.path)
        data = read("hf", where, self._found, key="dataset.path")
        whole = data if isinstance(data, dict) else {self.train: data}
        wanted = [self.train] if self.test is None else [self.train, self.test]
        for key, name in zip(("dataset.train", "dataset.test"), wanted, strict=False):
            if name not in whole:
                hint = "; null draws dataset.test_share" if key == "dataset.test" else ""
                raise DataError(
                    f"hf: {self.path} has no split {name}, which {key} names: it has "
                    f"{', '.join(map(str, whole))}{hint}"
                )
        parts = [whole[name].with_format("arrow") for name in wanted]
        self._check_alike(parts)

        def column(name: str) -> npt.NDArray[Any]:
            return np.concatenate([_values(part, name) for part in parts])

        names = [name for name in parts[0].column_names if name in parts[-1].column_names]
        sizes = [len(part) for part in parts]
        table = NamedColumns(
            what=f"hf: {self.path}",
            names=names,
            read=column,
            size=sum(sizes),
            called=lambda name: getattr(parts[0].features[name], "names", None),
        )
        return table, sizes[0]

    def _check_alike(self, parts: Sequence[Any]) -> None:
        """Refuse splits whose columns, or the order of whose classes, are not the same.

        Raises:
            DataError: naming the first column.
        """
        train, test = parts[0].features, parts[-1].features
        odd = sorted(set(train) ^ set(test))
        if odd:
            raise DataError(
                f"hf: {self.path} has the column {odd[0]} in one of the splits {self.train} and "
                f"{self.test} only: save both with the same columns"
            )
        for name in train:
            one, other = (getattr(part[name], "names", None) for part in (train, test))
            if one != other:
                raise DataError(
                    f"hf: {self.path} numbers the classes of column {name} differently in "
                    f"{self.train} and {self.test}: save both with the same order of names"
                )

    def _found(self) -> Any:
        """What `datasets` makes of the path."""
        import datasets

        datasets.disable_progress_bars()
        if Path(self.path).is_dir():
            for key in ("config", "revision"):
                allowed = "null for a folder, which holds one of them only"
                require(getattr(self, key) is None, f"dataset.{key}", getattr(self, key), allowed)
            return datasets.load_from_disk(self.path)
        if not self.download:
            raise DataError(
                f"hf: {self.path} not found: set dataset.path to a folder that save_to_disk wrote; "
                "data.download=true takes a name from the Hugging Face Hub"
            )
        return datasets.load_dataset(self.path, self.config, revision=self.revision)

    def _pictures(self, table: NamedColumns, name: str) -> Tensor:
        """All pictures, [N, 1 or 3, H, W] uint8."""
        images: npt.NDArray[np.uint8] | None = None
        values = table.values("dataset.image", name)
        for row, value in enumerate(values):
            if not isinstance(value, dict) or not {"bytes", "path"} <= set(value):
                raise DataError(
                    f"{table.what}, column {name}, row {row + 1} holds no picture: dataset.image "
                    "must name some"
                )
        most = white(map(self._source, values))
        for row, value in enumerate(values):
            what = f"{table.what}, column {name}, row {row + 1}"
            one = read("hf", Path(what), partial(self._picture, value, most), key="dataset.image")
            if images is None:
                images = np.empty((table.size, *one.shape), dtype=np.uint8)
            if one.shape != images.shape[1:]:
                raise DataError(
                    f"{what} has {one.shape[0]} x {one.shape[1]} pixels, the first "
                    f"{images.shape[1]} x {images.shape[2]}: set dataset.size"
                )
            images[row] = one
        if images is None:
            raise DataError(f"{table.what} holds no example: see dataset.train")
        return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()

    def _picture(self, value: dict[str, Any], most: int) -> npt.NDArray[np.uint8]:
        """One picture."""
        return picture(self._source(value), self.size, self.grayscale, most)

    def _source(self, value: dict[str, Any]) -> str | io.BytesIO:
        """Where a picture is; its path is followed inside the saved folder only."""
        if value["bytes"] is not None:
            return io.BytesIO(value["bytes"])
        folder = Path(self.path).resolve()
        file = (folder / str(value["path"])).resolve()
        if not file.is_relative_to(folder):
            raise DataError(
                f"hf: {self.path} names the picture {value['path']} outside of its folder: save "
                "the data set with its pictures embedded"
            )
        return str(file)


def _values(part: Any, name: str) -> npt.NDArray[Any]:
    """The values of a column, numbers as NumPy's own; a class that is not known is missing."""
    column = part.select_columns([name])[:].column(name).combine_chunks()
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if type(part.features[name]).__name__ == "ClassLabel" and (values < 0).any():
        values = values.astype(object)
        values[values < 0] = None  # as `datasets` writes labels that are kept back
    return values
