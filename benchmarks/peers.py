"""One table of fedclust and of how others train, on the same rounds.

    python -m benchmarks.peers [TASK …] [--all] [--minutes 5] [--threads N] [--json FILE] [--quick]

Tasks are the rounds of W1 to W4 and W7, and on images of CIFAR-10's shape a convolutional network
with Adam (`CNN`) and ResNet-18 with batch normalisation and Adam (`ResNet-18`), both with 20
participants. The examples are random: rates do not depend on what they show.

Without a task, W1, W2, W4 and CNN are measured, and nothing is begun after five minutes. What is
left out is named. `--all` measures all tasks, however long it takes; tasks that are named are
measured to their end too. Every line of the table is printed when its task is done; on the way
stderr says which program plays.

Every program has a process of its own and plays the same round over and over, from the same models
and with the same batches (`benchmarks/against/turns.py`); they take turns, and never play at the
same time. What each makes of the round is compared with the plain loop's: a program that computes
something else is named, its task left out, and the exit status 1. A program that is not done with
its first round after `--patience` seconds is ended, and the table says so. Programs whose
environment does not exist are left out, and named.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.status import Status
from torch import nn
from torch.nn import functional

from benchmarks.against.fedclust_worker import shards_of, solver_of
from benchmarks.against.networks import build, resnet18
from benchmarks.against.task import Layer, Task
from benchmarks.against.turns import Given
from benchmarks.compare import python_of, title_of
from benchmarks.workloads import WORKLOADS, synthetic_pool
from fedclust.engines.schedule import schedule

_ROOT = Path(__file__).resolve().parent.parent
_CNN: tuple[
    Layer, ...
] = (  # of McMahan et al. (arXiv 1602.05629) as PFLlib has it, without padding
    *(("conv", (3, 32, 5, 0)), ("relu", ()), ("pool", ())),
    *(("conv", (32, 64, 5, 0)), ("relu", ()), ("pool", ())),
    *(("flatten", ()), ("linear", (1600, 512)), ("relu", ()), ("linear", (512, 10))),
)
_WITH_ADAM = Task(
    name="CNN",
    shape=(3, 32, 32),
    classes=10,
    layers=_CNN,
    clients=20,
    population=100,
    examples=50,
    epochs=1,
    batch=10,
    lr=0.001,
    optimizer="adam",
)
TASKS: Mapping[str, Task] = {
    **{w.name: w.rounds.task(w.name) for w in WORKLOADS if w.rounds is not None},
    "CNN": _WITH_ADAM,
    "ResNet-18": replace(
        _WITH_ADAM, name="ResNet-18", layers=resnet18([64, 128, 256, 512], 10), examples=10, batch=5
    ),
}
SHORT = ("W1", "W2", "W4", "CNN")  # a minute each; a round of the others takes many times as long
MINUTES = 5.0  # for these
_MOST = 10_000  # examples in memory; more clients share them
# of the plain loop's update, and of what it takes off the loss, that a program may differ by;
# rounding puts some inputs on the other side of a ReLU, or of a pooling window: in W3 the plain
# loop itself is 0.23 % from float64; a step of Adam turns with the sign of a gradient, however
# small, and rounding turns some
UPDATE = {"sgd": 5e-3, "adam": 0.3}
LOSS = 0.01
_TURNS = 3
_PAUSE = 0.05  # seconds between turns, until the threads of the one before have gone to sleep


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A program that plays rounds.

    Attributes:
        name: of its results and, where its program has several ways, of the way.
        title: in the table.
        module: of `benchmarks.against`.
        way: whether the program is given the name.
        environment: that it needs, see `python_of`; None for this one.
        processes: whether it is one process of one thread for every core, instead of threads.
    """

    name: str
    title: str
    module: str
    way: bool = False
    environment: str | None = None
    processes: bool = False

    @property
    def python(self) -> Path:
        """The interpreter."""
        return Path(sys.executable) if self.environment is None else python_of(self.environment)

    def command(self, folder: Path, threads: int) -> list[str]:
        """How it is started."""
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={threads}"]
        start = torchrun if self.processes and threads > 1 else []
        given = [str(folder), *([self.name] if self.way else [])]
        return [str(self.python), *start, "-m", f"benchmarks.against.{self.module}", *given]


