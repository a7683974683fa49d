"""Matrices: distances of clients in the order of their groups, and clusters against groups."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedclust.metrics.contingency import contingency
from fedclust.report import style
from fedclust.report.arms import Arm
from fedclust.report.axes import Place, bare, colour_bar, labelled, panels, part_cells, write_cells
from fedclust.report.federations import called, one_per_setting
from fedclust.report.statistics.separation import separation

_PER_ROW = 4
MOST_PANELS = 12
_MOST_CLUSTERS = 30  # a method with a model per client has no table worth drawing
_MOST_ROWS = 15  # whose numbers can be read
_LETTERS, _LINE = 12.5, 0.15  # letters of a title to the inch; inches of a further line
_PIXELS = 600  # larger matrices are averaged over blocks

T = TypeVar("T")
Membership = tuple[NDArray[np.int64], NDArray[np.int64]]  # group [M] and label [M] of clients


def distances(arms: Sequence[Arm]) -> Figure | None:
    """The distances in the first seed of every arm that kept them, ordered by group, then label."""

    def draw(axes: Axes, arm: Arm, matrix: NDArray[np.float64]) -> None:
        order, group, label = _order(arm, len(matrix))
        shown = _smaller(matrix[np.ix_(order, order)])
        image = axes.imshow(shown, cmap=style.HEAT, extent=(0, len(order), len(order), 0))
        axes.grid(visible=False)
        figure = axes.get_figure(root=True)
        assert figure is not None
        bar = colour_bar(figure, image, "distance", ax=axes, shrink=0.82)
        bar.tick_params(labelsize=7)
        _mark_groups(axes, group, label, called(arm, "groups"))

    return _each(_kept(arms, _distance), draw, 2.7, 2.5)


def contingencies(arms: Sequence[Arm]) -> Figure | None:
    """Clients per cluster and true group at the end of the first seed of every arm."""

    def draw(axes: Axes, _: Arm, known: Membership) -> None:
        group, label = known
        _contingency(axes, contingency(label, group), np.unique(label), np.unique(group))

    return labelled(_each(_kept(arms, _grouped), draw, 2.1, 2.1), "true group", "cluster")


def classes(arms: Sequence[Arm]) -> Figure | None:
    """Share of every class in every cluster at the end of the first seed, where there are no true
    groups; None where no run wrote the classes of its clients.
    """
    tables = _kept(arms, _classes)
    shares = [share for _, (_, share) in tables]
    highest = max((max(float(s.max()), 2 / s.shape[1]) for s in shares), default=1.0)

    def draw(axes: Axes, _: Arm, table: tuple[NDArray[np.int64], NDArray[np.float64]]) -> None:
        clusters, share = table
        axes.imshow(share, cmap="Blues", vmin=0, vmax=highest, aspect="auto")
        bare(axes, framed=True)
        axes.set_yticks(range(len(clusters)), [str(cluster) for cluster in clusters])
        axes.set_xticks(range(0, share.shape[1], math.ceil(share.shape[1] / 10)))

    return labelled(_each(tables, draw, 2.4, 2.1), "class", "cluster")


def examples(arms: Sequence[Arm]) -> Figure | None:
    """Training examples of every class as bars, one piece per true group, in every setting; None
    where no run wrote about its federation.
    """
    pieces: dict[str, Any] = {}

    def draw(axes: Axes, _: Arm, examples: Mapping[str, Sequence[int]]) -> None:
        bottom: Any = 0
        for group, counts in examples.items():
            name = "no group" if group == "-1" else f"group {group}"
            look = style.of_group(int(group))
            piece = axes.bar(range(len(counts)), counts, bottom=bottom, linewidth=0.4, **look)
            bottom = bottom + np.array(counts)
            pieces.setdefault(name, piece)
        axes.set_xlabel("class")
        axes.set_ylabel("training examples")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10))

    figure = _each(_kept(one_per_setting(arms), _examples), draw, 3.4, 2.2)
    if figure is not None:
        figure.legend(list(pieces.values()), list(pieces), loc="outside right upper", ncols=1)
    return figure


def _kept(arms: Sequence[Arm], read: Callable[[Arm], T | None]) -> list[tuple[Arm, T]]:
    """What can be read of the first arms that have it."""
    known = ((arm, value) for arm in arms if (value := read(arm)) is not None)
    return list(islice(known, MOST_PANELS))


def _each(
    kept: Sequence[tuple[Arm, T]], draw: Callable[[Axes, Arm, T], None], width: float, height: float
) -> Figure | None:
    """A panel per arm, in inches, each with a title as wide as the panel; None without any."""
    if not kept:
        return None
    wide = min(_PER_ROW, len(kept))
    titles = [textwrap.fill(arm.label, int(_LETTERS * (width - 0.5))) for arm, _ in kept]
    lines = max(title.count("\n") for title in titles)
    high = math.ceil(len(kept) / wide)
    size = (width * wide + 0.7, (height + _LINE * lines) * high + 0.5)
    figure, grid = panels(len(kept), wide, size)
    for axes, title, (arm, value) in zip(grid, titles, kept, strict=True):
        axes.set_title(title, fontsize=8.5)
        draw(axes, arm, value)
    return figure


def _contingency(
    axes: Axes, table: NDArray[np.int64], labels: NDArray[Any], groups: NDArray[Any]
) -> None:
    # of the group, so that small groups show as well
    share = table / table.sum(axis=0, keepdims=True)
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(groups)), [str(g) for g in groups])
    every = math.ceil(len(labels) / _MOST_ROWS)  # of more rows the names lie on each other
    axes.set_yticks(range(0, len(labels), every), [str(label) for label in labels[::every]])
    part_cells(axes, len(labels), len(groups), 1.5)

    def colour(place: Place, number: int) -> str:
        return style.PAPER if share[place] > 0.55 else style.INK if number else "#B0B7C3"

    if table.size <= 200 and every == 1:
        numbers = np.ndenumerate(table)
        write_cells(axes, {at: (str(n), colour(at, int(n))) for at, n in numbers}, 7.5)


def _examples(arm: Arm) -> Mapping[str, Sequence[int]] | None:
    """The examples of every class by group, first seed; None where they are of no classes."""
    seed = next(iter(arm.run.federation["seeds"].values()))
    return seed["examples"] if "classes" in seed else None


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


def _grouped(arm: Arm) -> Membership | None:
    """Group and label of the clients that have both, first seed; None for too many clusters."""
    final = _final(arm)
    if final is None or len(np.unique(final[1])) > _MOST_CLUSTERS:
        return None
    group, label = final
    known = (group >= 0) & (label >= 0)
    return (group[known], label[known]) if known.any() else None


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


def _final(arm: Arm) -> Membership | None:
    """Group and label of the first seed at its last evaluation."""
    rows = arm.run.final_clients
    return _columns(rows[rows["seed"] == arm.run.seeds[0]] if len(rows) else rows)


def _when_clustered(arm: Arm) -> Membership | None:
    """Group and label of the first seed when its distances were kept: at the first
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


def _columns(rows: pd.DataFrame) -> Membership | None:
    if not len(rows):
        return None
    rows = rows.sort_values("client")
    return rows["group"].to_numpy(dtype=np.int64), rows["label"].to_numpy(dtype=np.int64)


def _order(arm: Arm, size: int) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]:
    """Client order by group, then label, and both in it; -1 where rows are not all clients."""
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
