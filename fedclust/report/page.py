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


@dataclass(frozen=True)
class Page:
    """The content of a page, in order.

    Attributes:
        title: heading.
        banners: what a reader must know before reading a number.
        tables: the headline table first; long ones come after the figures.
        pictures: the figures.
        findings: what the numbers say, in sentences, the first in bold.
    """

    title: str
    subtitle: str
    banners: Sequence[str]
    tables: Sequence[Table]
    pictures: Sequence[Picture]
    findings: Sequence[str] = ()


def render(page: Page) -> str:
    """The page of one experiment as HTML text: short tables, the figures, the other tables. The
    first figure stands beside the first table where both have room.
    """
    first = [table for table in page.tables if _leads(table)]
    others = [table for table in page.tables if not _leads(table)]
    links = [(table.name, table.title) for table in (*first, *others)]
    pictures, figures = list(page.pictures), ""
    lead, *rest = [_section(table) for table in first] or [""]
    if pictures and lead and not _wide(pictures[0]):  # the curve beside the numbers
        lead = f"<div class=pair>\n{lead}{_figure(pictures.pop(0))}</div>\n"
    if pictures:
        links.insert(len(first), ("figures", "Figures"))
        figures = f"<section id=figures>\n<h2>Figures</h2>\n{_figures(pictures)}</section>\n"
    tables, more = lead + "".join(rest), "".join(map(_section, others))
    header = _header(page.subtitle, page.banners) + _findings(page.findings)
    return _document(page.title, header + _contents(links) + tables + figures + more)


def render_index(title: str, sections: Sequence[tuple[str, Page]]) -> str:
    """The page of several experiments; `sections` have each one's relative address and page."""
    body, links = "", []
    for place, (address, one) in enumerate(sections, 1):
        name = f"experiment-{place}"
        links.append((name, one.title))
        head = f'<h2><a href="{html.escape(address)}">{html.escape(one.title)}</a></h2>\n'
        tables = "".join(_section(table, "h3", name) for table in one.tables)
        header = _header(one.subtitle, one.banners)
        body += f"<article id={name}>\n{head}{header}{_figures(one.pictures)}{tables}</article>\n"
    lead = f"{len(sections)} experiments; each heading leads to the experiment's own report."
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


def _findings(lines: Sequence[str]) -> str:
    if not lines:
        return ""
    first, *rest = (html.escape(line) for line in lines)
    items = "".join(f"<li>{line}</li>\n" for line in rest)
    return f"<p class=finding><strong>{first}</strong></p>\n<ul class=findings>\n{items}</ul>\n"


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


def _wide(picture: Picture) -> bool:
    """Whether a picture takes the whole page."""
    return _size(picture.png)[0] > _COLUMN


def _figures(pictures: Sequence[Picture]) -> str:
    return f"<div class=figures>\n{''.join(map(_figure, pictures))}</div>\n"


def _figure(picture: Picture) -> str:
    data = base64.b64encode(picture.png).decode()
    caption = html.escape(picture.caption)
    width, height = _size(picture.png)
    kind = "wide" if _wide(picture) else ""
    kind += " tall" if height > _TALL * width else ""
    return (
        f'<figure class="{kind.strip()}" id="{html.escape(picture.name)}">\n'
        f'<img width={width} alt="{caption}" src="data:image/png;base64,{data}">\n'
        f"<figcaption>{caption}</figcaption>\n</figure>\n"
    )
