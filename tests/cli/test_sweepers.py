"""What a job returns to a sweeper, what a sweeper is asked, and notes that are no factor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli.conftest import Cli, config_of, put, rounds_of
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from omegaconf import OmegaConf

import fedclust as package
from fedclust.helpers.errors import ConfigError, SweepError
from fedclust.launch.checks import check_direction
from fedclust.launch.compose import Command
from fedclust.launch.typed import Typed

TINY = ("progress=false", "partition.num_clients=8", "rounds=2", "solver.epochs=1")


@pytest.fixture
def returned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What the jobs of sweeps have returned to Hydra's sweeper."""
    values: list[Any] = []
    found = {kind.__name__: kind for kind in Plugins.instance().discover(Sweeper)}
    basic = found["BasicSweeper"]
    plain = basic.sweep

    def sweep(self: Sweeper, arguments: list[str]) -> Any:
        batches = plain(self, arguments)
        values.extend(one.return_value for batch in batches for one in batch)
        return batches

    monkeypatch.setattr(basic, "sweep", sweep)
    monkeypatch.chdir(tmp_path)
    return values


@pytest.mark.slow
def test_a_job_returns_the_mean_over_seeds_of_the_last_accuracy(returned: list[Any]) -> None:
    result = package.sweep(*TINY, algorithm=["fedavg", "local"], seeds=2)
    last = result.rounds.query("round == 1").groupby("arm")
    assert returned == pytest.approx(last["accuracy"].mean().loc[["fedavg", "local"]].tolist())
    returned.clear()
    package.sweep(*TINY, algorithm=["fedavg", "local"], seeds=2, objective="bytes")  # done already
    assert returned == last["bytes"].mean().loc[["fedavg", "local"]].tolist()


@pytest.mark.full
def test_with_validation_examples_a_job_returns_their_accuracy(returned: list[Any]) -> None:
    result = package.sweep(*TINY, algorithm=["fedavg"], validation=0.2)
    last = result.rounds.query("round == 1")
    assert returned == pytest.approx(last["validation_accuracy"].tolist())
    assert returned != pytest.approx(last["accuracy"].tolist())
    assert next(iter(result.folder.glob("fedavg*"))).name.endswith("validation=0.2")


@pytest.mark.full
def test_a_job_that_cannot_run_returns_nothing(returned: list[Any]) -> None:
    with pytest.raises(SweepError, match="rounds=0 is not allowed"):
        package.sweep("progress=false", "partition.num_clients=8", rounds=[0, 1])
    assert returned[0] is None
    assert 0 < returned[1] < 1


@pytest.mark.full
@pytest.mark.parametrize("metric", ["acuracy", "last/accuracy"])
def test_an_unknown_objective_is_refused_before_anything_runs(
    fedclust: Cli, tmp_path: Path, metric: str
) -> None:
    done = fedclust("run", *TINY, f"objective={metric}")
    assert done.status == 2
    said = f"fedclust: objective={metric} is not allowed: did you mean accuracy?\n"
    assert done.err == said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_an_objective_that_a_job_has_not_recorded_is_told(fedclust: Cli) -> None:
    fedclust.refused(
        "run",
        *TINY,
        "algorithm=fedavg",
        "objective=moved",
        says="objective=moved is not allowed: this job has recorded accuracy, ",
    )


def composed(**sweeper: Any) -> Any:
    objective = sweeper.pop("objective", None)
    return OmegaConf.create(
        {"objective": objective, "validation": 0.0, "hydra": {"sweeper": sweeper}}
    )


def looking(**sweeper: Any) -> Command:
    return Command(Typed((), many=True), composed(**sweeper))


def test_a_sweeper_looks_for_the_better_value() -> None:
    check_direction(looking(direction="maximize"))
    check_direction(looking(direction="minimize", objective="test_loss"))
    check_direction(looking(direction="minimize", objective="num_clusters"))
    check_direction(looking())
    said = r"hydra\.sweeper\.direction=minimize is not allowed: maximize, since accuracy is better"
    with pytest.raises(ConfigError, match=said):
        check_direction(looking(direction="minimize"))


