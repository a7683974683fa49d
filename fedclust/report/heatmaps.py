"""Matrices: distances of clients in the order of their groups, and clusters against groups."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedclust.metrics.contingency import contingency
from fedclust.report import style
from fedclust.report.arms import Arm, settings_of
from fedclust.report.federations import called
from fedclust.report.statistics.separation import separation

_PER_ROW = 4
MOST_PANELS = 12
_MOST_CLUSTERS = 30  # a method with a model per client has no table worth drawing
_MOST_ROWS = 15  # whose numbers can be read
_LETTERS, _LINE = 12.5, 0.15  # letters of a title to the inch; inches of a further line
_PIXELS = 600  # larger matrices are averaged over blocks


def distances(arms: Sequence[Arm]) -> Figure | None:
    """The distance matrix of the first seed of every arm that kept one, ordered by group, then
    label.
    """
    known = ((arm, matrix) for arm in arms if (matrix := _distance(arm)) is not None)
    kept = list(islice(known, MOST_PANELS))
    if not kept:
        return None
    figure, grid = _grid([arm for arm, _ in kept], 2.7, 2.5)
    for axes, (arm, matrix) in zip(grid, kept, strict=True):
        order, group, label = _order(arm, len(matrix))
        matrix = matrix[np.ix_(order, order)]
        image = axes.imshow(
            _smaller(matrix), cmap=style.HEAT, extent=(0, len(order), len(order), 0)
        )
        axes.grid(visible=False)
        bar = figure.colorbar(image, ax=axes, shrink=0.82, pad=0.02)
        bar.outline.set_visible(False)
        bar.set_label("distance", fontsize=8)
        bar.ax.tick_params(labelsize=7)
        _mark_groups(axes, group, label, called(arm, "groups"))
    return figure


def contingencies(arms: Sequence[Arm]) -> Figure | None:
    """Clients per cluster and true group at the end of the first seed of every arm."""
    tables = []
    for arm in arms:
        rows = _final(arm)
        if (
            rows is None
            or rows[0].max() < 0
            or not 1 < len(np.unique(rows[1])) + 1 <= _MOST_CLUSTERS + 1
        ):
            continue
        known = (rows[0] >= 0) & (rows[1] >= 0)
        if known.any():
            tables.append((arm, rows[0][known], rows[1][known]))
        if len(tables) == MOST_PANELS:
            break
    if not tables:
        return None
    figure, grid = _grid([arm for arm, _, _ in tables], 2.1, 2.1)
    for axes, (_, group, label) in zip(grid, tables, strict=True):
        _contingency(axes, contingency(label, group), np.unique(label), np.unique(group))
    figure.supxlabel("true group", fontsize=9)
    figure.supylabel("cluster", fontsize=9)
    return figure


def classes(arms: Sequence[Arm]) -> Figure | None:
    """Share of every class in every cluster at the end of the first seed, where there are no true
    groups; None where no run wrote the classes of its clients.
    """
    known = ((arm, table) for arm in arms if (table := _classes(arm)) is not None)
    tables = list(islice(known, MOST_PANELS))
    if not tables:
        return None
    highest = max(max(float(share.max()), 2 / share.shape[1]) for _, (_, share) in tables)
    figure, grid = _grid([arm for arm, _ in tables], 2.4, 2.1)
    for axes, (_, (clusters, share)) in zip(grid, tables, strict=True):
        axes.imshow(share, cmap="Blues", vmin=0, vmax=highest, aspect="auto")
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.set_yticks(range(len(clusters)), [str(cluster) for cluster in clusters])
        every = math.ceil(share.shape[1] / 10)
        axes.set_xticks(range(0, share.shape[1], every))
    figure.supxlabel("class", fontsize=9)
    figure.supylabel("cluster", fontsize=9)
    return figure


def _has_classes(arm: Arm) -> bool:
    """Whether the examples of the first seed are of classes."""
    return "classes" in next(iter(arm.run.federation["seeds"].values()))


def _classes(arm: Arm) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
    """Clusters [K] and the share of every class in each [K, classes], first seed."""
    final, seeds = _final(arm), arm.run.federation.get("seeds") or {}
    owned = seeds.get(str(arm.run.seeds[0]), {}).get("client_examples")
    alike = owned is not None and final is not None and len(owned) == len(final[1])
    if final is None or not alike or len(owned[0]) < 2:  # without classes all are of one
        return None
    counts = np.array(owned, dtype=np.float64)
    clusters = np.unique(final[1][final[1] >= 0])
    if not 1 <= len(clusters) <= _MOST_CLUSTERS:
        return None
    share = np.stack([counts[final[1] == cluster].sum(axis=0) for cluster in clusters])
    return clusters, share / np.maximum(share.sum(axis=1, keepdims=True), 1)


def examples(arms: Sequence[Arm]) -> Figure | None:
    """Training examples of every class as bars, one piece per true group, in every setting; None
    where no run wrote about its federation.
    """
    firsts = [
        next((arm for arm in arms if arm.setting == s and arm.run.federation.get("seeds")), None)
        for s in settings_of(arms)
    ]
    known = [arm for arm in firsts if arm is not None and _has_classes(arm)][:MOST_PANELS]
    if not known:
        return None
    figure, grid = _grid(known, 3.4, 2.2)
    names: dict[str, Any] = {}
    for axes, arm in zip(grid, known, strict=True):
        seed = next(iter(arm.run.federation["seeds"].values()))
        bottom = np.zeros(0)
        for group, counts in seed["examples"].items():
            bottom = bottom if len(bottom) else np.zeros(len(counts))
            piece = axes.bar(
                range(len(counts)),
                counts,
                bottom=bottom,
                color=style.group_colour(int(group)),
                hatch=style.group_hatch(int(group)),
                edgecolor=style.PAPER,
                linewidth=0.4,
            )
            bottom = bottom + np.array(counts)
            names.setdefault("no group" if group == "-1" else f"group {group}", piece)
        axes.set_xlabel("class")
        axes.set_ylabel("training examples")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10))
    figure.legend(list(names.values()), list(names), loc="outside right upper", ncols=1)
    return figure


def _contingency(
    axes: Axes, table: NDArray[np.int64], labels: NDArray[Any], groups: NDArray[Any]
) -> None:
    # of the group, so that small groups show as well
    share = table / table.sum(axis=0, keepdims=True)
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.grid(visible=False)
    axes.set_xticks(range(len(groups)), [str(g) for g in groups])
    every = math.ceil(len(labels) / _MOST_ROWS)  # of more rows the names lie on each other
    axes.set_yticks(range(0, len(labels), every), [str(label) for label in labels[::every]])
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_xticks(np.arange(1, len(groups)) - 0.5, minor=True)
    axes.set_yticks(np.arange(1, len(labels)) - 0.5, minor=True)
    axes.grid(which="minor", color=style.PAPER, linewidth=1.5)
    axes.tick_params(which="minor", length=0)
    if table.size <= 200 and every == 1:
        for (row, column), number in np.ndenumerate(table):
            colour = (
                style.PAPER if share[row, column] > 0.55 else style.INK if number else "#B0B7C3"
            )
            axes.text(
                column, row, str(number), ha="center", va="center", fontsize=7.5, color=colour
            )


def _grid(arms: Sequence[Arm], width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure with a panel per arm, each with a title as wide as the panel."""
    wide = min(_PER_ROW, len(arms))
    high = math.ceil(len(arms) / wide)
    titles = [textwrap.fill(arm.label, int(_LETTERS * (width - 0.5))) for arm in arms]
    lines = max(title.count("\n") for title in titles)
    size = (width * wide + 0.7, (height + _LINE * lines) * high + 0.5)
    figure = Figure(figsize=size)
    grid: list[Axes] = figure.subplots(high, wide, squeeze=False).ravel().tolist()
    for axes, title in zip(grid, titles, strict=False):
        axes.set_title(title, fontsize=8.5)
    for axes in grid[len(arms) :]:
        axes.set_axis_off()
    return figure, grid[: len(arms)]


