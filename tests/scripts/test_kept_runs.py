"""Finished jobs of the benchmark are packed, and unpacked to the same files."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pandas as pd
import pytest

from scripts.papers import kept_runs

SHORT = "seed,round,metric,value\n0,1,accuracy,{}\n0,1,seconds,0.123\n"
CLIENTS = pd.DataFrame({"seed": [0, 0, 5, 5], "round": [0, 1, 0, 1], "client": 0, "group": 1})
CLIENTS = CLIENTS.assign(label=2, test_count=9, correct=7, weight=0.5)


def job(folder: Path, name: str, state: str = "done", value: str = "1") -> None:
    rounds = SHORT.format(value).replace("0.123", "0.12345") + "0,1,train_loss,0.5\n"
    files = {
        "status.json": f'{{"state": "{state}"}}',
        "rounds.csv": rounds,
        "checkpoints/latest.json": "{}",
        "partition/seed=0.csv": "b",
        "arrays/seed=5/distance.npy": "c",
        "arrays/seed=10/distance.npy": "d",
    }
    for inside, text in files.items():
        (folder / name / inside).parent.mkdir(parents=True, exist_ok=True)
        (folder / name / inside).write_text(text)
    CLIENTS.to_parquet(folder / name / "clients.parquet")


def files_of(folder: Path) -> dict[str, str]:
    return {
        file.relative_to(folder).as_posix(): file.read_text()
        for file in folder.rglob("*")
        if file.is_file() and file.suffix != ".parquet"
    }


def test_of_what_is_done_comes_back_what_a_page_reads(tmp_path: Path) -> None:
    runs, kept, back = tmp_path / "runs", tmp_path / "kept", tmp_path / "back"
    job(runs, "ifca,case=v1_drift")
    job(runs, "local,case=v1_drift", state="running")
    job(runs, "oracle,case=v1_rotation")
    starting = runs / "fedem,case=v1_drift" / "config.yaml"
    starting.parent.mkdir()
    starting.write_text("")
    packed = [one.name for one in kept_runs.keep(runs, kept)]
    assert packed == ["v1_drift.tar.xz", "v1_rotation.tar.xz"]
    assert kept_runs.restore(back, kept) == 2
    inside = {
        "rounds.csv": SHORT.format("1"),  # no loss, and seconds to a thousandth
        "status.json": '{"state": "done"}',
        "arrays/seed=5/distance.npy": "c",  # of the first seed, by number
    }
    jobs = ("ifca,case=v1_drift", "oracle,case=v1_rotation")
    assert files_of(back) == {f"{name}/{file}": inside[file] for name in jobs for file in inside}
    clients = pd.read_parquet(back / jobs[0] / "clients.parquet")
    # the first seed whole, and of the other its last round
    assert clients[["seed", "round"]].to_numpy().tolist() == [[0, 0], [0, 1], [5, 1]]
    assert "weight" not in clients
    assert kept_runs.keep(runs, kept) == []  # the same jobs, the same bytes


def test_other_jobs_of_a_federation_join_those_kept(tmp_path: Path) -> None:
    first, second, kept = tmp_path / "first", tmp_path / "second", tmp_path / "kept"
    job(first, "ifca,case=v1_drift")
    job(first, "fedavg,case=v1_drift", value="1")
    job(second, "fedavg,case=v1_drift", value="2")
    (first / "ifca,case=v1_drift" / "config.yaml").write_text("data:\n  root: /mine/data\n")
    kept_runs.keep(first, kept)
    kept_runs.keep(second, kept)
    kept_runs.restore(tmp_path, kept)
    config = (tmp_path / "ifca,case=v1_drift" / "config.yaml").read_text()
    assert config == "data:\n  root: data\n"
    assert "accuracy,2" in (tmp_path / "fedavg,case=v1_drift" / "rounds.csv").read_text()
    job(first, "fedavg,case=v1_drift", value="3")
    assert kept_runs.restore(first, kept) == 0  # jobs that are there stay as they are
    assert "accuracy,3" in (first / "fedavg,case=v1_drift" / "rounds.csv").read_text()


def test_a_search_comes_back_with_its_trials_and_goes_on(tmp_path: Path) -> None:
    runs, kept, back = tmp_path / "runs-tuning", tmp_path / "kept", tmp_path / "back-tuning"
    texts = {"search.yaml": "metric: a", "trials.csv": "trial", "best.yaml": "values: {}"}
    done, begun = (runs / f"{name},case=v1_drift" for name in ("ifca", "local"))
    for folder, names in ((done, tuple(texts)), (begun, ("search.yaml", "trials.csv"))):
        (folder / "trials" / "000").mkdir(parents=True)
        (folder / "trials" / "000" / "rounds.csv").write_text("not kept")
        for name in names:
            (folder / name).write_text(texts[name])
    (runs / "report").mkdir()
    assert [one.name for one in kept_runs.keep_searches(runs, kept)] == ["v1_drift.tar.xz"]
    assert kept_runs.restore(back, kept) == 2
    assert files_of(back) == {
        f"{folder.name}/{name}": texts[name]
        for folder in (done, begun)
        for name in texts
        if folder is done or name != "best.yaml"
    }
    assert kept_runs.keep_searches(back, kept) == []  # the same searches, the same bytes


def test_what_cannot_be_packed_or_unpacked_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kept_runs.main(["keep", str(tmp_path / "nowhere")]) == 2
    assert "no finished job" in capsys.readouterr().err
    with tarfile.open(tmp_path / "bad.tar.xz", "w:xz") as archive:
        archive.addfile(tarfile.TarInfo("../outside"))
    monkeypatch.setattr(kept_runs, "KEPT", tmp_path)
    assert kept_runs.main(["restore", str(tmp_path / "to")]) == 2
    assert "outside of a job's folder" in capsys.readouterr().err
