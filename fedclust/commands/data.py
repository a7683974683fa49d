"""`fedclust data`: download data sets before they are needed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedclust.config.tree import choices, describe
from fedclust.datasets.publishers import PUBLISHERS, bring, there
from fedclust.helpers.errors import ConfigError, DataError, UserError, did_you_mean
from fedclust.helpers.prose import complain

_ROOT, _FROM = "--root", "--from"


def command(arguments: Sequence[str]) -> None:
    """Download the data sets named into data.root; without a name say which there are.

    Args:
        arguments: names; `--root FOLDER` for another folder than FEDCLUST_DATA, or data; `--from
            FOLDER` that holds the publisher's files of one of them already.

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
    if source is not None and len(names) != 1:
        given = ", ".join(names) or "none"
        raise ConfigError(f"{_FROM} is for one of {', '.join(about)}, and given is {given}")
    if not names:
        print(f"fedclust data NAME … downloads into {root}:")
        for name, words in about.items():
            print(f"  {name.ljust(max(map(len, about)))}  {words}")
        return
    status = 0
    for name in names:
        try:
            if name in PUBLISHERS:
                bring(name, Path(root), Path(source) if source else None)
            elif source is not None:
                _copy(name, root, source)
            told = found(name, root, download=True)
        except UserError as error:
            complain(" ".join(str(error).split()))
            status = error.exit_status
        else:
            print(f"{name}: {told}")
    if status:
        sys.exit(status)


def known() -> dict[str, str]:
    """What can be downloaded, or made of a publisher's files, and what it is."""
    files = {name: describe(file) for name, file in downloadable().items()}
    return files | {name: one.about for name, one in PUBLISHERS.items()}


def found(name: str, root: str, *, download: bool) -> str:
    """What there is of a `known` data set, and where; DataError where it cannot be had."""
    if name in PUBLISHERS:
        files = there(name, Path(root))
        if not files:
            raise DataError(f"{name}: not in {Path(root, PUBLISHERS[name].folder)}")
        return f"in {', '.join(map(str, files))}; as published: {PUBLISHERS[name].about}"
    dataset = _made(name, root, download=download).load()
    return f"{len(dataset.x_train)} + {len(dataset.x_test)} examples in {root}"


def _made(name: str, root: str, *, download: bool) -> Any:
    """A data set that is `downloadable`, not loaded yet."""
    from fedclust.config.objects import Objects

    node = _node(choices("dataset")[name]) | {"root": root, "download": download}
    return Objects().make(node, "dataset")


def _copy(name: str, root: str, source: str) -> None:
    """Copy the files of a `downloadable` data set from another data.root, once they can be read."""
    dataset = _made(name, source, download=False)
    own = Path(source, dataset.folder)
    if not own.is_dir():
        raise DataError(
            f"{name}: {own} not found: {_FROM} must be the folder that holds {dataset.folder}/"
        )
    dataset.load()
    if Path(source).resolve() != Path(root).resolve():
        to = Path(root, dataset.folder)
        shutil.copytree(own, to, dirs_exist_ok=True)


def remedy(name: str) -> str:
    """How a data set that is `known` gets where it is looked for."""
    if name in PUBLISHERS and not PUBLISHERS[name].urls:
        return f"`fedclust data {name} --from FOLDER` makes it of {PUBLISHERS[name].needs}"
    return f"`fedclust data {name}` downloads it"


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
    # others that have `download` name what is to be downloaded themselves
    both = {"root": "${data.root}", "download": "${data.download}"}
    files = choices("dataset").items()
    return {name: file for name, file in files if both.items() <= _node(file).items()}


def _node(file: Path) -> dict[str, Any]:
    """A data set's config, with that of the files that it begins from."""
    import yaml

    own: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    node: dict[str, Any] = {}
    for parent in own.pop("defaults", ()):
        if isinstance(parent, str) and parent != "_self_":  # else a part of it, or of the run
            node |= _node(file.with_name(f"{parent}.yaml"))
    return node | own
