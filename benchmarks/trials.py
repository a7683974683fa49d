"""How much faster the trials of a batch are together than one after the other.

python -m benchmarks.trials [small mlp cnn …] [--device cpu|cuda] [--seconds 5]

A batch is that of `fedclust tune`: eight trials of FedAvg, each with a learning rate of its own, on
three seeds: 80 clients of which 20 are sampled per round, on random bytes of an image's shape. Both
ways take turns; shown are medians of a round of all trials.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.workloads import synthetic_pool
from fedclust.algorithms.fedavg import FedAvg
from fedclust.config.job import Job
from fedclust.core.types import Federation, Split
from fedclust.engines import make_engine
from fedclust.engines.lockstep import Lockstep
from fedclust.models.cnn import cnn
from fedclust.models.mlp import mlp
from fedclust.models.sequence import Model
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.progress import Silent
from fedclust.runtime.run import run
from fedclust.scenarios.static import Static
from fedclust.solver import Solver
from fedclust.trackers.none import NoTracker

_TRIALS, _SEEDS, _CLIENTS, _COHORT, _ROUNDS = 8, 3, 80, 20, 10
_POOL = 20_000


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is trained.

    Attributes:
        model: makes the network for a shape and a number of classes.
        shape: of an image.
        examples: of a client.
        solver: all but the learning rate.
    """

    model: Callable[[tuple[int, ...], int], Model]
    shape: tuple[int, ...]
    examples: int
    solver: Solver


_PASS = Solver(lr=0.05, batch_size=20, epochs=1)
_MNIST = (1, 28, 28)
CASES: Mapping[str, Case] = {
    "small": Case(model=partial(mlp, hidden=[16]), shape=(1, 8, 8), examples=40, solver=_PASS),
    "regression": Case(
        model=partial(mlp, hidden=[]),
        shape=_MNIST,
        examples=40,
        solver=replace(_PASS, epochs=5),
    ),
    "mlp": Case(model=partial(mlp, hidden=[200]), shape=_MNIST, examples=40, solver=_PASS),
    "proximal": Case(
        model=partial(mlp, hidden=[64]),
        shape=_MNIST,
        examples=40,
        solver=replace(_PASS, proximal=0.1),
    ),
    "cnn": Case(
        model=partial(cnn, channels=[4, 8], kernel=5, padding=2, hidden=[32]),
        shape=_MNIST,
        examples=20,
        solver=_PASS,
    ),
}


def jobs_of(case: Case, device: torch.device) -> list[Job]:
    """The trials of a batch, on one engine."""
    pool = synthetic_pool(_POOL, case.shape, device)
    engine = Lockstep(make_engine("auto", case.model(pool.shape, pool.num_classes), pool))
    federations = {}
    for seed in range(_SEEDS):
        draw = torch.Generator().manual_seed(seed)
        splits = {}
        for name, each in (("train", case.examples), ("test", case.examples // 4)):
            index = torch.randint(0, _POOL, (_CLIENTS * each,), generator=draw, dtype=torch.int32)
            start = torch.arange(0, _CLIENTS * each + 1, each)
            splits[name] = Split(index=index, start=start).to(device)
        group = torch.zeros(_CLIENTS, dtype=torch.int64, device=device)
        federations[seed] = Federation(pool=pool, group=group, **splits)
    return [
        Job(
            algorithm=FedAvg(solver=replace(case.solver, lr=0.01 * 1.5**number)),
            scenario=Static(clients_per_round=_COHORT),
            tracker=NoTracker(),
            engine=engine,
            federations=federations,
            rounds=_ROUNDS,
            eval_every=_ROUNDS,
            checkpoint_seconds=3600.0,
            versions={},
        )
        for number in range(_TRIALS)
    ]


def seconds_of(jobs: Sequence[Job]) -> float:
    """Time of jobs in lockstep, from their first file to their last."""
    engine = jobs[0].engine
    assert isinstance(engine, Lockstep)
    with tempfile.TemporaryDirectory() as where:
        work = {
            number: partial(run, job, RunFolder(Path(where, f"{number}"), {}), Silent())
            for number, job in enumerate(jobs)
        }
        began = time.perf_counter()
        turns = engine.map(work)
        took = time.perf_counter() - began
    for turn in turns.values():
        if isinstance(turn.outcome, Exception):
            raise turn.outcome
    return took


def compare(case: Case, device: torch.device, seconds: float) -> tuple[float, float]:
    """Seconds of a batch one after the other, and together."""
    jobs = jobs_of(case, device)
    seconds_of(jobs)  # makes room and compiles
    apart, together = list[float](), list[float]()
    began = time.perf_counter()
    while not apart or time.perf_counter() - began < seconds:
        apart.append(sum(seconds_of([job]) for job in jobs))
        together.append(seconds_of(jobs))
    return median(apart), median(together)


def main() -> None:
    """Measure the chosen cases and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.trials", description="Trials together and one after the other."
    )
    parser.add_argument("case", nargs="*", help=f"any of {' '.join(CASES)}; default all")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=5.0, help="time per case; default 5")
    options = parser.parse_args()
    unknown = sorted(set(options.case) - set(CASES))
    if unknown:
        parser.error(f"{unknown[0]} is not one of {' '.join(CASES)}")
    device = torch.device(options.device)
    title = f"a round of {_TRIALS} trials on {_SEEDS} seeds, {device}"
    if device.type == "cpu":
        title += f", {torch.get_num_threads()} threads"
    shown = Table(title=title)
    for name in ("case", "parameters", "one after the other, ms", "together, ms", "times as fast"):
        shown.add_column(name, justify="left" if name == "case" else "right")
    for name in options.case or CASES:
        case = CASES[name]
        apart, together = compare(case, device, options.seconds)
        size = sum(p.numel() for p in case.model(case.shape, 10).parameters())
        cells = (f"{1000 * value / _ROUNDS:,.1f}" for value in (apart, together))
        shown.add_row(name, f"{size:,}", *cells, f"{apart / together:.2f}")
    Console().print(shown)


if __name__ == "__main__":
    main()
