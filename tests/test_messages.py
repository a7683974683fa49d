"""Messages that nobody can read end nothing."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from fedclust.__main__ import main
from fedclust.helpers.messages import messages_may_be_lost

FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


def on_a_full_disk(patch: pytest.MonkeyPatch) -> io.TextIOWrapper:
    """A standard error as a process begins with, now this process's."""
    stream = io.TextIOWrapper(io.BufferedWriter(io.FileIO(FULL, "wb")), line_buffering=True)
    patch.setattr(sys, "stderr", stream)
    patch.setattr(sys, "__stderr__", stream)
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
