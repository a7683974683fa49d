"""What numbers of a user's own mean is kept with a job, for reports without their code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from refusals import refused

import fedclust.metrics as metrics
from fedclust.core.types import Cost
from fedclust.helpers.errors import DataError
from fedclust.metrics import METRICS, document
from fedclust.metrics.meanings import read_meanings
from fedclust.metrics.summary import write_summary
from fedclust.papers.reports import all_contents, make_report
from fedclust.report.reading import read_runs
from fedclust.runtime.recorder import Recorder
from fedclust.trackers.none import NoTracker


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """A metric that a test documents or learns is unknown to the next."""
    before, learned = dict(METRICS), set(metrics._learned)
    yield
    METRICS.clear()
    METRICS.update(before)
    metrics._learned.clear()
    metrics._learned.update(learned)


def forget(name: str) -> None:
    """As in a process that has never imported the user's file."""
    METRICS.pop(name, None)
    metrics._learned.discard(name)


def recorded(folder: Path, *names: str) -> None:
    """A job of two rounds that records some numbers of its own, 3 and 4."""
    recorder = Recorder(folder, (0,), 10, NoTracker())
    recorder.start()
    for t in range(2):
        recorder.cost(0, t, Cost(notes=dict.fromkeys(names, 3.0 + t)))
    recorder.finish()


def test_a_job_without_numbers_of_its_own_has_no_such_file(tmp_path: Path) -> None:
    recorded(tmp_path / "job", "discrepancy")
    assert not (tmp_path / "job" / "metrics.json").exists()


def test_the_file_says_what_was_documented_and_only_what_was_recorded(tmp_path: Path) -> None:
    document("joy", "smiles per client", unit="clients", better="lower")
    document("grief", "never recorded")
    recorded(tmp_path / "job", "joy")
    assert json.loads((tmp_path / "job" / "metrics.json").read_text()) == {
        "joy": {"text": "smiles per client", "unit": "clients", "better": "lower"}
    }


def test_a_job_begun_anew_tells_nothing_of_the_one_before(tmp_path: Path) -> None:
    document("joy", "smiles")
    recorded(tmp_path / "job", "joy")
    recorded(tmp_path / "job", "discrepancy")
    assert not (tmp_path / "job" / "metrics.json").exists()


@pytest.mark.usefixtures("no_figures")
def test_a_report_knows_the_metric_without_the_code(tmp_path: Path) -> None:
    document("joy", "smiles per client", better="lower")
    recorded(tmp_path / "demo" / "job", "joy")
    config = "name: demo\nchoices: {algorithm: mine}\nreport: {metric: joy}\nrounds: 2\n"
    (tmp_path / "demo" / "job" / "config.yaml").write_text(config)
    forget("joy")
    assert make_report(tmp_path / "demo").is_file()
    (contents,) = all_contents(tmp_path / "demo")
    assert contents.tables[0].title == "Joy"
    assert contents.tables[0].rows[0][1].text == "4.00"
    assert "Joy: smiles per client." in contents.tables[0].notes[0]


def test_a_summary_made_again_without_the_code_knows_the_best(tmp_path: Path) -> None:
    document("joy", "smiles", better="lower")
    recorded(tmp_path / "job", "joy")
    before = (tmp_path / "job" / "summary.csv").read_bytes()
    assert b"joy,best,0,3.0" in before
    forget("joy")
    write_summary(tmp_path / "job")
    assert (tmp_path / "job" / "summary.csv").read_bytes() == before
    forget("joy")
    (tmp_path / "job" / "metrics.json").unlink()
    write_summary(tmp_path / "job")
    assert b"joy,best" not in (tmp_path / "job" / "summary.csv").read_bytes()


def test_what_was_learned_gives_way_to_what_a_file_documents(tmp_path: Path) -> None:
    document("joy", "smiles", better="lower")
    recorded(tmp_path / "job", "joy")
    forget("joy")
    read_meanings(tmp_path / "job")
    assert METRICS["joy"].better == "lower"
    document("joy", "smiles, counted anew", better="higher")
    assert METRICS["joy"].better == "higher"
    with pytest.raises(DataError, match="joy has another unit or direction here than elsewhere"):
        read_meanings(tmp_path / "job")


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"joy": 3}', '{"joy": {"text": "a"}}', '{"joy": {"text": 1}}']
)
def test_a_damaged_file_is_named(tmp_path: Path, content: str) -> None:
    document("joy", "smiles")
    recorded(tmp_path / "job", "joy")
    (tmp_path / "job" / "config.yaml").write_text("choices: {algorithm: mine}\n")
    (tmp_path / "job" / "metrics.json").write_text(content)
    with refused(DataError, r"metrics\.json cannot be read"):
        read_runs(tmp_path / "job")
