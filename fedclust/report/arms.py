"""Arms: the jobs of a sweep under names a reader recognises."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedclust.config.schema import is_setting, tells_arms_apart
from fedclust.report.jobs import Curve, Job

SEPARATOR = ", "  # between the pieces of a setting


@dataclass(frozen=True)
class Arm:
    """One job with its name.

    Attributes:
        job: the job.
        name: the algorithm choice, and the options in which it differs from its other jobs: "jgl
            gradient_weight=0.2".
        setting: the federation where not all jobs of the report have the same one: "MNIST-MCLR,
            swap all".
    """

    job: Job
    name: str
    setting: str

    @property
    def label(self) -> str:
        """Name and setting."""
        return SEPARATOR.join(part for part in (self.name, self.setting) if part)

    @property
    def algorithm(self) -> str:
        """The algorithm choice."""
        return self.job.choices.get("algorithm") or self.name

    @property
    def base(self) -> str:
        """The algorithm choice inside a wrapper; without one, the algorithm itself."""
        return self.job.choices.get("algorithm@algorithm.base") or self.algorithm

    @property
    def finished(self) -> bool:
        """Whether the job has run to its end; one that says nothing of its state has."""
        return bool(self.job.status.get("state", "done") == "done")

    @property
    def stand_in(self) -> str:
        """The data set the experiment is about, where the job used another in its place; else
        "".
        """
        meant = str(self.job.asked.get("dataset") or "")
        return "" if meant == self.job.choices.get("dataset") else meant

    @property
    def cell(self) -> Mapping[str, str]:
        """What tells the cells of a printed table apart: choices by group, and classes per
        client.
        """
        partition = self.job.config.get("partition") or {}
        classes = (
            "10"
            if self.job.choices.get("partition") == "iid"
            else partition.get("classes_per_client")
        )
        meant = {"dataset": self.stand_in} if self.stand_in else {}
        return {**self.job.choices, "classes": str(classes), **meant}

    def curve(self, metric: str) -> Curve | None:
        """One metric of the arm without the seeds that failed on the way, or None where it was not
        recorded.

        "models" is the sum of models_down and models_up.
        """
        curve = self._sent() if metric == "models" else self.job.curves.get(metric)
        return curve.without(self.job.failed) if curve else None

    def _sent(self) -> Curve | None:
        """The models sent in either direction."""
        down, up = self.job.curves.get("models_down"), self.job.curves.get("models_up")
        if down is None or up is None or down.values.shape != up.values.shape:
            return None
        return replace(down, values=down.values + up.values)

    def last(self, metric: str) -> NDArray[np.float64]:
        """[S] newest value per seed, without the seeds that have none."""
        curve = self.curve(metric)
        return _known(curve.last()) if curve else np.empty(0)

    def total(self, metric: str) -> NDArray[np.float64]:
        """[S] sum over rounds per seed."""
        curve = self.curve(metric)
        return np.nansum(curve.values, axis=0) if curve else np.empty(0)

    def best(self, metric: str) -> NDArray[np.float64]:
        """[S] maximum over the rounds that count, see `counted`, without the seeds that have
        none.
        """
        curve = self.counted(metric)
        return _known(np.fmax.reduce(curve.values, axis=0)) if curve else np.empty(0)

    def counted(self, metric: str) -> Curve | None:
        """The curve from the first round on in which every client is served, NaN before."""
        curve, served = self.curve(metric), self.curve("served")
        if curve is None or served is None or served.values.shape != curve.values.shape:
            return curve
        included = np.maximum.accumulate(np.nan_to_num(served.values), axis=0) >= 1
        # a run in which somebody is never served is scored over all of its rounds
        values = np.where(~included & included.any(axis=0), np.nan, curve.values)
        return replace(curve, values=values)


def arms(jobs: Sequence[Job], order: Sequence[str] = ()) -> list[Arm]:
    """The arms of some jobs by setting; in a setting those named in `order` first, then by label.

    Args:
        jobs: the jobs.
        order: algorithm choices, names, whole labels or pieces of settings, in row order.
    """
    federation = _federations(jobs)
    settings = [
        SEPARATOR.join(
            _piece(job, key, name) for key, name in federation.items() if _value(job, key)
        )
        for job in jobs
    ]
    by_algorithm: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        by_algorithm[_algorithm(job)].append(job)
    options = {
        algorithm: _told_apart(group, lambda key: not is_setting(key))
        for algorithm, group in by_algorithm.items()
    }
    names = [_name(job, options[_algorithm(job)]) for job in jobs]
    alike = Counter(zip(names, settings, strict=True))
    found = [
        # where nothing in the configs tells two jobs apart, their folders do
        Arm(job, name if alike[name, setting] == 1 else f"{name} ({job.folder.name})", setting)
        for job, name, setting in zip(jobs, names, settings, strict=True)
    ]
    rank = {name: position for position, name in enumerate(order)}

    def key(
        arm: Arm,
    ) -> tuple[list[int], list[tuple[int, float, str]], int, list[tuple[int, float, str]]]:
        pieces = [rank.get(piece, len(rank)) for piece in arm.setting.split(SEPARATOR)]
        place = min(rank.get(name, len(rank)) for name in (arm.label, arm.name, arm.algorithm))
        return pieces, _natural(arm.setting), place, _natural(arm.name)

    return sorted(found, key=key)


def settings_of(arms: Sequence[Arm]) -> list[str]:
    """The settings of some arms, in their order."""
    return list(dict.fromkeys(arm.setting for arm in arms))


def _algorithm(job: Job) -> str:
    return job.choices.get("algorithm") or job.folder.name


def _name(job: Job, options: Mapping[str, str]) -> str:
    given = [f"{short}={_value(job, key)}" for key, short in options.items() if _value(job, key)]
    return " ".join([_algorithm(job), *given])


def _piece(job: Job, key: str, short: str) -> str:
    """One difference between federations in words."""
    value = _value(job, key)
    if key == "case":
        return str(job.asked.get("case") or value.rpartition("/")[2])
    return value.replace("_", " ") if key in job.choices else f"{short}={value}"


def _federations(jobs: Sequence[Job]) -> dict[str, str]:
    """The keys that tell federations apart, with their short names: the case, and what differs
    within one.
    """
    told = _told_apart(jobs, is_setting)
    if "case" not in told:
        return told
    by_case: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        by_case[_value(job, "case")].append(job)
    within = {
        key
        for group in by_case.values()
        for key in told
        if len({_value(job, key) for job in group}) > 1
    }
    return {key: short for key, short in told.items() if key == "case" or key in within}


def _told_apart(jobs: Sequence[Job], wanted: Callable[[str], bool]) -> dict[str, str]:
    """The overridden keys that are wanted and differ among the jobs, each with its shortest clear
    name.
    """
    given = dict.fromkeys(key for job in jobs for key in _overrides(job) if wanted(key))
    differing = [key for key in given if len({_comparable(_value(job, key)) for job in jobs}) > 1]
    short = Counter(key.rpartition(".")[2] for key in differing)
    return {key: s if short[s := key.rpartition(".")[2]] == 1 else key for key in differing}


def _value(job: Job, key: str) -> str:
    """What the job has for a key, given or by default; "" where it has none."""
    given = _overrides(job).get(key) or job.choices.get(key)
    if given is not None:
        return given
    node: object = job.config
    for part in key.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return "" if node is None or isinstance(node, Mapping) else str(node)


def _overrides(job: Job) -> Mapping[str, str]:
    pairs = (str(text).lstrip("+~").partition("=") for text in job.config.get("overrides") or ())
    return {key: value for key, _, value in pairs if key != "algorithm" and tells_arms_apart(key)}


def _comparable(text: str) -> float | str:
    """The number a text stands for, so that 1e-1 and 0.1 are the same; else the text."""
    try:
        return float(text)
    except ValueError:
        return text


def _natural(text: str) -> list[tuple[int, float, str]]:
    """A sort key in which 9 comes before 10."""
    pieces = text.replace("=", " ").replace(",", " ").split()
    return [(0, float(p), "") if p.replace(".", "", 1).isdigit() else (1, 0.0, p) for p in pieces]


def _known(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values[~np.isnan(values)]
