"""`fedclust data`: download data sets before they are needed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedclust.config.tree import choices, describe
from fedclust.datasets.publishers import PUBLISHERS, bring
from fedclust.helpers.errors import ConfigError, UserError, did_you_mean

if TYPE_CHECKING:  # what lists imports no PyTorch
    from fedclust.core.types import Dataset

_ROOT, _FROM = "--root", "--from"


def command(arguments: Sequence[str]) -> None:
    """Download the data sets named into data.root; without a name say which there are.

    Args:
        arguments: names; `--root FOLDER` for another folder than FEDCLUST_DATA, or data; `--from
            FOLDER` that holds the publisher's files of a natural federation already.

    Raises:
        ConfigError: for a name that cannot be downloaded.
    """
    about, names = known(), list(arguments)
    root = _taken(names, _ROOT) or os.environ.get("FEDCLUST_DATA", "data")
    source = _taken(names, _FROM)
    for name in names:
        if name not in about:
            meant = did_you_mean(name, about) or f"it knows {', '.join(about)}"
            raise ConfigError(f"fedclust data cannot download {name}: {meant}")
    if source is not None and (len(names) != 1 or names[0] not in PUBLISHERS):
        given = ", ".join(names) or "none"
        raise ConfigError(f"{_FROM} is for one of {', '.join(PUBLISHERS)}, and given is {given}")
    if not names:
        print(f"fedclust data NAME … downloads into {root}:")
        for name, words in about.items():
            print(f"  {name.ljust(max(map(len, about)))}  {words}")
        return
    status = 0
    for name in names:
        try:
            if name in PUBLISHERS:
                files = bring(name, Path(root), Path(source) if source else None)
                print(f"{name}: {about[name]} in {', '.join(map(str, files))}")
                continue
            dataset = load(name, root, download=True)
        except UserError as error:
            print(f"fedclust: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
            status = error.exit_status
        else:
            print(f"{name}: {len(dataset.x_train)} + {len(dataset.x_test)} examples in {root}")
    if status:
        sys.exit(status)


def known() -> dict[str, str]:
    """What can be downloaded, or made of a publisher's files, and what it is."""
    files = {name: describe(file) for name, file in downloadable().items()}
    return files | {name: one.about for name, one in PUBLISHERS.items()}


def _taken(words: list[str], option: str) -> str | None:
    """The value behind an option, once both are taken out of the words; None without it."""
    if option not in words:
        return None
    where = words.index(option)
    if where + 1 == len(words):
        raise ConfigError(f"{option} needs a folder")
    value = words[where + 1]
    del words[where : where + 2]
    return value


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