ARMS = (
    Arm(name="fedclust", title="fedclust", module="fedclust_worker"),
    Arm(name="indexed", title="plain loop", module="loop_worker", way=True),
    Arm(name="pfllib", title="PFLlib's way", module="loop_worker", way=True),
    Arm(name="flbench", title="FL-bench's way", module="loop_worker", way=True),
    Arm(name="pfl", title="pfl-research", module="pfl_turns", environment="pfl", processes=True),
    Arm(name="jax_jit", title="JAX, jit", module="jax_worker", way=True, environment="jax"),
    Arm(name="jax_vmap", title="JAX, vmap", module="jax_worker", way=True, environment="jax"),
)
_REFERENCE = "indexed"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A program on a task.

    Attributes:
        task, arm: names.
        late: whether its first round was not done in time; the other numbers are NaN then.
        rate: local steps of all participants per second, median over rounds.
        rounds: that the median is over.
        peak_mib: highest resident memory; of several processes the sum.
        start: seconds from the start of the process to the end of its first round, less a later
            round: imports, data, set-up, compiling.
        compiling: seconds of it that were spent on compiling ahead, where a program does.
        loss: mean over the participants' examples under the averaged models of the round, nats.
        update: distance of the averaged models from the plain loop's, over the length of its
            update.
        version: of what computed.
    """

    task: str
    arm: str
    late: bool = False
    rate: float = float("nan")
    rounds: int = 0
    peak_mib: float = float("nan")
    start: float = float("nan")
    compiling: float = float("nan")
    loss: float = float("nan")
    update: float = float("nan")
    version: str = ""


def quick(task: Task) -> Task:
    """A few steps of two participants."""
    batch = None if task.batch is None else 2
    return replace(task, clients=2, population=2, examples=4, epochs=1, batch=batch)


def given_of(task: Task) -> Given:
    """Examples, batches and models of a round.

    Participants are spread over the population, and share examples where there would be too many.
    """
    count = min(_MOST, task.population * task.examples) // task.examples * task.examples
    pool = synthetic_pool(count, task.shape, torch.device("cpu"))
    spread = torch.arange(task.clients) * (count // task.examples) // task.clients
    clients = spread.unsqueeze(1) * task.examples + torch.arange(task.examples)
    torch.manual_seed(0)
    start = [
        nn.utils.parameters_to_vector(build(task.layers).parameters()) for _ in range(task.models)
    ]
    return Given(
        task=task,
        x=pool.x.numpy(),
        y=pool.y.numpy(),
        clients=clients.numpy(),
        order=schedule(shards_of(clients), solver_of(task)).position.numpy(),
        start=torch.stack(start).detach().numpy(),
    )


@torch.no_grad()
def loss_of(given: Given, models: NDArray[np.float32]) -> float:
    """Mean cross-entropy of the participants' examples, nats: each participant under the model that
    fits it best, normalised by all of its examples where the model normalises.
    """
    model = build(given.task.layers)
    x, y = torch.from_numpy(given.inputs()), torch.from_numpy(given.y)
    losses = torch.empty(len(models), len(given.clients))
    for k, flat in enumerate(torch.from_numpy(models)):
        nn.utils.vector_to_parameters(flat.clone(), model.parameters())
        for c, rows in enumerate(torch.from_numpy(given.clients)):
            losses[k, c] = functional.cross_entropy(model(x[rows]), y[rows])
    return float(losses.amin(0).mean())


class Agreement(NamedTuple):
    """See `Row`."""

    loss: float
    update: float


def agreement(given: Given, models: Mapping[str, NDArray[np.float32]]) -> dict[str, Agreement]:
    """How the averaged models [K, P] of every program compare with the plain loop's.

    Raises:
        RuntimeError: where a program computed something else.
    """
    reference, optimizer = models[_REFERENCE], given.task.optimizer
    before, after = loss_of(given, given.start), loss_of(given, reference)
    length = float(np.linalg.norm(reference - given.start))
    found = {}
    for name, made in models.items():
        now = Agreement(loss_of(given, made), float(np.linalg.norm(made - reference)) / length)
        same = abs(now.loss - after) <= LOSS * abs(before - after)
        if not (same and now.update <= UPDATE[optimizer]):
            raise RuntimeError(
                f"{given.task.name}: {name} computes something else: loss {now.loss:.6f} instead "
                f"of {after:.6f} (from {before:.6f}), models {now.update:.1%} of the update apart"
            )
        found[name] = now
    return found


class OutOfTimeError(Exception):
    """The minutes are over before all programs have played."""


class Player:
    """A program that has been started, from its first round to its end.

    Args:
        command: how it is started.
        environment: its variables.
        patience: seconds that any of its lines may take.
        first: seconds that its first line may take; None for the patience.

    Attributes:
        first: seconds from its start to the end of its first round; None where it took too long.
        rounds: seconds of later ones.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        patience: float,
        first: float | None = None,
    ):
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, it lives as long as the program
        self._command, self._read = command, b""
        began = time.perf_counter()
        self._process = subprocess.Popen(
            command,
            cwd=_ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            start_new_session=True,
        )
        self.rounds: list[float] = []
        self._patience, self.first = patience if first is None else first, None
        try:
            if self._line() is not None:
                self.first = time.perf_counter() - began
            self._patience = patience
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """End it with all that it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()

    def turn(self, seconds: float) -> None:
        """Rounds for so long, at least one."""
        self._tell(f"{seconds}\n".encode())
        answer = self._line()
        if answer is None:
            raise RuntimeError(f"{self._name} took longer than {self._patience:.0f} s for a turn")
        self.rounds += answer["rounds"]

    def finish(self) -> dict[str, Any]:
        """What it says at its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        answer = self._line()
        if answer is None:
            raise RuntimeError(f"{self._name} does not end")
        self._process.wait(timeout=self._patience)
        self.kill()
        return answer

    @property
    def _name(self) -> str:
        return " ".join(self._command[:4]) + " …"

    def _tell(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)

    def _line(self) -> dict[str, Any] | None:
        """Its next line of JSON; None where it does not come in time, which ends it.

        Raises:
            RuntimeError: when it has failed; with the end of what it printed.
        """
        assert self._process.stdout is not None
        until = time.monotonic() + self._patience
        while True:
            line, end, rest = self._read.partition(b"\n")
            if end:
                self._read = rest
                if line.startswith(b"{"):
                    answer: dict[str, Any] = json.loads(line)
                    return answer
                continue
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                self.kill()
                return None
            more = os.read(self._process.stdout.fileno(), 1 << 16)
            if not more:
                self._process.wait()
                self._errors.seek(0)
                said = self._errors.read()[-4000:].decode(errors="replace")
                raise RuntimeError(f"{self._name} failed:\n{said}")
            self._read += more


