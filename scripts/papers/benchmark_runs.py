"""What the runs of `experiment=benchmark` in a folder say, federation by federation."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from fedclust import papers
from fedclust.config.tree import CONF
from fedclust.helpers.errors import ConfigError
from fedclust.launch.compose import register
from fedclust.papers.reports import spec_of
from fedclust.report.against_best import MARGIN
from fedclust.report.arms import Arm, arms
from fedclust.report.pooling import pool_seeds
from fedclust.report.reading import read_runs
from fedclust.report.relative import Relative, relative
from fedclust.report.runs import Run
from fedclust.report.spec import Spec

EXPERIMENT = "benchmark"
KNOWING = "oracle"
REFERENCE = "fedavg"
ALIKE = 0.5  # points between near copies
_OVER = ("done", "failed")  # states of a job that will not go on


@dataclass(frozen=True)
class Federation:
    """One federation of the experiment.

    Attributes:
        case: its choice, as in conf/case.
        title: what reports call it.
        about: its config's first line, and that of what makes it smaller.
        arms: the jobs with results, by method.
        missing: methods that have not run to their end.
    """

    case: str
    title: str
    about: str
    arms: Mapping[str, Arm]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Results:
    """All that the page says, before it is written.

    Attributes:
        spec: what the experiment asks for.
        arms: the jobs with results, of other federations too.
        federations: of the experiment, in its order.
        scale: the name of its size.
        tuned: the same of the jobs with `tuned=…`, beside the others; None where all or none are.
    """

    spec: Spec
    arms: Sequence[Arm]
    federations: Sequence[Federation]
    scale: str
    tuned: Results | None = None

    @property
    def complete(self) -> list[Federation]:
        """The federations in which every method ran."""
        return [one for one in self.federations if not one.missing]

    @property
    def searches(self) -> list[Mapping[str, Any]]:
        """What found the settings of tuned jobs; empty for default settings."""
        found = [arm.run.config.get("search") for arm in self.counted]
        return [one for one in found if isinstance(one, Mapping)]

    def only(self, cases: Sequence[str]) -> Results:
        """The same of some federations."""
        chosen = [one for one in self.federations if one.case in cases]
        return Results(self.spec, self.arms, chosen, self.scale)

    @cached_property
    def counted(self) -> list[Arm]:
        """The jobs of complete federations."""
        return [arm for one in self.complete for arm in one.arms.values()]

    @cached_property
    def shares(self) -> Relative | None:
        """Scores over the oracle's; None where no federation with true groups is complete."""
        return relative(self.spec, self.counted)

    @cached_property
    def at_a_glance(self) -> Relative | None:
        """The same where groups help, near copies in one row; None where they help nowhere."""
        arms = self.only(self.helped).counted
        return relative(self.spec, [arm for arm in arms if arm.name in {KNOWING, *self.families}])

    @cached_property
    def helped(self) -> list[str]:
        """The cases of federations in which knowing the groups is worth something: the oracle leads
        one model for all by more than `MARGIN` points.
        """
        return [
            one.case
            for one in self.complete
            if {KNOWING, REFERENCE} <= one.arms.keys()
            and 100 * (_mean(one, KNOWING) - _mean(one, REFERENCE)) > MARGIN
        ]

    @cached_property
    def families(self) -> Mapping[str, Sequence[str]]:
        """Methods that are not told the groups and ran in every federation, by the first of their
        near copies (FedAvg before others): those linked by pairs that are less than `ALIKE` points
        apart in the same seed, in the mean over seeds and then over federations.
        """
        ran = [one.arms for one in self.complete]
        names = [n for n in ran[0] if n != KNOWING and all(n in arms for arms in ran)]
        scores = {n: [arms[n].by_seed("accuracy") for arms in ran] for n in names}
        families: dict[str, list[str]] = {}
        for name in sorted(names, key=lambda name: name != REFERENCE):
            kin = [
                first
                for first, family in families.items()
                if any(_gap(scores[name], scores[other]) < ALIKE for other in family)
            ]
            joined = [other for first in kin for other in families.pop(first)]
            families[(joined or [name])[0]] = [*joined, name]
        return families


def _mean(one: Federation, name: str) -> float:
    return float(one.arms[name].last("accuracy").mean())


def _gap(left: Sequence[Mapping[int, float]], right: Sequence[Mapping[int, float]]) -> float:
    """Points between two methods, from their scores by seed in every federation."""
    gaps = [
        100 * fmean(abs(own[seed] - other[seed]) for seed in own.keys() & other.keys())
        if own.keys() & other.keys()
        else inf
        for own, other in zip(left, right, strict=True)
    ]
    return fmean(gaps)


def results(folder: Path) -> Results:
    """What the runs of a folder say.

    Raises:
        UserError: for a folder without runs, or of another experiment.
    """
    runs = read_runs(folder)
    scales = {run.scale for run in runs}
    names = {str(run.choices.get("experiment")) for run in runs}
    if names != {EXPERIMENT} or len(scales) > 1:
        what = ", ".join(sorted(names | (scales if len(scales) > 1 else set())))
        raise ConfigError(
            f"{folder} holds {what}: it must hold experiment={EXPERIMENT} in one size"
        )
    tuned = [run for run in runs if run.config.get("tuned")]
    default = [run for run in runs if not run.config.get("tuned")]
    found = _results(default or tuned)
    if not tuned or not default:
        return found
    searched = {str(run.choices.get("algorithm")) for run in tuned}
    return replace(found, tuned=_results(tuned, searched))


def _results(runs: Sequence[Run], only: Collection[str] | None = None) -> Results:
    """Those of jobs that are all tuned, or all not; of some methods if they are named."""
    spec, scale = spec_of(runs[0].config), runs[0].scale
    found = arms(pool_seeds(runs), spec.order, papers.changed)
    swept = _composed([f"experiment={EXPERIMENT}", f"scale={scale}"])["hydra"]["sweeper"]["params"]
    methods = [name for name in str(swept["algorithm"]).split(",") if only is None or name in only]
    federations = []
    for case in str(swept["case"]).split(","):
        title = str(_composed([f"case={case}"])["report"]["case"])
        # a single federation has no name in a report
        here = {
            arm.name: replace(arm, setting=title)
            for arm in found
            if arm.run.asked.get("case") == title
        }
        over = {name for name, arm in here.items() if arm.run.status.get("state") in _OVER}
        grouped = any(arm.curve("purity") for arm in here.values())
        wanted = [name for name in methods if grouped or name != KNOWING or not here]
        about = _about(CONF / "case" / f"{case}.yaml")
        smaller = re.search(rf"\n  {scale}:.* # (.*)", (CONF / "case" / f"{case}.yaml").read_text())
        if smaller:
            about += f"; at this size {smaller[1]}"
        missing = tuple(name for name in wanted if name not in over)
        federations.append(Federation(case, title, about, here, missing))
    return Results(spec, found, federations, scale)


def _about(file: Path) -> str:
    """The first comment of a config."""
    lines = file.read_text().splitlines()
    first = next(line for line in lines if line.startswith("# ") and "@package" not in line)
    return first.removeprefix("# ")


def _composed(overrides: Sequence[str]) -> dict[str, Any]:
    register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
        config = compose("config", overrides=list(overrides), return_hydra_config=True)
    plain = OmegaConf.to_container(
        OmegaConf.masked_copy(config, ["hydra", "report"]), resolve=False
    )
    assert isinstance(plain, dict)
    return cast(dict[str, Any], plain)
