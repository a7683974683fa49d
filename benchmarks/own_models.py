"""Networks as people write them: the engine that `auto` takes against the plain loop.

python -m benchmarks.own_models [WORD …] [--rounds 3] [--batch 20] [--clients 4] [--steps 2]

Every client takes a few steps of plain SGD, in turn in one process; a rate is by seconds of the
processor, which others on the machine change little, and the median over rounds, of which the first
is not counted. With words, only networks are measured whose name has one of them.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

from benchmarks import plain
from benchmarks.workloads import shards
from fedclust.core.calls import TrainCall
from fedclust.core.pool import Pool
from fedclust.engines import make_engine
from fedclust.helpers.rng import Stream
from fedclust.runtime.memory import keep_freed_memory
from fedclust.solver import Solver

_EXAMPLES, _RATE = 500, 0.01


class Rates(NamedTuple):
    """Local steps per second.

    Attributes:
        engine: that was taken.
        ours: its rate.
        plain: that of the plain loop.
        remark: why no faster engine was taken.
    """

    engine: str
    ours: float
    plain: float
    remark: str


def measure(
    case: Any, *, rounds: int, clients: int, batch: int, steps: int, small: bool = False
) -> Rates:
    """The rates of a network of `tests/pasted.py`."""
    torch.manual_seed(0)
    module, shape = case.make(small), case.small if small and case.small else case.shape
    pool = pool_of(case, shape)
    data = shards(clients, batch * steps, _EXAMPLES, torch.device("cpu"))
    engine = make_engine("auto", module, pool)
    start, label = engine.init(Stream.of(0, "init")).unsqueeze(0), torch.zeros(clients).long()
    call = TrainCall(start, label, data, Solver(lr=_RATE, batch_size=batch), _RATE)
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds + 1):
        for way, taken in enumerate(seconds):
            begin = time.process_time()
            if way == 0:
                engine.answer(call)
            else:
                plain.train(module, pool, data.index, 1, batch, _RATE)
            taken.append(time.process_time() - begin)
    ours, other = (clients * steps / median(taken[1:]) for taken in seconds)
    return Rates(engine.name, ours, other, engine.remark)


def pool_of(case: Any, shape: tuple[int, ...]) -> Pool:
    """Random examples for a network."""
    draw = torch.Generator().manual_seed(0)
    most = case.vocabulary or 256
    return Pool(
        x=torch.randint(0, most, (_EXAMPLES, *shape), generator=draw, dtype=torch.uint8),
        y=torch.randint(0, case.classes, (_EXAMPLES,), generator=draw),
        scale=torch.tensor(1 / 255),
        shift=torch.tensor(0.0),
        num_classes=case.classes,
        vocabulary=case.vocabulary,
    )


def main() -> None:
    """Print a table."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from pasted import NETWORKS

    parser = argparse.ArgumentParser(prog="python -m benchmarks.own_models", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    for name, value in (("rounds", 3), ("clients", 4), ("batch", 20), ("steps", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = vars(parser.parse_args())
    words = given.pop("words")
    keep_freed_memory()
    print(f"{torch.get_num_threads()} threads; steps per second\n")
    print(
        "| network | engine | fedclust | plain loop | ratio | why |\n|---|---|---:|---:|---:|---|"
    )
    for name, case in NETWORKS.items():
        if words and not any(word.lower() in name.lower() for word in words):
            continue
        found = measure(case, **given)
        numbers = f"{found.ours:.3g} | {found.plain:.3g} | {found.ours / found.plain:.2f}"
        why = found.remark.partition(": ")[2].partition(";")[0]
        print(f"| {name} | {found.engine} | {numbers} | {why} |", flush=True)


if __name__ == "__main__":
    main()
