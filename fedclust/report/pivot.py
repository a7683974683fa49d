"""A grid over two options: one of them down, the other across."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedclust.report.against_best import leading, rule
from fedclust.report.arms import Arm, option
from fedclust.report.formats import axis, factor, mean_std
from fedclust.report.headline import score_column, standing
from fedclust.report.spec import Spec
from fedclust.report.table import Cell, Table


@dataclass(frozen=True)
class Pivot:
    """The arms of one method by two options: `rows` are of one, down, `columns` of the other."""

    title: str
    down: str
    across: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    arms: Mapping[tuple[str, str], Arm]

    def means(self, metric: str) -> NDArray[np.float64]:
        """[rows, columns] the newest mean over seeds, as shown; NaN where there is none."""
        grid = np.full((len(self.rows), len(self.columns)), np.nan)
        for (row, column), arm in self.arms.items():
            values = factor(metric) * arm.last(metric)
            if len(values):
                grid[self.rows.index(row), self.columns.index(column)] = values.mean()
        return grid


def pivots(arms: Sequence[Arm]) -> list[Pivot]:
    """One per method whose arms differ in exactly two options, each with two values or more."""
    grids = []
    for algorithm in dict.fromkeys(arm.algorithm for arm in arms):
        own = [arm for arm in arms if arm.algorithm == algorithm]
        keys = list(dict.fromkeys(key for arm in own for key in arm.factors))
        values = {
            key: tuple(dict.fromkeys(arm.factors.get(key, "") for arm in own)) for key in keys
        }
        varying = [key for key in keys if len(values[key]) > 1]
        if len(varying) != 2:
            continue
        down, across = varying
        places = {(arm.factors.get(down, ""), arm.factors.get(across, "")): arm for arm in own}
        if len(places) == len(own) and len(own) > max(len(values[key]) for key in varying):
            grids.append(Pivot(algorithm, down, across, values[down], values[across], places))
    return grids


def pivot_tables(spec: Spec, arms: Sequence[Arm]) -> list[Table]:
    """The headline metric of every grid over two options, at the end."""
    grids = pivots(arms)
    names = ["grid", *(f"grid_{i}" for i in range(2, len(grids) + 1))]
    return [_table(spec, pivot, name) for pivot, name in zip(grids, names, strict=False)]


def _table(spec: Spec, pivot: Pivot, name: str) -> Table:
    shown = list(pivot.arms.values())
    places = standing(shown, score_column(spec, shown, "last"), spec.metric)

    def cell(row: str, column: str) -> Cell:
        arm = pivot.arms.get((row, column))
        if arm is None:
            return Cell(text="–")
        text = mean_std(spec.metric, arm.last(spec.metric))
        return Cell(text=text, strong=arm.label in leading(places))

    records = []
    for (row, column), arm in pivot.arms.items():
        values = factor(spec.metric) * arm.last(spec.metric)
        mean = float(values.mean()) if len(values) else ""
        records.append({pivot.down: row, pivot.across: column, "n": len(values), "mean": mean})
    return Table(
        name=name,
        title=f"{pivot.title}: {axis(spec.metric)} at the end",
        columns=("", *(option(pivot.across, column) for column in pivot.columns)),
        rows=tuple(
            (Cell(text=option(pivot.down, row)), *(cell(row, column) for column in pivot.columns))
            for row in pivot.rows
        ),
        records=tuple(records),
        notes=(
            "Mean ± standard deviation over seeds.",
            *rule(list(places.values()), spec.metric),
        ),
    )
