"""Links of Markdown files, which count on the checkout: as the site and a package index need them.

The public address of the project stands in one place, `Source` below `[project.urls]` of
pyproject.toml. Without it, links to files that are no pages become text.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent.parent
# files beside docs/ that the site has as pages
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "notebooks/first_steps.ipynb": "notebooks/first_steps.md",
    "notebooks/own_method.ipynb": "notebooks/own_method.md",
}
_FENCE = re.compile(r"^( *)(```+).*?^\1\2`*\s*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:[^][]|\[[^][]*\])*)\]\(([^)\s]+)\)")
# a picture with the caption in italics below it
_PICTURE = re.compile(r"!\[[^]]*\]\([^)\s]+\)\n+(?:\*[^*]+\*\n+)?")


@cache
def urls() -> dict[str, str]:
    """The public addresses of the project by name; empty while there are none."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return dict(project.get("urls", {}))


def is_relative(target: str) -> bool:
    """Whether a link leads to another file of the checkout."""
    return re.match(r"[a-z][a-z0-9+.-]*:|#|/", target) is None


def relative_links(text: str) -> list[str]:
    """The targets of a Markdown text's links that lead to other files."""
    found = [match[3] for match in _LINK.finditer(_FENCE.sub("", text))]
    return [target for target in found if is_relative(target)]


def _replaced(text: str, change: Callable[[re.Match[str]], str]) -> str:
    """A Markdown text with every link to another file changed; code stays as it is."""

    def changed(part: str) -> str:
        return _LINK.sub(lambda link: change(link) if is_relative(link[3]) else link[0], part)

    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [changed(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, changed(text[end:])])


def absolute(kind: str, target: str, source: str) -> str:
    """The public address of a file of the checkout; `kind` is raw for pictures, else blob."""
    return f"{source.rstrip('/')}/{kind}/HEAD/{target}"


def for_index(readme: str, source: str | None) -> str:
    """The README as a package index shows it, where no file lies beside it.

    Args:
        readme: its text.
        source: the public address of the checkout; without it, pictures and their captions are
            left out, and links are text.
    """
    if source is None:
        readme = _PICTURE.sub("", readme)

    def change(link: re.Match[str]) -> str:
        if source is None:
            return link[2]
        target = absolute("raw" if link[1] else "blob", link[3], source)
        return f"{link[1]}[{link[2]}]({target})"

    return _replaced(readme, change)


def for_site(text: str, file: str, page: str) -> str:
    """The Markdown of a file with its links as the page `page` of the site needs them.

    Args:
        text: Markdown.
        file: where it lies in the checkout, such as CONTRIBUTING.md.
        page: where it will lie below docs/, such as contributing.md.
    """
    source = urls().get("Source")

    def change(link: re.Match[str]) -> str:
        target, _, anchor = link[3].partition("#")
        place = os.path.normpath(PurePosixPath(file).parent / target)
        if place.startswith("docs/"):
            place = place.removeprefix("docs/")
        elif place in PAGES:
            place = PAGES[place]
        elif source is None:
            return link[2]
        else:
            return f"{link[1]}[{link[2]}]({absolute('blob', place, source)})"
        there = os.path.relpath(place, PurePosixPath(page).parent)
        return f"{link[1]}[{link[2]}]({there}{'#' + anchor if anchor else ''})"

    return _replaced(text, change)