def separation_of(arm: Arm) -> float:
    """See `fedclust.report.statistics.separation`, first seed; NaN without distances or groups."""
    matrix = _distance(arm)
    known = None if matrix is None else _when_clustered(arm)
    if matrix is None or known is None or len(known[0]) != len(matrix):
        return math.nan
    return separation(matrix, known[0])


def _distance(arm: Arm) -> NDArray[np.float64] | None:
    seeds = arm.run.seeds
    matrix = arm.run.array(seeds[0], "distance") if seeds else None
    if matrix is None or matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        return None
    return matrix.astype(np.float64)


def _final(arm: Arm) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Group [M] and label [M] of the first seed at its last evaluation."""
    rows = arm.run.final_clients
    return _columns(rows[rows["seed"] == arm.run.seeds[0]] if len(rows) else rows)


def _when_clustered(arm: Arm) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Group [M] and label [M] of the first seed when its distances were kept: at the first
    evaluation in or after the last round that clustered.
    """
    seed = arm.run.seeds[0]
    clustered, evaluated = (
        arm.run.curves.get(name) for name in ("num_clusters_found", "num_clusters")
    )
    if clustered is None or evaluated is None or seed not in clustered.seeds:
        return _final(arm)
    known = ~np.isnan(clustered.values[:, clustered.seeds.index(seed)])
    last = int(clustered.rounds[known][-1])
    after = evaluated.rounds[evaluated.rounds >= last]
    return _columns(arm.run.client_rows(seed, [int(after[0])])) if len(after) else None


