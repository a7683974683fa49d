"""Line figures: mean over seeds with a band of one std; metrics go down and settings across."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedclust.metrics import METRICS, headline_of
from fedclust.report import style
from fedclust.report.arms import SEPARATOR, Arm, settings_of
from fedclust.report.axes import legend_of, panels, tell_apart
from fedclust.report.formats import axis, bounds, byte_unit, factor, in_percent, time_unit
from fedclust.report.runs import Curve
from fedclust.report.spec import TIME, Spec

_PER_ROW = 4
MOST_PANELS = 24
_STRETCHED = 4.0  # a curve this many times as high as the common one may leave its panel
MOST_LINES = 8  # in one panel; more cannot be told apart
_FEW_ROUNDS = 7  # as many are each a tick
_LETTERS = 28  # of a title's line
_LEGEND_ROWS = 2  # that the size of a figure has room for
_LEGEND_ROW = 0.2  # inches of every further one


def fits_one_figure(arms: Sequence[Arm], metrics: Sequence[str]) -> bool:
    """Whether metrics by settings make one figure; else every metric is better drawn by itself."""
    if len(metrics) == 1:
        return True
    single = any(is_single(arms, metric) for metric in metrics)
    return len(settings_of(arms)) <= _PER_ROW and not is_crowded(arms) and not single


def axis_of(arms: Sequence[Arm], metric: str) -> str:
    """The label of an axis that shows the metric of some arms; losses of numbers are no nats."""
    heads = {headline_of(arm.run.curves) for arm in arms}
    numbers = any(head in METRICS and not in_percent(head) for head in heads)
    return axis(metric).removesuffix(", nats per example") if numbers else axis(metric)


def is_crowded(arms: Sequence[Arm]) -> bool:
    """Whether more arms share a setting than can be told apart in one panel."""
    return max(Counter(arm.setting for arm in arms).values(), default=0) > MOST_LINES


def is_single(arms: Sequence[Arm], metric: str) -> bool:
    """Whether a metric has one round in every arm, so that there is no line to draw."""
    curves = [curve for arm in arms if (curve := arm.curve(metric))]
    return bool(curves) and all(len(curve.rounds) == 1 for curve in curves)


def draw(
    arms: Sequence[Arm], metrics: Sequence[str], x: str, published: Spec | None = None
) -> Figure | None:
    """Metrics in every setting, or None where nothing of it was recorded.

    Args:
        metrics: what is drawn, from the top; accuracies in percent.
        x: "round", or models or bytes sent so far in either direction, or simulated_seconds.
        published: where given, over rounds, the numbers its paper prints are hollow marks.
    """
    looks = style.looks(arms)
    arms = has_sent(arms, x)
    metrics = [metric for metric in metrics if any(arm.curve(metric) for arm in arms)]
    settings = settings_of(arms)
    if not metrics:
        return None
    shown = [
        (metric, setting, [a for a in arms if a.setting == setting and a.curve(metric)])
        for metric in metrics
        for setting in settings
    ]
    if len(metrics) == 1:  # rows of metrics keep their columns
        shown = [panel for panel in shown if panel[2]]
        settings = [setting for _, setting, _ in shown]
    wide = _columns(settings, len(metrics))
    figure, grid = panels(len(shown), wide, _size(wide, math.ceil(len(shown) / wide)))
    unit, sent = sent_in(arms, x)
    for place, (axes, (metric, setting, own)) in enumerate(zip(grid, shown, strict=True)):
        if not own:
            axes.set_axis_off()
            continue
        _fill(axes, metric, own, x, unit, published, looks)
        if place < wide or len(metrics) == 1:  # rows of metrics share the titles of the first
            axes.set_title(_broken(setting))
        if place % wide == 0 or len(settings) == 1:
            axes.set_ylabel(_broken(axis_of(own, metric)))
        if place + wide >= len(shown):
            axes.set_xlabel(sent)
    lines, labels = legend_of(grid)
    columns = legend_columns(figure, labels)
    # or a long legend would squeeze the panels
    more = math.ceil(len(labels) / columns) - _LEGEND_ROWS
    figure.set_figheight(figure.get_figheight() + max(0, more) * _LEGEND_ROW)
    figure.legend(lines, labels, loc="outside upper left", ncols=columns)
    return figure


def has_sent(arms: Sequence[Arm], x: str) -> list[Arm]:
    """The arms that a horizontal axis has a place for: all over rounds, else those that sent, or
    have a clock.
    """
    return [arm for arm in arms if x == "round" or arm.total(x).max(initial=0) > 0]


def _fill(
    axes: Axes,
    metric: str,
    arms: Sequence[Arm],
    x: str,
    unit: float,
    published: Spec | None,
    looks: Mapping[str, dict[str, Any]],
) -> None:
    """All curves of a panel."""
    means, totals = [], []
    for arm in arms:
        curve = arm.curve(metric)
        assert curve is not None
        along = abscissa(arm, curve, x, unit)
        totals.append(float(along.max(initial=0)))
        look = looks[arm.name]
        means.append(draw_curve(axes, along, curve, metric, look, arm.name))
        if published is not None and arm.comparable and metric == published.metric:
            _printed(axes, arm, curve.rounds, published, look)
    if x == "round":
        set_round_ticks(axes, arms, metric)
    elif max(totals) > 20 * min(totals) > 0:  # else the cheap arms are squeezed at the left
        axes.set_xscale("log")
    if METRICS[metric].unit != "fraction":
        _keep_readable(axes, means)
    tell_apart(axes)


def abscissa(arm: Arm, curve: Curve, x: str, unit: float) -> NDArray[np.float64]:
    """[R] where values of a curve stand: rounds from 1, or what was sent so far, or the time."""
    if x == "round":
        return curve.rounds.astype(np.float64) + 1
    spent = arm.curve(x)
    assert spent is not None
    sent = np.nancumsum(spent.mean()) / unit
    return np.asarray(np.interp(curve.rounds, spent.rounds, sent))


def set_round_ticks(axes: Axes, arms: Sequence[Arm], metric: str) -> None:
    """Ticks at whole rounds: at every evaluated one where there are few."""
    rounds = sorted({int(t) + 1 for arm in arms if (c := arm.curve(metric)) for t in c.rounds})
    if len(rounds) <= _FEW_ROUNDS:
        axes.set_xticks(rounds)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7, min_n_ticks=2))


def draw_curve(
    axes: Axes,
    x: NDArray[np.float64],
    curve: Curve,
    metric: str,
    look: dict[str, Any],
    label: str,
) -> NDArray[np.float64]:
    """One arm with a band of ± 1 standard deviation `within` the metric; returns the mean [R]."""
    values = factor(metric) * curve.values
    known = np.isfinite(values).any(axis=1)
    x, values = x[known], values[known]
    with np.errstate(all="ignore"):
        mean: NDArray[np.float64] = np.nanmean(values, axis=1)
        std = np.nanstd(values, axis=1)
    if not len(x):
        return mean
    every = max(1, math.ceil(len(x) / 8))
    axes.plot(x, mean, label=label, markevery=every, zorder=3, **look)
    if values.shape[1] > 1:
        low, high = (np.clip(edge, *within(metric, values)) for edge in (mean - std, mean + std))
        axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0, zorder=2)
    return mean


def within(metric: str, values: NDArray[np.float64]) -> tuple[float, float]:
    """The bounds of a band of these values: without a least one where some are below the usual."""
    low, high = bounds(metric)
    return (-np.inf if np.nanmin(values, initial=np.inf) < low else low), high


def _keep_readable(axes: Axes, means: Sequence[NDArray[np.float64]]) -> None:
    """End the vertical axis at the common height of the curves where one of them stretches it."""
    finite = [mean[np.isfinite(mean)] for mean in means]
    # the height of a curve: where it starts or, later, all but its highest twentieth
    heights = sorted(
        max(float(mean[0]), float(np.quantile(mean, 0.95))) for mean in finite if len(mean)
    )
    if not heights:
        return
    common = heights[(len(heights) - 1) // 2]
    wanted = max(h for h in heights if h <= _STRETCHED * common or h == heights[0])
    values = np.concatenate(finite)
    highest, lowest = float(values.max()), float(values.min())
    if common <= 0 or lowest < 0:
        return
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom=max(bottom, 0.0 if lowest >= 0 else bottom))
    if top > 1.6 * wanted:
        axes.set_ylim(top=max(1.15 * wanted, wanted + 0.1 * (wanted - lowest)))
        if highest > axes.get_ylim()[1]:
            look: Any = {"ha": "right", "va": "top", "fontsize": 7.5, "color": style.MUTED}
            axes.text(0.99, 0.99, f"↑ up to {highest:.3g}", transform=axes.transAxes, **look)


def _printed(
    axes: Axes, arm: Arm, rounds: NDArray[np.int64], spec: Spec, look: dict[str, Any]
) -> None:
    """Published numbers of the arm as hollow marks with their error bars."""
    colour = look["color"]
    hollow = {"marker": look["marker"], "markerfacecolor": "none", "markeredgecolor": colour}
    hollow |= {"markersize": 7.5, "elinewidth": 0.9, "capsize": 2, "linestyle": "none"}
    for iteration in spec.rounds or ():
        number = spec.printed(arm.algorithm, arm.cell, iteration, whole=False)
        if number is not None and iteration <= rounds[-1] + 1:
            axes.errorbar(iteration, number.mean, number.std, color=colour, zorder=4, **hollow)


def _columns(settings: Sequence[str], metrics: int) -> int:
    """How many panels stand side by side."""
    if len(settings) == 1:
        return min(_PER_ROW, metrics)
    if metrics > 1 or len(settings) <= _PER_ROW:
        return len(settings)
    # a full table of two choices keeps its shape: cases below each other, scenarios side by side
    last = dict.fromkeys(setting.rpartition(SEPARATOR)[2] for setting in settings)
    first = dict.fromkeys(setting.rpartition(SEPARATOR)[0] for setting in settings)
    full = len(first) > 1 and len(first) * len(last) == len(settings)
    return len(last) if full and 1 < len(last) <= _PER_ROW else _PER_ROW


def _size(wide: int, high: int) -> tuple[float, float]:
    if wide == high == 1:
        return 6.4, 3.9
    return (3.4 if wide < 3 else 2.9) * wide + 0.4, 2.3 * high + 0.8


def _broken(title: str) -> str:
    """A title in lines that are no longer than a panel."""
    if len(title) <= _LETTERS:
        return title
    parts = title.split(SEPARATOR)
    return "\n".join(textwrap.fill(part, _LETTERS, break_long_words=False) for part in parts)


def sent_in(arms: Sequence[Arm], x: str) -> tuple[float, str]:
    """The unit of the horizontal axis and its label."""
    if x == "round":
        return 1.0, "round"
    largest = max((float(arm.total(x).max(initial=0)) for arm in arms), default=0.0)
    if x == TIME:
        size, unit = time_unit(largest)
        return size, f"simulated time, {unit}"
    size, unit = byte_unit(largest) if x == "bytes" else (1.0, "models")
    return size, f"sent so far, {unit} per seed"


def legend_columns(figure: Figure, labels: Collection[str]) -> int:
    """How many labels fit beside each other over a figure."""
    widest = max(map(len, labels), default=1)
    return max(1, min(len(labels), int(figure.get_figwidth() * 13 / (widest + 7))))
