"""Who moves where: clusters over rounds as stacked bars, clients between them as bands by group."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch, Rectangle
from matplotlib.path import Path as Outline
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from fedclust.report import style
from fedclust.report.arms import Arm
from fedclust.report.axes import bare
from fedclust.report.curves import set_round_ticks
from fedclust.report.federations import called
from fedclust.report.together import MOST_NAMED

_COLUMNS = 6
_MOST_CLUSTERS = 20
_GAP = 0.02  # between clusters, as a share of all clients
_WIDTH = 0.16  # of a bar, in mean distances of two
_NAMES, _LINES = 34, 22  # letters of a line of clients' names; lines along all bars

Spans = dict[tuple[int, int], tuple[float, float]]  # (cluster, group) → bottom and top of its piece


def flow(arm: Arm) -> Figure | None:
    """How clients of the first seed move between clusters; below, the churn; None if none moves."""
    counts, churn = arm.curve("num_clusters"), arm.curve("churn")
    if counts is None or not 1 < np.nanmax(counts.values) <= _MOST_CLUSTERS:
        return None
    if len(counts.rounds) < 2 or (churn is not None and np.nanmax(churn.values) == 0):
        return None
    seed = arm.run.seeds[0]
    picks = np.unique(np.linspace(0, len(counts.rounds) - 1, _COLUMNS).round().astype(int))
    rows = arm.run.client_rows(seed, [int(counts.rounds[p]) for p in picks])
    if not len(rows):
        return None
    labels, groups = (_by_round(rows, column) for column in ("label", "group"))
    grouped = bool((groups >= 0).any())
    groups = groups if grouped else labels
    rounds = [int(t) + 1 for t in sorted(set(rows["round"]))]
    heights = [3.4, 1] if churn else [3.4]
    figure = Figure(figsize=(6.4, 4.4 if churn else 3.4))
    top, *below = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    stacks = [_stack(label, group) for label, group in zip(labels, groups, strict=True)]
    apart = (rounds[-1] - rounds[0]) / (len(rounds) - 1) if len(rounds) > 1 else 1.0  # the mean
    _alluvium(top, stacks, labels, groups, rounds, apart)
    top.set_title(f"{arm.label}, seed {seed}")
    for axes in below:
        _churn(axes, arm)
        axes.set_xlim(top.get_xlim())
    if 0 < len(names := called(arm, "clients")) <= MOST_NAMED:
        own = [names[client] for client in sorted(set(rows["client"]))]
        _name_clients(top, rounds[-1] + 0.6 * _WIDTH * apart, labels[-1], stacks[-1], own)
    if grouped:
        _name_groups(figure, groups, called(arm, "groups"))
    return figure


def _by_round(rows: pd.DataFrame, column: str) -> NDArray[np.int64]:
    """[rounds, M] a number of every client in every round; -1 where it was not there."""
    wide = rows.pivot_table(index="client", columns="round", values=column, aggfunc="last")
    numbers: NDArray[np.int64] = wide.fillna(-1).to_numpy(dtype=np.int64).T
    return numbers


def _name_clients(
    axes: Axes, x: float, label: NDArray[np.int64], stack: Spans, names: Sequence[str]
) -> None:
    """The clients' names [M] beside the last bars, which stand for clusters `label` [M]."""
    for cluster, (bottom, top) in _heights(stack).items():
        own = [name for name, c in zip(names, label, strict=True) if c == cluster]
        lines = textwrap.wrap(", ".join(own), _NAMES)
        most = max(1, int((top - bottom) * _LINES))
        if len(lines) > most:
            lines = [*lines[: most - 1], f"{lines[most - 1][: _NAMES - 1]}…"]
        look: Any = {"ha": "left", "va": "center", "fontsize": 7, "color": style.INK}
        axes.text(x, (bottom + top) / 2, "\n".join(lines), **look)


def _name_groups(figure: Figure, group: NDArray[np.int64], names: Mapping[int, str]) -> None:
    handles = []
    for g in np.unique(group[group >= 0]).tolist():
        look = style.of_group(g)
        look["hatch"] *= 2
        handles.append(Patch(label=names.get(g, f"group {g}"), **look))
    if handles:
        size = {"handlelength": 1.6, "handleheight": 1.3}
        figure.legend(handles=handles, loc="outside right upper", ncols=1, **size)


def _alluvium(
    axes: Axes,
    stacks: Sequence[Spans],
    labels: NDArray[np.int64],
    groups: NDArray[np.int64],
    rounds: Sequence[int],
    apart: float,
) -> None:
    """Bars at the rounds, `apart` on average, and bands between; labels and groups [rounds, M]."""
    half = _WIDTH / 2 * apart
    for t, stack in zip(rounds, stacks, strict=True):
        _bars(axes, t, half, stack)
    for i, (begin, end) in enumerate(itertools.pairwise(rounds)):
        pair = slice(i, i + 2)
        _bands(axes, (begin + half, end - half), stacks[pair], labels[pair], groups[pair])
    bare(axes)
    axes.set_xticks(rounds)
    axes.set_xlabel("round")
    axes.set_xlim(rounds[0] - 0.35 * apart, rounds[-1] + 0.35 * apart)
    axes.set_ylim(-0.01, max(top for stack in stacks for _, top in stack.values()) + 0.01)
    axes.set_yticks([])
    axes.set_ylabel("clients by cluster")


