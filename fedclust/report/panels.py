"""What lines in one panel cannot show: many arms, a single round, a grid over two options."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedclust.metrics import METRICS
from fedclust.report import style
from fedclust.report.arms import Arm, settings_of
from fedclust.report.curves import (
    abscissa,
    axis_of,
    draw_curve,
    drawn_lines,
    sent_in,
    set_round_ticks,
    within,
)
from fedclust.report.formats import factor, title
from fedclust.report.pivot import Pivot

_PER_ROW = 5
MOST_PANELS = 20  # of a figure
FAINT: dict[str, Any] = {"color": "#C7CCD4", "linewidth": 0.7, "zorder": 1}
MOST_BARS = 60
_DARK = 0.55  # a cell of a heat map from here on has light figures


def multiples(arms: Sequence[Arm], metric: str, x: str) -> Figure | None:
    """A small panel per arm with the same axes: its settings as lines, or the other arms in grey
    where there is one setting. None where nothing was recorded.
    """
    arms = [
        arm
        for arm in arms
        if arm.curve(metric) and (x == "round" or arm.total(x).max(initial=0) > 0)
    ]
    names = list(dict.fromkeys(arm.name for arm in arms))[:MOST_PANELS]
    arms = [arm for arm in arms if arm.name in names]
    settings = settings_of(arms)
    if not names:
        return None
    figure, grid = small_panels(names, above=0.9 if len(settings) > 1 else 0.5)
    unit, sent = sent_in(arms, x)
    looks = style.looks(arms)
    others = _together(arms, metric, x, unit) if len(settings) == 1 else None
    for axes, name in zip(grid, names, strict=True):
        if others is not None:
            axes.plot(*others, **FAINT)
        for arm in arms:
            curve = arm.curve(metric)
            if arm.name == name and curve is not None:
                look = (
                    looks[name] if len(settings) == 1 else style.line(settings.index(arm.setting))
                )
                along = abscissa(arm, curve, x, unit)
                draw_curve(axes, along, curve, metric, {**look, "markersize": 3.2}, arm.setting)
    if x == "round":
        set_round_ticks(grid[0], arms, metric)
    figure.supxlabel(sent, fontsize=9)
    figure.supylabel(axis_of(arms, metric), fontsize=9)
    if len(settings) > 1:
        drawn = drawn_lines(grid)
        columns = min(len(drawn), 4)
        figure.legend(list(drawn.values()), list(drawn), loc="outside upper left", ncols=columns)
    return figure


def small_panels(names: Sequence[str], above: float = 0.5) -> tuple[Figure, list[Axes]]:
    """A figure with a small panel for every name, all with the same axes; `above` are inches for
    what stands over them.
    """
    wide = min(_PER_ROW, len(names))
    high = math.ceil(len(names) / wide)
    figure = style.Drawing(figsize=(2.1 * wide + 0.5, 1.65 * high + above))
    grid: list[Axes] = (
        figure.subplots(high, wide, squeeze=False, sharex=True, sharey=True).ravel().tolist()
    )
    for axes, name in zip(grid, names, strict=False):
        axes.set_title(textwrap.fill(name, 26), fontsize=8)
    for axes in grid[len(names) :]:
        axes.set_axis_off()
    for axes in grid[max(len(names) - wide, 0) : len(names)]:  # the lowest of every column
        axes.tick_params(labelbottom=True)
    return figure, grid[: len(names)]


def _together(
    arms: Sequence[Arm], metric: str, x: str, unit: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The means of all arms as one line with gaps: a panel then holds one artist and not a line of
    every arm, whose number would grow with the square of the arms.
    """
    along, means = [], []
    for arm in arms:
        curve = arm.curve(metric)
        assert curve is not None
        along.append(np.append(abscissa(arm, curve, x, unit), np.nan))
        means.append(np.append(factor(metric) * curve.mean(), np.nan))
    return np.concatenate(along), np.concatenate(means)


def bars(arms: Sequence[Arm], metric: str) -> Figure | None:
    """The only value of every arm as a bar with ± 1 standard deviation; None for none."""
    shown = [(arm, factor(metric) * arm.last(metric)) for arm in arms if len(arm.last(metric))]
    shown = shown[:MOST_BARS]
    if not shown:
        return None
    looks = style.looks(arms)
    figure = style.Drawing(figsize=(6.4, 0.28 * len(shown) + 1.0))
    axes = figure.subplots()
    low, high = within(metric, np.concatenate([values for _, values in shown]))
    for place, (arm, values) in enumerate(shown):
        mean, std = float(values.mean()), float(values.std())
        axes.barh(place, mean, height=0.66, color=looks[arm.name]["color"], zorder=2)
        ends = np.clip([mean - std, mean + std], low, high)
        if len(values) > 1:
            axes.plot(ends, [place, place], color=style.INK, linewidth=1.1, zorder=3)
        right = max(mean, float(ends[1]))  # the number stands behind the line
        axes.text(right, place, f" {mean:.4g}", va="center", fontsize=8, color=style.INK, zorder=4)
    axes.set_yticks(range(len(shown)), [arm.label for arm, _ in shown])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.12)
    axes.set_xlabel(axis_of(arms, metric))
    return figure


def heat(pivots: Sequence[Pivot], metric: str) -> Figure | None:
    """Mean over seeds for every pair of two options, shaded; None where nothing was recorded."""
    means = [pivot.means(metric) for pivot in pivots]
    known = [mean[np.isfinite(mean)] for mean in means]
    if not any(len(values) for values in known):
        return None
    low, high = (float(edge(np.concatenate(known))) for edge in (np.min, np.max))
    widest = max(len(pivot.columns) for pivot in pivots)
    tallest = max(len(pivot.rows) for pivot in pivots)
    size = ((0.8 * widest + 1.6) * len(pivots) + 0.6, 0.5 * tallest + 1.5)
    figure = style.Drawing(figsize=size)
    grid: list[Axes] = figure.subplots(1, len(pivots), squeeze=False).ravel().tolist()
    image: Any = None
    lower = METRICS[metric].better == "lower"  # light is good
    colours = f"{style.HEAT}_r" if lower else style.HEAT
    for axes, pivot, mean in zip(grid, pivots, means, strict=True):
        image = axes.imshow(mean, cmap=colours, vmin=low, vmax=high, aspect="auto")
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.set_xticks(range(len(pivot.columns)), pivot.columns)
        axes.set_yticks(range(len(pivot.rows)), pivot.rows)
        axes.set_xlabel(pivot.across)
        axes.set_ylabel(pivot.down)
        axes.set_title(pivot.title)
        for (row, column), value in np.ndenumerate(mean):
            if np.isfinite(value):
                shade = (value - low) / (high - low) if high > low else 0.0
                shade = 1 - shade if lower else shade
                colour = style.INK if shade > _DARK else style.PAPER
                text = f"{value:.4g}"
                axes.text(column, row, text, ha="center", va="center", fontsize=8, color=colour)
    bar = figure.colorbar(image, ax=grid, shrink=0.9, pad=0.02)
    bar.outline.set_visible(False)
    bar.set_label(title(metric) + (" (%)" if factor(metric) == 100 else ""), fontsize=8)
    return figure
