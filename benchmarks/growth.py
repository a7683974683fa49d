"""How time and memory grow, a process per point so that its memory is its own.

python -m benchmarks.growth [clients cohort large model seeds landmarks …] [--seconds 20]

Every point is a whole job with its files: FedAvg with one local epoch on random bytes of MNIST's
shape, 20 examples and 2 test examples a client, tested once at the end. Time is the median over
rounds but the first and the last; memory is the largest the process ever was, everything included.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.workloads import synthetic_pool
from fedclust.algorithms.fedavg import FedAvg
from fedclust.cluster_metrics.loss import Loss
from fedclust.config.job import Job
from fedclust.core.front import Train
from fedclust.core.types import Federation, Split
from fedclust.engines import make_engine
from fedclust.engines.clients import SeedClients
from fedclust.helpers.rng import Stream
from fedclust.models.mlp import mlp
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.progress import Silent
from fedclust.runtime.run import run
from fedclust.scenarios.static import Static
from fedclust.solver import Solver
from fedclust.trackers.none import NoTracker

_EXAMPLES, _TESTS, _POOL = 20, 2, 20_000


@dataclass(frozen=True, kw_only=True)
class Point:
    """One job.

    Attributes:
        clients: M.
        cohort: clients of a round.
        hidden: width of the hidden layer of 784-h-10; 0 for 784-10.
        seeds: seeds in lockstep.
        landmarks: None, or how many clients' examples the loss metric compares all of the M models
            on; it is timed in place of rounds then, 0 meaning all clients.
    """

    clients: int = 1000
    cohort: int = 20
    hidden: int = 64
    seeds: int = 1
    landmarks: int | None = None


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a point took.

    Attributes:
        seconds: per round, or of the metric.
        peak_mib: largest resident memory of the process, MiB.
        setup_seconds: everything before round 0 but the import of Python modules.
    """

    seconds: float
    peak_mib: float
    setup_seconds: float


AXES: Mapping[str, Sequence[Point]] = {
    "clients": [Point(clients=m, cohort=100) for m in (1_000, 10_000, 100_000, 1_000_000)]
    + [Point(clients=100_000, cohort=1_000)],
    "cohort": [Point(clients=10_000, cohort=c) for c in (10, 100, 1_000, 10_000)],
    "large": [Point(clients=100_000, cohort=c, hidden=200) for c in (1_000, 10_000)],
    "model": [Point(cohort=50, hidden=h) for h in (0, 16, 64, 256, 1_024, 3_776)],
    "seeds": [Point(seeds=s) for s in (1, 2, 4, 8, 16, 32)],
    "landmarks": [Point(clients=m, landmarks=n) for m in (250, 500, 1_000, 2_000) for n in (64, 0)],
}
GROWING = {
    "clients": "clients",
    "cohort": "cohort",
    "large": "cohort",
    "model": "parameters",
    "seeds": "seeds",
}


def parameters(point: Point) -> int:
    """P of the point's model."""
    return 784 * 10 + 10 if not point.hidden else 785 * point.hidden + (point.hidden + 1) * 10


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """b of values ~ sizes^b between the last two points."""
    return math.log(values[-1] / values[-2]) / math.log(sizes[-1] / sizes[-2])


def federation(clients: int, seed: int) -> Federation:
    """Clients that draw their examples from one pool with replacement; grouping means nothing
    here.
    """
    pool = synthetic_pool(_POOL, (1, 28, 28), torch.device("cpu"))
    generator = torch.Generator().manual_seed(seed)

    def split(each: int) -> Split:
        index = torch.randint(0, _POOL, (clients * each,), generator=generator, dtype=torch.int32)
        return Split(index=index, start=torch.arange(0, clients * each + 1, each))

    return Federation(
        pool=pool, train=split(_EXAMPLES), test=split(_TESTS), group=torch.zeros(clients).long()
    )


def measure(point: Point, seconds: float) -> Cost:
    """Run the point in this process."""
    began = time.perf_counter()
    federations = {seed: federation(point.clients, seed) for seed in range(point.seeds)}
    pool = federations[0].pool
    model = mlp(pool.shape, pool.num_classes, hidden=[point.hidden] if point.hidden else [])
    engine = make_engine("fused", model, pool)
    solver = Solver(lr=0.05, batch_size=10, epochs=1)
    job = Job(
        algorithm=FedAvg(solver=solver),
        scenario=Static(clients_per_round=point.cohort),
        tracker=NoTracker(),
        engine=engine,
        federations=federations,
        rounds=4,
        eval_every=1_000_000,
        checkpoint_seconds=3600.0,
        versions={},
    )
    ready = time.perf_counter() - began
    cost = _rounds(job, seconds) if point.landmarks is None else _metric(job, point.landmarks)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # KiB on Linux
    return Cost(seconds=cost, peak_mib=peak, setup_seconds=ready)