def _stack(label: NDArray[np.int64], group: NDArray[np.int64]) -> Spans:
    """Where every (cluster, group) piece lies; clusters in the order of their commonest groups."""
    clusters = np.unique(label).tolist()
    clusters.sort(key=lambda c: (np.bincount(group[label == c] + 1).argmax(), c))
    spans: Spans = {}
    height = 0.0
    for cluster in clusters:
        for g in np.unique(group):
            share = float(((label == cluster) & (group == g)).mean())
            if share:
                spans[cluster, int(g)] = (height, height + share)
                height += share
        height += _GAP
    return spans


def _heights(stack: Spans) -> dict[int, tuple[float, float]]:
    """Bottom and top of every cluster, from below."""
    heights: dict[int, tuple[float, float]] = {}
    for (cluster, _), (bottom, top) in stack.items():
        heights[cluster] = (heights.get(cluster, (bottom, top))[0], top)
    return heights


def _bars(axes: Axes, t: int, half: float, stack: Spans) -> None:
    for (_, group), (bottom, top) in stack.items():
        look = {**style.of_group(group), "linewidth": 0.4, "zorder": 3}
        axes.add_patch(Rectangle((t - half, bottom), 2 * half, top - bottom, **look))
    look = {"ha": "right", "va": "center", "fontsize": 7.5, "color": style.INK, "zorder": 4}
    box = {"boxstyle": "round,pad=0.12", "facecolor": style.PAPER, "alpha": 0.7, "linewidth": 0}
    for cluster, (bottom, top) in _heights(stack).items():
        if top - bottom > 0.04:
            name = "–" if cluster < 0 else str(cluster)
            axes.text(t - 1.4 * half, (bottom + top) / 2, name, bbox=box, **look)


def _bands(
    axes: Axes,
    between: tuple[float, float],
    stacks: Sequence[Spans],
    labels: NDArray[np.int64],
    groups: NDArray[np.int64],
) -> None:
    """Bands between the bars of two rounds, in the colour of the group left; arrays [2, M]."""
    left = {key: span[0] for key, span in stacks[0].items()}
    right = {key: span[0] for key, span in stacks[1].items()}
    # [4, moves]: cluster and group before, cluster and group after
    both = np.stack([labels[0], groups[0], labels[1], groups[1]])
    moves, number = np.unique(both, axis=1, return_counts=True)
    ends = [((int(a), int(g)), (int(b), int(h))) for a, g, b, h in moves.T]
    for i in sorted(range(len(ends)), key=lambda i: (stacks[0][ends[i][0]], stacks[1][ends[i][1]])):
        start, end = ends[i]
        share = number[i] / labels.shape[1]
        y, z = left[start], right[end]
        left[start] += share
        right[end] += share
        colour = style.group_colour(start[1])
        axes.add_patch(_band(*between, y, z, share, colour))


def _band(x0: float, x1: float, y0: float, y1: float, thickness: float, colour: str) -> PathPatch:
    """A smooth band of constant thickness from (x0, y0) to (x1, y1), its lower edges."""
    middle = (x0 + x1) / 2
    lower = [(x0, y0), (middle, y0), (middle, y1), (x1, y1)]
    upper = [(x, y + thickness) for x, y in reversed(lower)]
    codes = [Outline.MOVETO, *[Outline.CURVE4] * 3, Outline.LINETO, *[Outline.CURVE4] * 3]
    band = Outline([*lower, *upper, lower[0]], [*codes, Outline.CLOSEPOLY])
    return PathPatch(band, facecolor=colour, alpha=0.38, linewidth=0, zorder=2)


def _churn(axes: Axes, arm: Arm) -> None:
    """Share of clients that changed cluster since the evaluation before, mean over seeds."""
    curve = arm.curve("churn")
    assert curve is not None
    rounds, churn = curve.rounds + 1, curve.mean()
    axes.fill_between(rounds, churn, step="mid", color=style.MUTED, alpha=0.25, linewidth=0)
    look: Any = {"drawstyle": "steps-mid", "color": style.MUTED, "linewidth": 1.2}
    axes.plot(rounds, churn, marker="o" if len(rounds) == 1 else "", **look)
    axes.set_ylim(0, max(0.05, float(np.nanmax(churn)) * 1.1))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=3))
    set_round_ticks(axes, [arm], "churn")
    axes.set_xlabel("round")
    axes.set_ylabel("churn")
