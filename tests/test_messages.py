"""Messages that nobody can read end nothing."""

from __future__ import annotations

import io
import os
import signal
import sys
from pathlib import Path

import pytest
from rich.console import Console

from fedclust.__main__ import main
from fedclust.helpers.messages import messages_may_be_lost

FULL = Path("/dev/full")
pytestmark = [
    pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full"),
    pytest.mark.usefixtures("no_figures"),
]


def on_a_full_disk(patch: pytest.MonkeyPatch, name: str = "stderr") -> io.TextIOWrapper:
    """A standard stream as a process begins with, now this process's."""
    return stream_to(patch, name, FULL)


def stream_to(patch: pytest.MonkeyPatch, name: str, file: Path | int) -> io.TextIOWrapper:
    stream = io.TextIOWrapper(io.BufferedWriter(io.FileIO(file, "wb")), line_buffering=True)
    patch.setattr(sys, name, stream)
    patch.setattr(sys, f"__{name}__", stream)
    return stream


def test_messages_on_a_full_disk_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = on_a_full_disk(monkeypatch)
    with messages_may_be_lost():
        print("lost" * 10_000, file=sys.stderr)
        Console(stderr=True).print("lost")
        with messages_may_be_lost():
            sys.stderr.write("half a line")
    assert sys.stderr is plain
    plain.close()  # nothing waits in it, or the end of the process would fail


def test_commands_with_messages_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = on_a_full_disk(monkeypatch)
    with pytest.raises(SystemExit) as end:
        main(["nonsense"])
    assert end.value.code == 2
    monkeypatch.chdir(tmp_path)
    small = ("partition.num_clients=8", "rounds=1", "model=linear", "algorithm=fedavg")
    main(["run", *small, "hydra.run.dir=here"])
    assert (tmp_path / "here" / "summary.csv").is_file()
    plain.close()


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["list"], ["run", "--help"]])
def test_results_on_a_full_disk_are_one_line(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = on_a_full_disk(monkeypatch, "stdout")
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 1
    line = "fedclust: standard output cannot be written or read: No space left on device\n"
    assert capsys.readouterr().err == line
    assert sys.stdout is plain
    plain.close()


@pytest.mark.full
def test_a_sweep_with_results_on_a_full_disk_says_where_its_report_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = on_a_full_disk(monkeypatch, "stdout")
    monkeypatch.chdir(tmp_path)
    small = ("partition.num_clients=8", "rounds=1", "model=linear", "algorithm=fedavg", "seeds=1")
    with pytest.raises(SystemExit) as end:
        main(["run", "-m", *small, "hydra.sweep.dir=here"])
    assert end.value.code == 1
    line = "standard output cannot be written: No space left on device; the report is in "
    assert f"{line}here/report\n" in capsys.readouterr().err
    assert (tmp_path / "here" / "report" / "report.html").is_file()
    plain.close()


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["list"], 128 + signal.SIGPIPE),
        (["doctor"], 128 + signal.SIGPIPE),
        pytest.param(["run", "-m", "seeds=1"], 0, marks=pytest.mark.full),
    ],
)
def test_results_that_nobody_reads(
    arguments: list[str],
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    plain = stream_to(monkeypatch, "stdout", writing)
    monkeypatch.chdir(tmp_path)
    small = ("partition.num_clients=8", "rounds=1", "model=linear", "algorithm=fedavg")
    ended = 0
    try:
        main([*arguments, *(small if "run" in arguments else ())])
    except SystemExit as end:
        ended = int(end.code or 0)
    assert ended == status
    assert "roken pipe" not in capsys.readouterr().err
    assert [*tmp_path.rglob("report.html")] or status
    plain.close()
