"""Sweeps whose jobs run in other processes leave the files and the exit status of a sweep in this
one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, cast

import pandas as pd
import psutil
import pytest
from cli.conftest import Cli
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from started import Started
from test_resume import assert_same, finish, wait_for_round

from fedclust.helpers.errors import JobLost
from fedclust.helpers.locks import LOCK, lock
from fedclust.helpers.signals import heard
from fedclust.launch import launchers
from fedclust.launch.compose import compose
from fedclust.launch.job import Jobs
from fedclust.launch.launchers import (
    OneAfterTheOther,
    end_with_sweep,
    explained,
    told_elsewhere,
)
from fedclust.launch.sweep import notes

LAUNCHERS = {
    "joblib": ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2"),
    "submitit": ("hydra/launcher=submitit_local",),
    "ray": ("hydra/launcher=ray",),
}
SWEEP = (
    *("-m", "algorithm=lcfl,local", "partition.num_clients=8", "rounds=7", "seeds=2"),
    *("threads=1", "progress=false"),
)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "fedclust", "run", *arguments]


def swept(folder: Path, *arguments: str) -> tuple[int, Path]:
    """Exit status and results of a sweep in a process of its own, started in an empty folder."""
    folder.mkdir()
    done = subprocess.run(
        command(*SWEEP, *arguments),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, folder / "outputs" / "default"


def alone_in(folder: Path, *arguments: str) -> Path:
    """Results of the sweep in one process, forked from one that has imported everything."""
    sweep = Started(["run", *SWEEP, f"hydra.sweep.dir={folder}", *arguments])
    assert sweep.wait(300) == 0, sweep.said
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of the sweep in one process."""
    return alone_in(tmp_path_factory.mktemp("alone"))


def rounds(results: Path) -> dict[str, pd.DataFrame]:
    """rounds.csv of every job without the seconds, by the algorithm its folder begins with."""
    tables = {
        file.parent.name.partition(",")[0]: pd.read_csv(file, dtype=str)
        for file in results.rglob("rounds.csv")
    }
    kept = {name: table[table["metric"] != "seconds"] for name, table in tables.items()}
    return {name: table.reset_index(drop=True) for name, table in kept.items()}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "launcher", ["joblib", "submitit", pytest.param("ray", marks=pytest.mark.ray)]
)
def test_a_launcher_changes_nothing(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: str
) -> None:
    monkeypatch.setenv("RAY_worker_niceness", "0")  # its workers would let everything else go first
    status, together = swept(tmp_path / "together", *LAUNCHERS[launcher])
    assert status == 0
    expected, found = rounds(alone), rounds(together)
    assert set(found) == set(expected) == {"lcfl", "local"}
    for name, table in expected.items():
        pd.testing.assert_frame_equal(found[name], table)
    for file in ("table.md", "recovery.csv", "settings.md"):
        assert (together / "report" / file).read_bytes() == (alone / "report" / file).read_bytes()
    assert (together / "report" / "report.html").is_file()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_that_cannot_run_elsewhere_is_told_here(tmp_path: Path) -> None:
    status, results = swept(tmp_path / "bad", *LAUNCHERS["joblib"], "participation=1.0,2.0")
    assert status == 2
    left = list(results.rglob("rounds.csv"))
    assert len(left) == 2  # one of each algorithm
    assert all("participation=1.0" in file.parent.name for file in left)


