"""A run that was killed and started again ends with the bits of one that was not."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from started import Started
from states import assert_same_bits

RUN = [
    "run",
    "progress=false",
    "threads=1",
    "partition.num_clients=16",
    "seeds=2",
    "rounds=40",
    "solver.epochs=2",
    "checkpoint_seconds=0",
    "participation=0.5",
]


def start(folder: Path, *more: str) -> Started:
    return Started([*RUN, f"hydra.run.dir={folder}", *more])


def finish(folder: Path, *more: str) -> None:
    process = start(folder, *more)
    assert process.wait(300) == 0, process.said


def wait_for_round(folder: Path, process: Started | subprocess.Popen[Any], at_least: int) -> int:
    """The newest round on disk once it is at least `at_least`."""
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        assert process.poll() is None, process.said if isinstance(process, Started) else ""
        try:
            newest = json.loads((folder / "checkpoints" / "latest.json").read_text())["round"]
        except (OSError, ValueError):
            newest = -1
        if newest >= at_least:
            return int(newest)
        time.sleep(0.002)
    raise AssertionError("the run made no progress")


def assert_same(one: Path, other: Path) -> None:
    """Equal bits in everything but the seconds."""
    rounds = [pd.read_csv(f / "rounds.csv", dtype=str) for f in (one, other)]
    a, b = (r[r["metric"] != "seconds"].reset_index(drop=True) for r in rounds)
    pd.testing.assert_frame_equal(a, b)
    clients = [pd.read_parquet(f / "clients.parquet") for f in (one, other)]
    pd.testing.assert_frame_equal(*clients, check_exact=True)
    for seed in (0, 1):
        states = []
        for folder in (one, other):
            root = folder / "checkpoints"
            newest = json.loads((root / "latest.json").read_text())["round"]
            file = root / f"round={newest}" / f"seed={seed}.pt"
            states.append(torch.load(file, weights_only=True)["state"])
        assert_same_bits(*states)
    arrays = [sorted(p.relative_to(f) for p in (f / "arrays").rglob("*.npy")) for f in (one, other)]
    assert arrays[0] == arrays[1]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["lcfl", "cfl_gp"])
def test_kill_at_several_moments(tmp_path: Path, algorithm: str) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(whole, f"algorithm={algorithm}")
    kills = []
    for at_least, later in ((0, 0.0), (4, 0.013), (5, 0.004), (17, 0.021), (30, 0.009)):
        process = start(killed, f"algorithm={algorithm}")
        newest = wait_for_round(killed, process, at_least)
        time.sleep(later)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills.append(newest)
    assert kills[-1] < 39, "the last kill came too late to mean anything"
    finish(killed, f"algorithm={algorithm}")
    assert json.loads((killed / "status.json").read_text())["state"] == "done"
    assert_same(whole, killed)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job that nothing ends before its time."""
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    finish(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_round_and_saves(
    uninterrupted: Path, tmp_path: Path, signum: int, status: int
) -> None:
    folder = tmp_path / "run"
    process = start(folder)
    wait_for_round(folder, process, 3)
    process.send_signal(signum)
    assert process.wait(60) == status
    assert process.said.strip().count("\n") == 1
    assert json.loads((folder / "status.json").read_text())["state"] == "interrupted"
    finish(folder)
    assert_same(uninterrupted, folder)
