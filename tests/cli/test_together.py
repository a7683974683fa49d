"""`lockstep=all`: the jobs of a sweep in one lockstep leave the files they would leave by
themselves.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest

from fedclust.commands.together import Noted, by_federation
from fedclust.runtime.folder import RunFolder

TINY = ("progress=false", "partition.num_clients=8", "rounds=3", "solver.epochs=1", "seeds=2")


def results(sweep: Path) -> dict[str, pd.DataFrame]:
    """Everything but the seconds, by job."""
    tables = {file.parent.name: pd.read_csv(file, dtype=str) for file in sweep.glob("*/rounds.csv")}
    return {
        name: table[table["metric"] != "seconds"].reset_index(drop=True)
        for name, table in tables.items()
    }


def assert_same_results(one: Path, other: Path, jobs: int) -> None:
    expected, found = results(one), results(other)
    assert set(found) == set(expected)
    assert len(found) == jobs
    for name, table in expected.items():
        pd.testing.assert_frame_equal(found[name], table)
        clients = [pd.read_parquet(sweep / name / "clients.parquet") for sweep in (one, other)]
        pd.testing.assert_frame_equal(*clients, check_exact=True)


def test_arms_together_are_the_arms_alone(fedclust: Callable[..., object], tmp_path: Path) -> None:
    sweep = ("run", "-m", *TINY, "engine=loop", "algorithm=ifca,lcfl")
    assert fedclust(*sweep, "name=alone").status == 0  # type: ignore[attr-defined]
    done = fedclust(*sweep, "name=together", "lockstep=all")
    assert done.status == 0, done.err  # type: ignore[attr-defined]
    assert_same_results(tmp_path / "outputs" / "alone", tmp_path / "outputs" / "together", jobs=2)
    report = tmp_path / "outputs" / "together" / "report"
    assert "lcfl" in (report / "table.md").read_text()
    again = fedclust(*sweep, "name=together", "lockstep=all")
    assert again.err.count("is done already") == 2  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_fused_engine_rounds_differently_at_most(
    fedclust: Callable[..., object], tmp_path: Path
) -> None:
    sweep = (
        "run",
        "-m",
        *TINY,
        "engine=fused",
        "algorithm=jgl",
        "algorithm.gradient_weight=0,0.1,0.5",
    )
    assert fedclust(*sweep, "name=alone").status == 0  # type: ignore[attr-defined]
    assert fedclust(*sweep, "name=together", "lockstep=all").status == 0  # type: ignore[attr-defined]
    expected, found = (results(tmp_path / "outputs" / name) for name in ("alone", "together"))
    assert set(found) == set(expected)
    for name, table in expected.items():
        numbers = [t.assign(value=t["value"].astype(float)) for t in (found[name], table)]
        pd.testing.assert_frame_equal(*numbers, rtol=1e-4)


@pytest.mark.slow
def test_different_federations_rounds_and_rates_keep_to_themselves(
    fedclust: Callable[..., object], tmp_path: Path
) -> None:
    sweep = ("run", "-m", *TINY, "engine=loop", "algorithm=ifca", "partition=rotated,iid")
    more = ("rounds=1,2", "solver.lr=0.1,0.05")
    assert fedclust(*sweep, *more, "name=alone").status == 0  # type: ignore[attr-defined]
    assert fedclust(*sweep, *more, "name=together", "lockstep=all").status == 0  # type: ignore[attr-defined]
    assert_same_results(tmp_path / "outputs" / "alone", tmp_path / "outputs" / "together", jobs=8)


def test_a_bad_and_a_diverging_arm_leave_the_others_alone(
    fedclust: Callable[..., object], tmp_path: Path
) -> None:
    arms = ("algorithm=fedavg", "solver.lr=0.1,-1,1e9", "lockstep=all")
    done = fedclust("run", "-m", *TINY, *arms, "name=mixed")
    assert done.status == 2  # type: ignore[attr-defined]
    assert done.err.count("solver.lr=-1") == 1  # type: ignore[attr-defined]
    assert "every seed has failed" in done.err  # type: ignore[attr-defined]
    assert (
        fedclust("run", "-m", *TINY, "algorithm=fedavg", "solver.lr=0.1", "name=alone").status == 0
    )  # type: ignore[attr-defined]
    mixed = results(tmp_path / "outputs" / "mixed")
    good = next(table for name, table in mixed.items() if "lr=0.1" in name)
    (alone,) = results(tmp_path / "outputs" / "alone").values()
    pd.testing.assert_frame_equal(good, alone)


def test_what_lockstep_cannot_be_is_one_line(
    fedclust: Callable[..., object], tmp_path: Path
) -> None:
    done = fedclust("run", *TINY, "lockstep=some")
    assert done.status == 2  # type: ignore[attr-defined]
    assert "lockstep=some is not allowed" in done.err  # type: ignore[attr-defined]
    done = fedclust(
        "run", "-m", *TINY, "lockstep=all", "hydra/launcher=joblib", "hydra.launcher.n_jobs=1"
    )
    assert done.status == 2  # type: ignore[attr-defined]
    assert "lockstep=all is not allowed: seeds with any hydra/launcher" in done.err  # type: ignore[attr-defined]
    assert not list(tmp_path.rglob("rounds.csv"))


def test_jobs_are_grouped_by_what_they_share() -> None:
    shared = {
        "dataset": {"a": 1},
        "partition": {},
        "model": {},
        "seeds": [0],
        "engine": "auto",
        "device": "cpu",
        "precision": "highest",
        "threads": None,
        "max_rows": None,
    }

    def noted(title: str, **other: object) -> Noted:
        config = {**shared, **other}
        return Noted(
            config=config, folder=RunFolder(Path(title), config), title=title, user_dir=None
        )

    jobs = [noted("one", rounds=3), noted("two", dataset={"a": 2}), noted("three", rounds=4)]
    assert [[job.title for job in group] for group in by_federation(jobs)] == [
        ["one", "three"],
        ["two"],
    ]


@pytest.mark.slow
def test_a_signal_saves_every_arm_and_the_same_command_goes_on(tmp_path: Path) -> None:
    same_bits = ("engine=loop", "rounds=20", "threads=1")
    run = [sys.executable, "-m", "fedclust", "run", "-m", *TINY, *same_bits]
    command = [*run, "algorithm=ifca,local", "checkpoint_seconds=0", "lockstep=all"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    arms = tmp_path / "outputs" / "default"
    saved = 0
    while saved < 2:
        assert process.poll() is None
        time.sleep(0.01)
        with suppress(FileNotFoundError):  # Hydra's empty folders come and go
            saved = len(list(arms.glob("*/checkpoints/latest.json")))
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 143, errors
    assert [line for line in errors.splitlines() if line.startswith("fedclust:")] == [
        "fedclust: interrupted by SIGTERM; the same command continues the run"
    ]
    states = [file.read_text() for file in arms.glob("*/status.json")]
    assert len(states) == 2
    assert all('"interrupted"' in state for state in states)
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    subprocess.run([*command[:-1], "name=alone"], cwd=tmp_path, check=True, capture_output=True)
    assert_same_results(tmp_path / "outputs" / "alone", arms, jobs=2)
