"""The table of changes, from files that the recorder wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from toys import blank, evaluation_of, federation_of

from fedclust.core.types import Evaluation, Federation
from fedclust.report.arms import arms
from fedclust.report.reading import read_run
from fedclust.report.tables import changes_table
from fedclust.runtime.recorder import Recorder
from fedclust.scenarios.static import Static
from fedclust.trackers.none import NoTracker

CLIENTS = 8


def federation() -> Federation:
    return federation_of(blank(), [[0, 1, 2]] * CLIENTS, group=torch.arange(CLIENTS) // 2)


def evaluation(accuracy: float) -> Evaluation:
    """Every client gets this part of its 50 test examples right, with the one model there is."""
    count = torch.full((CLIENTS,), 50)
    return evaluation_of(0 * count, (accuracy * count).round(), count, count.double())


def write(folder: Path, *, drifting: bool) -> Path:
    """Two changes of four clients in one seed: back in the second round, and never."""
    recorder = Recorder(folder, [0], 10, NoTracker())
    recorder.start()
    first = torch.arange(CLIENTS) < 4
    accuracies = [0.5, 0.8, 0.6, 0.8, 0.4, 0.6]
    for t, (rnd, accuracy) in enumerate(zip(Static().rounds(federation(), 0), accuracies)):  # noqa: B905
        if drifting:
            change = t in (2, 4)
            rnd = replace(rnd, is_change=change, shifted=first & change)
            if change:
                recorder.change(rnd, evaluation({2: 0.2, 4: 0.3}[t]))
        recorder.evaluate(rnd, evaluation(accuracy))
    recorder.finish()
    (folder / "config.yaml").write_text("name: demo\nchoices: {algorithm: fedavg}\n")
    return folder


def test_a_table_tells_fall_and_recovery(tmp_path: Path) -> None:
    table = changes_table(arms([read_run(write(tmp_path / "job", drifting=True))]))
    record = dict(table.records[0])
    assert (record["changes"], record["recovered"]) == (2, 1)
    assert record["changed_before"] == pytest.approx(0.8)
    assert record["changed_at_once"] == pytest.approx((0.2 + 0.3) / 2)
    assert record["changed_accuracy"] == pytest.approx((0.6 + 0.8 + 0.4 + 0.6) / 4)
    assert record["recovery_rounds"] == 2
    assert [cell.text for cell in table.rows[0]][1:3] == ["2", "4.0"]
    assert table.rows[0][6].text == "1 of 2"


def test_without_changes_there_is_no_table(tmp_path: Path) -> None:
    assert changes_table(arms([read_run(write(tmp_path / "job", drifting=False))])) is None
