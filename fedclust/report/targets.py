"""Rounds, bytes and local steps until every arm reaches a target that was fixed before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedclust.report.arms import Arm, settings_of
from fedclust.report.runs import Curve
from fedclust.report.spec import Spec
from fedclust.report.statistics.target import WINDOW, reached
from fedclust.report.table import Cell, Table
from fedclust.report.wording import byte_unit, show, title

_SPENT = {"bytes": "sent", "gradient_steps": "local steps"}


@dataclass(frozen=True)
class Way:
    """Rounds, bytes and steps that one seed needed.

    Attributes:
        rounds: the round, from 1, at which the target is reached; infinite where it is not.
        spent: bytes and gradient steps up to there; NaN where not recorded, infinite where it is
            not reached.
    """

    rounds: float
    spent: Mapping[str, float]


def target_table(spec: Spec, arms: Sequence[Arm]) -> Table | None:
    """One row per arm: seeds that reach the target, medians of what they needed; None where the
    report names no target, or no arm has a curve to hold against it.
    """
    if spec.target is None:
        return None
    goals = {setting: _goal(spec, arms, setting) for setting in settings_of(arms)}
    rows, records = [], []
    for arm in arms:
        goal, curve = goals[arm.setting], arm.curve(spec.metric)
        if goal is None or curve is None:
            continue
        ways = [
            _way(arm, curve, column, goal)
            for column in range(len(curve.seeds))
            if not np.isnan(curve.values[:, column]).all()
        ]
        if not ways:
            continue
        ways += [Way(np.inf, dict.fromkeys(_SPENT, np.inf)) for _ in arm.run.failed]
        there = sum(np.isfinite(way.rounds) for way in ways)
        cells = [
            Cell(text=arm.label),
            Cell(text=show(spec.metric, goal)),
            Cell(text=f"{there} of {len(ways)}"),
            Cell(text=_median([way.rounds for way in ways], float(arm.run.rounds), _whole)),
        ]
        record: dict[str, Any] = {"arm": arm.label, "target": goal, "n": len(ways)}
        record |= {"reached": int(there), "rounds": _number([way.rounds for way in ways])}
        for name in _SPENT:
            values = [way.spent[name] for way in ways]
            all_of_it = float(np.mean(arm.total(name))) if len(arm.total(name)) else np.nan
            cells.append(
                Cell(text=_median(values, all_of_it, _size if name == "bytes" else _whole))
            )
            record[name] = _number(values)
        rows.append(tuple(cells))
        records.append(record)
    if not rows:
        return None
    return Table(
        name="target",
        title=f"Cost of reaching a target: {title(spec.metric).lower()}",
        columns=("arm", "target", "seeds that reach it", "rounds", *_SPENT.values()),
        rows=tuple(rows),
        records=tuple(records),
        notes=(
            f"Target: {_words(spec)}. Reached: in the first evaluated round from which the mean of "
            f"the last {WINDOW} evaluations stays at or above it until the end; nothing is "
            "interpolated.",
            "Medians over all seeds; one that never gets there, or failed on the way, counts as "
            "later than any other. "
            "> : more than the whole run, because half of the seeds or more do not get there. "
            "Sent: 4 bytes per parameter, in both directions, with every model sent until then.",
        ),
    )


def _goal(spec: Spec, arms: Sequence[Arm], setting: str) -> float | None:
    """The value to reach in a setting; None where the arm that sets it did not run there."""
    assert spec.target is not None
    if spec.target.value is not None:
        return spec.target.value
    for arm in arms:
        if arm.setting == setting and arm.is_called(spec.target.arm) and arm.finished:
            final = arm.last(spec.metric)
            return spec.target.share * float(final.mean()) if len(final) else None
    return None


def _way(arm: Arm, curve: Curve, column: int, goal: float) -> Way:
    known = ~np.isnan(curve.values[:, column])
    place = reached(curve.values[known, column], goal)
    if place is None:
        return Way(np.inf, dict.fromkeys(_SPENT, np.inf))
    t = int(curve.rounds[known][place])
    seed = curve.seeds[column]
    return Way(t + 1.0, {name: _until(arm.curve(name), seed, t) for name in _SPENT})


def _until(curve: Curve | None, seed: int, t: int) -> float:
    """The sum of a cost up to and with round t; NaN where it was not recorded."""
    if curve is None or seed not in curve.seeds:
        return np.nan
    values: NDArray[np.float64] = curve.values[curve.rounds <= t, curve.seeds.index(seed)]
    return float(np.nansum(values))


def _median(values: Sequence[float], whole: float, write: Any) -> str:
    middle = float(np.median(values))
    if np.isnan(middle) or (np.isinf(middle) and np.isnan(whole)):
        return "–"
    return f"> {write(whole)}" if np.isinf(middle) else str(write(middle))


def _number(values: Sequence[float]) -> float | str:
    middle = float(np.median(values))
    return middle if np.isfinite(middle) else ""


def _whole(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")


def _size(value: float) -> str:
    size, unit = byte_unit(value)
    return f"{value / size:.3g} {unit}"


def _words(spec: Spec) -> str:
    assert spec.target is not None
    if spec.target.value is not None:
        return f"{show(spec.metric, spec.target.value)}, as the experiment fixes it"
    part = "" if spec.target.share == 1 else f"{100 * spec.target.share:g} % of "
    return (
        f"{part}what {spec.target.arm} has at its end, mean over seeds, as the experiment fixes it"
    )
