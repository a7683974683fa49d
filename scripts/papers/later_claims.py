"""Verdicts on claims from what is kept of the runs: for claims that were added after a run, and for
runs whose seeds or methods were added after their report.

`claims.csv` has what a report said when the runs of an experiment were collected together. Their
curves are not kept, but of every seed the best value, the last, those at the printed rounds, and
the first rounds with a value. Leads, orders and values at the end or at a printed round, and rounds
to a value need no more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from fedclust.papers.claims import claim as claim_of
from fedclust.papers.claims import within
from fedclust.papers.orders import EqualUntil, OrderAtEnd, Overtakes
from fedclust.papers.values import AtLeast, Gain, Reaches
from fedclust.report.arms import SEPARATOR
from fedclust.report.formats import factor
from scripts.papers.cells import Run, mixing
from scripts.papers.stand_ins import stand_in

VERSIONS = "runs of two versions of the code"  # behind what such runs measure
MACHINES = "runs of two machines"


def verdicts(
    entry: Mapping[str, Any], runs: Sequence[Run], swept: Collection[str] = ()
) -> list[dict[str, str]]:
    """A claim in every setting in which all of its methods ran, over the seeds that all of them
    have, as lines of `claims.csv`; none for a kind of claim that needs curves.

    Args:
        entry: the claim as the experiment states it.
        runs: of the experiment.
        swept: the keys of the experiment's own grid; runs with other options are variants of it.
    """
    claim = claim_of(entry)
    columns = _columns(claim)
    sides = [
        [run for run in runs if run.made["algorithm"] == _base(name) and _tells(claim, run, swept)]
        for name in claim.names
    ]
    found: dict[str, dict[str, str]] = {}
    for arms in product(*sides) if columns else ():
        title = _title(arms[0])
        same = len({_title(run) for run in arms}) == 1
        values = in_common(arms, columns) if same else []
        if values and all(map(all, values)) and within(claim.setting, title):
            mixed = [
                f"{run.made['algorithm']} mixes clusters, purity {purity:.2f}"
                for run in arms
                if (purity := mixing(run, runs)) is not None
            ]
            unit = 1.0 if isinstance(claim, Reaches) else factor(claim.metric)
            scores = [np.array(v) / unit for v in values]
            row = _line(claim, title, arms, scores, mixed)
            if title not in found or seeds_of(row) > seeds_of(found[title]):
                found[title] = row
    return list(found.values())


def in_common(arms: Sequence[Run], columns: Sequence[str]) -> list[list[list[float]]]:
    """Of every arm and column the values of the seeds that all arms have."""
    kept = [run.made["seeds"].split() for run in arms]
    seeds = [seed for seed in kept[0] if all(seed in one for one in kept)]
    return [
        [
            [run.seeds[column][of.index(seed)] for seed in seeds]
            if len(run.seeds.get(column, ())) == len(of)
            else []
            for column in columns
        ]
        for run, of in zip(arms, kept, strict=True)
    ]


def seeds_of(row: Mapping[str, str]) -> int:
    """How many seeds a line of `claims.csv` is about; 0 where it does not say."""
    number = row["seeds"].rpartition(" of ")[2]
    return int(number) if number.isdigit() else 0


def _columns(claim: Any) -> list[str]:
    """What a claim needs of every seed; nothing for one that needs curves."""
    if isinstance(claim, Gain):
        return [f"{claim.metric} {claim.score}"]
    if isinstance(claim, Overtakes):
        return [f"{claim.metric} at {number}" for number in claim.between]
    if isinstance(claim, OrderAtEnd | AtLeast):
        return [f"{claim.metric} last"]
    if isinstance(claim, Reaches):
        return [f"{claim.metric} first {factor(claim.metric) * claim.value:g}"]
    return [f"{claim.metric} at {claim.round}"] if isinstance(claim, EqualUntil) else []


def _tells(claim: Any, run: Run, swept: Collection[str]) -> bool:
    """Whether a run is the experiment's own, and long enough for a claim."""
    ends = isinstance(claim, Gain) and claim.score == "last"
    whole = ends or isinstance(claim, OrderAtEnd | AtLeast | Reaches)
    own = all(key in swept for key, _ in _options(run))
    return own and not (whole and " rounds=" in run.made["command"])


def _options(run: Run) -> list[tuple[str, str]]:
    """Keys and values of a run's options."""
    return [
        (key, value) for key, _, value in (o.partition("=") for o in run.made["options"].split())
    ]


def _line(
    claim: Any, title: str, arms: Sequence[Run], values: Sequence[Any], mixed: Sequence[str]
) -> dict[str, str]:
    verdict = claim.verdict(values)
    where = f" [{title}]" if title else ""
    versions = len({run.made["commit"] for run in arms})
    machines = len({run.made["machine"] for run in arms})
    apart = [VERSIONS] * (versions > 1) + [MACHINES] * (machines > 1)
    measured = "; ".join([verdict.measured, *mixed, *apart])
    row = {"claim": verdict.claimed + where, "measured": measured, "needs": ""}
    if stand_in(arms[0].made):  # as in a report
        return row | cannot_tell(row)
    if isinstance(claim, EqualUntil) and versions > 1 and not verdict.holds:
        return row | cannot_tell(row, f"at round {claim.round}")
    return row | {"verdict": verdict.outcome, "seeds": f"{verdict.seeds} of {verdict.of}"}


def cannot_tell(row: Mapping[str, str], why: str = "not the published data") -> dict[str, str]:
    """What a line of `claims.csv` becomes where its runs tell nothing."""
    measured = row["measured"]
    told = measured if ", not " in measured else f"{measured}, {why}"
    return {"measured": told, "verdict": "cannot tell", "seeds": "–"}


def _base(arm: str) -> str:
    """The method of an arm, whose last local models another one tests."""
    return arm.removeprefix("last_local base=")


def _title(run: Run) -> str:
    """What a report calls the run's setting: its case, and how its data change."""
    shift = run.made["scenario"]
    words = [] if shift == "static" else [shift.replace("_", " ")]
    of_shift = [
        f"{k.rpartition('.')[2]}={v}" for k, v in _options(run) if k.startswith("scenario.")
    ]
    return SEPARATOR.join(filter(None, [run.made["case"], *(of_shift or words)]))