def _columns(rows: pd.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    if not len(rows):
        return None
    rows = rows.sort_values("client")
    return rows["group"].to_numpy(dtype=np.int64), rows["label"].to_numpy(dtype=np.int64)


def _order(arm: Arm, size: int) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]:
    """Client order by group, then label, and both in that order; -1 where rows are not all
    clients.
    """
    known = _when_clustered(arm)
    if known is None or len(known[0]) != size:
        unknown = np.full(size, -1, dtype=np.int64)
        return np.arange(size), unknown, unknown
    group, label = known
    order = np.lexsort((label, group))
    return order, group[order], label[order]


def _mark_groups(
    axes: Axes, group: NDArray[np.int64], label: NDArray[np.int64], called: Mapping[int, str]
) -> None:
    """Lines between groups, their names at the left, and the labels as a strip on top."""
    edges = (np.flatnonzero(np.diff(group)) + 1).tolist()
    for edge in edges:
        axes.axhline(edge, color=style.PAPER, linewidth=0.8)
        axes.axvline(edge, color=style.PAPER, linewidth=0.8)
    bounds = [0, *edges, len(group)]
    centres = [(a + b) / 2 for a, b in pairwise(bounds)]
    named = group[0] >= 0
    groups = [called.get(int(group[a]), f"group {group[a]}") for a in bounds[:-1]]
    axes.set_yticks(centres if named else [], groups if named else [])
    axes.tick_params(length=0)
    changes = np.flatnonzero(np.diff(label) | np.diff(group)) + 1
    pieces = [0, *changes.tolist(), len(label)]
    wanted = [(a, b) for a, b in pairwise(pieces) if (b - a) >= 0.06 * len(label)]
    names = [str(label[a]) for a, _ in wanted] if named else []
    axes.set_xticks([(a + b) / 2 for a, b in wanted] if named else [], names)
    if named:
        axes.set_xlabel("cluster", fontsize=8)


def _smaller(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The matrix averaged over blocks until it fits the picture."""
    factor = math.ceil(len(matrix) / _PIXELS)
    if factor == 1:
        return matrix
    size = len(matrix) // factor * factor
    blocks = matrix[:size, :size].reshape(size // factor, factor, size // factor, factor)
    averaged: NDArray[np.float64] = blocks.mean(axis=(1, 3))
    return averaged
