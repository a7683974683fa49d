"""Shared fixtures: where the real data lie, and a quiet, small use of the machine."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from multiprocessing.process import current_process
from pathlib import Path
from typing import Any

import pytest
import torch
from remembered import remembered_choices
from two_ranks import Pair

ROOT = Path(__file__).parent.parent


def pytest_configure() -> None:
    """Ctrl-C is tested also where it is ignored, as in what a script starts in the background.

    While modules are imported nobody looks for garbage. What tests write need not outlive a loss of
    power, so they do not wait for the disk: an eighth of the time of small jobs on a busy machine.
    """
    gc.disable()
    os.fsync = _unforced
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _unforced(_: object) -> None:
    """Stands for `os.fsync`."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test marked `thinned` one case in ten is among the fast ones; the others are `full`.

    So are all that need two ranks: two processes that import torch.
    """
    before = Counter[str]()
    for item in items:
        if "two_ranks" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.full)
        if item.get_closest_marker("thinned"):
            name = item.nodeid.partition("[")[0]
            if before[name] % 10:
                item.add_marker(pytest.mark.full)
            before[name] += 1


def pytest_collection_finish() -> None:
    """What is imported stays, so nobody looks for garbage in it again and again.

    Nor does pytest enter and leave each of the 45 loggers that torch keeps apart, three times a
    test.
    """
    for logger in list(logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            logger.propagate = True
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(4000, 20, 10)


def pytest_unconfigure() -> None:
    """Modules built by nanobind print what is not freed as Python ends."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder with MNIST/raw and the like: FEDCLUST_DATA, ./data or ../shared/data."""
    named = os.environ.get("FEDCLUST_DATA")
    candidates = [Path(named)] if named else [ROOT / "data", ROOT.parent / "shared" / "data"]
    for folder in candidates:
        if (folder / "MNIST" / "raw").is_dir():
            return folder
    message = f"no MNIST in {' or '.join(map(str, candidates))}; set FEDCLUST_DATA"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two processes that are ranks of one group."""
    pair = Pair(tmp_path_factory.mktemp("ranks"))
    yield pair
    pair.stop()


@pytest.fixture(scope="session", autouse=True)
def _choices() -> Iterator[None]:
    """The config's files are read once for the same choices."""
    with remembered_choices():
        yield


@pytest.fixture(scope="session", autouse=True)
def _temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What killed processes and torchrun leave in the system's temporary folder goes in the end."""
    folder = tmp_path_factory.mktemp("tmp")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", str(folder))
        # else multiprocessing makes one there, and misses it as Python ends
        patch.setitem(current_process()._config, "tempdir", str(folder))
        yield
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def no_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have no figures, which take twenty times as long as all the rest; tests with the mark
    `figures` have theirs.
    """
    if request.node.get_closest_marker("figures") is None:
        monkeypatch.setattr("fedclust.report.write.draw", lambda *_: [])
        monkeypatch.setattr("fedclust.tuning.report.save", _sketch)


@pytest.fixture
def sketched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made, and their files are empty."""
    for module in ("fedclust.report.figures", "fedclust.tuning.report"):
        monkeypatch.setattr(f"{module}.save", _sketch)


def _sketch(folder: Path, name: str, caption: str, figure: Any) -> Any:
    """In place of `save`: no places are found and nothing is drawn."""
    from fedclust.report.figures import Picture

    folder.mkdir(parents=True, exist_ok=True)
    for kind in ("png", "pdf"):
        (folder / f"{name}.{kind}").touch()
    return Picture(name, caption, b"")


@pytest.fixture(autouse=True)
def _few_threads() -> None:
    """Small tensors are slower on more threads."""
    torch.set_num_threads(1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name skipped tests as failures where CI is set; say what those on MNIST wait for."""
    skipped = terminalreporter.stats.get("skipped", [])
    waiting = sum("no MNIST in" in str(report.longrepr) for report in skipped)
    if waiting:
        terminalreporter.write_line(
            f"{waiting} tests wait for MNIST: `fedclust data mnist emnist fashion_mnist` here, "
            "or FEDCLUST_DATA=FOLDER with MNIST/raw in it"
        )
    if os.environ.get("CI") and skipped:
        terminalreporter.write_line(
            f"{len(skipped)} skipped tests count as failures in CI", red=True
        )


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A skipped test fails the run where CI is set."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if (
        os.environ.get("CI")
        and reporter is not None
        and reporter.stats.get("skipped")
        and exitstatus == 0
    ):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
