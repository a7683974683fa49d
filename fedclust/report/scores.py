"""The headline table: arms by iterations, measured beside published."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedclust.metrics import METRICS
from fedclust.report.arms import Arm
from fedclust.report.published import Published, lookup
from fedclust.report.spec import Spec
from fedclust.report.table import Cell, Table
from fedclust.report.wording import factor, plus_minus, title

# metrics the papers' tables print; the last one belongs to the method inside `last_local`
_PRINTED = ("accuracy", "accuracy_client_mean", "accuracy_last_local")


@dataclass(frozen=True)
class Column:
    """One column of the headline table.

    Attributes:
        title: its head.
        values: [S] per seed, of one arm.
        iteration: 1-based iteration of an arm's value.
        whole: whether it scores the whole run.
        compared: whether a published number belongs beside it.
    """

    title: str
    values: Callable[[Arm], NDArray[np.float64]]
    iteration: Callable[[Arm], int]
    whole: bool
    compared: bool = True


def columns(spec: Spec, arms: Sequence[Arm]) -> list[Column]:
    """The columns a report has: the iterations that were reached, or the score of the whole run."""
    metric = spec.metric
    last = Column(
        _last_title(arms), lambda arm: arm.last(metric), lambda arm: arm.job.rounds, whole=True
    )
    if spec.score == "max":
        best = Column(
            "best over rounds", lambda a: a.best(metric), lambda a: a.job.rounds, whole=True
        )
        if _in_panels(
            arms
        ):  # one number per arm and setting; the last ones are in the table over rounds
            return [best]
        return [best, Column(last.title, last.values, last.iteration, whole=True, compared=False)]
    wanted = spec.iterations or ()
    reached = [i for i in wanted if any(len(_at(arm, metric, i)) for arm in arms)]
    found = [_iteration(metric, i) for i in reached]
    return found if reached and len(reached) == len(wanted) else [*found, last]


def headline(spec: Spec, arms: Sequence[Arm], scaled: bool) -> Table:
    """Mean ± std over seeds of every arm and column, with the published number and the difference.

    Args:
        spec: what the experiment asks for.
        arms: the rows.
        scaled: whether the runs are smaller than the paper's; nothing is then marked as agreeing.
    """
    shown = columns(spec, arms)
    scale = factor(spec.metric)
    cells: dict[tuple[str, str], Cell] = {}
    records = []
    for arm in arms:
        for column in shown:
            values = scale * column.values(arm)
            printed = _published(spec, arm, column)
            best = _is_best(arm, arms, column, spec.metric)
            comparable = not scaled and not arm.stand_in
            cells[arm.label, column.title] = cell(values, printed, comparable, best)
            records.append(_record(arm, column, spec.metric, values, printed, comparable))
    heads, rows = _layout(arms, shown, cells)
    unit = " (%)" if scale == 100.0 else ""
    return Table(
        name="table",
        title=f"{title(spec.metric)}{unit}",
        columns=heads,
        rows=rows,
        records=tuple(records),
        notes=tuple(_notes(spec, arms, scaled, any("published" in r for r in records))),
    )


def _layout(
    arms: Sequence[Arm], shown: Sequence[Column], cells: Mapping[tuple[str, str], Cell]
) -> tuple[tuple[str, ...], tuple[tuple[Cell, ...], ...]]:
    """Heads and rows: arms by columns, or settings by algorithms where a setting holds several."""
    titles = [column.title for column in shown]
    if not _in_panels(arms):
        rows = [
            (Cell(text=arm.label), *(cells[arm.label, title] for title in titles)) for arm in arms
        ]
        return ("arm", *titles), tuple(rows)
    names = tuple(dict.fromkeys(arm.name for arm in arms))
    rows = []
    for setting in dict.fromkeys(arm.setting for arm in arms):
        there = {arm.name: arm.label for arm in arms if arm.setting == setting}
        for head in titles:
            name = (
                f"{setting or 'otherwise'}, {head}" if len(titles) > 1 else setting or "otherwise"
            )
            found = [cells[there[n], head] if n in there else Cell(text="") for n in names]
            rows.append((Cell(text=name), *found))
    return ("setting", *names), tuple(rows)


def _at(arm: Arm, metric: str, iteration: int) -> NDArray[np.float64]:
    curve = arm.curve(metric)
    values = curve.at(iteration - 1) if curve else np.empty(0)
    return values[~np.isnan(values)]


def _iteration(metric: str, iteration: int) -> Column:
    return Column(
        f"iteration {iteration}",
        lambda arm: _at(arm, metric, iteration),
        lambda arm: iteration,  # noqa: ARG005 - the same for every arm
        whole=False,
    )


def _last_title(arms: Sequence[Arm]) -> str:
    rounds = {arm.job.rounds for arm in arms}
    return f"last (iteration {rounds.pop()})" if len(rounds) == 1 else "last"


def _published(spec: Spec, arm: Arm, column: Column) -> Published | None:
    if spec.published is None or not column.compared or spec.metric not in _PRINTED:
        return None
    method = arm.base if spec.metric == "accuracy_last_local" else arm.algorithm
    return lookup(spec.published, method, arm.cell, column.iteration(arm), whole=column.whole)


def _is_best(arm: Arm, arms: Sequence[Arm], column: Column, metric: str) -> bool:
    """Whether the arm has the best mean of its setting, among at least two.

    A score of whole runs is compared among those that have ended.
    """
    sign = -1.0 if METRICS[metric].better == "lower" else 1.0
    rivals = [a for a in arms if a.setting == arm.setting] if _in_panels(arms) else list(arms)
    rivals = [a for a in rivals if a.finished or not column.whole]
    means = {a.label: sign * float(v.mean()) for a in rivals if len(v := column.values(a))}
    return len(means) > 1 and arm.label in means and means[arm.label] == max(means.values())


def _in_panels(arms: Sequence[Arm]) -> bool:
    """Whether settings are experiments of their own: some setting holds more than one algorithm."""
    return any(
        len({a.name for a in arms if a.setting == s}) > 1 for s in {a.setting for a in arms} - {""}
    )


def cell(
    values: NDArray[np.float64],
    printed: Published | None,
    comparable: bool,
    best: bool = False,
    digits: int = 2,
) -> Cell:
    """Mean ± std of the seeds with the printed number and the difference.

    Args:
        values: [S] per seed, in the printed unit.
        printed: the paper's number, or None.
        comparable: whether agreement may be judged.
        best: whether to set it in bold.
        digits: decimals.
    """
    text = plus_minus(values, digits)
    if printed is None:
        return Cell(text=text, strong=best)
    paper = (
        f"{printed.mean:g}" if printed.std is None else f"{printed.mean:.2f} ± {printed.std:.2f}"
    )
    if not len(values):
        return Cell(text=text, detail=f"paper {paper}")
    mean = float(values.mean())
    good = printed.agrees(mean) if comparable else None
    return Cell(
        text=text,
        detail=f"paper {paper}, {mean - printed.mean:+.{digits}f}".replace("-", "−"),
        good=good,
        strong=best,
    )


def _record(
    arm: Arm,
    column: Column,
    metric: str,
    values: NDArray[np.float64],
    printed: Published | None,
    comparable: bool,
) -> Mapping[str, Any]:
    record: dict[str, Any] = {
        "arm": arm.label,
        "column": column.title,
        "metric": metric,
        "n": len(values),
    }
    if len(values):
        record |= {"mean": float(values.mean()), "std": float(values.std())}
    if printed is not None:
        record |= {
            "published": printed.mean,
            "published_std": "" if printed.std is None else printed.std,
        }
        if len(values):
            mean = float(values.mean())
            record |= {"difference": mean - printed.mean}
            record |= {"agrees": printed.agrees(mean)} if comparable else {}
    return record


def _notes(spec: Spec, arms: Sequence[Arm], scaled: bool, compared: bool) -> list[str]:
    seeds = sorted({len(arm.last(spec.metric)) for arm in arms})
    number = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    notes = [
        f"Mean ± standard deviation (population form) over {number} "
        f"seed{'s' if seeds != [1] else ''}."
    ]
    if compared and spec.published:
        paper, _, table = spec.published.partition("/")
        mark = (
            ""
            if scaled
            else " ✓: within 2 published standard deviations, or 1 point where none is printed."
        )
        notes.append(
            f"“paper”: the number printed in {paper}, {table}, then measured minus printed.{mark}"
        )
    if spec.score == "max":
        notes.append(
            "Best over rounds is chosen on test data and therefore optimistic; it is the "
            "published score. "
            "Rounds before every client was served once do not count."
        )
    return notes