def _rounds(job: Job, seconds: float) -> float:
    """Median time of a round but the first and the last, of 4 rounds or, where there is time, of
    more.
    """
    few = _play(job, 4)
    more = min(200, int(seconds / few))
    return _play(job, more) if more > 4 else few


def _play(job: Job, rounds: int) -> float:
    """Median time of the rounds of a whole job but the first and the last."""
    progress = Watch()
    with tempfile.TemporaryDirectory() as folder:
        run(
            replace(job, rounds=rounds),
            RunFolder(Path(folder, "job"), {"rounds": rounds}),
            progress,
        )
    return median(progress.times[1:-1])


def _metric(job: Job, landmarks: int) -> float:
    """Time of LCFL's loss metric among all clients, from models that one round of local training
    made.
    """
    fed = job.federations[0]
    rnd = next(job.scenario.rounds(fed, 0))
    clients, ids = SeedClients(job.engine, rnd), torch.arange(fed.num_clients)
    common = clients.init(Stream.of(0, "init"), 1)
    solver = Solver(lr=0.05, batch_size=10, epochs=1)
    local = clients.train(Train(common, torch.zeros_like(ids), ids, solver))
    metric = Loss(landmarks=landmarks or None)
    began = time.perf_counter()
    metric(clients, local.params, common, ids, rnd)
    return time.perf_counter() - began


class Watch(Silent):
    """Notes when rounds end."""

    def __init__(self) -> None:
        self._last = 0.0
        self.times: list[float] = []

    def start(self, folder: Path, first: int, rounds: int) -> None:  # noqa: ARG002
        """See `Progress.start`."""
        self._last = time.perf_counter()

    def round(self, t: int, values: Mapping[str, float]) -> None:  # noqa: ARG002
        """See `Progress.round`."""
        now = time.perf_counter()
        self.times.append(now - self._last)
        self._last = now


def in_process(point: Point, seconds: float) -> Cost:
    """`measure` in a process of its own."""
    asked = json.dumps({"point": asdict(point), "seconds": seconds})
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.growth", "--point", asked],
        capture_output=True,
        text=True,
        check=True,
    )
    return Cost(**json.loads(ran.stdout))


def table(axis: str, points: Sequence[Point], costs: Sequence[Cost]) -> Table:
    """One axis for a terminal."""
    shown = Table(title=f"growth with {axis}")
    for name in (
        "clients",
        "cohort",
        "parameters",
        "seeds",
        "landmarks",
        "ms",
        "peak MiB",
        "set-up s",
    ):
        shown.add_column(name, justify="right")
    for point, cost in zip(points, costs, strict=True):
        landmarks = "" if point.landmarks is None else str(point.landmarks or "all")
        cells = (point.clients, point.cohort, parameters(point), point.seeds)
        shown.add_row(
            *(f"{cell:,}" for cell in cells),
            landmarks,
            f"{1000 * cost.seconds:,.1f}",
            f"{cost.peak_mib:,.0f}",
            f"{cost.setup_seconds:.1f}",
        )
    if axis in GROWING:
        line = points[:4] if axis == "clients" else points  # without the large cohort at the end
        sizes = [
            float(parameters(p) if axis == "model" else getattr(p, GROWING[axis])) for p in line
        ]
        times = [cost.seconds for cost in costs[: len(line)]]
        memory = [cost.peak_mib for cost in costs[: len(line)]]
        shown.caption = (
            f"between the last two: time ~ {GROWING[axis]}^{exponent(sizes, times):.2f}, "
            f"memory ~ {GROWING[axis]}^{exponent(sizes, memory):.2f}"
        )
    return shown


def main() -> None:
    """Measure the chosen axes and print a table of each."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.growth", description="How costs grow."
    )
    parser.add_argument(
        "axis", nargs="*", default=list(AXES), help=f"any of {' '.join(AXES)}; default all"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="time per point; default 10")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point is not None:
        asked: dict[str, Any] = json.loads(options.point)
        sys.stdout.write(json.dumps(asdict(measure(Point(**asked["point"]), asked["seconds"]))))
        return
    unknown = sorted(set(options.axis) - set(AXES))
    if unknown:
        parser.error(f"{unknown[0]} is not one of {' '.join(AXES)}")
    console, found = Console(), []
    for axis in options.axis:
        costs = [in_process(point, options.seconds) for point in AXES[axis]]
        console.print(table(axis, AXES[axis], costs))
        found += [
            {"axis": axis, **asdict(point), **asdict(cost)}
            for point, cost in zip(AXES[axis], costs, strict=True)
        ]
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
