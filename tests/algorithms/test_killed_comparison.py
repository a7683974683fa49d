"""A job that is killed while it compares all pairs of clients continues within the comparison."""

from __future__ import annotations

from pathlib import Path

import pytest
from digits_jobs import config_of
from torch import Tensor

from fedclust.config.build import build
from fedclust.helpers.unfinished import Table, Unfinished, unfinished
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.progress import Silent
from fedclust.runtime.run import run

GIVEN = (
    *("partition.num_clients=68", "partition.examples_per_client=6", "participation=1.0"),
    *("algorithm.warmup.rounds=2", "seeds=1", "rounds=4", "checkpoint_seconds=0", "max_rows=16"),
)
CONFIG = config_of("lcfl", *GIVEN)


class KilledError(BaseException):
    """Stands for a signal that no process survives."""


def compared(folder: Path, patch: pytest.MonkeyPatch, most: int = 10**9) -> list[int]:
    """Run the job, be killed when so many parts of the table are there; how many models each had
    that was computed.
    """
    noted: list[int] = []
    own, begin = Table.note, Unfinished.kept_in

    def note(table: Table, rows: Tensor) -> None:
        if len(noted) == most:
            raise KilledError
        noted.append(len(rows))
        own(table, rows)

    with patch.context() as inside:
        inside.setattr(Table, "note", note)
        inside.setattr(Unfinished, "kept_in", lambda self, folder, _: begin(self, folder, 0.0))
        inside.setattr("fedclust.helpers.unfinished._LEAST", 0.0)
        inside.setattr("fedclust.helpers.unfinished._WRITING", 0)
        run(build(CONFIG), RunFolder(folder, CONFIG), Silent())
    return noted


def test_a_comparison_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = compared(tmp_path / "whole", monkeypatch)
    assert sum(whole) == 68
    job = tmp_path / "killed"
    with pytest.raises(KilledError):
        compared(job, monkeypatch, most=2)
    assert len(list((job / "checkpoints").glob("unfinished-*"))) == 1
    assert unfinished.folder is None
    again = compared(job, monkeypatch)
    assert sum(again) == 68 - sum(whole[:2])
    assert not list((job / "checkpoints").glob("unfinished-*"))
    for name in ("rounds.csv", "clients.parquet"):
        lines = [
            [line for line in (folder / name).read_bytes().splitlines() if b",seconds," not in line]
            for folder in (tmp_path / "whole", job)
        ]
        assert lines[0] == lines[1]


def test_other_code_computes_it_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = tmp_path / "killed"
    with pytest.raises(KilledError):
        compared(job, monkeypatch, most=2)
    file = job / "versions.json"
    file.write_text(file.read_text().replace('"python": "', '"python": "1.'))
    assert sum(compared(job, monkeypatch)) == 68
