"""The report as one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from fedclust.report.figures import Picture
from fedclust.report.style import RC
from fedclust.report.table import Table

_COLUMN = 620  # a wider figure takes the whole page
_TALL = 0.6  # of its width; a figure less tall shares a printed page with another one
_SHORT = 30  # rows of a table that may stand before the figures
_FIRST = ("table", "recovery", "partition", "together", "grid", "claims", "comparison", "overall")
_MOST_BANNERS = 8  # more are folded away


@dataclass(frozen=True, kw_only=True)
class Page:
    """The content of a page, in order.

    Attributes:
        title: heading.
        subtitle: what was run, in one line.
        banners: what a reader must know before reading a number.
        tables: the headline table first; long ones come after the figures.
        pictures: the figures.
    """

    title: str
    subtitle: str
    banners: Sequence[str]
    tables: Sequence[Table]
    pictures: Sequence[Picture]


@dataclass(frozen=True, kw_only=True)
class Section(Page):
    """One experiment on the page of several.

    Attributes:
        link: address of the experiment's own page, relative to this one.
    """

    link: str


def render(page: Page) -> str:
    """The page of one experiment as HTML text: short tables, the figures, the other tables."""
    first = [table for table in page.tables if _leads(table)]
    others = [table for table in page.tables if not _leads(table)]
    figures = (
        "<section id=figures>\n<h2>Figures</h2>\n"
        f"<div class=figures>\n{''.join(map(_figure, page.pictures))}</div>\n</section>\n"
        if page.pictures
        else ""
    )
    links = [
        *((table.name, table.title) for table in first),
        *([("figures", "Figures")] if page.pictures else []),
        *((table.name, table.title) for table in others),
    ]
    body = (
        _header(page.subtitle, page.banners)
        + _contents(links)
        + "".join(map(_section, first))
        + figures
        + "".join(map(_section, others))
    )
    return _document(page.title, body)


def render_index(title: str, sections: Sequence[Section]) -> str:
    """The page of several experiments as HTML text."""
    names = [f"experiment-{place}" for place, _ in enumerate(sections, 1)]
    body = "".join(
        f'<article id={name}>\n<h2><a href="{html.escape(one.link)}">{html.escape(one.title)}'
        f"</a></h2>\n{_header(one.subtitle, one.banners)}"
        f"<div class=figures>\n{''.join(map(_figure, one.pictures))}</div>\n"
        f"{''.join(_section(table, 'h3', name) for table in one.tables)}</article>\n"
        for name, one in zip(names, sections, strict=True)
    )
    lead = f"{len(sections)} experiments; each heading leads to the experiment's own report."
    links = [(name, one.title) for name, one in zip(names, sections, strict=True)]
    return _document(title, _header(lead, ()) + _contents(links) + body)


def _leads(table: Table) -> bool:
    """Whether a table stands before the figures."""
    return table.name.startswith(_FIRST) and not table.folded and len(table.rows) <= _SHORT


def _contents(links: Sequence[tuple[str, str]]) -> str:
    """The table of contents."""
    entries = "".join(
        f"<li><a href=#{name}>{html.escape(title)}</a></li>\n" for name, title in links
    )
    return f"<nav aria-label=Contents>\n<ul>\n{entries}</ul>\n</nav>\n"


def _document(title: str, body: str) -> str:
    css, script = (
        files("fedclust.report").joinpath(name).read_text(encoding="utf-8")
        for name in ("page.css", "page.js")
    )
    return (
        f'<!doctype html>\n<html lang=en>\n<head>\n<meta charset="utf-8">\n'
        f'<meta name=viewport content="width=device-width, initial-scale=1">\n'
        f'<meta name=color-scheme content="light dark">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{css}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{html.escape(title)}</h1>\n{body}</main>\n"
        f"<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _header(subtitle: str, banners: Sequence[str]) -> str:
    lines = [f"<p class=banner>{html.escape(text)}</p>\n" for text in banners]
    shown = "".join(lines[:_MOST_BANNERS])
    if len(banners) > _MOST_BANNERS:
        rest = "".join(lines[_MOST_BANNERS:])
        more = len(banners) - _MOST_BANNERS
        shown += f"<details>\n<summary>{more} more warnings</summary>\n{rest}</details>\n"
    return f"<p class=lead>{html.escape(subtitle)}</p>\n{shown}"


def _section(table: Table, heading: str = "h2", within: str = "") -> str:
    title = html.escape(table.title)
    name = f"{within}-{table.name}" if within else table.name
    if table.folded:
        inner = f"<details>\n<summary>{title}</summary>\n{table.html()}</details>"
    else:
        inner = f"<{heading}>{title}</{heading}>\n{table.html()}"
    return f"<section class={table.name} id={name}>\n{inner}</section>\n"


def _size(png: bytes) -> tuple[int, int]:
    """Width and height to show a picture at, in CSS pixels: 80 to an inch of the printed figure."""
    edges = (int.from_bytes(png[place : place + 4], "big") for place in (16, 20))
    width, height = (edge * 80 // int(RC["savefig.dpi"]) for edge in edges)
    return width, height


def _figure(picture: Picture) -> str:
    data = base64.b64encode(picture.png).decode()
    caption = html.escape(picture.caption)
    width, height = _size(picture.png)
    kind = "wide" if width > _COLUMN else ""
    kind += " tall" if height > _TALL * width else ""
    return (
        f'<figure class="{kind.strip()}" id="{html.escape(picture.name)}">\n'
        f'<img width={width} alt="{caption}" src="data:image/png;base64,{data}">\n'
        f"<figcaption>{caption}</figcaption>\n</figure>\n"
    )
