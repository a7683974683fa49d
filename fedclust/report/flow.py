"""Who moves where: clusters over rounds as stacked bars, clients between them as bands by group."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping, Sequence

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
    """How the clients of the arm's first seed move between clusters, and the churn of all seeds
    below.

    None where there is only one cluster all the time, or a cluster per client, or nobody ever
    moves, or there is one round only.
    """
    counts = arm.curve("num_clusters")
    if counts is None or not 1 < np.nanmax(counts.values) <= _MOST_CLUSTERS:
        return None
    churn = arm.curve("churn")
    if len(counts.rounds) < 2:
        return None
    if churn is not None and np.nanmax(churn.values) == 0:
        return None
    seed = arm.run.seeds[0]
    picks = np.unique(np.linspace(0, len(counts.rounds) - 1, _COLUMNS).round().astype(int))
    rounds = [int(counts.rounds[p]) for p in picks]
    rows = arm.run.client_rows(seed, rounds)
    if not len(rows):
        return None
    labels, groups = (_by_round(rows, column) for column in ("label", "group"))
    grouped = bool((groups >= 0).any())
    groups = groups if grouped else labels
    shown = sorted(set(rows["round"]))
    figure = Figure(figsize=(6.4, 4.4 if churn else 3.4))
    axes = figure.subplots(
        2 if churn else 1, 1, height_ratios=[3.4, 1] if churn else None, squeeze=False
    )[:, 0]
    own = [int(t) + 1 for t in shown]
    _alluvium(axes[0], labels, groups, own)
    axes[0].set_title(f"{arm.label}, seed {seed}")
    if churn:
        _churn(axes[1], arm)
        axes[1].set_xlim(axes[0].get_xlim())
    if 0 < len(names := called(arm, "clients")) <= MOST_NAMED:
        _name_clients(
            axes[0], labels[-1], groups[-1], own, [names[c] for c in sorted(set(rows["client"]))]
        )
    if grouped:
        _name_groups(figure, groups, called(arm, "groups"))
    return figure


def _by_round(rows: pd.DataFrame, column: str) -> NDArray[np.int64]:
    """[rounds, M] a number of every client in every round; -1 where it was not there."""
    wide = rows.pivot_table(index="client", columns="round", values=column, aggfunc="last")
    numbers: NDArray[np.int64] = wide.fillna(-1).to_numpy(dtype=np.int64).T
    return numbers


def _name_clients(
    axes: Axes,
    label: NDArray[np.int64],
    group: NDArray[np.int64],
    rounds: Sequence[int],
    names: Sequence[str],
) -> None:
    """The clients' names [M] beside the last bars, which stand for clusters `label` [M]."""
    stack = _stack(label, group)
    apart = (rounds[-1] - rounds[0]) / (len(rounds) - 1) if len(rounds) > 1 else 1.0
    for cluster in np.unique(label):
        pieces = [span for (c, _), span in stack.items() if c == cluster]
        bottom, top = min(p[0] for p in pieces), max(p[1] for p in pieces)
        own = [name for name, c in zip(names, label, strict=True) if c == cluster]
        lines = textwrap.wrap(", ".join(own), _NAMES)
        most = max(1, int((top - bottom) * _LINES))
        if len(lines) > most:
            lines = [*lines[: most - 1], f"{lines[most - 1][: _NAMES - 1]}…"]
        axes.text(
            rounds[-1] + 0.6 * _WIDTH * apart,
            (bottom + top) / 2,
            "\n".join(lines),
            ha="left",
            va="center",
            fontsize=7,
            color=style.INK,
        )


def _name_groups(figure: Figure, group: NDArray[np.int64], names: Mapping[int, str]) -> None:
    handles = [
        Patch(
            facecolor=style.group_colour(g),
            hatch=style.group_hatch(g) * 2,
            edgecolor=style.PAPER,
            label=names.get(int(g), f"group {g}"),
        )
        for g in np.unique(group)
        if g >= 0
    ]
    if handles:
        figure.legend(
            handles=handles, loc="outside right upper", ncols=1, handlelength=1.6, handleheight=1.3
        )