def test_the_number_of_jobs_is_what_the_sweeper_says() -> None:
    basic = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
    grid = composed(_target_=basic, params={"algorithm": "lcfl,ifca"})
    typed = Typed(("rounds=1,2,3", "seeds=2"), many=True)
    assert Command(typed, grid).num_jobs == 6
    assert Command(replace(typed, many=False), grid).num_jobs == 1
    search = composed(
        _target_="x.OptunaSweeper", n_trials=20, params={"solver.lr": "interval(0,1)"}
    )
    assert Command(Typed((), many=True), search).num_jobs == 20
    assert looking(_target_="x.Other").num_jobs is None


@pytest.mark.full
def test_tags_are_told_and_are_no_factor(fedclust: Cli, tmp_path: Path) -> None:
    fedclust.done("run", *TINY, "algorithm=local", "+tags.note=first", "+tags.student=7")
    (folder,) = (tmp_path / "outputs" / "default").iterdir()
    assert folder.name == "local,partition.num_clients=8,rounds=2,solver.epochs=1"
    assert config_of(folder)["tags"] == {"note": "first", "student": 7}
    again = fedclust.done("run", *TINY, "algorithm=local", "+tags.note=second")
    assert "is done already" in again.err
    made = {row["what"]: row["value"] for row in package.load(folder).table("made").records}
    assert (made["tag note"], made["tag student"]) == ("second", "7")


TRACKER = """
from fedclust.trackers.none import NoTracker

class Notes(NoTracker):
    def __init__(self, fails=False):
        self.fails = fails
        self.lines = []

    def begin(self, about):
        self.lines.append(f"begin {about.folder.name} {about.first} {about.parameters['rounds']}")

    def log(self, round, values):
        self.lines.append(f"log {round} {sorted(values)}")

    def end(self, summary, report):
        if self.fails:
            raise RuntimeError("no network")
        page = report() / "report.html"
        self.lines.append(f"end {summary['last/accuracy']!r} {page.is_file()}")

    def close(self):
        open("notes.txt", "w").write("\\n".join([*self.lines, "closed"]))
"""


@pytest.mark.full
def test_a_tracker_is_begun_fed_and_given_the_results(fedclust: Cli, tmp_path: Path) -> None:
    put(tmp_path / "mine/my_notes.py", TRACKER)
    put(tmp_path / "mine/tracker/notes.yaml", "_target_: my_notes.Notes\nfails: false\n")
    given = ("algorithm=local", "seeds=2", "tracker=notes")
    arguments = ("run", "--config-dir", "mine", *TINY, *given)
    fedclust.done(*arguments, "hydra.run.dir=one")
    last = rounds_of(tmp_path / "one", "accuracy")[:, 1].mean()
    assert (tmp_path / "notes.txt").read_text().splitlines() == [
        "begin one 0 2",
        "log 0 [0, 1]",
        "log 1 [0, 1]",
        f"end {float(last)!r} True",
        "closed",
    ]
    failing = fedclust.done(*arguments, "tracker.fails=true", "hydra.run.dir=two")
    assert "the tracker did not take the results: RuntimeError: no network" in failing.err
    assert (tmp_path / "notes.txt").read_text().splitlines()[-1] == "closed"


@pytest.mark.full
def test_a_glob_of_choices_is_a_sweep_over_them(
    returned: list[Any], fedclust: Cli, tmp_path: Path
) -> None:
    fedclust.done("run", "-m", *TINY, "rounds=1", "seeds=1", "algorithm=glob(fedp*)")
    assert len(returned) == 2
    files = tmp_path.rglob("config.yaml")
    found = {yaml.safe_load(file.read_text())["choices"]["algorithm"] for file in files}
    assert found == {"fedper", "fedprox"}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("algorithm=glob(nothing*)", "none matches"),
        ("rounds=glob(*)", "rounds=glob(*) is not allowed: glob(…) for the choices of a group"),
        ("hydra/sweeper=optuna", "[optuna]' brings it"),
    ],
)
def test_a_glob_or_sweeper_that_is_not_there_is_one_line(
    fedclust: Cli, typed: str, said: str
) -> None:
    fedclust.refused("run", "-m", *TINY, typed, says=said)
