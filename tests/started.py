"""Commands in processes of their own, forked from one that has imported everything.

PyTorch and Hydra take seconds of a start. What is real here are the process, its signals and its
end; that a command starts from nothing is tested elsewhere, by cli/test_start.py, test_torchrun.py
and test_launchers.py.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_IMPORTED = ["fedclust.launch.command", "fedclust.config.build", "fedclust.runtime.run"]


class Started:
    """A command of fedclust in a process of its own.

    Args:
        arguments: of the command line.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_IMPORTED)
        self._said = Path(tempfile.mkdtemp(), "said")
        self._process = context.Process(target=_called, args=(tuple(arguments), self._said))
        self._process.start()

    def poll(self) -> int | None:
        """Its exit status, negative after a signal; None as long as it lives."""
        return self._process.exitcode

    def wait(self, seconds: float | None = None) -> int:
        """The exit status, as soon as there is one."""
        self._process.join(seconds)
        status = self._process.exitcode
        assert status is not None, "the process lives on"
        return status

    def send_signal(self, signum: int) -> None:
        """Send it a signal."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signum)

    @property
    def said(self) -> str:
        """What it has written to its standard error."""
        return self._said.read_text() if self._said.is_file() else ""


def _called(arguments: Sequence[str], said: Path) -> None:
    from fedclust.__main__ import main

    with said.open("w") as err, Path(os.devnull).open("w") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
    sys.argv = ["fedclust", *arguments]
    try:
        main()
    finally:
        atexit._run_exitfuncs()  # a process that multiprocessing starts ends without
