"""Runs that differ in their seeds alone, as one."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedclust.report.runs import Curve, Run

# what may differ between two runs whose seeds belong to one mean
_BESIDE = (
    *("seeds", "overrides", "hash", "checkpoint_seconds", "progress", "tracker", "data"),
    *("objective", "tags"),
    *("threads", "device", "engine", "max_rows", "lockstep"),
)


def pool_seeds(runs: Sequence[Run]) -> list[Run]:
    """The runs, those that differ in their seeds alone joined, unless two folders share a seed."""
    alike: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        alike[identity(run)].append(run)
    pooled = []
    for group in alike.values():
        by_folder: dict[Path, list[Run]] = defaultdict(list)
        for run in group:
            by_folder[run.folder.parent].append(run)
        homes = [_disjoint(jobs) for jobs in by_folder.values()]
        parts = [part for home in homes for part in home]
        seeds = [seed for part in parts for seed in part.seeds]
        together = len(set(seeds)) == len(seeds)
        pooled += [_joined(parts)] if together else [_joined(home) for home in homes]
    return pooled


def identity(run: Run) -> str:
    """The config without `_BESIDE`, as text: equal for runs whose seeds belong to one mean."""
    config = {key: value for key, value in run.config.items() if key not in _BESIDE}
    return json.dumps(config, sort_keys=True, default=str)


def _disjoint(group: Sequence[Run]) -> list[Run]:
    """The runs, finished and longer ones first, each without the seeds of one before it."""
    known: set[int] = set()
    parts = []
    for run in sorted(group, key=_worth):
        new = set(run.seeds) - known
        if new or not run.seeds:
            curves = {
                name: curve.without(known)
                for name, curve in run.curves.items()
                if set(curve.seeds) - known
            }
            parts.append(replace(run, curves=curves) if known & set(run.seeds) else run)
        known |= new
    return parts


def _worth(run: Run) -> tuple[bool, int, int]:
    return run.status.get("state") != "done", -run.rounds, -len(run.seeds)


def _joined(parts: Sequence[Run]) -> Run:
    """One run with the seeds of all parts, which have none in common."""
    if len(parts) == 1:
        return parts[0]
    parts = sorted(parts, key=lambda run: run.seeds)
    first = parts[0]
    seeds = sorted(seed for part in parts for seed in part.seeds)
    given = first.config.get("overrides") or []
    overrides = [text for text in given if str(text).partition("=")[0] != "seeds"]
    names = dict.fromkeys(name for part in parts for name in part.curves)
    return Run(
        folder=first.folder,
        config={**first.config, "seeds": seeds, "overrides": overrides},
        status=_status(parts),
        curves={name: _curve([part.curves.get(name) for part in parts], parts) for name in names},
        parts=tuple(parts),
        place=min(part.place for part in parts),
    )


def _status(parts: Sequence[Run]) -> Mapping[str, Any]:
    """Done when all parts are; else that of the first that is not, with all known of seeds."""
    seeds = {
        seed: what for part in parts for seed, what in (part.status.get("seeds") or {}).items()
    }
    unfinished = [part.status for part in parts if part.status.get("state") != "done"]
    return {**(unfinished or [parts[0].status])[0], "seeds": seeds}


def _curve(curves: Sequence[Curve | None], parts: Sequence[Run]) -> Curve:
    """One metric of all parts; NaN where a part has no value."""
    known = [curve for curve in curves if curve is not None]
    rounds = np.unique(np.concatenate([curve.rounds for curve in known]))
    seeds = sorted(s for c, p in zip(curves, parts, strict=True) for s in (c or p).seeds)
    values = np.full((len(rounds), len(seeds)), np.nan)
    for curve in known:
        rows, columns = np.searchsorted(rounds, curve.rounds), np.searchsorted(seeds, curve.seeds)
        values[np.ix_(rows, columns)] = curve.values
    return Curve(rounds, tuple(seeds), values)
