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


@dataclass(frozen=True, kw_only=True)
class Page:
    """What the page shows, in order.

    Attributes:
        title: heading.
        subtitle: what was run, in one line.
        banners: what a reader must know before reading a number.
        tables: the headline table first; the last one is folded away.
        pictures: the figures.
    """

    title: str
    subtitle: str
    banners: Sequence[str]
    tables: Sequence[Table]
    pictures: Sequence[Picture]


def render(page: Page) -> str:
    """The page as HTML text."""
    css = files("fedclust.report").joinpath("page.css").read_text(encoding="utf-8")
    banners = "".join(f"<p class=banner>{html.escape(text)}</p>\n" for text in page.banners)
    headline, *middle, settings = page.tables
    sections = "".join(_section(table) for table in middle)
    pictures = "".join(_figure(picture) for picture in page.pictures)
    return (
        f'<!doctype html>\n<html lang=en>\n<head>\n<meta charset="utf-8">\n'
        f'<meta name=viewport content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(page.title)}</title>\n<style>\n{css}</style>\n</head>\n<body>\n<main>\n"
        f"<header>\n<h1>{html.escape(page.title)}</h1>\n<p class=lead>{html.escape(page.subtitle)}</p>\n"
        f"{banners}</header>\n{_section(headline)}{sections}"
        f"<section>\n<h2>Figures</h2>\n<div class=figures>\n{pictures}</div>\n</section>\n"
        f"<section>\n<details>\n<summary>{html.escape(settings.title)}</summary>\n{settings.html()}</details>\n"
        f"</section>\n</main>\n</body>\n</html>\n"
    )


def _section(table: Table) -> str:
    return f"<section id={table.name}>\n<h2>{html.escape(table.title)}</h2>\n{table.html()}</section>\n"


def _width(png: bytes) -> int:
    """The width to show a picture at, in CSS pixels: 80 to the inch of the printed figure."""
    return int.from_bytes(png[16:20], "big") * 80 // int(RC["savefig.dpi"])


def _figure(picture: Picture) -> str:
    data = base64.b64encode(picture.png).decode()
    caption = html.escape(picture.caption)
    return (
        f'<figure id="{html.escape(picture.name)}">\n'
        f'<img width={_width(picture.png)} alt="{caption}" src="data:image/png;base64,{data}">\n'
        f"<figcaption>{caption}</figcaption>\n</figure>\n"
    )
