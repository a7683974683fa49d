"""The benchmark at a glance: families of methods by federations, narrow enough for a telephone."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from fedclust.benchmark.standings import Standings
from fedclust.report import style
from fedclust.report.axes import part_cells, write_cells

_CELL, _ROW = 0.3, 0.19  # inches
_NAME, _TOP, _BELOW, _LEAST = 1.05, 1.0, 0.5, 2.6
_COLOURS = "PuOr"  # orange below the middle, purple above: told apart by colour-blind readers
_SPAN = 100.0  # percent from FedAvg, the middle, to either end of the colours
_POINTS = 5.0  # the same in points, where groups do not help


def at_a_glance(found: Standings) -> Figure:
    """The share of the oracle's gain where groups help, and points above FedAvg elsewhere."""
    helped = found.helped
    columns = [*helped, *(one for one in found.federations if not one.groups_help)]
    cells = np.array(
        [
            [
                row.shares[one.case] if one.groups_help else row.elsewhere[one.case]
                for one in columns
            ]
            for row in found.rows
        ]
    )
    high, wide = cells.shape
    width = max(_NAME + _CELL * wide + 0.6, _LEAST)  # the last title is slanted
    height = _TOP + _ROW * high + _BELOW
    figure = Figure(figsize=(width, height), dpi=200)
    figure.set_layout_engine("none")
    place = (_NAME / width, _BELOW / height, _CELL * wide / width, _ROW * high / height)
    axes = figure.add_axes(place)
    scale = np.array([_SPAN if one.groups_help else _POINTS for one in columns])
    axes.imshow(np.clip(cells / scale, -1, 1), cmap=_COLOURS, vmin=-1, vmax=1, aspect="auto")
    part_cells(axes, high, wide, 1.0)
    axes.set_yticks(range(high), [row.name for row in found.rows], fontsize=7)
    axes.set_xticks([])
    for column, one in enumerate(columns):
        axes.text(column - 0.2, -0.7, one.title, rotation=50, ha="left", va="bottom", fontsize=7)
    write_cells(
        axes,
        {
            at: (
                f"{value:.0f}" if columns[at[1]].groups_help else f"{value:.1f}",
                style.PAPER if abs(value / scale[at[1]]) > 0.7 else style.INK,
            )
            for at, value in np.ndenumerate(cells)
        },
        6,
    )
    if 0 < len(helped) < wide:
        axes.axvline(len(helped) - 0.5, color=style.INK, linewidth=1.2)
    notes = "left: 0 is FedAvg, 100 knowing the groups\nright of the line: points above FedAvg"
    figure.text(0.05 / width, 0.06 / height, notes, fontsize=7, va="bottom")
    return figure
