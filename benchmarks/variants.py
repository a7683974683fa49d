"""W1 and W2 under other losses and solvers, against what they are.

python -m benchmarks.variants [--rounds 7] [--tests 0.25]

A round trains all clients and tests the model they start from on so many examples for each of
theirs; with Adam it only trains. Variants take turns in one process, timed by seconds of one
processor, which others on the machine change little; medians, the first round is not counted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import median

import torch

from benchmarks.workloads import shards, synthetic_pool
from fedclust.core.calls import SumCall, TestCall, TrainCall
from fedclust.core.optimizers import SGD, Adam
from fedclust.core.pool import Pool
from fedclust.core.solver import Solver
from fedclust.core.task import Classification
from fedclust.engines import make_engine
from fedclust.helpers.rng import Stream
from fedclust.models.mlp import mlp
from fedclust.runtime.memory import keep_freed_memory
from fedclust.tasks.multilabel import Multilabel
from fedclust.tasks.regression import Regression

_CPU, _WIDE, _SHAPE = torch.device("cpu"), 10, (1, 28, 28)
# hidden units, clients, examples, batch; W2 has 120 clients, whose number changes no rate
SIZES = {"W1": ([], 20, 60, 10), "W2": ([200], 24, 200, 20)}


def pools(examples: int = 60000) -> Mapping[str, Pool]:
    """Random bytes with random targets of every loss, ten outputs each."""
    like, base = torch.Generator().manual_seed(0), synthetic_pool(examples, _SHAPE, _CPU)
    weight = 0.5 + torch.rand(_WIDE, generator=like)
    flags = torch.randint(0, 2, (examples, _WIDE), generator=like, dtype=torch.uint8)
    numbers = torch.randn(examples, _WIDE, generator=like)
    unit = {"_mean": torch.zeros(_WIDE).double(), "_scale": torch.ones(_WIDE).double()}
    return {
        "classes": base,
        "weighted classes": replace(
            base, task=Classification(class_weight="balanced")._with(_weight=weight)
        ),
        "smoothed classes": replace(base, task=Classification(label_smoothing=0.1)),
        "labels": replace(base, task=Multilabel(), y=flags),
        "weighted labels": replace(base, task=Multilabel()._with(_weight=weight), y=flags),
        "squared error": replace(base, task=Regression()._with(**unit), y=numbers),
        "Huber loss": replace(base, task=Regression(loss_by="huber")._with(**unit), y=numbers),
    }


def cases(size: str, given: Mapping[str, Pool], tests: float) -> dict[str, Callable[[], object]]:
    """A round of every variant of a workload."""
    hidden, rows, count, batch = SIZES[size]

    def case(pool: Pool, solver: Solver, tested: int) -> Callable[[], object]:
        engine = make_engine("fused", mlp(_SHAPE, _WIDE, hidden=hidden), pool)
        start, label = engine.init(Stream.of(0, "init")).unsqueeze(0), torch.zeros(rows).long()
        data, test = (shards(rows, n, len(pool.y), _CPU) for n in (count, max(tested, 1)))
        call = SumCall(TrainCall(start, label, data, solver, solver.lr))

        def play() -> object:
            found = engine.answer(call)
            return (found, engine.answer(TestCall(start, label, test))) if tested else found

        return play

    how = {"lr": 0.01, "batch_size": batch, "epochs": 10}
    found = {
        name: case(pool, SGD(**how), int(tests * count))  # type: ignore[arg-type]
        for name, pool in given.items()
    }
    solvers = {"SGD with momentum": SGD(momentum=0.9, **how), "Adam": Adam(**how)}  # type: ignore[arg-type]
    return found | {name: case(given["classes"], own, 0) for name, own in solvers.items()}


def measure(all_cases: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Rates over that of the classes, Adam's over that of SGD with momentum."""
    times: dict[str, list[float]] = {name: [] for name in all_cases}
    for turn in range(rounds + 1):
        for name, play in all_cases.items():
            began = time.process_time()
            play()
            if turn:
                times[name].append(time.process_time() - began)

    def over(base: str, name: str) -> float:
        return median(a / b for a, b in zip(times[base], times[name], strict=True))

    own = {"Adam": "SGD with momentum", "SGD with momentum": "SGD with momentum"}
    return {name: over(own.get(name, "classes"), name) for name in times}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.variants", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tests", type=float, default=0.25)
    given = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(1)
    made = pools()
    found = {size: measure(cases(size, made, given.tests), given.rounds) for size in SIZES}
    print(f"| rate over that of the workload | {' | '.join(SIZES)} |\n|---|{'---:|' * len(SIZES)}")
    for name in next(iter(found.values())):
        print(f"| {name} | {' | '.join(f'{found[size][name]:.2f}' for size in SIZES)} |")


if __name__ == "__main__":
    main()
