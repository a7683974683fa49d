"""Verdicts on leads that were claimed after a run, from what is collected of it.

`claims.csv` has what an experiment claimed when its runs were collected. Their curves are not kept,
but the best and the last accuracy of every seed are, and a lead needs no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from fedclust.report.arms import SEPARATOR
from fedclust.report.statements import judged
from scripts.cells import Run


def leads(claim: Mapping[str, Any], runs: Sequence[Run]) -> list[dict[str, str]]:
    """A claim of kind `gain` in every setting in which both of its methods ran, as lines of
    `claims.csv`.

    Args:
        claim: as the experiment states it.
        runs: of the experiment.
    """
    if claim["kind"] != "gain":
        return []
    column = f"{claim['metric']} {claim.get('score', 'last')}"
    found = []
    sides = [
        [run for run in runs if run.made["algorithm"] == claim[side] and not run.made["options"]]
        for side in ("left", "right")
    ]
    for left, right in product(*sides):
        title = _title(left)
        both = [run.seeds.get(column, ()) for run in (left, right)]
        same = title == _title(right) and left.made["seeds"] == right.made["seeds"]
        if not same or not all(both) or not _is_within(claim.get("setting", ""), title):
            continue
        points, values = float(claim["points"]), [np.array([seeds]) for seeds in both]
        lead = float(values[0].mean() - values[1].mean())

        def enough(pair: Sequence[Any], points: float = points) -> bool:
            lead = float(pair[0][0] - pair[1][0])
            return lead * points >= abs(points) * abs(points) / 2 if points else lead > 0

        text = str(claim["text"])
        if points:
            text += f" (claimed {points:+g} points; counts as holding from {points / 2:+g} points)"
        verdict = judged(text, f"{lead:+.2f} points", enough, values)
        row = {"claim": f"{text} [{title}]", "measured": verdict.measured, "needs": ""}
        if left.made["stands_in_for"]:
            row["measured"] += ", not at the published size or data"
            found.append(row | {"verdict": "cannot tell", "seeds": "–"})
            continue
        seeds = f"{verdict.seeds} of {verdict.of}"
        told = "holds" if verdict.holds else "does not hold"
        found.append(row | {"verdict": told, "seeds": seeds})
    return found


def _title(run: Run) -> str:
    """What a report calls the run's setting."""
    shift = run.made["scenario"]
    return run.made["case"] + ("" if shift == "static" else SEPARATOR + shift.replace("_", " "))


def _is_within(setting: str, title: str) -> bool:
    """Whether every piece of a claim's setting begins a piece of a title."""
    pieces = title.split(SEPARATOR)
    return all(any(p.startswith(wanted) for p in pieces) for wanted in setting.split(SEPARATOR))
