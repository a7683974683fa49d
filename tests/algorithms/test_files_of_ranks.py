"""Two ranks leave the files of one process, and either can continue what the other has begun."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from digits_jobs import config_of
from run_folders import Interrupting, saved
from states import assert_same_bits
from two_ranks import Pair

from fedclust.config.build import build
from fedclust.helpers.distributed import Ranks, here
from fedclust.helpers.errors import Interrupted
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.other_ranks import ReadFolder
from fedclust.runtime.progress import Silent
from fedclust.runtime.run import run

ALGORITHMS = ["fedavg", "ifca", "lcfl"]
OVERRIDES = ("engine=loop", "solver.momentum=0.9", "eval_every=2")


def play(
    ranks: Ranks, config: Mapping[str, Any], folder: Path, interrupted: int | None = None
) -> str:
    """Run a job on one of the ranks; where rank `interrupted` gets a signal, how the job ends."""
    kind = RunFolder if ranks.leads else ReadFolder
    progress = Interrupting([2]) if ranks.rank == interrupted else Silent()
    try:
        with ranks.together():
            run(build(config), kind(folder, config), progress)
    except Interrupted as end:
        return str(end)
    return "done"


def results(folder: Path) -> dict[str, bytes]:
    """The content of every file that is to be the same, by its path; checkpoints apart."""
    found = {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
        and file.parts[len(folder.parts)] not in ("checkpoints", ".lock", "versions.json")
    }
    for name in ("rounds.csv", "summary.csv"):
        lines = found[name].splitlines()
        found[name] = b"\n".join(line for line in lines if b"seconds" not in line)
    return found


def assert_same(one: Path, other: Path) -> None:
    found, expected = results(one), results(other)
    assert found.keys() == expected.keys()
    for name, content in expected.items():
        assert found[name] == content, name
    for seed in (0, 1):
        assert_same_bits(*(saved(folder, seed)["state"] for folder in (one, other)))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_two_ranks_leave_the_files_of_one(two_ranks: Pair, algorithm: str, tmp_path: Path) -> None:
    config = config_of(algorithm, *OVERRIDES)
    assert play(here(), config, tmp_path / "one") == "done"
    assert two_ranks(play, config, tmp_path / "two") == ["done", "done"]
    assert_same(tmp_path / "two", tmp_path / "one")
    versions = [
        json.loads((tmp_path / name / "versions.json").read_text()) for name in ("one", "two")
    ]
    assert [v["ranks"] for v in versions] == [1, 2]


def test_a_signal_to_any_rank_ends_all_and_any_number_goes_on(
    two_ranks: Pair, tmp_path: Path
) -> None:
    config = config_of("lcfl", *OVERRIDES)
    assert play(here(), config, tmp_path / "whole") == "done"
    said = two_ranks(play, config, tmp_path / "pieces", 1)
    assert said == ["interrupted by SIGTERM; the same command continues the run"] * 2
    status = json.loads((tmp_path / "pieces" / "status.json").read_text())
    assert (status["state"], status["rounds_done"]) == ("interrupted", 3)
    assert play(here(), config, tmp_path / "pieces") == "done"
    assert_same(tmp_path / "pieces", tmp_path / "whole")


@pytest.mark.slow
def test_ranks_go_on_from_what_one_process_began(two_ranks: Pair, tmp_path: Path) -> None:
    config = config_of("lcfl", *OVERRIDES)
    assert play(here(), config, tmp_path / "whole") == "done"
    assert play(here(), config, tmp_path / "begun", 0).startswith("interrupted")
    assert two_ranks(play, config, tmp_path / "begun") == ["done", "done"]
    assert_same(tmp_path / "begun", tmp_path / "whole")


def test_ranks_that_read_another_checkpoint_are_told(two_ranks: Pair, tmp_path: Path) -> None:
    config = config_of("fedavg", *OVERRIDES)
    play(here(), config, tmp_path / "rank=0", 0)
    with pytest.raises(
        AssertionError, match=r"rank 1 differs from rank 0 in the checkpoint it reads"
    ):
        two_ranks(play_apart, config, tmp_path)


def play_apart(ranks: Ranks, config: Mapping[str, Any], folder: Path) -> str:
    """As `play`, but every rank sees a folder of its own."""
    return play(ranks, config, folder / f"rank={ranks.rank}")
