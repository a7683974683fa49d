"""`torchrun … -m fedclust run`: real ranks, real kills, and one line for a mistake."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import psutil
import pytest
from started import Started
from test_resume import wait_for_round

RUN = ["fedclust", "run", "progress=false", "threads=1", "model=linear", "partition.num_clients=8"]
JOB = [
    "algorithm=ifca",
    "engine=loop",
    "seeds=2",
    "rounds=14",
    "solver.epochs=1",
    "checkpoint_seconds=0",
    "hydra.run.dir=job",
]


def start(folder: Path, ranks: int, *arguments: str) -> subprocess.Popen[str]:
    """The command in a folder, on some ranks; what is said goes to out.txt and err.txt there."""
    folder.mkdir(exist_ok=True)
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    with (folder / "out.txt").open("w") as out, (folder / "err.txt").open("w") as err:
        return subprocess.Popen(
            [sys.executable, *(torchrun if ranks > 1 else []), "-m", *RUN, *arguments],
            cwd=folder,
            stdout=out,
            stderr=err,
            env={**os.environ, "OMP_NUM_THREADS": "1", "FEDCLUST_RANKS_TIMEOUT": "60"},
            text=True,
        )


def finish(folder: Path, ranks: int, *arguments: str) -> int:
    return start(folder, ranks, *arguments).wait(300)


def finish_alone(folder: Path) -> None:
    """The job to its end in one process, forked from one that has imported everything."""
    process = Started([*RUN[1:], *JOB[:-1], f"hydra.run.dir={folder / 'job'}"])
    assert process.wait(300) == 0, process.said


def lines(folder: Path) -> list[str]:
    """What fedclust, not torchrun, has said to stderr."""
    return [
        line
        for line in (folder / "err.txt").read_text().splitlines()
        if line.startswith("fedclust: ")
    ]


def rank_of(process: subprocess.Popen[str], rank: int) -> psutil.Process:
    children = psutil.Process(process.pid).children()
    return next(child for child in children if child.environ().get("RANK") == str(rank))


def assert_same(one: Path, other: Path) -> None:
    rounds = [pd.read_csv(job / "rounds.csv", dtype=str) for job in (one, other)]
    a, b = (r[r["metric"] != "seconds"].reset_index(drop=True) for r in rounds)
    pd.testing.assert_frame_equal(a, b)
    assert (one / "clients.parquet").read_bytes() == (other / "clients.parquet").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job done by one process."""
    folder = tmp_path_factory.mktemp("whole")
    finish_alone(folder)
    return folder / "job"


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_lost_rank_ends_the_run_and_any_number_continues_it(
    whole: Path, tmp_path: Path, rank: int
) -> None:
    """As many, or one; as many notice that it is done."""
    process = start(tmp_path, 2, *JOB)
    wait_for_round(tmp_path / "job", process, 3)
    rank_of(process, rank).kill()
    assert process.wait(60) != 0
    # torchrun also ends the rank that is left, which may still have time to say so
    said = [line for line in lines(tmp_path) if "interrupted by SIGTERM" not in line]
    assert said == ["fedclust: a rank was lost; the same command continues the run"]
    # torchrun of a rank that hangs
    assert "forcefully exiting" not in (tmp_path / "err.txt").read_text()
    if rank == 1:
        status = json.loads((tmp_path / "job" / "status.json").read_text())
        assert status["state"] == "interrupted"
        assert status["rounds_done"] > 3
        finish_alone(tmp_path)
    else:
        assert finish(tmp_path, 2, *JOB) == 0
    assert_same(tmp_path / "job", whole)


@pytest.mark.slow
def test_a_signal_ends_all_ranks_after_one_round(whole: Path, tmp_path: Path) -> None:
    """Any other signal does the same, see test_files_of_ranks.py; and all notice a finished job."""
    process = start(tmp_path, 2, *JOB)
    wait_for_round(tmp_path / "job", process, 3)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    assert lines(tmp_path) == [
        "fedclust: interrupted by SIGINT; the same command continues the run"
    ]
    assert json.loads((tmp_path / "job" / "status.json").read_text())["state"] == "interrupted"
    finish_alone(tmp_path)
    assert finish(tmp_path, 2, *JOB) == 0
    assert (tmp_path / "err.txt").read_text().count("job is done already") == 1
    assert_same(tmp_path / "job", whole)


@pytest.mark.slow
def test_a_mistake_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    """One that is found with the federation; those in the config are found before."""
    assert finish(tmp_path, 2, "algorithm=lcfl", "num_clusters=100", "rounds=8") != 0
    (said,) = lines(tmp_path)
    assert "num_clusters=100" in said
    assert {path.name for path in tmp_path.iterdir()} == {"out.txt", "err.txt"}


@pytest.mark.slow
def test_a_sweep_goes_on_after_a_job_that_cannot_run(tmp_path: Path) -> None:
    sweep = ["-m", "algorithm=fedavg,ifca", "participation=2.0,1.0", "rounds=3"]
    assert finish(tmp_path, 2, *sweep) != 0
    assert len([line for line in lines(tmp_path) if "participation=2.0" in line]) == 1
    results = tmp_path / "outputs" / "default"
    assert len(list(results.rglob("summary.csv"))) == 2
    assert (results / "report" / "report.html").is_file()
    assert (tmp_path / "out.txt").read_text().count("report: ") == 1


@pytest.mark.slow
def test_the_config_is_shown_once(tmp_path: Path) -> None:
    assert finish(tmp_path, 2, "--cfg", "job") == 0
    assert (tmp_path / "out.txt").read_text().count("num_clusters: 4\n") == 1
