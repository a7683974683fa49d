"""Verdicts on leads that were claimed after a run, from what is collected of it.

`claims.csv` has what an experiment claimed when its runs were collected together. Their curves are
not kept, but of every seed the best value, the last, and those at the printed rounds: a lead needs
no more, nor does one method that overtakes another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from fedclust.report.arms import SEPARATOR
from fedclust.report.claims import claim as claim_of
from fedclust.report.claims import within
from fedclust.report.orders import Overtakes
from fedclust.report.values import Gain
from fedclust.report.wording import factor
from scripts.cells import Run


def leads(entry: Mapping[str, Any], runs: Sequence[Run]) -> list[dict[str, str]]:
    """A claim of kind `gain` or `overtakes` in every setting in which both of its methods ran, as
    lines of `claims.csv`.

    Args:
        entry: the claim as the experiment states it.
        runs: of the experiment.
    """
    claim = claim_of(entry)
    if isinstance(claim, Gain):
        columns = [f"{claim.metric} {claim.score}"]
    elif isinstance(claim, Overtakes):
        columns = [f"{claim.metric} at {number}" for number in claim.between]
    else:
        return []
    found = []
    sides = [
        [run for run in runs if run.made["algorithm"] == name and not run.made["options"]]
        for name in map(_base, (claim.left, claim.right))
    ]
    for left, right in product(*sides):
        title = _title(left)
        both = [[run.seeds.get(column, ()) for column in columns] for run in (left, right)]
        same = title == _title(right) and left.made["seeds"] == right.made["seeds"]
        if not same or not all(map(all, both)) or not within(claim.setting, title):
            continue
        verdict = claim.verdict([np.array(values) / factor(claim.metric) for values in both])
        where = f" [{title}]" if title else ""
        row = {"claim": verdict.claimed + where, "measured": verdict.measured, "needs": ""}
        if left.made["stands_in_for"]:
            row["measured"] += ", not at the published size or data"
            found.append(row | {"verdict": "cannot tell", "seeds": "–"})
            continue
        told = "holds" if verdict.holds else "does not hold"
        found.append(row | {"verdict": told, "seeds": f"{verdict.seeds} of {verdict.of}"})
    return found


def _base(arm: str) -> str:
    """The method of an arm, whose last local models another one tests."""
    return arm.removeprefix("last_local base=")


def _title(run: Run) -> str:
    """What a report calls the run's setting."""
    shift = run.made["scenario"]
    return run.made["case"] + ("" if shift == "static" else SEPARATOR + shift.replace("_", " "))