def variables(threads: int) -> dict[str, str]:
    """The environment of a program that may use so many threads."""
    return {
        **os.environ,
        "PYTHONPATH": str(_ROOT),
        "OMP_NUM_THREADS": str(threads),
        "PFL_PYTORCH_DEVICE": "cpu",
    }


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long programs play.

    Attributes:
        threads: of each, or processes of one thread.
        seconds: that each plays beyond its first round, at least one round.
        patience: seconds for a first round with all that comes before it, and for a turn.
        end: by `time.monotonic`, when all must have played; infinity for no end.
    """

    threads: int
    seconds: float = 1.0
    patience: float = 45.0
    end: float = math.inf

    def left(self) -> float:
        """Seconds that a program may take for its first round.

        Raises:
            OutOfTimeError: if it is too late for another.
        """
        left = self.end - time.monotonic()
        if left <= 0:
            raise OutOfTimeError
        return min(self.patience, left)


def compare(
    task: Task, arms: Sequence[Arm], limits: Limits, tell: Callable[[str], None] = lambda _: None
) -> list[Row]:
    """All programs on a task, in turn.

    Args:
        task: the round.
        arms: the programs, the plain loop among them.
        limits: how long they play.
        tell: hears which program plays.

    Raises:
        OutOfTimeError: if the end comes before all have played.
        RuntimeError: if a program failed, or computed something else.
    """
    given, seconds = given_of(task), limits.seconds
    titles = {arm.name: arm.title for arm in arms}
    players: dict[str, Player] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given.write(folder)
        try:
            for number, arm in enumerate(arms, start=1):
                tell(f"{task.name}: first round of {arm.title} ({number} of {len(arms)})")
                env = variables(1 if arm.processes else limits.threads)
                command = arm.command(folder, limits.threads)
                player = Player(command, env, limits.patience, first=limits.left())
                players[arm.name] = player
                if player.first is None:
                    limits.left()  # late by its patience, or by the end
            playing = {arm: player for arm, player in players.items() if player.first is not None}
            for turn in range(1, _TURNS + 1):
                for arm_name, player in playing.items():
                    if sum(player.rounds) < seconds:  # slow rounds are played once or twice
                        limits.left()
                        tell(f"{task.name}: turn {turn} of {_TURNS}, {titles[arm_name]}")
                        time.sleep(_PAUSE)
                        player.turn(seconds / _TURNS)
            tell(f"{task.name}: whether all have computed the same")
            ends = {arm: player.finish() for arm, player in playing.items()}
        finally:
            for player in players.values():
                player.kill()
        found = agreement(given, {arm: np.load(folder / f"{arm}.npy") for arm in playing})
    return [_row(task, arm, players[arm], ends.get(arm), found.get(arm)) for arm in players]


def _row(
    task: Task, arm: str, player: Player, end: dict[str, Any] | None, found: Agreement | None
) -> Row:
    if player.first is None or end is None or found is None:
        return Row(task=task.name, arm=arm, late=True)
    usual = median(player.rounds)
    return Row(
        task=task.name,
        arm=arm,
        rate=task.round_steps / usual,
        rounds=len(player.rounds),
        start=max(0.0, player.first - usual),
        **end,
        **found._asdict(),
    )


def head_of(arms: Sequence[Arm]) -> str:
    """The head of the table in Markdown: a column for every program."""
    return "| | " + " | ".join(arm.title for arm in arms) + " |\n|---|" + "---:|" * len(arms)


def line_of(rows: Sequence[Row], arms: Sequence[Arm], patience: float) -> str:
    """The line of a task, from the row of every program on it."""
    by_arm = {row.arm: row for row in rows}
    cells = [_cell(by_arm[arm.name], by_arm["fedclust"].rate, patience) for arm in arms]
    return f"| {rows[0].task} | " + " | ".join(cells) + " |"


def _cell(row: Row, ours: float, patience: float) -> str:
    if row.late:
        return f"no round in {patience:.0f} s"
    compiling = f", {row.compiling:.1f} compiling" if row.compiling else ""
    ratio = "" if row.arm == "fedclust" else f" ({ours / row.rate:.3g})"
    rate = f"{row.rate:,.0f}" if row.rate >= 100 else f"{row.rate:.3g}"
    return f"{rate}{ratio}<br>{row.peak_mib:,.0f} MiB<br>{row.start:.1f} s{compiling}"


class Progress:
    """Which program plays: one line that changes on a terminal, else a line for each."""

    def __init__(self, console: Console) -> None:
        self._console, self._began = console, time.monotonic()
        self._status = console.status("") if console.is_terminal else nullcontext()

    def __enter__(self) -> Progress:
        self._status.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._status.__exit__(None, None, None)

    def tell(self, line: str) -> None:
        """Say it, after the time since the beginning."""
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        said = f"{minutes}:{seconds:02} {line}"
        if isinstance(self._status, Status):
            self._status.update(said)
        else:
            self._console.print(said, soft_wrap=True, highlight=False)


def measure(
    tasks: Sequence[Task], arms: Sequence[Arm], limits: Limits, *, file: Path | None, err: Console
) -> int:
    """Print the table, a line as soon as its task is done; returns how many tasks failed.

    Args:
        tasks: one after the other.
        arms: the programs.
        limits: how long they play.
        file: gets the numbers after every task, so that an interrupted program leaves some.
        err: says which program plays, what has failed and what is left out.
    """
    rows: list[Row] = []
    failed = 0
    with Progress(err) as progress:
        for number, task in enumerate(tasks):
            progress.tell(f"{task.name}: {title_of(task)}")
            try:
                found = compare(task, arms, limits, progress.tell)
            except OutOfTimeError:
                names = " ".join(left.name for left in tasks[number:])
                err.print(f"left out: {names}: the minutes are over; --all measures all tasks")
                break
            except RuntimeError as error:  # the other tasks are not wrong for it
                failed += 1
                err.print(f"{task.name}: {error}", markup=False)
                continue
            if not rows:
                print(head_of(arms))
            print(line_of(found, arms, limits.patience), flush=True)
            rows += found
            if file is not None:
                file.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    return failed


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description="fedclust beside other ways to train."
    )
    parser.add_argument(
        "task", nargs="*", help=f"any of {' '.join(TASKS)}; default {' '.join(SHORT)}"
    )
    parser.add_argument("--all", action="store_true", help="all tasks, however long it takes")
    parser.add_argument(
        "--minutes",
        type=float,
        help=f"nothing is begun after these; default {MINUTES:g} where no task is named",
    )
    parser.add_argument("--threads", type=int, help="of every program; default all cores")
    parser.add_argument("--seconds", type=float, default=1.0, help="that each plays; default 1")
    parser.add_argument(
        "--patience", type=float, default=45.0, help="for a first round; default 45"
    )
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument(
        "--quick", action="store_true", help="few steps of two clients: does it work?"
    )
    options = parser.parse_args()
    unknown = sorted(set(options.task) - set(TASKS))
    if unknown:
        parser.error(f"task {unknown[0]} is not one of {' '.join(TASKS)}")
    if options.all and options.task:
        parser.error(f"--all takes no tasks, here {' '.join(options.task)}")
    cores = sorted(os.sched_getaffinity(0))
    threads = options.threads or len(cores)
    if not 1 <= threads <= len(cores):
        parser.error(f"--threads {threads}: this machine has 1 to {len(cores)}")
    os.sched_setaffinity(0, cores[:threads])  # JAX takes as many threads as it may use cores
    torch.set_num_threads(threads)
    arms = [arm for arm in ARMS if arm.python.exists()]
    err = Console(stderr=True)
    for missing in sorted(
        {arm.environment or "" for arm in ARMS} - {a.environment or "" for a in arms}
    ):
        err.print(f"left out: {missing}; make .venv-{missing}/.ready makes its environment")
    names = options.task or (TASKS if options.all else SHORT)
    if rest := [name for name in TASKS if name not in names and not options.task]:
        err.print(f"left out: {' '.join(rest)}; --all measures all tasks")
    short = not options.task and not options.all
    minutes = options.minutes or (MINUTES if short else math.inf)
    limits = Limits(
        threads=threads,
        seconds=options.seconds,
        patience=options.patience,
        end=time.monotonic() + 60 * minutes,
    )
    tasks = [quick(TASKS[name]) if options.quick else TASKS[name] for name in names]
    failed = measure(tasks, arms, limits, file=options.json, err=err)
    if failed:
        sys.exit(f"{failed} of the tasks failed, see above")


if __name__ == "__main__":
    main()
