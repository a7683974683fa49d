"""Temporary folders do not stay."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest

from fedclust.helpers.scratch import scratch


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_a_killed_process_left_goes_with_the_next(system: Path) -> None:
    """Folders of living processes, and of others by that name, stay."""
    (system / "fedclust-mine").mkdir()
    pid = os.fork()
    if pid == 0:
        try:
            with scratch() as folder:
                (folder / "jobs").write_text("3")
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    os.waitpid(pid, 0)
    assert len(list(system.iterdir())) == 2
    with scratch() as first, scratch() as second:
        assert sorted(system.iterdir()) == sorted([system / "fedclust-mine", first, second])
    assert list(system.iterdir()) == [system / "fedclust-mine"]


def test_a_folder_beside_results_is_hidden_and_goes_too(system: Path) -> None:
    with scratch(system) as folder:
        assert folder.name.startswith(".fedclust-")
    assert not list(system.iterdir())


def test_tests_leave_nothing_in_the_systems_folder() -> None:
    """Also what processes of tests leave there is in a folder of pytest's."""
    assert "pytest" in os.environ["TMPDIR"]
    assert tempfile.gettempdir() == os.environ["TMPDIR"]
