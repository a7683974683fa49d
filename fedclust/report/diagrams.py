"""Figures of a comparison over federations: at a glance, mean ranks with bars, profiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import wrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedclust.report import style
from fedclust.report.arms import Arm
from fedclust.report.axes import labelled, part_cells, tell_apart, write_cells
from fedclust.report.comparison import Overall, scale
from fedclust.report.curves import MOST_LINES, legend_columns
from fedclust.report.formats import in_percent, lower_is_better
from fedclust.report.panels import FAINT, small_panels
from fedclust.report.relative import BELOW, LACKS, Relative, percent
from fedclust.report.spec import Spec
from fedclust.report.statistics.aggregates import profile
from fedclust.report.statistics.ranks import bars

_NAME = 0.21  # inches of a name
_BAR = 0.1  # inches of a bar that joins methods
_LETTER = 0.075  # inches
_NAMED = 1.9  # inches of the words beside the critical difference
_LEVELS = 200

_CELL, _ROW = 0.62, 0.205  # inches of a federation's column and of a method's row
_NOTE, _NOTE_LINE = 0.062, 0.15  # inches of a letter of its notes, and of a line
_DIVERGING = "PuOr"  # orange below the middle, purple above: told apart by colour-blind readers
_LEAST_SPAN, _MOST_SPAN = 0.05, 0.5  # from 1 to the end of the colours
_LEAST_BAR = 0.1  # of the colours on a side of 1, also where no share is there
_TICKS_APART = 0.3  # of the bar, so that their numbers do not meet
_DARK = 0.62  # a colour this far from the middle has light figures


def at_a_glance(relative: Relative) -> Figure:
    """Methods by federations, each cell the share of what knowing the true groups gives.

    White is as good as that, orange worse, purple better; equal distances from 1 have equally
    strong colours, and the strongest one stands for the farthest tenth of the cells.
    """
    shares = relative.shares
    gaps = np.abs(shares[np.isfinite(shares)] - 1)
    span = float(np.clip(np.quantile(gaps, 0.9), _LEAST_SPAN, _MOST_SPAN))
    high, wide = shares.shape
    left = max(map(len, relative.names)) * _LETTER + 0.15
    top = max(map(len, relative.settings)) * _LETTER * 0.75 + 0.3
    right = 0.95
    width = left + _CELL * wide + right
    notes = [
        "last line: score with the true groups known, the 100 % of its column",
        f"{BELOW} below one model for all"
        + (f"; {LACKS} seeds that others have are missing" if relative.lacks.any() else ""),
    ]
    caption = [line for note in notes for line in wrap(note, int(width / _NOTE))]
    below = 0.35 + _NOTE_LINE * len(caption)
    size = (width, top + _ROW * high + below)
    figure = Figure(figsize=size)
    figure.set_layout_engine("none")  # every place is given here
    place = (left / size[0], below / size[1], _CELL * wide / size[0], _ROW * high / size[1])
    axes = figure.add_axes(place)
    image = axes.imshow(
        shares, cmap=_DIVERGING, norm=Normalize(1 - span, 1 + span), aspect="auto", zorder=2
    )
    axes.set_axisbelow(False)
    part_cells(axes, high, wide, 1.0)
    axes.set_yticks(range(high), relative.names, fontsize=8.5)
    axes.set_xticks(range(wide), [f"{base:.0f}" for base in relative.base], fontsize=8)
    figure.text(0.1 / width, 0.08 / size[1], "\n".join(caption), fontsize=8, va="bottom")
    for column, setting in enumerate(relative.settings):
        axes.text(column - 0.25, -0.75, setting, rotation=40, ha="left", va="bottom", fontsize=8.5)
    known = ((place, share) for place, share in np.ndenumerate(shares) if np.isfinite(share))
    written = {
        place: (
            relative.cell_text(*place).replace(" ", ""),
            style.PAPER if abs(share - 1) > _DARK * span else style.INK,
        )
        for place, share in known
    }
    write_cells(axes, written, 7.5)
    bold: Any = {"fontsize": 8, "fontweight": "bold"}
    for row in range(high):
        axes.text(wide - 0.4, row, relative.mean_text(row), va="center", **bold)
    axes.text(wide - 0.4, -0.75, "mean", va="bottom", **bold)
    bar = figure.add_axes(((size[0] - 0.52) / size[0], place[1], 0.1 / size[0], place[3] * 0.5))
    figure.colorbar(image, cax=bar).outline.set_visible(False)
    _only_colours_shown(bar, shares, span)
    return figure


def _only_colours_shown(bar: Axes, shares: NDArray[np.float64], span: float) -> None:
    """Cut a bar of colours to those from 1 to the farthest share on either side, and mark them."""
    least, most = np.clip([np.nanmin(shares), np.nanmax(shares)], 1 - span, 1 + span)
    ends = (min(float(least), 1 - _LEAST_BAR * span), max(float(most), 1 + _LEAST_BAR * span))
    bar.set_ylim(*ends)
    apart = _TICKS_APART * (ends[1] - ends[0])
    ticks = sorted([1.0, *(end for end in ends if abs(end - 1) > apart)])
    bar.set_yticks(ticks, [f"{percent(tick)} %" for tick in ticks], fontsize=7)


def critical_difference(methods: Overall) -> Figure | None:
    """Methods by mean rank, the best at the left; bars join those that do not differ."""
    if not methods.enough:
        return None
    order = np.argsort(methods.ranks, kind="stable")
    places = methods.ranks[order]
    names = [methods.names[i] for i in order]
    joined = bars(places, methods.difference) if np.isfinite(methods.difference) else []
    half = math.ceil(len(names) / 2)
    above = 0.45 if joined else 0.1  # for the length of the critical difference
    below = 0.12 + _BAR * len(joined) + _NAME * half + 0.1
    inner, room = 4.2, (len(names) - 1) / 4.2  # of the axis; ranks an inch
    margin = max(map(len, names)) * _LETTER + 0.65
    if joined:  # room for what the length is
        margin = max(margin, min(methods.difference / room, inner) + _NAMED - inner)
    width, height = inner + 2 * margin, above + 0.3 + below
    figure = Figure(figsize=(width, height))
    figure.set_layout_engine("none")  # every place is given here
    axes = figure.add_axes((margin / width, 0, inner / width, 1))
    axes.set_axis_off()
    low, high = 1.0, float(len(names))
    axes.set_xlim(low, high)
    axes.set_ylim(-below, height - below)  # in inches, 0 at the axis
    _line(axes, [low, high], [0, 0], 1.0)
    step = max(1, math.ceil((high - low) / 12))
    for tick in range(1, len(names) + 1, step):
        _line(axes, [tick, tick], [0, 0.07], 0.8)
        axes.text(tick, 0.1, str(tick), ha="center", va="bottom", fontsize=8)
    reach = 0.006 * (high - low)
    for row, (first, last) in enumerate(joined):
        y = -0.1 - _BAR * row
        ends = [places[first] - reach, places[last] + reach]
        _line(axes, ends, [y, y], 3.0, solid_capstyle="butt")
    base = -0.12 - _BAR * len(joined)
    _names(axes, names, places, half, base)
    if joined:
        _length(axes, methods.difference, low, high, height - below - 0.1)
    return figure


def _line(axes: Axes, x: Sequence[float], y: Sequence[float], width: float, **look: Any) -> None:
    """A line that may leave the axes."""
    axes.plot(x, y, **{"color": style.INK, "linewidth": width, "clip_on": False, **look})


def _names(
    axes: Axes, names: list[str], places: NDArray[np.float64], half: int, base: float
) -> None:
    """Every method's name at the side where its rank is, with a line to its place."""
    low, high = axes.get_xlim()
    edge = 0.02 * (high - low)
    for i, (name, place) in enumerate(zip(names, places.tolist(), strict=True)):
        left = i < half
        row = i if left else len(names) - 1 - i
        y = base - _NAME * (row + 0.6)
        end = low - edge if left else high + edge
        _line(axes, [place, place, end], [0, y, y], 0.7, color="#9CA3AF", zorder=1)
        text = f"{name}  {place:.2f} " if left else f" {place:.2f}  {name}"
        side = "right" if left else "left"
        axes.text(end, y, text, ha=side, va="center", fontsize=8.5, clip_on=False)


