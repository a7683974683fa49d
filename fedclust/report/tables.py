"""The tables beside the headline: recovery of the groups, costs, statistics over rounds, claims, settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedclust.report.arms import Arm
from fedclust.report.claims import check
from fedclust.report.recovery import words
from fedclust.report.spec import Spec
from fedclust.report.table import Cell, Table
from fedclust.report.wording import byte_unit, factor, plus_minus, title

_NOT_A_SETTING = ("report", "overrides", "choices", "hash", "tracker", "data", "name", "checkpoint_seconds")


def recovery_table(arms: Sequence[Arm]) -> Table:
    """How well every arm's clusters recover the true groups at the end, and the same in plain words."""
    metrics = {"purity": "purity", "ari": "ARI", "nmi": "NMI", "matched_accuracy": "matched accuracy"}
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
        record: dict[str, Any] = {"arm": arm.label, "n": len(values["num_clusters"]), "pure_seeds": pure}
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
        notes=tuple(line for arm in arms if (line := words(arm))),
    )


def cost_table(arms: Sequence[Arm]) -> Table:
    """What every arm sent, computed and took over all rounds, per seed."""
    names = ("models_down", "models_up", "bytes", "gradient_steps", "seconds")
    rows, records = [], []
    for arm in arms:
        total = {name: arm.total(name) for name in names}
        rows.append(
            (
                Cell(text=arm.label),
                Cell(text=_count(total["models_down"])),
                Cell(text=_count(total["models_up"])),
                Cell(text=_bytes(total["bytes"])),
                Cell(text=_count(total["gradient_steps"])),
                Cell(text=f"{total['seconds'].mean():.1f}" if len(total["seconds"]) else "–"),
            )
        )
        means = {name: float(v.mean()) for name, v in total.items() if len(v)}
        records.append({"arm": arm.label, "rounds": arm.job.rounds, **means})
    return Table(
        name="cost",
        title="Cost of a whole run, mean over seeds",
        columns=("arm", "models down", "models up", "sent", "local steps", "seconds"),
        rows=tuple(rows),
        records=tuple(records),
        notes=(
            "Sent: 4 bytes per parameter. Seconds: wall clock, divided among the seeds that ran together.",
        ),
    )


def rounds_table(spec: Spec, arms: Sequence[Arm]) -> Table:
    """Statistics of the headline metric over rounds: last, best, median, mean of the last ten."""
    scale = factor(spec.metric)
    drift = any(arm.curve("discrepancy") for arm in arms)
    rows, records = [], []
    for arm in arms:
        curve = arm.curve(spec.metric)
        values = scale * curve.values if curve else np.empty((0, 0))
        columns: dict[str, NDArray[np.float64]] = {
            "last": scale * arm.last(spec.metric),
            "best": scale * arm.best(spec.metric),
            "median": _per_seed(np.nanmedian, values),
            "mean of last 10": _per_seed(np.nanmean, values[-10:]),
        }
        cells = [Cell(text=plus_minus(column)) for column in columns.values()]
        if drift:
            moved = arm.curve("discrepancy")
            gap = moved.values if moved else np.empty((0, 0))
            spread = {"discrepancy": _per_seed(np.nanmean, gap), "its variance": _per_seed(np.nanvar, gap)}
            cells += [Cell(text=plus_minus(column, 4)) for column in spread.values()]
            columns |= spread
        rows.append((Cell(text=arm.label), *cells))
        record: dict[str, Any] = {"arm": arm.label}
        for name, column in columns.items():
            if len(column):
                record |= {name: float(column.mean()), f"{name} std": float(column.std())}
        records.append(record)
    extra = ("discrepancy", "its variance") if drift else ()
    return Table(
        name="over_rounds",
        title=f"{title(spec.metric)} over the evaluated rounds" + (" (%)" if scale == 100.0 else ""),
        columns=("arm", "last", "best", "median", "mean of last 10", *extra),
        rows=tuple(rows),
        records=tuple(records),
    )


def claims_table(spec: Spec, arms: Sequence[Arm], scaled: bool) -> Table | None:
    """Every claim with what was measured and whether it holds; None where nothing is claimed."""
    rows, records = [], []
    for setting, verdict in check(spec.claims, arms):
        outcome = {True: "holds", False: "does not hold", None: "cannot tell"}[verdict.holds]
        claimed = f"{verdict.claimed} [{setting}]" if setting else verdict.claimed
        seeds = f"{verdict.seeds} of {verdict.of}" if verdict.of else "–"
        rows.append(
            (
                Cell(text=claimed),
                Cell(text=verdict.measured),
                Cell(text=outcome, good=verdict.holds),
                Cell(text=seeds),
            )
        )
        records.append({"claim": claimed, "measured": verdict.measured, "verdict": outcome, "seeds": seeds})
    if not rows:
        return None
    note = "Stated on means over seeds; the last column counts the seeds in which the claim holds alone."
    small = " Claims about values need the paper's scale; these runs are smaller." if scaled else ""
    return Table(
        name="claims",
        title="Claims",
        columns=("claimed", "measured", "verdict", "seeds"),
        rows=tuple(rows),
        records=tuple(records),
        notes=(note + small,),
    )


def settings_table(arms: Sequence[Arm]) -> Table:
    """Every setting: one value where all arms share it, else the value of every arm."""
    flat = [_flatten({k: v for k, v in arm.job.config.items() if k not in _NOT_A_SETTING}) for arm in arms]
    rows, records = [], []
    for key in dict.fromkeys(key for one in flat for key in one):
        given = {arm.label: one[key] for arm, one in zip(arms, flat, strict=True) if key in one}
        values = dict.fromkeys(given.values())
        if len(values) == 1 and len(given) == len(arms):
            text = next(iter(values))
        else:
            text = "; ".join(
                f"{', '.join(a for a, v in given.items() if v == value)}: {value}" for value in values
            )
        rows.append((Cell(text=key), Cell(text=text)))
        records.append({"key": key, "value": text})
    return Table(
        name="settings",
        title="Settings",
        columns=("key", "value"),
        rows=tuple(rows),
        records=tuple(records),
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


def _flatten(node: Any, prefix: str = "") -> dict[str, str]:
    if isinstance(node, Mapping) and node:
        flat: dict[str, str] = {}
        for key, value in node.items():
            flat |= _flatten(value, f"{prefix}.{key}" if prefix else str(key))
        return flat
    if isinstance(node, list) and any(isinstance(entry, (Mapping, list)) for entry in node):
        return {prefix: f"{len(node)} entries"}
    return {prefix: "null" if node is None else str(node)}
