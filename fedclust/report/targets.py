"""Rounds, bytes and local steps until every arm reaches a target that was fixed before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedclust.report.arms import Arm, settings_of
from fedclust.report.columns import TableColumn, tabulate
from fedclust.report.formats import in_bytes, in_time, inside, lower_is_better, show, sign, title
from fedclust.report.runs import Curve
from fedclust.report.spec import TIME, Spec, Target
from fedclust.report.table import Table

WINDOW = 3  # evaluations that a mean must hold the target over


def _whole(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")


Way = Mapping[str, float]  # what one seed needed until the target, by name

# name → head and how it is written
_SPENT: dict[str, tuple[str, Callable[[float], str]]] = {
    "rounds": ("rounds", _whole),
    "bytes": ("sent", in_bytes),
    "gradient_steps": ("local steps", _whole),
    TIME: ("simulated time", in_time),
}
_NEVER: Way = dict.fromkeys(_SPENT, np.inf)


def target_table(spec: Spec, arms: Sequence[Arm]) -> Table | None:
    """One row per arm: seeds that reach the target, medians of what they needed; or None."""
    target, metric = spec.target, spec.metric
    if target is None:
        return None
    goals = {setting: _goal(target, metric, arms, setting) for setting in settings_of(arms)}
    rows = []
    for arm in arms:
        goal, curve = goals[arm.setting], arm.curve(metric)
        if goal is None or curve is None:
            continue
        ways = [
            _way(arm, curve, column, goal, sign(metric))
            for column in range(len(curve.seeds))
            if not np.isnan(curve.values[:, column]).all()
        ]
        if ways:
            rows.append((arm, goal, [*ways, *(_NEVER for _ in arm.run.failed)]))
    columns = [
        TableColumn("arm", lambda row: row[0].label, record="arm"),
        TableColumn("target", lambda row: row[1], partial(show, metric), "target"),
        TableColumn(None, lambda row: len(row[2]), record="n"),
        TableColumn(
            "seeds that reach it",
            lambda row: (sum(way is not _NEVER for way in row[2]), len(row[2])),
            lambda pair: f"{pair[0]} of {pair[1]}",
            lambda pair: {"reached": pair[0]},
        ),
        *(
            _median_of(name, *described)
            for name, described in _SPENT.items()
            if name != TIME or any(arm.curve(TIME) for arm in arms)
        ),
    ]
    side = "below" if lower_is_better(metric) else "above"
    notes = (
        f"Target: {_words(target, metric)}. Reached: in the first evaluated round from which the "
        f"mean of the last {WINDOW} evaluations stays at or {side} it until the end; nothing is "
        "interpolated.",
        "Medians over all seeds; one that never gets there, or failed on the way, counts as "
        "later than any other. "
        "> : more than the whole run, because half of the seeds or more do not get there. "
        "Sent: 4 bytes per parameter, in both directions, with every model sent until then.",
    )
    heading = f"Cost of reaching a target: {inside(title(metric))}"
    return tabulate("target", heading, columns, rows, notes=notes)


def _median_of(name: str, head: str, write: Callable[[float], str]) -> TableColumn:
    """The median over seeds of what was needed, beside what the whole run needs."""

    def read(row: tuple[Arm, float, Sequence[Way]]) -> tuple[float, float]:
        arm, _, ways = row
        total = np.array([arm.run.rounds]) if name == "rounds" else arm.total(name)
        whole = float(np.mean(total)) if len(total) else np.nan
        return float(np.median([way[name] for way in ways])), whole

    def written(pair: tuple[float, float]) -> str:
        middle, whole = pair
        if np.isnan(middle) or (np.isinf(middle) and np.isnan(whole)):
            return "–"
        return f"> {write(whole)}" if np.isinf(middle) else write(middle)

    return TableColumn(
        head, read, written, lambda pair: {name: pair[0] if np.isfinite(pair[0]) else ""}
    )


def _goal(target: Target, metric: str, arms: Sequence[Arm], setting: str) -> float | None:
    """The value to reach in a setting; None where the arm that sets it did not run there."""
    if target.value is not None:
        return target.value
    for arm in arms:
        if arm.setting == setting and arm.is_called(target.arm) and arm.finished:
            final = arm.last(metric)
            return _share(target, metric) * float(final.mean()) if len(final) else None
    return None


def _share(target: Target, metric: str) -> float:
    """What part of an arm's value is to be reached; more than 1 of an error."""
    return 1 / target.share if lower_is_better(metric) else target.share


def _way(arm: Arm, curve: Curve, column: int, goal: float, sign: float) -> Way:
    known = ~np.isnan(curve.values[:, column])
    place = reached(sign * curve.values[known, column], sign * goal)
    if place is None:
        return _NEVER
    t = int(curve.rounds[known][place])
    seed = curve.seeds[column]
    costs = {name: _until(arm.curve(name), seed, t) for name in _SPENT if name != "rounds"}
    return {"rounds": t + 1.0, **costs}


def _until(curve: Curve | None, seed: int, t: int) -> float:
    """The sum of a cost up to and with round t; NaN where it was not recorded."""
    if curve is None or seed not in curve.seeds:
        return np.nan
    values: NDArray[np.float64] = curve.values[curve.rounds <= t, curve.seeds.index(seed)]
    return float(np.nansum(values))


def _words(target: Target, metric: str) -> str:
    if target.value is not None:
        return f"{show(metric, target.value)}, as the experiment fixes it"
    part = "" if target.share == 1 else f"{100 * _share(target, metric):.4g} % of "
    return f"{part}what {target.arm} has at its end, mean over seeds, as the experiment fixes it"


def reached(values: NDArray[np.float64], target: float) -> int | None:
    """The last of the first three of values [R] whose running mean stays at or above the target.

    A single lucky evaluation does not count; None where the run never gets there for good.
    """
    if len(values) < WINDOW:
        return None
    means = np.lib.stride_tricks.sliding_window_view(values, WINDOW).mean(axis=1)
    below = np.flatnonzero(means < target)
    first = int(below[-1]) + 1 if len(below) else 0
    return first + WINDOW - 1 if first < len(means) else None
