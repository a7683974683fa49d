"""The tables beside the headline: recovery of the groups, costs, statistics over rounds,
claims.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedclust.report.arms import Arm
from fedclust.report.recovery import words
from fedclust.report.reference import Printed
from fedclust.report.runs import Curve
from fedclust.report.scores import cell, printed_alone
from fedclust.report.spec import Spec
from fedclust.report.table import Cell, Table
from fedclust.report.wording import byte_unit, factor, meant, plus_minus, title

_LATEST = 10  # evaluations that the mean of the last ones is taken over


def recovery_table(arms: Sequence[Arm]) -> Table:
    """How well every arm's clusters recover the true groups at the end, and the same in plain
    words.
    """
    metrics = {
        "purity": "purity",
        "ari": "ARI",
        "nmi": "NMI",
        "matched_accuracy": "matched accuracy",
    }
    rows, records = [], []
    for arm in arms:
        values = {name: arm.last(name) for name in (*metrics, "num_clusters")}
        pure = int((values["purity"] >= 1).sum())
        rows.append(
            (
                Cell(text=arm.label),
                *(Cell(text=plus_minus(values[name], 3)) for name in metrics),
                Cell(text=plus_minus(values["num_clusters"], 1)),
                Cell(text=f"{pure} of {len(values['purity'])}" if len(values["purity"]) else "–"),
            )
        )
        record: dict[str, Any] = {
            "arm": arm.label,
            "n": len(values["num_clusters"]),
            "pure_seeds": pure,
        }
        for name, numbers in values.items():
            if len(numbers):
                record |= {name: float(numbers.mean()), f"{name}_std": float(numbers.std())}
        records.append(record)
    return Table(
        name="recovery",
        title="Recovery of the true groups at the end",
        columns=("arm", *metrics.values(), "clusters", "seeds with purity 1"),
        rows=tuple(rows),
        records=tuple(records),
        notes=(
            *(line for arm in arms if (line := words(arm))),
            ". ".join(meant(name) for name in metrics) + ".",
        ),
    )


def clusters_table(arms: Sequence[Arm]) -> Table:
    """The clusters of a federation without true groups: number, sizes, and how clients move."""
    metrics = ("num_clusters", "largest_cluster", "smallest_cluster", "empty")
    rows, records = [], []
    for arm in arms:
        churn = arm.curve("churn")
        moved = _per_seed(np.nanmean, churn.values) if churn else np.empty(0)
        cells = [Cell(text=plus_minus(arm.last(name), 1)) for name in metrics]
        rows.append((Cell(text=arm.label), *cells, Cell(text=plus_minus(moved, 3))))
        known = {name: v for name in metrics if len(v := arm.last(name))} | {"churn": moved}
        means = {name: float(v.mean()) for name, v in known.items() if len(v)}
        records.append({"arm": arm.label, "n": len(arm.last("num_clusters")), **means})
    return Table(
        name="clusters",
        title="Clusters at the end; the federation has no true groups",
        columns=("arm", "clusters", "largest", "smallest", "empty", "mean churn"),
        rows=tuple(rows),
        records=tuple(records),
        notes=(". ".join(meant(name) for name in (*metrics, "churn")) + ".",),
    )


def cost_table(arms: Sequence[Arm]) -> Table:
    """Models and bytes sent, steps and seconds of every arm over all rounds, per seed."""
    names = (
        "models_down",
        "models_up",
        "bytes",
        "scalars_up",
        "gradient_steps",
        "forward_passes",
        "backward_passes",
        "seconds",
    )
    rows, records = [], []
    for arm in arms:
        total = {name: arm.total(name) for name in names}
        rows.append(
            (
                Cell(text=arm.label),
                Cell(text=_count(total["models_down"])),
                Cell(text=_count(total["models_up"])),
                Cell(text=_bytes(total["bytes"])),
                Cell(text=_count(total["scalars_up"])),
                Cell(text=_count(total["gradient_steps"])),
                Cell(text=_count(total["forward_passes"])),
                Cell(text=_count(total["backward_passes"])),
                Cell(text=f"{total['seconds'].mean():.1f}" if len(total["seconds"]) else "–"),
            )
        )
        means = {name: float(v.mean()) for name, v in total.items() if len(v)}
        records.append({"arm": arm.label, "rounds": arm.run.rounds, **means})
    return Table(
        name="cost",
        title="Cost of a whole run, mean over seeds",
        columns=(
            "arm",
            "models down",
            "models up",
            "sent",
            "numbers up",
            "local steps",
            "forward passes",
            "backward passes",
            "seconds",
        ),
        rows=tuple(rows),
        records=tuple(records),
        notes=(
            "Sent: 4 bytes per parameter. Numbers up: single ones that clients send beside "
            "models, such as "
            "losses or the cluster they chose. Passes: (model, client) pairs whose loss (forward) "
            "or "
            "gradient (backward) is computed apart from local training and testing.",
            "Seconds: of one seed, its own and its share of what was computed together.",
        ),
    )


def rounds_table(spec: Spec, arms: Sequence[Arm]) -> Table:
    """Statistics over rounds with the printed ones: last, best, median, mean of the last ten
    evaluations (of all, where an arm has fewer), drift.

    For every accuracy whose first round the paper prints there is a column with the first
    round that reaches it.
    """
    scale = factor(spec.metric)
    goals = spec.reference.thresholds(spec.published) if spec.reference and scale == 100.0 else []
    drift = any(arm.curve("discrepancy") for arm in arms)
    curves = [arm.curve(spec.metric) for arm in arms]
    latest = min([_LATEST, *(len(curve.rounds) for curve in curves if curve)])
    rows, records = [], []
    for arm, curve in zip(arms, curves, strict=True):
        moved = arm.curve("discrepancy")
        values = scale * curve.values if curve else np.empty((0, 0))
        gap = moved.values if moved else np.empty((0, 0))
        columns: dict[str, tuple[NDArray[np.float64], str]] = {
            "last": (scale * arm.last(spec.metric), ""),
            "best": (scale * arm.best(spec.metric), "test_acc_max"),
            "median": (_per_seed(np.nanmedian, values), "test_acc_median"),
            f"mean of last {latest}": (_per_seed(np.nanmean, values[-latest:]), ""),
        }
        for goal in goals:
            first = _first(curve, goal / scale) if curve else np.empty(0)
            columns[f"first ≥ {goal} %"] = (first, f"first_round_test_acc_ge_{goal}")
        if drift:
            columns["discrepancy"] = (_per_seed(np.nanmean, gap), "discrepancy_mean_over_rounds")
            columns["its variance"] = (
                _per_seed(np.nanvar, gap),
                "discrepancy_variance_over_rounds",
            )
        aside = {
            name
            for name, (_, printed_as) in columns.items()
            if any(not a.comparable and _statistic(spec, a, printed_as) for a in arms)
        }
        cells = []
        record: dict[str, Any] = {"arm": arm.label}
        for name, (column, printed_as) in columns.items():
            printed = _statistic(spec, arm, printed_as)
            # a point of accuracy is a measure of agreement; for the other statistics there is none
            judged = printed_as.startswith("test_acc")
            digits = 4 if "discrepancy" in printed_as else 2
            own = printed if arm.comparable else None
            cells.append(cell(column, own, judged=judged, digits=digits))
            if name in aside:
                alone = None if arm.comparable else printed
                cells.append(printed_alone(alone) if alone else Cell(text="–", pale=True))
            if len(column):
                record |= {name: float(column.mean()), f"{name} std": float(column.std())}
            if printed:
                record[f"{name} published"] = printed.mean
        heads = [h for name in columns for h in (name, f"paper, {name}")[: 1 + (name in aside)]]
        rows.append((Cell(text=arm.label), *cells))
        records.append(record)
    return Table(
        name="over_rounds",
        title=f"{title(spec.metric)} over the evaluated rounds"
        + (" (%)" if scale == 100.0 else ""),
        columns=("arm", *heads),
        rows=tuple(rows),
        records=tuple(records),
        notes=("First: round, counted from 1, over the seeds that get there.",) if goals else (),
    )


def _statistic(spec: Spec, arm: Arm, name: str) -> Printed | None:
    """The printed number for a statistic over all rounds, or None."""
    if not name or spec.published is None:
        return None
    return spec.printed(arm.algorithm, arm.cell, arm.run.rounds, whole=True, metric=name)


def _first(curve: Curve, goal: float) -> NDArray[np.float64]:
    """[S] the first round, from 1, that reaches the goal, of the seeds that do."""
    reached = curve.values >= goal
    rounds: NDArray[np.float64] = curve.rounds[reached.argmax(axis=0)] + 1.0
    return rounds[reached.any(axis=0)]


def claims_table(spec: Spec, arms: Sequence[Arm]) -> Table | None:
    """Every claim with what was measured and whether it holds; None where nothing is claimed."""
    rows, records = [], []
    checked = spec.reference.check(spec.claims, arms) if spec.reference else []
    for setting, verdict in checked:
        outcome = verdict.outcome
        claimed = f"{verdict.claimed} [{setting}]" if setting else verdict.claimed
        seeds = f"{verdict.seeds} of {verdict.of}" if verdict.of else "–"
        rows.append(
            (
                Cell(text=claimed),
                Cell(text=verdict.measured),
                Cell(text=outcome, good={"holds": True, "does not hold": False}.get(outcome)),
                Cell(text=seeds),
            )
        )
        records.append(
            {"claim": claimed, "measured": verdict.measured, "verdict": outcome, "seeds": seeds}
        )
    if not rows:
        return None
    note = (
        "Stated on means over seeds; the last column counts the seeds "
        "in which the claim holds alone. Of one seed, or where fewer than four fifths agree, there "
        "is no verdict."
    )
    unfit = any(not arm.comparable for arm in arms)
    small = (
        " Runs of another size tell whether an order holds there, and nothing about a value; runs "
        "of other data or with another protocol tell nothing."
        if unfit
        else ""
    )
    return Table(
        name="claims",
        title="Claims",
        columns=("claimed", "measured", "verdict", "seeds"),
        rows=tuple(rows),
        records=tuple(records),
        notes=(note + small,),
    )


def _per_seed(function: Any, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """`function` over rounds of [R, S], without the seeds that have no value."""
    kept = values[:, ~np.isnan(values).all(axis=0)] if values.size else values
    result: NDArray[np.float64] = function(kept, axis=0) if kept.size else np.empty(0)
    return result


def _count(values: NDArray[np.float64]) -> str:
    return f"{values.mean():,.0f}" if len(values) else "–"


def _bytes(values: NDArray[np.float64]) -> str:
    if not len(values):
        return "–"
    size, unit = byte_unit(float(values.mean()))
    return f"{values.mean() / size:.3g} {unit}"
