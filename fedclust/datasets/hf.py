"""Data sets of the Hugging Face library `datasets`: saved to disk, or from its Hub.

`datasets` from version 4 on runs no code that comes with data. Of a saved folder only its Arrow
tables are read, and pictures are decoded here, from bytes or from files in that folder alone.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedclust.core.task import Targets
from fedclust.core.types import Dataset
from fedclust.datasets.checks import installed, read
from fedclust.datasets.columns import NamedColumns, Owners
from fedclust.datasets.inputs import Inputs, Tabular
from fedclust.datasets.normalise import WORDS, check_word
from fedclust.datasets.parts import table_dataset
from fedclust.datasets.pictures import Source, pictures, white
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.errors import DataError, require
from fedclust.helpers.ranges import BelowOne, Seed, Side


@dataclass(frozen=True, kw_only=True)
class HuggingFace(Tabular):
    """Pictures of one column, or numbers of several; see `Tabular` for what columns mean.

    Attributes:
        path: folder written by `save_to_disk`, or a name on the Hub, such as flwrlabs/femnist.
        download: whether a name may be fetched from the Hub; `datasets` keeps it in its own cache.
        config: configuration of a data set of the Hub, None for its only one.
        revision: commit or branch of a data set of the Hub, None for the newest.
        train, test: names of the splits; without `test` a share is drawn.
        image: column of pictures; None for features.
        size: side of the pictures after resizing, pixels; None leaves pictures that are all alike.
        grayscale: one channel instead of three.
        normalise: mean_std (of pictures per channel, of all where every seed draws its own); of
            pictures also unit, pixel or inverted, of features also client or none.
    """

    download: bool = False
    config: str | None = None
    revision: str | None = None
    train: str = "train"
    test: str | None = "test"
    image: str | None = None
    test_share: Annotated[BelowOne, OnlyWith("test", None)] = 0.2
    data_seed: Annotated[Seed | None, OnlyWith("test", None)] = None
    size: Side | None = None
    grayscale: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        pictures = self.image is not None
        check_word(self.normalise, WORDS if pictures else ("mean_std", "client", "none"))
        for key in ("features", "exclude", "fill", "categories"):
            value, allowed = getattr(self, key), "null with dataset.image, since an example is a"
            plain = not pictures or value is None
            require(plain, f"dataset.{key}", value, f"{allowed} picture or numbers")
        require(self.test != self.train, "dataset.test", self.test, "another split than train's")
        plain = self.size is None and not self.grayscale
        require(pictures or plain, "dataset.size", self.size, "null without dataset.image")

    @property
    def names_tests(self) -> bool:
        return self.test is not None

    def load(self, targets: Targets = "classes") -> Dataset:
        """The arrays: [N, C, H, W] uint8 of pictures, [N, F] float32 of features, for a task that
        predicts `targets`.

        Raises:
            ConfigError: the package is missing.
            DataError: the data are missing or unreadable, lack a split or column, or a column holds
                what it may not.
        """
        installed("datasets", "hf", "hf")
        return table_dataset(self, self._tables(), Path(self.path).name, targets)

    def tests(self, table: NamedColumns) -> Tensor | None:
        return None if self.test is None else torch.arange(table.size) >= table.first

    def examples(self, table: NamedColumns, label: Tensor, whose: Owners) -> Inputs | Tensor:
        if (name := self.image) is None:
            return super().examples(table, label, whose)
        values = table.values("dataset.image", name)
        for row, value in enumerate(values):
            if not isinstance(value, dict) or not {"bytes", "path"} <= set(value):
                raise DataError(
                    f"{table.what}, column {name}, row {row + 1} holds no picture: dataset.image "
                    "must name some"
                )
        if not len(values):
            raise DataError(f"{table.what} holds no example: see dataset.train")

        def sources() -> Iterator[tuple[str, Source]]:
            for row, value in enumerate(values):
                yield f"{table.what}, column {name}, row {row + 1}", self._source(value)

        most = white(map(self._source, values))
        return pictures(
            "hf", "dataset.image", sources(), len(values), self.size, self.grayscale, most
        )

    def _tables(self) -> NamedColumns:
        """The rows of both splits, one behind the other."""
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
        return NamedColumns(
            what=f"hf: {self.path}",
            names=names,
            read=column,
            size=sum(sizes),
            first=sizes[0],
            called=lambda name: getattr(parts[0].features[name], "names", None),
        )

    def _check_alike(self, parts: Sequence[Any]) -> None:
        """Refuse splits whose columns, or the order of whose classes, are not the same."""
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

    def _source(self, value: dict[str, Any]) -> Source:
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
