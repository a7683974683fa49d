"""Line figures: a metric over iterations or bytes, mean over seeds with a band of one standard deviation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedclust.report import style
from fedclust.report.arms import Arm
from fedclust.report.published import lookup
from fedclust.report.spec import Spec
from fedclust.report.wording import byte_unit, factor

_TOGETHER = 8  # more arms than this are drawn in one panel per setting
_PER_ROW = 3


def over_rounds(arms: Sequence[Arm], metric: str, label: str, published: Spec | None = None) -> Figure | None:
    """A metric over iterations, or None where no arm recorded it.

    Args:
        arms: the curves.
        metric: what is drawn; accuracies in percent.
        label: of the vertical axis.
        published: where given, the numbers its paper prints are drawn as hollow marks.
    """
    arms = [arm for arm in arms if arm.curve(metric)]
    if not arms:
        return None
    figure, panels = _panels(arms, label, "iteration")
    for axes, positions in panels:
        for position, arm in positions:
            curve = arm.curve(metric)
            assert curve is not None
            _draw(
                axes,
                curve.rounds.astype(np.float64) + 1,
                factor(metric) * curve.values,
                style.line(position),
                arm.label,
            )
            if published is not None:
                _printed(axes, arm, curve.rounds, published, style.line(position))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))
    _legend(figure, panels)
    return figure


def over_bytes(arms: Sequence[Arm], metric: str, label: str) -> Figure | None:
    """A metric over the bytes sent so far, or None where no arm recorded both."""
    arms = [arm for arm in arms if arm.curve(metric) and arm.curve("bytes") and arm.total("bytes").max() > 0]
    if not arms:
        return None
    size, unit = byte_unit(max(float(arm.total("bytes").max()) for arm in arms))
    figure, panels = _panels(arms, label, f"sent so far, {unit} per seed")
    for axes, positions in panels:
        extent = []
        for position, arm in positions:
            curve, sent = arm.curve(metric), arm.curve("bytes")
            assert curve is not None
            assert sent is not None
            total = np.interp(curve.rounds, sent.rounds, np.nancumsum(sent.mean()) / size)
            extent += [total[total > 0].min(initial=total.max()), total.max()]
            _draw(axes, total, factor(metric) * curve.values, style.line(position), arm.label)
        if max(extent) > 20 * min(extent) > 0:
            axes.set_xscale("log")
    _legend(figure, panels)
    return figure


def _draw(
    axes: Axes, x: NDArray[np.float64], values: NDArray[np.float64], look: dict[str, Any], label: str
) -> None:
    """One arm: the mean over seeds [R, S] as a line with a few markers, ± 1 standard deviation as a band."""
    with np.errstate(all="ignore"):
        mean, std = np.nanmean(values, axis=1), np.nanstd(values, axis=1)
    shown = np.isfinite(mean)
    x, mean, std = x[shown], mean[shown], std[shown]
    if not len(x):
        return
    every = max(1, math.ceil(len(x) / 8))
    axes.plot(x, mean, label=label, markevery=every, zorder=3, **look)
    if values.shape[1] > 1:
        axes.fill_between(x, mean - std, mean + std, color=look["color"], alpha=0.15, linewidth=0, zorder=2)


def _printed(axes: Axes, arm: Arm, rounds: NDArray[np.int64], spec: Spec, look: dict[str, Any]) -> None:
    """Published numbers of the arm as hollow marks with their error bars."""
    assert spec.published is not None
    for iteration in spec.iterations or ():
        number = lookup(spec.published, arm.name, arm.job.choices, iteration, whole=False)
        if number is not None and iteration <= rounds[-1] + 1:
            axes.errorbar(
                iteration,
                number.mean,
                yerr=number.std,
                color=look["color"],
                marker=look["marker"],
                markerfacecolor="none",
                markeredgecolor=look["color"],
                markersize=7.5,
                elinewidth=0.9,
                capsize=2,
                linestyle="none",
                zorder=4,
            )


def _panels(arms: Sequence[Arm], y: str, x: str) -> tuple[Figure, list[tuple[Axes, list[tuple[int, Arm]]]]]:
    """The figure, and per panel its axes and the arms in it, each with the number of its look."""
    if len(arms) <= _TOGETHER:
        figure = Figure(figsize=(6.4, 3.9))
        axes = figure.subplots()
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        return figure, [(axes, list(enumerate(arms)))]
    names = list(dict.fromkeys(arm.name for arm in arms))
    settings = list(dict.fromkeys(arm.setting for arm in arms))
    wide = min(_PER_ROW, len(settings))
    high = math.ceil(len(settings) / wide)
    figure = Figure(figsize=(3.1 * wide + 0.4, 2.5 * high + 0.7))
    grid = figure.subplots(high, wide, squeeze=False).ravel().tolist()
    for axes in grid[len(settings) :]:
        axes.set_axis_off()
    panels = []
    for axes, setting in zip(grid, settings, strict=False):
        axes.set_title(setting.replace(" ", "\n") if len(setting) > 32 else setting)
        panels.append((axes, [(names.index(arm.name), arm) for arm in arms if arm.setting == setting]))
    figure.supxlabel(x, fontsize=9)
    figure.supylabel(y, fontsize=9)
    return figure, panels


def _legend(figure: Figure, panels: list[tuple[Axes, list[tuple[int, Arm]]]]) -> None:
    """One legend above all panels; named by algorithm where settings have panels of their own."""
    handles: dict[str, Any] = {}
    for axes, positions in panels:
        lines, labels = axes.get_legend_handles_labels()
        short = {arm.label: arm.name for _, arm in positions} if len(panels) > 1 else {}
        for drawn, label in zip(lines, labels, strict=True):
            handles.setdefault(short.get(label, label), drawn)
    widest = max((len(label) for label in handles), default=1)
    columns = max(1, min(len(handles), int(figure.get_figwidth() * 13 / (widest + 7))))
    figure.legend(list(handles.values()), list(handles), loc="outside upper left", ncols=columns)
