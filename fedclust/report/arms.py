"""Arms: the jobs of a sweep under names a reader recognises."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedclust.report.jobs import Curve, Job

# overrides that never tell two arms apart
_NOT_TELLING = ("checkpoint_seconds", "data", "hydra", "name", "progress", "tracker")


@dataclass(frozen=True)
class Arm:
    """One job with its name.

    Attributes:
        job: the job.
        name: the algorithm choice.
        setting: the overrides in which it differs from other jobs of the same algorithm, or "".
    """

    job: Job
    name: str
    setting: str

    @property
    def label(self) -> str:
        """Name and setting."""
        return f"{self.name} {self.setting}".strip()

    def curve(self, metric: str) -> Curve | None:
        """One metric of the arm, or None where it was not recorded."""
        return self.job.curves.get(metric)

    def last(self, metric: str) -> NDArray[np.float64]:
        """[S] newest value per seed, without the seeds that have none."""
        curve = self.curve(metric)
        return _known(curve.last()) if curve else np.empty(0)

    def total(self, metric: str) -> NDArray[np.float64]:
        """[S] sum over rounds per seed."""
        curve = self.curve(metric)
        return np.nansum(curve.values, axis=0) if curve else np.empty(0)

    def best(self, metric: str) -> NDArray[np.float64]:
        """[S] maximum over rounds per seed, from the first round on in which every client is served."""
        curve, served = self.curve(metric), self.curve("served")
        if curve is None:
            return np.empty(0)
        values = curve.values.copy()
        if served is not None and served.values.shape == values.shape:
            included = np.maximum.accumulate(np.nan_to_num(served.values), axis=0) >= 1
            # a run in which somebody is never served is scored over all of its rounds
            values[~included & included.any(axis=0)] = np.nan
        return _known(np.fmax.reduce(values, axis=0))


def arms(jobs: Sequence[Job], order: Sequence[str] = ()) -> list[Arm]:
    """The arms of some jobs; those named in `order` first, then by label; equal settings stay together.

    Args:
        jobs: the jobs.
        order: algorithm choices or whole labels, in row order.
    """
    by_name: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        by_name[job.choices.get("algorithm") or job.folder.name].append(job)
    found = [
        Arm(job, name, setting)
        for name, group in by_name.items()
        for job, setting in zip(group, _settings(group), strict=True)
    ]
    rank = {name: position for position, name in enumerate(order)}
    settings = list(dict.fromkeys(sorted((arm.setting for arm in found), key=_natural)))

    def key(arm: Arm) -> tuple[int, int, str]:
        place = rank.get(arm.label, rank.get(arm.name, len(rank)))
        return (settings.index(arm.setting), place, arm.label)

    return sorted(found, key=key)


def _settings(jobs: Sequence[Job]) -> list[str]:
    """For jobs of one algorithm, the overrides that tell them apart, as `key=value key=value`."""
    overrides = [_overrides(job) for job in jobs]
    keys = dict.fromkeys(key for given in overrides for key in given)
    differing = [key for key in keys if len({given.get(key) for given in overrides}) > 1]
    short = [key.rpartition(".")[2] for key in differing]
    names = [s if short.count(s) == 1 else key for s, key in zip(short, differing, strict=True)]
    labels = [
        " ".join(f"{name}={given[key]}" for name, key in zip(names, differing, strict=True) if key in given)
        for given in overrides
    ]
    if len(set(labels)) < len(labels):  # nothing in the configs tells them apart: their folders do
        return [f"{label} ({job.folder.name})".strip() for label, job in zip(labels, jobs, strict=True)]
    return labels


def _overrides(job: Job) -> Mapping[str, str]:
    pairs = (str(text).lstrip("+~").partition("=") for text in job.config.get("overrides") or ())
    return {
        key: value
        for key, _, value in pairs
        if key.partition(".")[0] not in _NOT_TELLING and key != "algorithm"
    }


def _natural(text: str) -> list[tuple[int, float, str]]:
    """A sort key in which 9 comes before 10."""
    pieces = text.replace("=", " ").split()
    return [(0, float(p), "") if p.replace(".", "", 1).isdigit() else (1, 0.0, p) for p in pieces]


def _known(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values[~np.isnan(values)]
