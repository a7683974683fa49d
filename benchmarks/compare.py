"""fedclust beside another simulator on the same rounds, one after the other and never at the same
time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from benchmarks.against.task import Measured, Task
from benchmarks.measure import seconds_of
from benchmarks.workloads import Workload
from fedclust.helpers.scratch import scratch

_ROOT = Path(__file__).resolve().parent.parent
OTHERS = ("pfl", "flower")
_PATIENCE = 600.0  # seconds for what is not measured: start, set-up, first rounds


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Client steps per second of whole rounds, on one workload.

    Attributes:
        workload: its name.
        title: what a round is.
        engine: of fedclust.
        threads: of fedclust, one process.
        rate: client steps per second of fedclust, median over the rounds before and after the
            other's.
        before, after: the same over either half; their difference says how restless the machine
            was.
        rounds: that `rate` is over.
        other: name and version of the other simulator.
        other_rate: its client steps per second, median over rounds.
        other_rounds: that the median is over.
        other_processes, other_threads: which train clients at the same time, and threads of each.
        ratio: rate / other_rate.
        whole_seconds, other_whole_seconds: time of all of the workload, where its size is given.
    """

    workload: str
    title: str
    engine: str
    threads: int
    rate: float
    before: float
    after: float
    rounds: int
    other: str
    other_rate: float
    other_rounds: int
    other_processes: int
    other_threads: int
    ratio: float
    whole_seconds: float | None
    other_whole_seconds: float | None


def python_of(other: str) -> Path:
    """The interpreter of the other simulator's environment."""
    return _ROOT / f".venv-{other}" / "bin" / "python"


def command(other: str, task: Task, seconds: float, processes: int) -> list[str]:
    """How the other simulator's program is started."""
    python, given = str(python_of(other)), [task.to_json(), str(seconds)]
    if other == "flower":
        return [python, "-m", "benchmarks.against.flower_worker", *given, str(processes)]
    start = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    return [
        python,
        *(start if processes > 1 else []),
        "-m",
        "benchmarks.against.pfl_worker",
        *given,
    ]


def title_of(task: Task) -> str:
    """What a round is, in words."""
    of = "" if task.population == task.clients else f" of {task.population}"
    batch = "full batches" if task.batch is None else f"B={task.batch}"
    choice = "" if task.models == 1 else f", k={task.models}"
    return f"{task.clients}{of} clients x {task.examples}, {task.epochs} epochs, {batch}{choice}"


def _environment(folder: Path) -> Mapping[str, str]:
    """One thread per process, the CPU, this folder's `benchmarks`, and a folder for what is
    temporary: torchrun leaves one for logs after every start.
    """
    return {
        **os.environ,
        "TMPDIR": str(folder),
        "PYTHONPATH": str(_ROOT),
        "OMP_NUM_THREADS": "1",
        "PFL_PYTORCH_DEVICE": "cpu",
    }


def _run(other: str, task: Task, seconds: float, processes: int) -> Measured:
    """What the other simulator's program measures.

    Raises:
        RuntimeError: when it fails or hangs; with the end of what it printed.
    """
    try:
        return Measured.from_output(
            _output(command(other, task, seconds, processes), _PATIENCE + 20 * seconds)
        )
    except RuntimeError as error:
        raise RuntimeError(f"{other} on {task.name}: {error}") from None


def _output(arguments: Sequence[str], patience: float) -> str:
    """What a program prints; after `patience` seconds it and all that it has started are ended."""
    with (
        scratch() as folder,
        subprocess.Popen(
            arguments,
            cwd=_ROOT,
            env=_environment(folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as program,
    ):
        try:
            out, err = program.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            late = f"{' '.join(arguments[:4])} … took longer than {patience:.0f} s"
            raise RuntimeError(late) from None
        except BaseException:  # Ctrl-C reaches this process alone
            os.killpg(program.pid, signal.SIGKILL)
            raise
    if program.returncode:
        raise RuntimeError(f"{' '.join(arguments[:4])} … failed:\n{err[-4000:]}")
    return out


def _rates(play: Callable[[], object], units: int, seconds: float) -> list[float]:
    """Units per second of at least two rounds, for at least `seconds`, after one that does not
    count.
    """
    cpu = torch.device("cpu")
    rates: list[float] = []
    play()
    began = time.perf_counter()
    while len(rates) < 2 or time.perf_counter() - began < seconds:
        rates.append(units / seconds_of(play, cpu))
    return rates


def compare(workload: Workload, other: str, engine: str, seconds: float) -> Comparison:
    """Half of fedclust's rounds, then the other simulator's, then fedclust's other half; on the
    CPU.
    """
    assert workload.rounds is not None, "a workload that others can run"
    task = workload.rounds.task(workload.name)
    play = workload.rounds(engine, torch.device("cpu"))
    threads = torch.get_num_threads()
    before = _rates(play, task.round_steps, seconds / 2)
    measured = _run(other, task, seconds, min(threads, task.clients))
    after = _rates(play, task.round_steps, seconds / 2)
    rate = median(before + after)
    total = workload.total
    return Comparison(
        workload=workload.name,
        title=title_of(task),
        engine=engine,
        threads=threads,
        rate=rate,
        before=median(before),
        after=median(after),
        rounds=len(before + after),
        other=measured.version,
        other_rate=measured.rate,
        other_rounds=measured.rounds,
        other_processes=measured.processes,
        other_threads=measured.threads,
        ratio=rate / measured.rate,
        whole_seconds=None if total is None else total / rate,
        other_whole_seconds=None if total is None else total / measured.rate,
    )


def check_environment(other: str) -> None:
    """Ends the program, saying what to do, where the other simulator's environment is missing."""
    if not python_of(other).exists():
        sys.exit(f"{other} needs an environment of its own: run make .venv-{other}/.ready")
