"""One table of fedclust and of how others train, on the same rounds.

    python -m benchmarks.peers [TASK …] [--threads N] [--seconds 1] [--json FILE] [--quick]

Tasks are the rounds of W1 to W4 and W7, and on images of CIFAR-10's shape a convolutional network
with Adam (`CNN`) and ResNet-18 with batch normalisation and Adam (`ResNet-18`), both with 20
participants. The examples are random: rates do not depend on what they show.

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
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
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


class Player:
    """A program that has been started, from its first round to its end.

    Args:
        command: how it is started.
        environment: its variables.
        patience: seconds that any of its lines may take.

    Attributes:
        first: seconds from its start to the end of its first round; None where it took too long.
        rounds: seconds of later ones.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], patience: float):
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
        self._patience, self.first = patience, None
        try:
            if self._line() is not None:
                self.first = time.perf_counter() - began
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


def compare(
    task: Task, arms: Sequence[Arm], *, threads: int, seconds: float, patience: float
) -> list[Row]:
    """All programs on a task, in turn.

    Args:
        task: the round.
        arms: the programs, the plain loop among them.
        threads: of each, or processes of one thread.
        seconds: that each plays beyond its first round, at least one round.
        patience: seconds for a first round with all that comes before it, and for a turn.
    """
    given = given_of(task)
    players: dict[str, Player] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given.write(folder)
        try:
            for arm in arms:
                env = variables(1 if arm.processes else threads)
                players[arm.name] = Player(arm.command(folder, threads), env, patience)
            playing = {arm: player for arm, player in players.items() if player.first is not None}
            for _ in range(_TURNS):
                for player in playing.values():
                    if sum(player.rounds) < seconds:  # slow rounds are played once or twice
                        time.sleep(_PAUSE)
                        player.turn(seconds / _TURNS)
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


def table_of(rows: Sequence[Row], patience: float) -> str:
    """Markdown: a line for every task, a column for every program."""
    titles = {arm.name: arm.title for arm in ARMS}
    columns = [name for name in titles if any(row.arm == name for row in rows)]
    lines = [
        "| | " + " | ".join(titles[name] for name in columns) + " |",
        "|---|" + "---:|" * len(columns),
    ]
    for task in dict.fromkeys(row.task for row in rows):
        by_arm = {row.arm: row for row in rows if row.task == task}
        ours = by_arm["fedclust"].rate
        cells = [_cell(by_arm[name], ours, patience) for name in columns]
        lines.append(f"| {task} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(row: Row, ours: float, patience: float) -> str:
    if row.late:
        return f"no round in {patience:.0f} s"
    compiling = f", {row.compiling:.1f} compiling" if row.compiling else ""
    ratio = "" if row.arm == "fedclust" else f" ({ours / row.rate:.3g})"
    rate = f"{row.rate:,.0f}" if row.rate >= 100 else f"{row.rate:.3g}"
    return f"{rate}{ratio}<br>{row.peak_mib:,.0f} MiB<br>{row.start:.1f} s{compiling}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description="fedclust beside other ways to train."
    )
    parser.add_argument("task", nargs="*", help=f"any of {' '.join(TASKS)}; default all")
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
    cores = sorted(os.sched_getaffinity(0))
    threads = options.threads or len(cores)
    if not 1 <= threads <= len(cores):
        parser.error(f"--threads {threads}: this machine has 1 to {len(cores)}")
    os.sched_setaffinity(0, cores[:threads])  # JAX takes as many threads as it may use cores
    torch.set_num_threads(threads)
    arms = [arm for arm in ARMS if arm.python.exists()]
    console = Console(stderr=True)
    for missing in sorted(
        {arm.environment or "" for arm in ARMS} - {a.environment or "" for a in arms}
    ):
        console.print(f"left out: {missing}; make .venv-{missing}/.ready makes its environment")
    rows: list[Row] = []
    failed: list[str] = []
    for name in options.task or TASKS:
        task = quick(TASKS[name]) if options.quick else TASKS[name]
        with console.status(f"{name}: {title_of(task)}"):
            try:
                rows += compare(
                    task, arms, threads=threads, seconds=options.seconds, patience=options.patience
                )
            except RuntimeError as error:  # the other tasks are not wrong for it
                failed.append(f"{name}: {error}")
                console.print(failed[-1])
        # after each task, so that an interrupted program leaves some
        if options.json is not None:
            options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    if rows:
        print(table_of(rows, options.patience))
    if failed:
        sys.exit(f"{len(failed)} of the tasks failed, see above")


if __name__ == "__main__":
    main()
