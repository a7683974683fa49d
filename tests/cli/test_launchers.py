"""Sweeps whose jobs run in other processes leave the files and the exit status of a sweep in this
one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

LAUNCHERS = {
    "joblib": ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2"),
    "submitit": ("hydra/launcher=submitit_local",),
    "ray": ("hydra/launcher=ray",),
}
SWEEP = (
    "-m",
    "algorithm=lcfl,local",
    "partition.num_clients=8",
    "rounds=7",
    "seeds=2",
    "threads=1",
    "progress=false",
)


def swept(folder: Path, *arguments: str) -> tuple[int, Path]:
    """Exit status and results of a sweep in a process of its own, started in an empty folder."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "fedclust", "run", *SWEEP, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, folder / "outputs" / "default"


def rounds(results: Path) -> dict[str, pd.DataFrame]:
    """rounds.csv of every job without the seconds, by the algorithm its folder begins with."""
    tables = {
        file.parent.name.partition(",")[0]: pd.read_csv(file, dtype=str)
        for file in results.rglob("rounds.csv")
    }
    return {name: table[table["metric"] != "seconds"] for name, table in tables.items()}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "launcher", ["joblib", "submitit", pytest.param("ray", marks=pytest.mark.ray)]
)
def test_a_launcher_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: str
) -> None:
    monkeypatch.setenv("RAY_worker_niceness", "0")  # its workers would let everything else go first
    status, alone = swept(tmp_path / "alone")
    assert status == 0
    status, together = swept(tmp_path / "together", *LAUNCHERS[launcher])
    assert status == 0
    expected, found = rounds(alone), rounds(together)
    assert set(found) == set(expected) == {"lcfl", "local"}
    for name, table in expected.items():
        pd.testing.assert_frame_equal(
            found[name].reset_index(drop=True), table.reset_index(drop=True)
        )
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
