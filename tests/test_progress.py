"""What is shown while a job runs, and the times to come from the times measured."""

from __future__ import annotations

import io
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from fedclust.helpers.meter import Meter
from fedclust.runtime.progress import Replaced, Shown, SweepProgress, doing, fitting


@pytest.mark.parametrize(
    ("sweep", "job", "left", "said"),
    [
        (SweepProgress(left=2, mean_seconds=None), 30.0, 10.0, "70 s"),
        (SweepProgress(left=2, mean_seconds=300.0), 30.0, 10.0, "10 min"),
        (SweepProgress(left=7, mean_seconds=3600.0), 30.0, 1800.0, "8 h"),
        (SweepProgress(left=70, mean_seconds=3600.0), 30.0, 0.0, "3 d"),
        (SweepProgress(left=1, mean_seconds=0.01), 0.02, 0.0, "1 s"),
    ],
)
def test_a_sweep_ends_after_this_job_and_the_others(
    sweep: SweepProgress, job: float, left: float, said: str
) -> None:
    assert sweep.end(job, left) == f"all done in about {said}"


def test_a_meter_counts_what_is_done_of_a_request() -> None:
    meter = Meter()
    assert doing(meter) == []
    meter.begin("training", 300)
    meter.add(64)
    assert doing(meter) == ["training 64/300 clients"]
    meter.step, meter.steps = 12, 60
    assert doing(meter) == ["training 64/300 clients, step 12/60"]
    meter.add(64)
    assert doing(meter) == ["training 128/300 clients"]
    meter.begin("loss table", 40, "models")
    assert doing(meter) == ["loss table 0/40 models"]
    meter.step, meter.steps = 1, 3
    assert doing(meter) == ["loss table 0/40 models, part 1/3"]
    meter.end()
    assert doing(meter) == []


def test_a_narrow_line_leaves_out_what_matters_least() -> None:
    pieces = [(0, "*"), (0, "round 12/100"), (2, "training"), (3, "accuracy"), (1, "0:42 left")]
    whole = "* · round 12/100 · training · accuracy · 0:42 left"
    assert fitting(pieces, 80) == whole
    assert fitting(pieces, len(whole)) == whole
    assert fitting(pieces, len(whole) - 1) == "* · round 12/100 · training · 0:42 left"
    assert fitting(pieces, 30) == "* · round 12/100 · 0:42 left"
    assert fitting(pieces, 20) == "* · round 12/100"
    assert fitting(pieces, 10) == "* · round "


def shown(width: int = 200, **options: object) -> tuple[Shown, io.StringIO]:
    text = io.StringIO()
    return Shown("a job", Console(file=text, width=width), **options), text  # type: ignore[arg-type]


def test_a_log_names_the_job_in_every_line() -> None:
    progress, text = shown(name="job 3/12")
    progress.start(Path("outputs/x"), 0, 40)
    for t in range(40):
        progress.round(t, {"accuracy": 0.5, "purity": 1.0})
    progress.warn("something")
    progress.finishing(39, 37, 150.0, signal.SIGINT)
    progress.finishing(0, -1, None, signal.SIGTERM)
    progress.stop()
    lines = text.getvalue().splitlines()
    assert lines[0] == "a job → outputs/x"
    told = "accuracy  50.0 % · purity 1.00 · "
    assert lines[1].startswith(f"  job 3/12 · round 2/40 · {told}0:")
    assert lines[-4].startswith(f"  job 3/12 · round 40/40 · {told}in 0:")
    assert lines[-3] == "  warning: job 3/12: something"
    assert lines[-2] == (
        "job 3/12: finishing round 40 in about 2 min, Ctrl-C again to stop now: "
        "the last checkpoint is round 38"
    )
    assert lines[-1] == "job 3/12: finishing round 1, no checkpoint yet"
    assert len(lines) == 1 + 20 + 3


def test_a_round_that_is_not_evaluated_says_of_which_round_the_values_are() -> None:
    progress, text = shown()
    progress.start(Path("outputs/x"), 0, 4)
    progress.round(0, {"train_loss": 2.0})
    progress.round(1, {"accuracy": 0.5, "purity": 0.75})
    assert "round 3/4 · accuracy  50.0 % · purity 0.75 · " in progress._renderable().plain
    progress.round(2, {"train_loss": 1.0})
    assert "round 4/4 · accuracy  50.0 % (round 2) · " in progress._renderable().plain
    progress.round(3, {"accuracy": 0.25, "purity": 1.0})
    progress.stop()
    lines = text.getvalue().splitlines()[1:]
    assert [line.rpartition(" · ")[0] for line in lines] == [
        "  round 1/4",
        "  round 2/4 · accuracy  50.0 % · purity 0.75",
        "  round 3/4 · accuracy  50.0 % (round 2) · purity 0.75",
        "  round 4/4 · accuracy  25.0 % · purity 1.00",
    ]


def test_a_line_that_stays_fits_a_terminal_too() -> None:
    text = io.StringIO()
    console = Console(file=text, width=60, force_terminal=True, color_system=None)
    progress = Shown("a job", console, name="job 10/12", live=False)
    progress.start(Path("x"), 0, 6)
    progress.round(0, {"accuracy": 0.5, "purity": 1.0, "ari": 0.25})
    progress.stop()
    line = text.getvalue().splitlines()[1]
    assert len(line) <= 60
    assert line.startswith("  job 10/12 · round 1/6 · accuracy  50.0 % · 0:")


def test_a_live_line_is_never_wider_than_the_terminal() -> None:
    progress, _ = shown(60, sweep=SweepProgress(left=5, mean_seconds=100.0))
    progress.start(Path("outputs/x"), 2, 100)
    first = progress._renderable().plain
    assert "round 3/100" in first
    assert "0:00 so far" in first
    progress.round(2, {"accuracy": 0.5, "purity": 1.0, "ari": 0.25})
    line = progress._renderable().plain
    progress.stop()
    assert len(line) < 60
    assert "round 4/100" in line
    assert "left" in line
    assert "ari" not in line


def test_a_notebook_has_one_line_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    class Handle:
        def update(self, data: dict[str, str], *, raw: bool) -> None:
            assert raw
            lines[-1] = data["text/plain"]

    def display(data: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        assert raw
        assert display_id
        lines.append(data["text/plain"])
        return Handle()

    notebook = SimpleNamespace(display=display)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(display=notebook))
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    text = io.StringIO()
    progress = Replaced("a job", Console(file=text))
    progress.start(Path("outputs/a"), 0, 2)
    assert lines == ["a job → outputs/a"]
    progress.round(0, {"accuracy": 0.25})
    assert len(lines) == 1
    assert lines[0].startswith("a job · round 1/2 · accuracy  25.0 %")
    progress.warn("odd")
    progress.round(1, {"accuracy": 0.5})
    progress.stop()
    assert len(lines) == 1
    assert lines[0].startswith("a job · round 2/2 · accuracy  50.0 % · in ")
    assert text.getvalue().strip() == "warning: odd"  # what a person must not miss stays
