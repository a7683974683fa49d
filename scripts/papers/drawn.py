"""Pictures of the printed tables: every printed accuracy beside ours, as SVG text.

A panel is a row of the table, with a line per method. What has not been run is not drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby

from scripts.papers.cells import Cell
from scripts.papers.rules import OTHER_DATA
from scripts.papers.tables import counted_seeds

_WIDTH, _LABEL, _LINE, _COLUMNS = 330, 110, 17, 3  # of a panel, in pixels; panels side by side
_PRINTED, _OURS = "#d55e00", "#0072b2"
_LEAST = 3  # numbers of a table that is worth a picture


def pictures(cells: Sequence[Cell]) -> dict[str, str]:
    """SVG texts of one paper's tables by the name of the table."""
    found = {}
    for experiment, group in groupby(cells, key=lambda cell: cell.row["experiment"]):
        of = [cell for cell in group if _is_drawn(cell)]
        methods = {cell.row["algorithm"] for cell in of}
        if len(of) >= _LEAST and len(methods) > 1:
            found[experiment] = _picture(of)
    return found


def _is_drawn(cell: Cell) -> bool:
    found, row = cell.measured, cell.row
    score = row["metric"] == "test_acc" and "bound" not in row["variant"]
    return score and row["mean"] != "" and found is not None and not math.isnan(found.value)


def _picture(cells: Sequence[Cell]) -> str:
    panels: dict[str, list[Cell]] = {}
    for cell in cells:
        panels.setdefault(_title(cell), []).append(cell)
    sized = list(panels.items())
    rows = [sized[at : at + _COLUMNS] for at in range(0, len(sized), _COLUMNS)]
    parts, top = [], 30
    for row in rows:
        for column, (title, of) in enumerate(row):
            parts.append(_panel(title, of, column * _WIDTH, top))
        top += max(len(of) for _, of in row) * _LINE + 62
    legend = (
        f'<path d="{_diamond(14, 14)}" fill="{_PRINTED}"/><text x="24" y="18">printed</text>'
        f'<circle cx="94" cy="14" r="4" fill="{_OURS}"/>'
        '<text x="104" y="18">ours, ± standard deviation</text>'
    )
    wide = min(len(sized), _COLUMNS) * _WIDTH
    body = "\n".join([legend, *parts])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {top}" width="{wide}" '
        'font-family="sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _title(cell: Cell) -> str:
    row = cell.row
    names = [row["dataset"].partition(" (")[0], row["model"], row["setting"].partition(";")[0]]
    names += [f"iteration {row['round']}"] if row["round"].isdigit() else []
    names[1] = names[1].partition(" (")[0]
    return ", ".join(name for name in names if name)


def _panel(title: str, cells: Sequence[Cell], left: int, top: int) -> str:
    """A row of the table, on an axis of its own between multiples of five percent."""
    ends = [value for cell in cells for value in _ends(cell)]
    low, high = 5 * math.floor(min(ends) / 5), min(5 * math.ceil(max(ends) / 5), 100)
    start, wide = left + _LABEL, _WIDTH - _LABEL - 34

    def place(value: float) -> float:
        return round(start + wide * (value - low) / max(high - low, 5), 1)

    seeds = sorted({cell.measured.n for cell in cells if cell.measured})
    counts = counted_seeds(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
    other = next((c.measured.stands_in for c in cells if c.measured), "")
    note = f"{counts}, {other}" if cells[0].state == OTHER_DATA else counts
    base = top + 32 + len(cells) * _LINE
    parts = [
        f'<text x="{left + 4}" y="{top + 12}" font-weight="bold">{escape(title)}</text>',
        f'<text x="{left + 4}" y="{top + 26}" fill="#555">{escape(note)}</text>',
        f'<path d="M{start} {base}H{start + wide}" stroke="#999"/>',
        f'<text x="{start}" y="{base + 14}" text-anchor="middle">{low}</text>',
        f'<text x="{start + wide}" y="{base + 14}" text-anchor="middle">{high} %</text>',
    ]
    for number, cell in enumerate(cells):
        assert cell.measured
        y = top + 42 + number * _LINE
        ours, std = cell.measured.value, cell.measured.std or 0.0
        name = cell.row["algorithm"].removesuffix(" (MCFL)")
        parts += [
            f'<text x="{start - 8}" y="{y + 4}" text-anchor="end">{escape(name)}</text>',
            f'<path d="M{start} {y}H{start + wide}" stroke="#eee"/>',
            f'<path d="M{place(max(ours - std, low))} {y}H{place(min(ours + std, high))}" '
            f'stroke="{_OURS}" stroke-width="2"/>',
            f'<circle cx="{place(ours)}" cy="{y}" r="4" fill="{_OURS}"/>',
            f'<path d="{_diamond(place(float(cell.row["mean"])), y)}" fill="{_PRINTED}"/>',
        ]
    return "\n".join(parts)


def _ends(cell: Cell) -> tuple[float, float]:
    """The lowest and the highest value that is drawn."""
    assert cell.measured
    ours, std = cell.measured.value, cell.measured.std or 0.0
    told = float(cell.row["mean"])
    return min(ours - std, told), max(ours + std, told)


def _diamond(x: float, y: float) -> str:
    return f"M{x:g} {y - 5:g}l5 5l-5 5l-5 -5z"


def file_of(paper_page: str, experiment: str) -> str:
    """Where the picture of a table lies below docs/results."""
    table = "".join(letter if letter.isalnum() else "_" for letter in experiment.lower())
    return f"drawn/{paper_page.removeprefix('numbers_').removesuffix('.md')}_{table}.svg"


def embedded(files: Mapping[str, str], experiment: str) -> list[str]:
    """The picture of a table as Markdown, where there is one."""
    said = f"{experiment}: printed and ours"
    return [f"![{said}]({files[experiment]})"] if experiment in files else []
