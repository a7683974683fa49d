"""The config tree and the examples: inside an installed package, or beside it in a checkout.

A tree has a folder per group and a file per choice. A user's own tree has names of its own, except
for search spaces, of which the user's comes first.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from fedclust.helpers.errors import printable
from fedclust.helpers.files import read_text

_PACKAGE = Path(__file__).parent.parent


def _folder(name: str) -> Path:
    return next(one for one in (_PACKAGE / name, _PACKAGE.parent / name) if one.is_dir())


CONF, EXAMPLES = _folder("conf"), _folder("examples")
_HIDDEN = ("hydra", "space")


def roots(own: Path | None) -> list[Path]:
    """The config trees, a user's own in front."""
    return [CONF] if own is None else [own, CONF]


def groups(own: Path | None = None) -> list[str]:
    """The config groups a user chooses from, with those of their own tree."""
    return sorted({*_our_groups(), *(() if own is None else _groups(own))})


def _groups(root: Path) -> set[str]:
    """The groups of one tree."""
    return {
        folder.name
        for folder in root.iterdir()
        if folder.is_dir() and folder.name not in _HIDDEN and any(folder.rglob("*.yaml"))
    }


@cache
def _our_groups() -> set[str]:
    """Those of our own tree, which stays as it is while a process runs."""
    return _groups(CONF)


def choices(group: str, own: Path | None = None) -> dict[str, Path]:
    """The file of every choice of a group by name, of the first tree that has it, as in Hydra."""
    users = {} if own is None else _choices(own, group)
    return dict(sorted({**_our_choices(group), **users}.items()))


def _choices(root: Path, group: str) -> dict[str, Path]:
    """Those of one tree."""
    files = sorted((root / group).rglob("*.yaml"))
    named = {str(file.relative_to(root / group).with_suffix("")): file for file in files}
    return {name: file for name, file in named.items() if name == printable(name)}


@cache  # every job asks for those of several groups
def _our_choices(group: str) -> dict[str, Path]:
    return _choices(CONF, group)


def choices_with(group: str, text: re.Pattern[str], own: Path | None = None) -> list[str]:
    """The choices of a group whose file says something somewhere."""
    return [name for name, file in choices(group, own).items() if text.search(read_text(file))]


def describe(file: Path) -> str:
    """The first comment line of a config file that is not a Hydra directive."""
    for line in read_text(file).splitlines():
        text = line.removeprefix("#").strip()
        if line.startswith("#") and text and not text.startswith("@package"):
            return printable(text)
    return ""
