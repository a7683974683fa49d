"""The site's navigation: that of mkdocs.yml, with folders filled in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from scripts.docs.links import ROOT

DOCS = ROOT / "docs"


def filled(nav: Sequence[Any]) -> list[Any]:
    """A navigation in which an entry that ends in / is replaced by the pages of that folder that
    no entry names.
    """
    return _filled(nav, set(pages_of(nav)))


def _filled(nav: Sequence[Any], named: set[str]) -> list[Any]:
    found: list[Any] = []
    for entry in nav:
        if isinstance(entry, str) and entry.endswith("/"):
            found += _folder(DOCS / entry, named)
        elif isinstance(entry, dict):
            found += [
                {title: _filled(below, named) if isinstance(below, list) else below}
                for title, below in entry.items()
            ]
        else:
            found.append(entry)
    return found


def _folder(folder: Path, named: set[str]) -> list[Any]:
    """The index, then every page with the pages of the folder of its name."""
    entries: list[Any] = []
    for file in sorted(folder.glob("*.md"), key=lambda file: (file.stem != "README", file.stem)):
        inner = sorted((folder / file.stem).glob("*.md"))
        place = file.relative_to(DOCS).as_posix()
        if place in named:
            continue
        if not inner:
            entries.append(place)
            continue
        title = re.search(r"^# ([^:\n]+)", file.read_text(), re.MULTILINE)
        assert title is not None, f"{file} has no title"
        entries.append({title[1]: [place, *(one.relative_to(DOCS).as_posix() for one in inner)]})
    return entries


def pages_of(nav: Sequence[Any]) -> Iterator[str]:
    """Every page of a navigation, in order."""
    for entry in nav:
        if isinstance(entry, str):
            yield entry
        elif isinstance(entry, dict):
            for below in entry.values():
                yield from pages_of([below] if isinstance(below, str) else below)