def test_what_jobs_print_elsewhere_and_their_ends_are_told(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with notes() as noted:
        folder = "outputs/a/.submitit/%j"
        launcher = OmegaConf.create({"_target_": "LocalLauncher", "submitit_folder": folder})
        with told_elsewhere(launcher, Path("outputs/a"), noted, 2):
            noted.add_ended(2)
            noted.add_ended(1, "fedclust: participation=2 is not allowed")
    assert capfd.readouterr().err.splitlines() == [
        "2 jobs started; what they print is in outputs/a/.submitit",
        "job 2 has ended",
        "job 1 could not run: participation=2 is not allowed",
    ]


LONG = ("rounds=120", "seeds=1", "model=linear", "solver.epochs=1", "checkpoint_seconds=0")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_sweep_under_joblib_that_is_interrupted_continues(tmp_path: Path) -> None:
    whole = alone_in(tmp_path / "whole", *LONG)
    for to_all in (True, False):  # as a terminal does, or kill
        folder = tmp_path / f"to all {to_all}"
        folder.mkdir()
        sweep = subprocess.Popen(
            command(*SWEEP, *LONG, *LAUNCHERS["joblib"]),
            cwd=folder,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        (job, *_) = job_folders(folder / "outputs" / "default", sweep)
        wait_for_round(job, sweep, 3)
        workers = psutil.Process(sweep.pid).children(recursive=True)
        (os.killpg if to_all else os.kill)(sweep.pid, signal.SIGINT)
        said = sweep.communicate(timeout=120)[1].decode()
        assert sweep.returncode == 130
        line = "fedclust: interrupted by SIGINT; the same command continues the run\n"
        assert said.endswith(line)
        assert psutil.wait_procs(workers, timeout=30)[1] == [], "a worker lives on"
        left = list(folder.rglob("rounds.csv"))
        assert not all((file.parent / "summary.csv").is_file() for file in left)
    again = command(*SWEEP, *LONG, *LAUNCHERS["joblib"])
    assert subprocess.run(again, cwd=folder, timeout=300, check=False).returncode == 0
    found = rounds(folder / "outputs" / "default")
    for name, table in rounds(whole).items():
        pd.testing.assert_frame_equal(found[name], table)


QUEUED = (
    *("-m", "hydra/launcher=submitit_local", "algorithm=lcfl", "model=linear", "seeds=2"),
    *("partition.num_clients=16", "participation=0.5", "rounds=40", "solver.epochs=1"),
    *("threads=1", "checkpoint_seconds=0"),
)


def queued(folder: Path) -> subprocess.Popen[bytes]:
    """A sweep of one job under submitit_local."""
    folder.mkdir(exist_ok=True)
    with (folder / "said.txt").open("ab") as said:
        return subprocess.Popen(
            command(*QUEUED, "progress=false"),
            cwd=folder,
            stdout=said,
            stderr=said,
        )


def job_of(sweep: subprocess.Popen[bytes]) -> psutil.Process:
    """The process in which submitit runs the job."""
    (job,) = (
        child
        for child in psutil.Process(sweep.pid).children(recursive=True)
        if "submitit.core._submit" in child.cmdline()
    )
    return job


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_job_that_is_preempted_or_killed_continues(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    alone = [one for one in QUEUED if one != "-m" and not one.startswith("hydra/")]
    finish(whole, *alone)

    sweep = queued(tmp_path / "queued")
    job = tmp_path / "queued" / "outputs" / "default"
    (folder,) = job_folders(job, sweep)
    wait_for_round(folder, sweep, 4)
    job_of(sweep).send_signal(signal.SIGUSR2)  # as SLURM does before it takes a job's machine
    newest = wait_for_round(folder, sweep, 12)
    assert newest < 39, "the job is over before it can be killed"
    job_of(sweep).kill()
    assert sweep.wait(300) == 1
    said = (tmp_path / "queued" / "said.txt").read_text().strip()
    begun, lost = said.splitlines()
    assert begun == "1 job started; what they print is in outputs/default/.submitit"
    assert lost.startswith("fedclust: a job of the sweep was lost")
    logs = [log.read_text() for log in (job / ".submitit").rglob("*_log.*")]
    assert sum("Requeued job" in log for log in logs) == 1

    assert queued(tmp_path / "queued").wait(300) == 0  # the same command
    assert_same(whole, folder)


def job_folders(results: Path, sweep: subprocess.Popen[bytes]) -> list[Path]:
    """The folders of jobs, as soon as there is one."""
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        assert sweep.poll() is None
        if found := [file.parent for file in results.glob("*/config.yaml")]:
            return found
        time.sleep(0.01)
    raise AssertionError("the sweep made no folder")


class Lost(RuntimeError):
    """What submitit raises when a job has gone."""


Lost.__module__ = "submitit.core.utils"


@pytest.mark.parametrize("came", [[], [signal.SIGINT]])
def test_ctrl_c_is_told_where_a_launcher_tells_of_the_jobs_it_ended(
    came: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchers, "heard", lambda: nullcontext(came))
    launcher = {"_target_": "a.submitit.LocalLauncher"}
    with pytest.raises(KeyboardInterrupt if came else JobLost), explained(launcher):
        raise Lost


def test_ctrl_c_is_noted_and_raised() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a test worker has its own
    try:
        with heard() as came:
            with suppress(KeyboardInterrupt):
                cast(Any, signal.getsignal(signal.SIGINT))(signal.SIGINT, None)
            assert came == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.full
def test_a_worker_ends_with_the_process_that_started_it() -> None:
    """The sweep's process is killed while the worker is in a job; a worker of another parent, as
    submitit's, stays.
    """
    reading, writing = os.pipe()
    middle = os.fork()
    if middle == 0:
        try:
            sweeps = os.getpid()
            if os.fork() == 0:
                end_with_sweep(sweeps)
                end_with_sweep(sweeps)
                assert threading.active_count() <= 2
                os.write(writing, b"working")
                time.sleep(60)
                os._exit(0)
            os.close(writing)
            time.sleep(60)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert os.read(pipe.fileno(), 7) == b"working"
        began = time.monotonic()
        os.kill(middle, signal.SIGKILL)
        os.waitpid(middle, 0)
        assert pipe.read() == b""  # the worker's end of the pipe is closed
    assert time.monotonic() - began < 10
    before = threading.active_count()
    end_with_sweep(middle)  # this process is of another parent
    assert threading.active_count() == before


@pytest.mark.full
def test_jobs_run_without_hydras_copies_where_nothing_else_is_asked_of_it() -> None:
    assert OneAfterTheOther.suits(compose([]).hydra)
    for asked in (
        "hydra/launcher=joblib",
        "hydra.verbose=true",
        "hydra.output_subdir=.hydra",
        "hydra.job.chdir=true",
        "+hydra.job.env_set.A=b",
        "hydra.job_logging.version=2",
        "+hydra.callbacks.mine._target_=mine.Callback",
        "hydra.sweeper._target_=hydra_plugins.mine.Sweeper",
    ):
        assert not OneAfterTheOther.suits(compose([asked]).hydra), asked


@pytest.mark.full
def test_a_job_here_sees_the_same_of_hydra_as_with_hydras_own_launcher(
    fedclust: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Any, ...]] = []

    def look(self: Jobs, config: Any) -> float:
        hydra = HydraConfig.get()
        folder = Path(hydra.runtime.output_dir)
        there = folder.is_dir(), str(folder.relative_to(tmp_path / "outputs"))
        numbered = hydra.job.num, hydra.mode, str(hydra.sweep.subdir), list(hydra.overrides.task)
        seen.append((*there, *numbered, OmegaConf.to_yaml(config), config._get_parent()))
        return 1.0

    monkeypatch.setattr(Jobs, "__call__", look)
    command = "run", "-m", "algorithm=ifca,fedavg", "solver.lr=0.1,0.2", "rounds=1"
    fedclust(*command, "name=same")
    here = seen.copy()
    seen.clear()
    monkeypatch.setattr(OneAfterTheOther, "suits", lambda _: False)
    fedclust(*command, "name=same")
    assert len(here) == 4
    assert here == seen


@pytest.mark.full
def test_the_same_command_again_runs_the_jobs_that_no_other_process_has(
    fedclust: Cli, tmp_path: Path
) -> None:
    """This process has the lock of the second job, as another one would, until the third ends."""
    sweep = tmp_path / "outputs" / "both"
    first, second, third = (f"{name},rounds=1" for name in ("fedavg", "ifca", "local"))
    (sweep / second).mkdir(parents=True)
    held, done = (sweep / second / LOCK).open("ab"), sweep / third / "checkpoints" / "done.json"
    assert lock(held)
    threading.Thread(target=lambda: (_until(done.is_file), held.close()), daemon=True).start()
    command = "run", "-m", "algorithm=fedavg,ifca,local", "rounds=1", "name=both", "progress=false"
    ended = fedclust.done(*command)
    told = [line.removeprefix("outputs/both/") for line in ended.err.splitlines()]
    assert [line.split()[0] for line in told] == [first, f"{second}:", third, second]
    assert told[1] == f"{second}: another process runs it; looked at again after the rest"
    assert all((sweep / name / "checkpoints" / "done.json").is_file() for name in (first, second))


def _until(there: Callable[[], bool]) -> None:
    """Wait until it is there."""
    while not there():
        time.sleep(0.01)
