"""What several figures do with their axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedclust.report import style

Place = tuple[int, ...]  # row and column of a cell


def panels(
    number: int, wide: int, size: tuple[float, float], *, share: bool = False
) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels, `wide` of them side by side, which may share their axes."""
    figure = style.Drawing(figsize=size)
    high = -(-number // wide)
    grid = figure.subplots(high, wide, squeeze=False, sharex=share, sharey=share)
    places: list[Axes] = grid.ravel().tolist()
    for axes in places[number:]:
        axes.set_axis_off()
    return figure, places[:number]


def labelled(figure: Figure | None, across: str, down: str) -> Figure | None:
    """The figure with one label for all horizontal and one for all vertical axes."""
    if figure is not None:
        figure.supxlabel(across, fontsize=9)
        figure.supylabel(down, fontsize=9)
    return figure


def bare(axes: Axes, *, framed: bool = False) -> None:
    """Axes without grid and marks of ticks, and without a frame unless it is wanted."""
    axes.grid(visible=False)
    axes.tick_params(which="both", length=0)
    for side in () if framed else axes.spines.values():
        side.set_visible(False)


def part_cells(axes: Axes, rows: int, columns: int, gap: float) -> None:
    """White lines of a width between the cells of a matrix."""
    bare(axes)
    axes.set_xticks(np.arange(1, columns) - 0.5, minor=True)
    axes.set_yticks(np.arange(1, rows) - 0.5, minor=True)
    axes.grid(which="minor", color=style.PAPER, linewidth=gap)


def write_cells(axes: Axes, texts: Mapping[Place, tuple[str, str]], size: float) -> None:
    """A text and its colour in the middle of every cell."""
    for (row, column), (text, colour) in texts.items():
        axes.text(column, row, text, ha="center", va="center", fontsize=size, color=colour)


def legend_of(grid: Iterable[Axes]) -> tuple[list[Any], list[str]]:
    """The lines and labels in some panels, every label once."""
    drawn: dict[str, Any] = {}
    for axes in grid:
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True):
            drawn.setdefault(label, line)
    return list(drawn.values()), list(drawn)


def colour_bar(figure: Figure, image: Any, label: str, **place: Any) -> Axes:
    """A bar of an image's colours beside its axes."""
    bar = figure.colorbar(image, pad=0.02, **place)
    bar.outline.set_visible(False)
    bar.set_label(label, fontsize=8)
    return bar.ax
