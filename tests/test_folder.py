"""The folder of a job: lock, config, checkpoints that are whole or absent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fedclust.errors import RunFolderError
from fedclust.runtime.folder import RunFolder, config_hash

CONFIG = {
    "name": "x",
    "rounds": 3,
    "dataset": {"_target_": "d", "root": "a"},
    "solver": {"lr": 0.1},
}
CPU = torch.device("cpu")


def folder(path: Path, **changes: Any) -> RunFolder:
    return RunFolder(path, {**CONFIG, **changes})


def test_the_hash_covers_results_and_nothing_else() -> None:
    same = [
        {"name": "y"},
        {"checkpoint_seconds": 3},
        {"progress": False},
        {"dataset": {"_target_": "d", "root": "b"}},
    ]
    for change in same:
        assert config_hash({**CONFIG, **change}) == config_hash(CONFIG)
    for change in (
        {"rounds": 4},
        {"solver": {"lr": 0.2}},
        {"dataset": {"_target_": "e", "root": "a"}},
    ):
        assert config_hash({**CONFIG, **change}) != config_hash(CONFIG)


def test_a_checkpoint_comes_back_bit_by_bit(tmp_path: Path) -> None:
    run = folder(tmp_path / "run")
    run.acquire({})
    models = torch.randn(3, 5)
    content = {
        "state": {"models": models[1:], "label": torch.tensor([1]), "none": None, "n": 3},
        "failed": None,
    }
    run.save(4, {0: content, 7: content}, {"rounds_csv": 12})
    loaded = run.load(CPU)
    assert loaded is not None
    t, seeds, position = loaded
    assert (t, position, sorted(seeds)) == (4, {"rounds_csv": 12}, [0, 7])
    assert torch.equal(seeds[7]["state"]["models"], models[1:])
    assert seeds[0]["state"]["none"] is None
    run.save(5, {0: content, 7: content}, {"rounds_csv": 20})
    assert [p.name for p in (tmp_path / "run" / "checkpoints").glob("round=*")] == ["round=5"]


def test_a_view_is_saved_without_what_it_looks_into(tmp_path: Path) -> None:
    run = folder(tmp_path / "run")
    run.acquire({})
    run.save(0, {0: {"state": {"row": torch.zeros(1000, 100)[3]}}}, {})
    assert (tmp_path / "run" / "checkpoints" / "round=0" / "seed=0.pt").stat().st_size < 10_000


def test_a_half_written_checkpoint_does_not_count(tmp_path: Path) -> None:
    run = folder(tmp_path / "run")
    run.acquire({})
    run.save(1, {0: {"state": {"x": torch.ones(1)}}}, {"p": 1})
    partial = tmp_path / "run" / "checkpoints" / "round=2.partial"
    partial.mkdir()
    (partial / "seed=0.pt").write_bytes(b"half")
    whole = tmp_path / "run" / "checkpoints" / "round=3"
    whole.mkdir()  # renamed, but latest.json was not replaced yet
    loaded = run.load(CPU)
    assert loaded is not None
    assert loaded[0] == 1
    run.save(2, {0: {"state": {"x": torch.ones(1)}}}, {"p": 2})
    assert run.load(CPU)[0] == 2  # type: ignore[index]


def test_a_missing_seed_file_is_named(tmp_path: Path) -> None:
    run = folder(tmp_path / "run")
    run.acquire({})
    run.save(1, {0: {"state": {}}, 1: {"state": {}}}, {})
    file = tmp_path / "run" / "checkpoints" / "round=1" / "seed=1.pt"
    for damage in (lambda: file.write_bytes(file.read_bytes()[:50]), file.unlink):
        damage()
        with pytest.raises(RunFolderError, match=r"seed=1\.pt is damaged"):
            run.load(CPU)


def test_two_processes_cannot_write_one_folder(tmp_path: Path) -> None:
    first, second = folder(tmp_path / "run"), folder(tmp_path / "run")
    first.acquire({})
    with pytest.raises(RunFolderError, match="another process"):
        second.acquire({})
    first.release()
    second.acquire({})
    second.release()


def test_another_config_is_refused(tmp_path: Path) -> None:
    run = folder(tmp_path / "run")
    run.acquire({})
    run.release()
    with pytest.raises(RunFolderError, match="another config"):
        folder(tmp_path / "run", rounds=9).acquire({})


def test_an_abandoned_folder_is_gone_but_never_one_that_was_there(tmp_path: Path) -> None:
    made = folder(tmp_path / "made")
    made.acquire({})
    made.abandon()
    assert not (tmp_path / "made").exists()
    kept = folder(tmp_path / "kept")
    kept.acquire({})
    kept.release()
    again = folder(tmp_path / "kept")
    again.acquire({})
    again.save(0, {0: {"state": {}}}, {})
    again.abandon()
    assert (tmp_path / "kept" / "config.yaml").is_file()


def test_an_abandoned_folder_keeps_what_a_user_had_in_it(tmp_path: Path) -> None:
    thesis = tmp_path / "mine" / "thesis.txt"
    thesis.parent.mkdir()
    thesis.write_text("years of work")
    run = folder(thesis.parent)
    run.acquire({})
    run.abandon()
    assert thesis.read_text() == "years of work"
    assert not (thesis.parent / "config.yaml").exists()


def test_a_folder_that_cannot_be_written_is_named() -> None:
    with pytest.raises(RunFolderError, match="cannot be written"):
        folder(Path("/proc/fedclust")).acquire({})


def test_what_computed_a_job_before_is_kept(tmp_path: Path) -> None:
    first = {"packages": {"torch": "2.11"}, "compiled": True, "ranks": 1}
    second = {"packages": {"torch": "2.12"}, "compiled": False, "ranks": 2}
    told = []
    for versions in (first, first, {**first, "ranks": 2}, second, second):
        one = folder(tmp_path / "job")
        one.acquire(versions)
        told.append(one.changes)
        one.release()
    assert told == ["", "", "", "compiled True → False, torch 2.11 → 2.12", ""]
    written = json.loads((tmp_path / "job" / "versions.json").read_text())
    assert written == {**second, "before": [{**first, "ranks": 2}]}


def test_an_unreadable_account_of_versions_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "versions.json").write_text("{")
    one = folder(tmp_path / "job")
    one.acquire({"compiled": True})
    one.release()
    assert json.loads((tmp_path / "job" / "versions.json").read_text()) == {"compiled": True}
