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

from fedclust.report import style
from fedclust.report.arms import Arm, settings_of
from fedclust.report.axes import (
    bare,
    colour_bar,
    labelled,
    legend_of,
    panels,
    tell_apart,
    write_cells,
)
from fedclust.report.curves import (
    abscissa,
    axis_of,
    draw_curve,
    has_sent,
    sent_in,
    set_round_ticks,
    within,
)
from fedclust.report.formats import factor, heading, lower_is_better
from fedclust.report.pivot import Pivot

_PER_ROW = 5
MOST_PANELS = 20  # of a figure
FAINT: dict[str, Any] = {"color": "#C7CCD4", "linewidth": 0.7, "zorder": 1}
MOST_BARS = 60
_DARK = 0.55  # a cell of a heat map from here on has light figures


def multiples(arms: Sequence[Arm], metric: str, x: str) -> Figure | None:
    """A small panel per arm: a line per setting, or the other arms in grey; None for nothing."""
    arms = [arm for arm in has_sent(arms, x) if arm.curve(metric)]
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
                one = len(settings) == 1
                look = looks[name] if one else style.line(settings.index(arm.setting))
                along = abscissa(arm, curve, x, unit)
                draw_curve(axes, along, curve, metric, {**look, "markersize": 3.2}, arm.setting)
        tell_apart(axes)
    if x == "round":
        set_round_ticks(grid[0], arms, metric)
    if len(settings) > 1:
        lines, labels = legend_of(grid)
        figure.legend(lines, labels, loc="outside upper left", ncols=min(len(labels), 4))
    return labelled(figure, sent, axis_of(arms, metric))


def small_panels(names: Sequence[str], above: float = 0.5) -> tuple[Figure, list[Axes]]:
    """A small panel for every name, all with the same axes; `above` in inches."""
    wide = min(_PER_ROW, len(names))
    size = 2.1 * wide + 0.5, 1.65 * math.ceil(len(names) / wide) + above
    figure, grid = panels(len(names), wide, size, share=True)
    for axes, name in zip(grid, names, strict=True):
        axes.set_title(textwrap.fill(name, 26), fontsize=8)
    for axes in grid[-wide:]:  # the lowest of every column
        axes.tick_params(labelbottom=True)
    return figure, grid


def _together(
    arms: Sequence[Arm], metric: str, x: str, unit: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The means of all arms as one line with gaps: one artist per panel and not one per arm."""
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
    figure, grid = panels(len(pivots), len(pivots), size)
    image: Any = None
    lower = lower_is_better(metric)  # light is good
    colours = f"{style.HEAT}_r" if lower else style.HEAT

    def colour(value: float) -> str:
        shade = (value - low) / (high - low) if high > low else 0.0
        return style.INK if (1 - shade if lower else shade) > _DARK else style.PAPER

    for axes, pivot, mean in zip(grid, pivots, means, strict=True):
        image = axes.imshow(mean, cmap=colours, vmin=low, vmax=high, aspect="auto")
        bare(axes, framed=True)
        axes.set_xticks(range(len(pivot.columns)), pivot.columns)
        axes.set_yticks(range(len(pivot.rows)), pivot.rows)
        axes.set_xlabel(pivot.across)
        axes.set_ylabel(pivot.down)
        axes.set_title(pivot.title)
        known_cells = ((at, v) for at, v in np.ndenumerate(mean) if np.isfinite(v))
        write_cells(axes, {at: (f"{v:.4g}", colour(v)) for at, v in known_cells}, 8)
    colour_bar(figure, image, heading(metric), ax=grid, shrink=0.9)
    return figure
