"""Mutants: small changes of the package that some test must notice.

python scripts/trust/mutants.py [WORD …] [--list FILE] [--jobs N] [--one-in N]

The list says of each mutant which text of which file becomes which other text, and which tests
should fail then. Every mutant is put into a copy of the package in a temporary folder, never into
the checkout, and its tests run against the copy. With words, only mutants are tried whose file or
reason has one of them. With `--one-in`, only so many: which ones depends on the text of all files
that mutants change, so that one tree has always the same, and the next change other ones.

One process imports PyTorch and the like, and every mutant is a fork of it that imports the copy:
seconds a mutant. Prints the share that is killed. The exit status is

    0   at least 95 % are killed
    1   fewer
    2   a mutant is stale: its text does not occur exactly once, or its tests cannot be run, or
        they fail without it
"""

from __future__ import annotations

import argparse
import compileall
import hashlib
import importlib
import os
import py_compile
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import yaml

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_suffix(".yaml")
LEAST = 0.95  # share of the mutants that must be killed
COPIED = ("fedclust", "conf", "examples", "scripts", "tests", "pyproject.toml")
SECONDS = 300  # of processor time for one mutant; one that never ends is killed
WARM = (
    "hydra",
    "hydra_plugins",
    "pandas",
    "pyarrow.parquet",
    "pytest",
    "scipy.cluster.hierarchy",
    "scipy.optimize",
    "scipy.stats",
    "sklearn.cluster",
    "sklearn.metrics",
    "torch._dynamo",  # which the first optimiser imports
)


class StaleError(Exception):
    """The list does not fit the code or the tests any more."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A change that tests must notice.

    Attributes:
        why: what is wrong with it, in a few words.
        file: below the root.
        before: text that occurs exactly once in the file.
        after: what it becomes.
        tests: what pytest is told to run.
    """

    why: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        """File and reason."""
        return f"{self.file}: {self.why}"


@dataclass(frozen=True)
class Task:
    """Tests to run.

    Attributes:
        tests: which.
        mutant: in whose copy; None for the unchanged package.
    """

    tests: tuple[str, ...]
    mutant: Mutant | None = None


@dataclass(frozen=True)
class Trial:
    """Tests that ran to their end.

    Attributes:
        task: which.
        status: exit status of pytest; above 127 for a process that a signal ended.
        seconds: it took.
        said: its output.
    """

    task: Task
    status: int
    seconds: float
    said: str

    @property
    def killed(self) -> bool:
        """Whether a test failed, or the process died."""
        return self.status == 1 or self.status > 127


def read_list(path: Path, words: Sequence[str] = ()) -> list[Mutant]:
    """The mutants of a list, those with one of the words in their file or reason if any are given.

    Raises:
        StaleError: if none is left.
    """
    rows = yaml.safe_load(path.read_text())
    mutants = [
        Mutant(**{**row, "tests": tuple(f"tests/{test}" for test in row["tests"].split())})
        for row in rows
    ]
    chosen = [m for m in mutants if not words or any(word in m.name for word in words)]
    if not chosen:
        raise StaleError(f"{path.name} has no mutant with {' or '.join(words)}")
    return chosen


