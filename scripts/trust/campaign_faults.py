"""Faults on purpose: what a job does when it is killed, its files are damaged or its machine fails.

python scripts/trust/campaign_faults.py [--quick] [--of-each N] [--only PART …] [--seconds N]
                                        [--workers N]

Every case runs jobs in forked processes, which share one import and one set of data; only what a
launcher starts imports everything anew. A case ends in one of these ways:

    survived   the job ends with the bits of one that nothing happened to; a value was accepted
    refused    one line, and nothing is overwritten; or the numbers are shown with a warning
    wrong      other numbers without a word, or nonsense that was accepted
    crashed    the process ended in any other way

What was tried is kept in a folder, and a campaign that is started again goes on behind it. Prints a
table, and exits with status 1 if any case ended wrong or crashed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path

import torch
from faults.case import ENDS, Case
from faults.jobs import CHEAP, JOBS, job_of

import fedclust.launch.command
import fedclust.report.terminal  # noqa: F401 - what every process needs is imported here, once
from fedclust.helpers.scratch import scratch

PARTS: Mapping[str, Callable[[bool], Iterator[Case]]] = {
    name: import_module(f"faults.{name}").cases
    for name in (
        *("kills", "damages", "machine", "inputs", "data", "owned", "models", "modules"),
        *("tampering", "sweeps", "edges", "tables", "file_systems", "pairs"),
    )
}


def try_all(cases: Iterator[Case], kept: Path, known: set[tuple[str, str]], until: float) -> bool:
    """Try every case that was not tried before, and keep how it ended.

    Args:
        cases: all of them.
        kept: the file to add a line to for each.
        known: part and name of those that were tried before.
        until: when to stop, by the monotonic clock.

    Returns:
        Whether there was time for all.
    """
    with kept.open("a") as file:
        for case in cases:
            if (case.part, case.name) in known:
                continue
            if time.monotonic() > until:
                return False
            with tempfile.TemporaryDirectory() as folder:
                try:
                    end, said = case.work(Path(folder))
                except Exception as error:  # the case itself failed; nothing has been shown
                    end, said = "crashed", f"{type(error).__name__}: {error}"
            row = {"part": case.part, "name": case.name, "end": end, "said": said}
            file.write(json.dumps(row) + "\n")
            file.flush()
            if end in ("wrong", "crashed"):
                print(f"{end}: {case.part}: {case.name}: {said}", flush=True)
    return True


def spread(cases: Iterator[Case], most: int) -> Iterator[Case]:
    """At most so many cases of each kind of fault, spread over those there are."""
    kinds: dict[str, list[Case]] = {}
    for case in cases:
        kinds.setdefault(case.part, []).append(case)
    for kind in kinds.values():
        yield from kind[:: -(-len(kind) // most)]


def share(cases: Iterator[Case], worker: int, workers: int) -> Iterator[Case]:
    """The cases of one of several workers."""
    return (case for i, case in enumerate(cases) if i % workers == worker)


def tried_in(folder: Path, parts: Sequence[str]) -> list[dict[str, str]]:
    """What was tried so far of some parts, in the order of the parts."""
    files = (file for part in parts for file in sorted(folder.glob(f"{part}-*.jsonl")))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def table(tried: Sequence[Mapping[str, str]]) -> str:
    """How the cases of every part ended, as Markdown."""
    heads = ("tried", *ENDS)
    lines = ["| fault | " + " | ".join(heads) + " |", "|" + " ---: |" * (len(heads) + 1)]
    for part in [*dict.fromkeys(row["part"] for row in tried), "all"]:
        ends = Counter(row["end"] for row in tried if part in (row["part"], "all"))
        counts = " | ".join(str(ends[end]) for end in ENDS)
        lines.append(f"| {part} | {sum(ends.values())} | {counts} |")
    return "\n".join(lines).replace("| ---: |", "| --- |", 1)


def work(given: argparse.Namespace, worker: int, until: float) -> int:
    """Try one worker's share of all parts; 1 if the time was too short, else 0."""
    known = {(row["part"], row["name"]) for row in tried_in(given.folder, given.only)}
    for part in given.only:
        chosen = PARTS[part](given.quick)
        chosen = spread(chosen, given.of_each) if given.of_each else chosen
        cases = share(chosen, worker, given.workers)
        kept = given.folder / f"{part}-{worker}.jsonl"
        if not try_all(cases, kept, known, until):
            return 1
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign; returns the exit status."""
    with scratch() as folder:  # also for what killed processes leave
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a part of all cases, ten minutes")
    parser.add_argument("--of-each", type=int, help="cases of every kind of fault, at most")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--workers", type=int, default=1, help="cases tried at the same time")
    parser.add_argument("--folder", type=Path, help="outputs/faults, or outputs/faults-quick")
    given = parser.parse_args(arguments)
    given.folder = given.folder or Path("outputs", "faults-quick" if given.quick else "faults")
    torch.set_num_threads(1)  # a forked process has no threads
    for name in CHEAP if given.quick else JOBS:
        job_of(name)  # before anything forks
    given.folder.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + given.seconds
    pids = []
    for worker in range(given.workers):
        pid = os.fork()
        if pid == 0:
            status = 2
            try:
                status = work(given, worker, until)
            finally:
                sys.stdout.flush()
                os._exit(status)
        pids.append(pid)
    ended = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    tried = tried_in(given.folder, given.only)
    (given.folder / "table.md").write_text(table(tried) + "\n")
    print(table(tried))
    if 1 in ended:
        print("out of time; the same command goes on")
    bad = any(row["end"] in ("wrong", "crashed") for row in tried)
    return 1 if bad or not set(ended) <= {0, 1} else 0


if __name__ == "__main__":
    sys.exit(main())