def _alluvium(
    axes: Axes, labels: NDArray[np.int64], groups: NDArray[np.int64], rounds: Sequence[int]
) -> None:
    """Bars at the rounds and bands between them; labels and groups [rounds, M]."""
    stacks = [_stack(label, group) for label, group in zip(labels, groups, strict=True)]
    apart = (rounds[-1] - rounds[0]) / (len(rounds) - 1) if len(rounds) > 1 else 1.0  # the mean
    half = _WIDTH / 2 * apart
    for t, stack, label in zip(rounds, stacks, labels, strict=True):
        _bars(axes, t, half, stack, label)
    for i, (begin, end) in enumerate(itertools.pairwise(rounds)):
        pair = slice(i, i + 2)
        _bands(axes, (begin + half, end - half), stacks[pair], labels[pair], groups[pair])
    axes.set_xticks(rounds)
    axes.set_xlabel("round")
    axes.set_xlim(rounds[0] - 0.35 * apart, rounds[-1] + 0.35 * apart)
    axes.set_ylim(-0.01, max(top for stack in stacks for _, top in stack.values()) + 0.01)
    axes.set_yticks([])
    axes.grid(visible=False)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(length=0)
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


def _bars(axes: Axes, t: int, half: float, stack: Spans, label: NDArray[np.int64]) -> None:
    for (_, group), (bottom, top) in stack.items():
        axes.add_patch(
            Rectangle(
                (t - half, bottom),
                2 * half,
                top - bottom,
                facecolor=style.group_colour(group),
                hatch=style.group_hatch(group),
                edgecolor=style.PAPER,
                linewidth=0.4,
                zorder=3,
            )
        )
    for cluster in np.unique(label):
        pieces = [span for (c, _), span in stack.items() if c == cluster]
        bottom, top = min(p[0] for p in pieces), max(p[1] for p in pieces)
        if top - bottom > 0.04:
            name = "–" if cluster < 0 else str(cluster)
            axes.text(
                t - 1.4 * half,
                (bottom + top) / 2,
                name,
                ha="right",
                va="center",
                fontsize=7.5,
                color=style.INK,
                zorder=4,
                bbox={
                    "boxstyle": "round,pad=0.12",
                    "facecolor": style.PAPER,
                    "alpha": 0.7,
                    "linewidth": 0,
                },
            )


def _bands(
    axes: Axes,
    between: tuple[float, float],
    stacks: Sequence[Spans],
    labels: NDArray[np.int64],
    groups: NDArray[np.int64],
) -> None:
    """Bands from the bars of one round to those of the next, in the order of the pieces they come
    from and in the colour of the group they leave; labels and groups [2, M].
    """
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
    corners = [
        (x0, y0),
        (middle, y0),
        (middle, y1),
        (x1, y1),
        (x1, y1 + thickness),
        (middle, y1 + thickness),
        (middle, y0 + thickness),
        (x0, y0 + thickness),
        (x0, y0),
    ]
    codes = [
        Outline.MOVETO,
        *[Outline.CURVE4] * 3,
        Outline.LINETO,
        *[Outline.CURVE4] * 3,
        Outline.CLOSEPOLY,
    ]
    return PathPatch(Outline(corners, codes), facecolor=colour, alpha=0.38, linewidth=0, zorder=2)


def _churn(axes: Axes, arm: Arm) -> None:
    """Share of clients that changed cluster since the evaluation before, mean over seeds."""
    curve = arm.curve("churn")
    assert curve is not None
    axes.fill_between(
        curve.rounds + 1, curve.mean(), step="mid", color=style.MUTED, alpha=0.25, linewidth=0
    )
    alone = "o" if len(curve.rounds) == 1 else ""
    axes.plot(
        curve.rounds + 1,
        curve.mean(),
        drawstyle="steps-mid",
        color=style.MUTED,
        linewidth=1.2,
        marker=alone,
    )
    axes.set_ylim(0, max(0.05, float(np.nanmax(curve.mean())) * 1.1))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=3))
    set_round_ticks(axes, [arm], "churn")
    axes.set_xlabel("round")
    axes.set_ylabel("churn")
