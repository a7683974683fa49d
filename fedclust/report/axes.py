"""What several figures do with their axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedclust.report import style

Place = tuple[int, ...]  # row and column of a cell
_MOSTLY = 0.5  # of its length that another curve covers
_RIM = 0.7  # points of a covered curve on both sides of the one above it
_MOST_RIM = 2.1


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


def tell_apart(axes: Axes) -> None:
    """Widen the curves that later ones cover for most of their length, so that both are seen.

    Called when all curves are drawn and the axes have their limits.
    """
    curves = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    for place, curve in enumerate(curves):
        above = sum(_covers(axes, later, curve) for later in curves[place + 1 :])
        every = curve.get_markevery()
        if above:
            curve.set_linewidth(curve.get_linewidth() + 2 * min(_RIM * above, _MOST_RIM))
        if above and isinstance(every, int):  # marks beside those of the other
            curve.set_markevery((above % every, every))


def _covers(axes: Axes, above: Line2D, below: Line2D) -> bool:
    """Whether a curve lies less than a line's width from another for most of that one's length."""
    (x, y), (along, height) = (np.asarray(line.get_data(), float) for line in (above, below))
    shared = (along >= x.min(initial=np.inf)) & (along <= x.max(initial=-np.inf))
    if not len(along) or shared.mean() < _MOSTLY:
        return False
    there = np.interp(along[shared], x, y)
    both = axes.transData.transform(
        np.stack([np.tile(along[shared], 2), np.append(there, height[shared])], axis=1)
    )[:, 1].reshape(2, -1)
    apart = np.abs(both[0] - both[1]) * 72 / axes.figure.dpi  # points
    return bool((apart < below.get_linewidth()).sum() >= _MOSTLY * len(along))


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
