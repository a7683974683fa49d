"""Statements whose verdict follows from kept runs of several settings, which no report compares.

An entry of `statements.yaml` names a column of the seeds' numbers, the runs in the order in which
it `falls` or `rises`, what all of them have in common (`common`), and in `each` the settings in
which it has to hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from fedclust.helpers.errors import require
from fedclust.report.reference import outcome
from scripts.papers.cells import Run, Runs
from scripts.papers.later_claims import cannot_tell, in_common
from scripts.papers.rules import NOT_RUN
from scripts.papers.stand_ins import stand_in

KEYS = {"column", "common", "each", "needs"}
_ORDERS = {"falls": 1, "rises": -1}


def is_compared(keys: set[str]) -> bool:
    """Whether these keys, beside who says what, describe such a statement."""
    return keys - KEYS in ({order} for order in _ORDERS) and {"column", "needs"} <= keys


def compared(node: Mapping[str, Any], runs: Runs, label: str) -> dict[str, str]:
    """What was measured, the verdict and the seeds that agree.

    It holds where it does in every setting, and does not where it fails in one. Settings that are
    missing leave it not run, unless another one decides; other data decide nothing.

    Raises:
        ConfigError: for less than two runs to compare.
    """
    (order,) = _ORDERS.keys() & node.keys()
    sides: Sequence[Mapping[str, str]] = node[order]
    require(len(sides) > 1, f"{label}, {order}", len(sides), "two runs or more")
    judged: list[tuple[str, str, str]] = []  # what was measured, verdict, seeds
    beside, missing = [], []
    for setting in node.get("each") or [{}]:
        name = ", ".join(str(value).replace("_", " ") for value in setting.values())
        longest = [
            _longest(runs, node["column"], {**node.get("common", {}), **setting, **side})
            for side in sides
        ]
        picked = [run for run in longest if run is not None]
        if len(picked) < len(longest):
            missing.append(name)
            continue
        values = [one for (one,) in in_common(picked, [node["column"]])]
        means = [(median if " first " in node["column"] else fmean)(one) for one in values]
        shown = ", ".join(f"{mean:.4g}" for mean in means)
        measured = f"{shown} with {name}" if name else shown
        if any(stand_in(run.made) for run in picked):
            beside.append(measured)
            continue
        sign = _ORDERS[order]
        agree = sum(_descends(sign, seed) for seed in zip(*values, strict=True))
        number = len(values[0])
        judged.append(
            (measured, outcome(_descends(sign, means), agree, number), f"{agree} of {number}")
        )
    texts = [one for one, _, _ in judged]
    texts += [f"not the published data: {', '.join(beside)}"] if beside else []
    texts += [f"not run: {', '.join(missing)}"] if missing and (judged or beside) else []
    row = {"measured": "; ".join(texts), "seeds": ", ".join(seeds for _, _, seeds in judged)}
    verdicts = [verdict for _, verdict, _ in judged]
    for verdict in ("does not hold", NOT_RUN, "one seed", "cannot tell", "holds"):
        if verdict in verdicts or (verdict == NOT_RUN and (missing or not (judged or beside))):
            return row | {"verdict": verdict}
    return row | cannot_tell(row)


def _longest(runs: Runs, column: str, wanted: Mapping[str, str]) -> Run | None:
    """The run of most seeds that has the column, in every one of them."""
    whole = [
        run
        for run in runs.find(**wanted)
        if len(run.seeds.get(column, ())) == len(run.made["seeds"].split())
    ]
    return max(whole, key=lambda run: len(run.seeds[column]), default=None)


def _descends(sign: int, values: Sequence[float]) -> bool:
    return all(sign * one > sign * other for one, other in pairwise(values))
