"""A report says which files of a job are no longer what the job left."""

from __future__ import annotations

from pathlib import Path

import made_up
import pytest

from fedclust.helpers.files import sealed_file, sealed_json
from fedclust.papers.reports import all_contents

SEALED = ("config.yaml", "federation.json", "rounds.csv", "clients.parquet")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A finished job with the seals that a run leaves."""
    folder = made_up.job(tmp_path / "demo" / "job", "lcfl", seeds=(0,), rounds=4)
    status = {"state": "done", "rounds_done": 4, "rounds": 4, "seeds": {"0": "ok"}}
    (folder / "status.json").write_text(sealed_json(status))
    (folder / "federation.json").write_text('{"parameters": 1, "seeds": {}}\n')
    (folder / "checkpoints").mkdir()
    names = [*SEALED, "arrays/seed=0/distance.npy"]
    files = {name: sealed_file(folder / name) for name in names}
    (folder / "checkpoints" / "done.json").write_text(
        sealed_json({"files": files, "status": status})
    )
    return folder


def warnings(job: Path) -> list[str]:
    """The banners about files."""
    (contents,) = all_contents(job.parent)
    return [line for line in contents.banners if "changed since" in line]


def change(file: Path, old: bytes, new: bytes) -> None:
    content = file.read_bytes()
    assert old in content
    file.write_bytes(content.replace(old, new, 1))


@pytest.mark.parametrize("other", [b"{}", None])
def test_seals_that_were_lost_are_told(job: Path, other: bytes | None) -> None:
    """Also where another sealed file has taken their place."""
    kept = (job / "status.json").read_bytes() if other is None else other
    (job / "checkpoints" / "done.json").write_bytes(kept)
    assert "checkpoints/done.json" in warnings(job)[0]


def test_a_job_as_it_was_left_needs_no_word(job: Path) -> None:
    assert warnings(job) == []


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("rounds.csv", b"0,3,accuracy,0.", b"0,3,accuracy,0.9"),
        ("config.yaml", b"rounds", b"# by hand\nrounds"),
        ("federation.json", b"1", b"2"),
        ("status.json", b'"rounds_done": 4', b'"rounds_done": 3'),
        ("arrays/seed=0/distance.npy", b"\x00\x00\x00\x00", b"\x01\x00\x00\x00"),
    ],
)
def test_an_edited_file_is_named(job: Path, name: str, old: bytes, new: bytes) -> None:
    change(job / name, old, new)
    assert warnings(job) == [
        f"job: {name} damaged or changed since the job wrote it; the numbers may not be the job's"
    ]


def test_a_job_with_the_config_of_another_is_named(job: Path) -> None:
    other = made_up.job(job.parent / "another", "fedavg", seeds=(0,), rounds=4)
    (job / "config.yaml").write_bytes((other / "config.yaml").read_bytes())
    (other / "status.json").write_text(sealed_json({"state": "done", "rounds_done": 4}))
    (contents,) = all_contents(job.parent)
    assert any("is left out: config.yaml damaged or changed" in one for one in contents.banners)


def test_the_seals_of_a_running_job_hold_for_the_rounds_so_far(job: Path) -> None:
    (job / "checkpoints" / "done.json").unlink()
    files = {"rounds.csv": sealed_file(job / "rounds.csv"), "clients/part-0": (1, "gone since")}
    (job / "checkpoints" / "latest.json").write_text(sealed_json({"files": files}))
    with (job / "rounds.csv").open("a") as file:
        file.write("0,4,accuracy,0.5\n")
    assert warnings(job) == []
    change(job / "rounds.csv", b"0,1,accuracy,0.", b"0,1,accuracy,0.9")
    assert "job: rounds.csv damaged or changed" in warnings(job)[0]


def test_without_checkpoints_there_is_nothing_to_compare_with(job: Path) -> None:
    (job / "checkpoints" / "done.json").unlink()
    change(job / "rounds.csv", b"0,3,accuracy,0.", b"0,3,accuracy,0.9")
    assert warnings(job) == []
