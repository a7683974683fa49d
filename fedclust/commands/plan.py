"""`fedclust plan`: how long jobs will take, and how much memory, from their first rounds."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from fedclust.config.schema import seed_list
from fedclust.helpers.errors import ConfigError
from fedclust.helpers.prose import say
from fedclust.launch.checks import prepared
from fedclust.launch.compose import Command, compose
from fedclust.launch.guard import hydra_of_its_own
from fedclust.launch.typed import Typed, alternatives

_ENOUGH = 10.0  # seconds of rounds
_MOST = 120.0  # seconds of one probe, its start included
_TESTED = 2  # the probe tests every second round, to tell rounds with tests from those without


@dataclass(frozen=True)
class Probe:
    """What the first rounds of a job took.

    Attributes:
        start: seconds until its first round.
        plain, tested: seconds of a round without and with a test, of all seeds together.
        gigabytes: the most memory that its process held.
    """

    start: float
    plain: float
    tested: float
    gigabytes: float

    def seconds(self, rounds: int, eval_every: int) -> float:
        """Those of a whole job; its last round is tested whatever comes before."""
        tests = -(-rounds // eval_every)
        return self.start + (rounds - tests) * self.plain + tests * self.tested


def command(arguments: Sequence[str]) -> None:
    """Run the first rounds of one job for each method, and say what all jobs will take.

    Raises:
        UserError: for what `fedclust run` would refuse.
    """
    typed, console = Typed.of([one for one in arguments if one != "-m"]), Console()
    many = True if "-m" in arguments else None
    asked = Typed(typed.texts, typed.own, many)
    with hydra_of_its_own(asked):
        command = prepared(asked)
    table = Table(
        Column("method", overflow="fold"),
        "jobs",
        "seeds x rounds",
        "a round",
        "with a test",
        "in all",
        "memory",
    )
    total, most = 0.0, 0.0
    for method, jobs, texts in _each(command):
        config = compose(texts, typed.own)
        rounds, every = int(config.rounds), int(config.eval_every)
        say(console, f"{method}: its first rounds …", style="dim")
        frozen = ["report.frozen=null"] if (config.report or {}).get("frozen") else []
        probe = _probed([*texts, *frozen], typed.own)
        seconds = jobs * probe.seconds(rounds, every)
        total, most = total + seconds, max(most, probe.gigabytes)
        table.add_row(
            method,
            f"{jobs}",
            f"{len(seed_list(config.seeds))} x {rounds}",
            f"{probe.plain:.2g} s",
            f"{probe.tested:.2g} s",
            _duration(seconds),
            f"{probe.gigabytes:.1f} GB",
        )
    console.print(table)
    say(
        console,
        f"about {_duration(total)} and {most:.1f} GB of memory on this machine, as busy as it is "
        "now, one job after the other, reports not counted; later rounds may take longer, as when "
        "a method clusters in one",
    )


def _each(command: Command) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Every method of a command, how many jobs it has, and the overrides of the first of these."""
    whole = command.whole.latest() if command.many else command.typed.latest()
    several = {key: alternatives(one) for key, one in whole.last.items() if one.is_sweep_override()}
    first = {key: values[0] for key, values in several.items()}
    methods = several.get("algorithm") or [command.config.hydra.runtime.choices.algorithm]
    jobs = 1
    for key, values in several.items():
        jobs *= 1 if key == "algorithm" else len(values)
    for method in methods:
        one = first | {"algorithm": method}
        texts = (
            f"{key}={one[key]}" if key in first else text
            for key, text in zip(whole.keys, whole.texts, strict=True)
        )
        yield str(method), jobs, (*texts, "hydra.mode=RUN")


def _probed(texts: Sequence[str], own: Path | None) -> Probe:
    """Run a job in a folder that is removed afterwards, and stop it as Ctrl-C does."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, said = Path(scratch) / "job", Path(scratch) / "said"
        told = [*texts, f"eval_every={_TESTED}", "progress=false"]
        where = [f"hydra.run.dir={folder}", *(["--config-dir", str(own)] if own else [])]
        began = time.monotonic()
        with said.open("wb") as output:
            child = subprocess.Popen(
                [sys.executable, "-m", "fedclust", "run", *told, *where],
                stdout=output,
                stderr=output,
            )
            first = _wait(child, folder / "federation.json", began + _MOST)
            _wait(child, None, min(first + _ENOUGH, began + _MOST))
            os.kill(child.pid, signal.SIGINT)  # as it is not waited for, its number is its own
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        took = time.monotonic() - began
        if not (folder / "rounds.csv").is_file():
            line = said.read_text(errors="replace").strip().splitlines()[-1:] or ["no round ended"]
            raise ConfigError(line[0].removeprefix("fedclust: "))
        plain, tested = _rounds(folder / "rounds.csv")
    every = [*plain, *tested]
    # the first round also warms up what later ones find ready
    rest = plain[1:] or plain or tested
    scale = 1 if sys.platform == "darwin" else 1024
    return Probe(
        start=max(took - sum(every), 0.0),
        plain=sorted(rest)[len(rest) // 2],
        tested=sorted(tested or rest)[len(tested or rest) // 2],
        gigabytes=usage.ru_maxrss * scale / 1e9,
    )


def _wait(child: subprocess.Popen[bytes], file: Path | None, until: float) -> float:
    """Wait until a file is there, the child has ended or the time has come; returns when."""
    while time.monotonic() < until and not (file and file.exists()):
        if os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            break
        time.sleep(0.05)
    return time.monotonic()


def _rounds(file: Path) -> tuple[list[float], list[float]]:
    """The seconds of the rounds without and with a test, of all seeds together, in their order."""
    seconds: dict[int, float] = defaultdict(float)
    tested = set()
    with file.open(newline="") as lines:
        for row in csv.DictReader(lines):
            if row["metric"] == "seconds":
                seconds[int(row["round"])] += float(row["value"])
            elif row["metric"] == "test_loss":
                tested.add(int(row["round"]))
    both: tuple[list[float], list[float]] = ([], [])
    for t, value in sorted(seconds.items()):
        both[t in tested].append(value)
    return both


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{seconds / 3600:.1f} h"
