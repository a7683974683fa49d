"""What Hydra may do for a config: nothing is made or removed that the user did not ask for."""

from __future__ import annotations

import time
from io import StringIO
from pathlib import Path

import pytest
from cli.conftest import Cli, put
from rich.console import Console

from fedclust.launch import job
from fedclust.launch.typed import job_folder

SMALL = ("progress=false", "rounds=1", "partition.num_clients=8", "algorithm=fedavg")


def experiment(folder: Path, text: str) -> tuple[str, ...]:
    """Arguments that choose an experiment of a user's with this content."""
    put(folder / "mine/experiment/odd.yaml", f"# @package _global_\n{text}\n")
    return ("--config-dir", "mine", "experiment=odd")


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_folder_is_named_after_what_counts() -> None:
    given = ["rounds=3", "solver.lr=0.1", "rounds=2", "seeds=[0]"]
    assert job_folder(given, "ifca") == "ifca,rounds=2,seeds=_0_,solver.lr=0.1"
    assert job_folder(given[::-1], "ifca") == "ifca,rounds=3,seeds=_0_,solver.lr=0.1"


@pytest.mark.full
@pytest.mark.parametrize(
    "arguments",
    [
        ("++name=../../kept",),
        ("-m", "name=../kept,../../kept", "rounds=1,2"),
        ("hydra.run.dir=outputs/new/kept", "rounds=0"),
        ("-m", "hydra.sweep.dir=kept", "rounds=0,-1"),
        ("hydra.run.dir=kept/empty", "rounds=0"),
    ],
)
def test_a_refused_job_leaves_what_was_there(
    fedclust: Cli, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    for name in ("kept/empty", "outputs"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "outputs" / "multirun.yaml").write_text("mine")
    before = everything(tmp_path)
    done = fedclust("run", "progress=false", *arguments)
    assert done.status == 2
    assert everything(tmp_path) == before
    assert (tmp_path / "outputs" / "multirun.yaml").read_text() == "mine"


@pytest.mark.full
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: ../../mine", "name=../../mine is not allowed: a folder below outputs/"),
        ("name: ${oc.env:HOME}", "oc.env=HOME is not allowed"),
        ("hydra: {run: {dir: ../elsewhere}}", "hydra.run.dir=../elsewhere is not allowed"),
        ("hydra: {job: {env_set: {CC: touch}}}", "hydra.job.env_set={'CC': 'touch'}"),
        ("hydra: {output_subdir: .hydra}", "hydra.output_subdir=.hydra is not allowed"),
        (
            "hydra: {callbacks: {x: {_target_: subprocess.run, args: [touch, made]}}}",
            "hydra.callbacks.x._target_=subprocess.run is not allowed",
        ),
        (
            "hydra: {job_logging: {version: 1, handlers: {x: {(): os.mkdir, path: made}}}}",
            "hydra.job_logging=… is not allowed",
        ),
    ],
)
def test_a_file_cannot_choose_where_and_what_else(
    fedclust: Cli, tmp_path: Path, text: str, said: str
) -> None:
    arguments = experiment(tmp_path, text)
    before = everything(tmp_path.parent)
    fedclust.refused("run", *SMALL, *arguments, says=said)
    assert everything(tmp_path.parent) == before


@pytest.mark.full
def test_what_is_typed_may_lie_anywhere(fedclust: Cli, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    target = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    fedclust.done("run", *SMALL, f"hydra.run.dir={target}")
    assert (target / "rounds.csv").is_file()
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.full
def test_a_sweep_that_is_refused_says_that_alone(
    fedclust: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedclust.launch.job._LONG_LOADING", 60.0)
    own = ("dataset=csv", "dataset.path=none.csv", "dataset.label=y", "partition=iid")
    done = fedclust("run", "-m", *own, "rounds=1,2,3")
    assert done.status == 2
    assert len(done.err.splitlines()) == 1
    assert done.err.startswith("fedclust: ")
    assert "none.csv not found" in done.err


@pytest.mark.parametrize(("shown", "said"), [(True, "loading: job 2 of 3\n"), (False, "")])
def test_a_log_is_told_of_loading_that_takes_long(
    monkeypatch: pytest.MonkeyPatch, shown: bool, said: str
) -> None:
    monkeypatch.setattr(job, "_LONG_LOADING", 0.0)
    console = Console(file=StringIO(), width=80)
    with job._told_of_loading("job 2 of 3", console, shown, alone=True):
        time.sleep(0.05)
    assert console.file.getvalue() == said
    monkeypatch.setattr(job, "_LONG_LOADING", 60.0)
    with job._told_of_loading("job 2 of 3", console, shown, alone=True):
        pass
    assert console.file.getvalue() == said


@pytest.mark.full
def test_a_sweep_says_which_job_it_is_at_and_when_all_are_done(
    fedclust: Cli,
) -> None:
    done = fedclust.done(
        "run", "-m", "rounds=2", "partition.num_clients=8", "algorithm=fedavg,local"
    )
    lines = done.err.splitlines()
    titles = [line for line in lines if line.startswith("job ")]
    assert [line.partition(" on ")[0] for line in titles] == [
        "job 1 of 2: fedavg",
        "job 2 of 2: local",
    ]
    told = [line for line in lines if "all done in about" in line]
    assert len(told) == 1, "while a job has rounds and the sweep has jobs to do"
    assert lines.index(told[0]) < lines.index(titles[1])
