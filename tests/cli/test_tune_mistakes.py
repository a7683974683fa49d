"""What `fedclust tune` says of mistakes, and while it computes."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path
from signal import SIGINT

import pandas as pd
import pytest
from cli.conftest import Cli, put
from rich.console import Console

from fedclust.tuning.trial_progress import BatchProgress

TINY = (
    *("partition=iid", "partition.num_clients=4", "model=linear", "rounds=2", "threads=1"),
    *("solver.epochs=1", "solver.batch_size=null", "device=cpu", "engine=loop"),
    *("tuning_seeds=[7]", "name=t"),
)
METHOD = """
from dataclasses import dataclass

import torch

from fedclust.algorithms.fedavg import FedAvg
from fedclust.types import Train


@dataclass(frozen=True, kw_only=True)
class Picky(FedAvg):
    \"\"\"FedAvg that raises at some levels.\"\"\"

    level: int = 1

    def round(self, state, clients, rnd):
        if self.level > 1 and rnd.t == 1:
            raise ValueError(f"no level\\n{self.level}")
        if self.level < 1:  # what the engine cannot compute, together with the calls of others
            label = torch.zeros_like(rnd.cohort)
            few = state.model[:, : self.level]
            clients.train(Train(few, label, rnd.cohort, self.solver))
        return super().round(state, clients, rnd)
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with a method that raises."""
    put(tmp_path / "own/picky.py", METHOD)
    node = "_target_: picky.Picky\nsolver: ${solver}\nlevel: 1\n"
    put(tmp_path / "own/algorithm/picky.yaml", node)
    return tmp_path / "own"


def trials_of(where: Path) -> pd.DataFrame:
    (file,) = (where / "outputs" / "t-tuning").rglob("trials.csv")
    return pd.read_csv(file)


@pytest.mark.full
def test_a_mistake_in_a_method_of_one_s_own_ends_its_trial_alone(
    fedclust: Cli, tmp_path: Path, own: Path
) -> None:
    given = ("--config-dir", "own", "algorithm=picky", "algorithm.level=1,2,3", "solver.lr=0.1")
    done = fedclust.done("tune", *given, *TINY, "trials=3")
    trials = trials_of(tmp_path)
    assert trials["state"].tolist() == ["complete", "failed", "failed"]
    assert trials["rounds"].tolist() == [2, 1, 1]
    level = trials.loc[1, "algorithm.level"]
    reason = f"{own / 'picky.py'}:18, in round: ValueError: no level {level}"
    assert trials.loc[1, "error"] == reason
    assert f"algorithm.level={level}: failed: {reason}" in done.err
    assert "Traceback" not in done.err
    assert list((tmp_path / "outputs").rglob("report.html"))


@pytest.mark.full
def test_what_the_engine_cannot_compute_ends_its_trial_alone(
    fedclust: Cli, tmp_path: Path, own: Path
) -> None:
    given = ("--config-dir", "own", "algorithm=picky", "algorithm.level=1,-3", "solver.lr=0.1")
    done = fedclust.done("tune", *given, *TINY, "trials=2")
    trials = trials_of(tmp_path)
    assert trials["state"].tolist() == ["complete", "failed"]
    assert trials["rounds"].tolist() == [2, 0]
    whose = f"{own / 'picky.py'}:22, in round: client 0, round 0 (seed 7)"
    assert trials.loc[1, "error"].startswith(f"{whose}: ValueError: got 647 parameters")
    assert done.err.count("trial 2, 1 seed") == 1  # by itself, once it is known that one is wrong
    assert "Traceback" not in done.err


@pytest.mark.full
def test_where_every_trial_fails_it_is_one_line_and_the_status_of_a_failed_run(
    fedclust: Cli, tmp_path: Path, own: Path
) -> None:
    given = ("--config-dir", "own", "algorithm=picky", "algorithm.level=2", "solver.lr=0.1,0.2")
    done = fedclust("tune", *given, *TINY, "trials=2")
    assert done.status == 1
    last = done.err.splitlines()[-1]
    assert last.startswith("fedclust: every trial has failed; the last one: ")
    assert last.endswith(f"{own / 'picky.py'}:18, in round: ValueError: no level 2")
    assert "Traceback" not in done.err
    assert trials_of(tmp_path)["state"].tolist() == ["failed"] * 2


@pytest.mark.full
def test_a_search_of_few_settings_ends_when_all_have_run(fedclust: Cli, tmp_path: Path) -> None:
    few = ("tune", "algorithm=fedavg", *TINY, "trials=6", "solver.lr=0.1,0.2")
    done = fedclust.done(*few)
    trials = trials_of(tmp_path)
    assert trials["solver.lr"].tolist() == [0.1, 0.2]
    assert "fedavg, all 2 settings have been tried, 2.0 of 6 spent" in done.err
    # what is said when the trials begin, and what is found
    first, second, third = done.err.splitlines()[:3]
    assert first == "fedavg: 2 trials × 1 seed × 2 rounds, over solver.lr"
    assert second.startswith("fedavg, trials 1 to 2, 1 seed, 2 rounds → outputs/t-tuning/")
    assert re.fullmatch(r"  a round takes \d+ s, the whole search at most \d+ s", third)
    table = pd.read_csv(tmp_path / "outputs/t-tuning/report/tuning.csv")
    values = 100 * trials["value"]
    assert table.loc[0, "spread"] == pytest.approx(abs(values[1] - values[0]) / 2)
    assert "Default and tuned" in done.out
    assert "of tuning seed 7." in done.out
    assert not {"#", "|", "\\"} & set(done.out)
    again = fedclust(*few)
    assert (again.status, trials_of(tmp_path).equals(trials)) == (0, True)


@pytest.mark.full
def test_what_is_typed_is_searched_and_the_default_is_tried_first(
    fedclust: Cli, tmp_path: Path
) -> None:
    few = ("tune", "algorithm=fedavg", *TINY, "trials=3", "solver.lr=interval(0.5,0.6)")
    fedclust.done(*few)
    rates = trials_of(tmp_path)["solver.lr"].tolist()
    assert rates[0] == 0.1
    assert all(0.5 <= rate <= 0.6 for rate in rates[1:])
    fedclust.done(*few)
    assert trials_of(tmp_path)["solver.lr"].tolist() == rates


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("solver.lr=interval(-1,-0.1)", "solver.lr=interval(-1,-0.1) is not allowed: expected a n"),
        ("solver.lr=0.1,abc", "solver.lr=abc is not allowed: expected a number in (0, "),
        ("solver.steps=interval(1,3)", "solver.steps=interval(1,3) is not allowed: expected an "),
        ("algorithm=fedavg,nosuch", "there is no algorithm/nosuch"),
        ("algorithm=ifca common.cluster_choice=train_loss,test_loss", "looks at no test examples"),
        ("algorithm=clove cluster_metric=loss,edc", "edc is not allowed: clove would not read it"),
        ("solver.lr=0.1,0.1", "solver.lr=0.1,0.1 is not allowed: several different values"),
        ("solver.lr=choice(0.1,1e-1,0.10)", "since one value is no search"),
        ("solver.steps=range(2,3)", "since one value is no search"),
        ("validation=0", "validation=0 is not allowed: a share above 0"),
        ("rounds=6 rounds=2,4", "rounds=2,4 is not allowed: a search compares values under one"),
        ("tuning_seeds=[]", "tuning_seeds=[] is not allowed: a list of different whole numbers"),
        ("tuning_seeds=3", "tuning_seeds=3 is not allowed: a list of different whole numbers"),
        ("trials=2.5", "trials=2.5 is not allowed: a whole number in [1, 10000]"),
        ("trials=0", "trials=0 is not allowed: a whole number in [1, 10000]"),
        ("num_clusters=2,4", "fedavg would not read it"),
        ("solver.rate=1,2", "algorithm=fedavg has no such number or word"),
        ("tuning_seeds=[0,9]", "tuning_seeds=[0, 9] is not allowed: seeds"),
        ("seeds=3", "seeds=3 is not allowed: a search has tuning_seeds=[…]"),
        ("objective=accuracy", "objective=accuracy is not allowed: one of"),
        ("-m algorithm=ifca", "fedclust tune has no flag -m"),
        ("validation=1.5", "validation=1.5 is not allowed: a fraction in"),
    ],
)
def test_what_cannot_be_searched_is_one_line_before_anything_runs(
    fedclust: Cli, tmp_path: Path, given: str, said: str
) -> None:
    fedclust.refused("tune", "algorithm=fedavg", *TINY, *given.split(), says=said)
    assert not (tmp_path / "outputs").exists()


@pytest.mark.full
def test_a_key_that_is_typed_twice_has_the_last_value(fedclust: Cli, tmp_path: Path) -> None:
    twice = ("solver.lr=0.1,0.2", "solver.lr=0.3", "solver.momentum=0.0,0.5")
    fedclust.done("tune", "algorithm=fedavg", *TINY, "trials=1", *twice)
    assert "solver.lr" not in trials_of(tmp_path)


def test_trials_that_run_together_are_told_of_as_one_job(tmp_path: Path) -> None:
    out = StringIO()
    console = Console(file=out, width=200)
    company = BatchProgress(
        "m, trials 1 to 2", console, folder=tmp_path, first=0, rounds=2, is_shown=True
    )
    company.join(0, 0)
    company.join(1, 0)
    company.round(0, 0)
    assert "round 1/2" not in out.getvalue()
    company.round(1, 0)
    company.finishing(1, -1, 3.0, SIGINT)
    company.leave(1)
    company.round(0, 1)
    company.stop()
    first, *lines = out.getvalue().splitlines()
    assert first.startswith("m, trials 1 to 2 → ")
    assert [line.split(" · ")[0].strip() for line in lines] == [
        "round 1/2",
        "finishing round 2 in about 3 s, Ctrl-C again to stop now: no checkpoint yet",
        "round 2/2",
    ]
