"""Runs that are interrupted, and folders of runs that have to hold the same."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from states import assert_same_bits

from fedclust.config.build import build
from fedclust.helpers.errors import Interrupted
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.progress import Silent
from fedclust.runtime.run import run


class Interrupting(Silent):
    """Sends this process the signal to end when one of some rounds is complete."""

    def __init__(self, after: Collection[int]) -> None:
        self._after = after

    def round(self, t: int, values: Mapping[str, float]) -> None:
        if t in self._after:
            os.kill(os.getpid(), signal.SIGTERM)


def assert_pieces_make_the_whole(config: Mapping[str, Any], tmp_path: Path) -> None:
    """A job that is interrupted three times leaves what it leaves in one piece."""
    job = build(config)
    run(job, RunFolder(tmp_path / "whole", config), Silent())
    pieces, after = RunFolder(tmp_path / "pieces", config), (1, 4, 5)
    for _ in after:
        with pytest.raises(Interrupted):
            run(build(config, like=job), pieces, Interrupting(after))
    run(build(config, like=job), pieces, Silent())
    assert_same_runs(tmp_path / "whole", tmp_path / "pieces")


def rounds_of(folder: Path) -> pd.DataFrame:
    """The numbers of all rounds as text, but for the seconds."""
    rounds = pd.read_csv(folder / "rounds.csv", dtype=str)
    return rounds[rounds["metric"] != "seconds"].reset_index(drop=True)


def saved(folder: Path, seed: int) -> dict[str, Any]:
    """What the newest checkpoint holds of a seed."""
    newest = json.loads((folder / "checkpoints" / "latest.json").read_text())["round"]
    file = folder / "checkpoints" / f"round={newest}" / f"seed={seed}.pt"
    content: dict[str, Any] = torch.load(file, weights_only=True)
    return content


def assert_same_runs(one: Path, other: Path) -> None:
    """Equal numbers of all rounds, tables of clients, arrays and states of the seeds 0 and 1."""
    pd.testing.assert_frame_equal(rounds_of(one), rounds_of(other))
    clients = [pd.read_parquet(folder / "clients.parquet") for folder in (one, other)]
    pd.testing.assert_frame_equal(*clients, check_exact=True)
    for seed in (0, 1):
        for part in ("state", "recorder"):
            assert_same_bits(saved(one, seed)[part], saved(other, seed)[part])
    arrays = [
        {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*.npy")}
        for folder in (one, other)
    ]
    assert arrays[0] == arrays[1]