def one_in(mutants: Sequence[Mutant], number: int, root: Path) -> list[Mutant]:
    """One in so many of the mutants, at least one, drawn by the text of the files they change."""
    texts = [root / file for file in sorted({m.file for m in mutants})]
    seed = hashlib.sha256(b"".join(text.read_bytes() for text in texts if text.is_file()))
    drawn = random.Random(seed.digest()).sample(range(len(mutants)), -(-len(mutants) // number))
    return [mutants[i] for i in sorted(drawn)]


def mutated(mutant: Mutant, root: Path) -> str:
    """The text of the mutant's file with the change.

    Raises:
        StaleError: if what it changes does not occur exactly once, or does not change.
    """
    path = root / mutant.file
    text = path.read_text() if path.is_file() else ""
    number = text.count(mutant.before)
    if number != 1 or mutant.before == mutant.after:
        raise StaleError(
            f"stale mutant ({mutant.why}): its text occurs {number} times in {mutant.file}, it "
            f"must occur once and change: {mutant.before!r}"
        )
    return text.replace(mutant.before, mutant.after)


def copies(root: Path, folder: Path, number: int) -> list[Path]:
    """So many copies of what the tests need, with bytecode that follows the text of its source."""
    first, *others = [folder / str(i) for i in range(number)]
    first.mkdir()
    for name in COPIED:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, first / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.is_file():
            shutil.copy2(source, first / name)
    # by times alone, a file that is changed and restored within a second would keep its bytecode
    by_text = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(first / "fedclust", quiet=1, invalidation_mode=by_text)
    for other in others:
        shutil.copytree(first, other)
    return [first, *others]


def start(task: Task, root: Path, copy: Path) -> int:
    """A process that runs the tests against a copy of `root`; returns its number."""
    if task.mutant:
        (copy / task.mutant.file).write_text(mutated(task.mutant, root))
    if pid := os.fork():
        return pid
    status = 70
    try:
        with copy.with_suffix(".log").open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        status = _tested(task.tests, root, copy)
    finally:
        os._exit(status)


def _tested(tests: Sequence[str], root: Path, copy: Path) -> int:
    """The exit status of pytest, in a process of its own."""
    import pytest

    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)
    os.environ.pop("CI", None)  # where a skipped test would fail, and kill
    for name, module in list(sys.modules.items()):
        where = getattr(module, "__file__", None) or ""
        if name.split(".")[0] == "fedclust" or where.startswith(f"{root}/tests/"):
            del sys.modules[name]
    # an environment may lie in the checkout
    outside = [p for p in sys.path if p.startswith(sys.prefix) or not _is_below(p, root)]
    sys.path[:] = [str(copy), *outside]
    package = importlib.import_module("fedclust")
    assert Path(str(package.__file__)).is_relative_to(copy), package.__file__
    options = ["-x", "-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist"]
    return int(pytest.main([*options, f"--rootdir={copy}", *tests]))


def _is_below(path: str, root: Path) -> bool:
    """Whether an entry of sys.path, "" for the current folder, lies in a folder."""
    return Path(path or ".").absolute().is_relative_to(root)


def trials(tasks: Sequence[Task], root: Path, at: Sequence[Path]) -> Iterator[Trial]:
    """The tasks as they end, as many at once as there are copies of `root`."""
    waiting, free = deque(tasks), list(at)
    running: dict[int, tuple[Task, Path, float]] = {}
    try:
        while waiting or running:
            while waiting and free:
                task, copy = waiting.popleft(), free.pop()
                running[start(task, root, copy)] = task, copy, time.monotonic()
            pid, status = _first_end(running)
            task, copy, began = running.pop(pid)
            if task.mutant:
                shutil.copy2(root / task.mutant.file, copy / task.mutant.file)
            free.append(copy)
            said = copy.with_suffix(".log").read_text(errors="replace")
            yield Trial(task, status, time.monotonic() - began, said)
    finally:
        for pid in running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _first_end(pids: Iterable[int]) -> tuple[int, int]:
    """Number and status of the first of these processes that ends; no other child is waited for."""
    while True:
        for pid in pids:
            ended, code = os.waitpid(pid, os.WNOHANG)
            if ended:
                status = os.waitstatus_to_exitcode(code)
                return pid, status if status >= 0 else 128 - status
        time.sleep(0.01)


def shared_out(mutants: Sequence[Mutant], parts: int) -> list[tuple[str, ...]]:
    """All tests that the mutants name, in so many parts at most; a file's tests stay together."""
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    files = list(dict.fromkeys(test.split("::")[0] for test in tests))
    found = [
        tuple(test for test in tests if test.split("::")[0] in files[part::parts])
        for part in range(parts)
    ]
    return [part for part in found if part]


def survey(mutants: Sequence[Mutant], root: Path, jobs: int) -> float:
    """The share of the mutants that are killed; prints what becomes of each.

    Raises:
        StaleError: a mutant is stale, or its tests cannot tell.
    """
    for mutant in mutants:
        mutated(mutant, root)
    survivors = list[Mutant]()
    with tempfile.TemporaryDirectory() as folder:
        at = copies(root, Path(folder), jobs)
        for trial in trials([Task(tests) for tests in shared_out(mutants, jobs)], root, at):
            if trial.status:
                raise StaleError(f"without any mutant the tests must pass:\n{trial.said}")
        for trial in trials([Task(mutant.tests, mutant) for mutant in mutants], root, at):
            mutant = cast(Mutant, trial.task.mutant)
            if trial.status and not trial.killed:
                raise StaleError(f"the tests cannot be run: {mutant.name}\n{trial.said}")
            end = "killed" if trial.killed else "ALIVE"
            print(f"{end:6}  {trial.seconds:4.1f} s  {mutant.name}", flush=True)
            survivors += [] if trial.killed else [mutant]
    for mutant in survivors:
        print(f"\nalive: {mutant.name}\n  {mutant.before!r}\n  {mutant.after!r}")
        print(f"  not noticed by {' '.join(mutant.tests)}")
    return 1 - len(survivors) / len(mutants)


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Try all mutants; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--list", type=Path, default=LIST)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--one-in", type=int, default=1, help="1: all")
    given = parser.parse_args(arguments)
    began = time.monotonic()
    try:
        mutants = one_in(read_list(given.list, given.words), given.one_in, root)
        share = survey(mutants, root, min(given.jobs, len(mutants)))
    except StaleError as error:
        print(error)
        return 2
    print(
        f"{round(share * len(mutants))} of {len(mutants)} mutants killed: {share:.1%}, "
        f"at least {LEAST:.0%} must be; {time.monotonic() - began:.0f} s"
    )
    return 0 if share >= LEAST else 1


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # a forked process has no threads
    for module in WARM:
        importlib.import_module(module)
    importlib.import_module("hydra.core.plugins").Plugins.instance()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # its forks end first
    sys.exit(main())