def _length(axes: Axes, difference: float, low: float, high: float, y: float) -> None:
    """The critical difference as a length above the axis."""
    end = min(low + difference, high)
    _line(axes, [low, end], [y - 0.1, y - 0.1], 1.2)
    for x in (low, end):
        _line(axes, [x, x], [y - 0.14, y - 0.06], 1.2)
    text = f"  critical difference {difference:.2f}"
    axes.text(end, y - 0.1, text, ha="left", va="center", fontsize=8)


def profiles(spec: Spec, arms: Sequence[Arm], methods: Overall) -> Figure | None:
    """Performance profiles: the share of runs that score more than a level, over all levels."""
    values = {name: np.concatenate(methods.runs[name]) for name in methods.names}
    every = np.concatenate(list(values.values()))
    low, high = float(every.min()), float(every.max())
    if high <= low:
        return None
    room = 0.03 * (high - low)
    levels = np.linspace(low - room, high + room, _LEVELS)
    looks = style.looks(arms)
    shares = {name: 100 * profile(one, levels) for name, one in values.items()}
    error = lower_is_better(spec.metric) and not in_percent(spec.metric)
    unit = f"{spec.metric} " if error and methods.reference else ""
    label = f"level: {unit}{scale(spec, methods)}"
    if len(shares) <= MOST_LINES:
        figure = Figure(figsize=(6.4, 3.9))
        axes = figure.subplots()
        for name, share in shares.items():
            axes.plot(levels, share, label=name, markevery=_LEVELS // 8, **looks[name])
        tell_apart(axes)
        axes.set_xlabel(label)
        axes.set_ylabel("runs above the level (%)")
        figure.legend(loc="outside upper left", ncols=legend_columns(figure, shares))
        return figure
    figure, grid = small_panels(list(shares))
    for axes, (name, share) in zip(grid, shares.items(), strict=True):
        for other in shares.values():
            axes.plot(levels, other, **FAINT)
        axes.plot(levels, share, **{**looks[name], "marker": ""})
    return labelled(figure, label, "runs above the level (%)")
