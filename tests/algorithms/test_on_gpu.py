"""Methods and their files on a pretended GPU: nothing there meets the host's memory."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
from digits_jobs import ALGORITHMS, config_in, config_of, play, played_by_loop
from pretend_cuda import pretend_cuda
from test_first_rounds import TOLERANCE, assert_alike
from test_resume_everything import run_in_pieces

from fedclust.config.build import build
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.progress import Silent
from fedclust.runtime.recorder import Recorder
from fedclust.runtime.run import run


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_same_rounds(name: str) -> None:
    want = played_by_loop(name)
    with pretend_cuda():
        job = build({**config_of(name), "device": "cuda"})
        assert_alike(play(job, job.engine), want)


@pytest.mark.full
@pytest.mark.parametrize(("name", "most"), [("fedavg", 14), ("ifca", 19), ("lcfl", 17)])
def test_the_host_hardly_waits(
    name: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a round with its test, once graphs are captured."""
    config = {**config_of(name, "seeds=1", "rounds=10"), "device": "cuda"}
    waits: list[int] = []
    with pretend_cuda() as device:

        def seconds(*_: object) -> None:
            waits.append(device.waits.total())

        monkeypatch.setattr(Recorder, "seconds", seconds)  # once in every round
        run(build(config), RunFolder(tmp_path / "gpu", config), Silent())
    assert max(b - a for a, b in pairwise(waits[-3:])) <= most


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "scenario"),
    [
        ("lcfl", "newcomers"),
        ("cfl_mgd", "swap_part"),
        pytest.param("ifca", "drift", marks=pytest.mark.slow),
    ],
)
def test_the_same_files_after_interruptions(name: str, scenario: str, tmp_path: Path) -> None:
    config = config_in(name, scenario)
    run(build(config), RunFolder(tmp_path / "cpu", config), Silent())
    with pretend_cuda():
        there = {**config, "device": "cuda"}
        run_in_pieces(build(there), RunFolder(tmp_path / "gpu", there), after=(1, 5))
    tables = [pd.read_csv(tmp_path / where / "rounds.csv") for where in ("cpu", "gpu")]
    here, there = (table[table["metric"] != "seconds"].reset_index(drop=True) for table in tables)
    pd.testing.assert_frame_equal(here, there, rtol=TOLERANCE, atol=1e-5)
    ids = [pd.read_parquet(tmp_path / where / "clients.parquet") for where in ("cpu", "gpu")]
    pd.testing.assert_frame_equal(*ids, rtol=TOLERANCE, atol=1e-5)
