"""What the runs of `experiment=benchmark` in a folder say, federation by federation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from fedclust import papers
from fedclust.config.tree import CONF
from fedclust.helpers.errors import ConfigError
from fedclust.launch.compose import register
from fedclust.papers.reports import spec_of
from fedclust.report.against_best import Standing
from fedclust.report.arms import Arm, arms
from fedclust.report.comparison import Overall, overall
from fedclust.report.headline import score_column, standing
from fedclust.report.pooling import pool_seeds
from fedclust.report.reading import read_runs
from fedclust.report.relative import Relative, relative
from fedclust.report.runs import Run
from fedclust.report.spec import Spec

EXPERIMENT = "benchmark"
KNOWING = "oracle"
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
    def competing(self) -> list[Arm]:
        """Those of methods that are not told the groups."""
        return [arm for arm in self.counted if arm.algorithm != KNOWING]

    @cached_property
    def overall(self) -> Overall | None:
        """Ranks over the federations; None for one."""
        return overall(self.spec, self.competing)

    @cached_property
    def standing(self) -> Mapping[str, Standing]:
        """Every arm against the best of its federation, by label."""
        column = score_column(self.spec, self.competing)
        return standing(self.competing, column, self.spec.metric)


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
    return replace(found, tuned=_results(tuned)) if tuned and default else found


def _results(runs: Sequence[Run]) -> Results:
    """Those of jobs that are all tuned, or all not."""
    spec, scale = spec_of(runs[0].config), runs[0].scale
    found = arms(pool_seeds(runs), spec.order, papers.changed)
    swept = _composed([f"experiment={EXPERIMENT}", f"scale={scale}"])["hydra"]["sweeper"]["params"]
    methods = str(swept["algorithm"]).split(",")
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
