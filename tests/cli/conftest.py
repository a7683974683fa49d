"""Running the command line inside the test's process, in an empty folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedclust.__main__ import main


@dataclass
class Finished:
    """What a command left: exit status and what it printed."""

    status: int
    out: str
    err: str


@pytest.fixture
def fedclust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Finished]:
    """Call the command line with arguments, in an empty current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDCLUST_USER_DIR", raising=False)

    def call(*arguments: str) -> Finished:
        capfd.readouterr()
        status = 0
        try:
            main(arguments)
        except SystemExit as stop:
            status = int(stop.code or 0)
        printed = capfd.readouterr()
        return Finished(status, printed.out, printed.err)

    return call
