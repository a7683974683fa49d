"""`fedclust data`: download data sets before they are needed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedclust.config.tree import choices, describe
from fedclust.helpers.errors import ConfigError, UserError, did_you_mean

if TYPE_CHECKING:  # what lists imports no PyTorch
    from fedclust.core.types import Dataset

_ROOT = "--root"


def command(arguments: Sequence[str]) -> None:
    """Download the data sets named into data.root; without a name say which there are.

    Args:
        arguments: names, and `--root FOLDER` for another folder than FEDCLUST_DATA, or data.

    Raises:
        ConfigError: for a name that cannot be downloaded.
    """
    known = downloadable()
    names = list(arguments)
    root = os.environ.get("FEDCLUST_DATA", "data")
    if _ROOT in names:
        where = names.index(_ROOT)
        if where + 1 == len(names):
            raise ConfigError(f"{_ROOT} needs a folder")
        root = names[where + 1]
        del names[where : where + 2]
    for name in names:
        if name not in known:
            meant = did_you_mean(name, known) or f"it knows {', '.join(known)}"
            raise ConfigError(f"fedclust data cannot download {name}: {meant}")
    if not names:
        print(f"fedclust data NAME … downloads into {root}:")
        for name, file in known.items():
            print(f"  {name.ljust(max(map(len, known)))}  {describe(file)}")
        return
    status = 0
    for name in names:
        try:
            dataset = load(name, root, download=True)
        except UserError as error:
            print(f"fedclust: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
            status = error.exit_status
        else:
            print(f"{name}: {len(dataset.x_train)} + {len(dataset.x_test)} examples in {root}")
    if status:
        sys.exit(status)


def downloadable() -> dict[str, Path]:
    """The data sets that can be downloaded, each with its config file."""
    known = choices("dataset").items()
    # others that have `download` name what is to be downloaded themselves
    both = ("root: ${data.root} ", "download: ${data.download}")
    return {
        name: file
        for name, file in known
        if all(one in file.read_text(encoding="utf-8") for one in both)
    }


def load(name: str, root: str, *, download: bool) -> Dataset:
    """A data set as its config file describes it.

    Args:
        name: one of `downloadable()`.
        root: data.root.
        download: fetch what is missing.

    Raises:
        DataError: it is not there, unreadable, or cannot be downloaded.
    """
    import yaml

    from fedclust.config.objects import Objects

    node = yaml.safe_load(downloadable()[name].read_text(encoding="utf-8"))
    dataset: Dataset = Objects().make(node | {"root": root, "download": download}, "dataset").load()
    return dataset
