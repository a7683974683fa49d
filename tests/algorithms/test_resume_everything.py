"""An interrupted run ends with the bits of another, for every method and scenario."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from digits_jobs import ALGORITHMS, EVENTFUL, SCENARIOS, config_in
from run_folders import Interrupting, assert_same_runs, rounds_of

from fedclust.config.build import build
from fedclust.config.job import Job
from fedclust.config.objects import Objects
from fedclust.helpers.errors import Interrupted
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.progress import Silent
from fedclust.runtime.run import run

# every scenario, and every sixth algorithm (more of them where there are many scenarios); the slow
# test has all
STEP = min(6, len(ALGORITHMS) // len(SCENARIOS))
DIAGONAL = [(a, SCENARIOS[i % len(SCENARIOS)]) for i, a in enumerate(ALGORITHMS[::STEP])]
# A method knows of a scenario what a Round says: whose data changed, who has arrived, and who does
# how much. So every method meets one scenario in which data change and one of the other two kinds,
# and one method meets all.
ARRIVALS, WORK = "newcomers", "unavailable"
CHANGES = [one for one in SCENARIOS if one not in (ARRIVALS, WORK, "static")]
CROSSED = [
    (algorithm, scenario)
    for i, algorithm in enumerate(ALGORITHMS)
    for scenario in (CHANGES[i % len(CHANGES)], (ARRIVALS, WORK)[i % 2])
]
CROSSED += [("lcfl", scenario) for scenario in SCENARIOS if ("lcfl", scenario) not in CROSSED]


def run_in_pieces(job: Job, folder: RunFolder, after: Collection[int]) -> None:
    """Runs a job that ends after each of the rounds `after` and is started again with new parts."""
    for t in sorted(after):
        with pytest.raises(Interrupted):
            run(_anew(job, folder), folder, Interrupting(after))
        assert folder.status == {**folder.status, "state": "interrupted", "rounds_done": t + 1}
    run(_anew(job, folder), folder, Interrupting(after))


def _anew(job: Job, folder: RunFolder) -> Job:
    """The job with everything new that could remember an earlier start, but for the data."""
    parts = {
        group: Objects().make(folder.config[group], group) for group in ("algorithm", "scenario")
    }
    return replace(job, **parts)


def check(algorithm: str, scenario: str, folder: Path, after: Collection[int]) -> None:
    check_config(config_in(algorithm, scenario), folder, after)


def check_config(config: Mapping[str, Any], folder: Path, after: Collection[int]) -> None:
    job = build(config)
    run(job, RunFolder(folder / "whole", config), Silent())
    run_in_pieces(job, RunFolder(folder / "pieces", config), after)
    for name in ("whole", "pieces"):
        assert json.loads((folder / name / "status.json").read_text())["state"] == "done"
    whole = rounds_of(folder / "whole")
    assert set(whole["round"]) == {str(t) for t in range(config["rounds"])}
    assert_same_runs(folder / "whole", folder / "pieces")


def test_every_scenario_is_eventful() -> None:
    assert EVENTFUL.keys() <= {*SCENARIOS}
    assert {scenario for _, scenario in DIAGONAL} == set(SCENARIOS)


@pytest.mark.thinned
@pytest.mark.parametrize(("algorithm", "scenario"), DIAGONAL)
def test_interrupted_before_and_after_the_clustering(
    algorithm: str, scenario: str, tmp_path: Path
) -> None:
    check(algorithm, scenario, tmp_path, after=(1, 4, 5))


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "scenario"), CROSSED)
def test_interrupted_after_every_second_round(
    algorithm: str, scenario: str, tmp_path: Path
) -> None:
    """After the even ones in the first of a method's two scenarios, the odd ones in the second."""
    number = CROSSED.index((algorithm, scenario))
    check(algorithm, scenario, tmp_path, after=range(number % 2, 7, 2))
