"""Networks as people write them: the engine that `auto` takes against the plain loop.

python -m benchmarks.own_models [WORD …] [--rounds 3] [--batch 20] [--clients 4] [--steps 2]

Every client takes a few steps of plain SGD, in turn in one process; a rate is by seconds of the
processor, which others on the machine change little, and the median over rounds, of which the first
is not counted. The second ratio is by the clock. The last number is what the operations of a step
as it is written would take of the machine's product of matrices, by seconds of the processor, too.
With words, only networks are measured whose name has one of them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import plain
from benchmarks.machine import SIDE, product
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
        by_clock: how many times as fast it is by the clock.
        operations: multiplications and additions of a step.
        remark: why no faster engine was taken.
    """

    engine: str
    ours: float
    plain: float
    by_clock: float
    operations: int
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
    ways = (
        lambda: engine.answer(call),
        lambda: plain.train(module, pool, data.index, 1, batch, _RATE),
    )
    with FlopCounterMode(display=False) as counter, torch.backends.mkldnn.flags(enabled=False):
        plain.train(module, pool, data.index[:1, :batch], 1, batch, _RATE)  # its layers are counted
    taken = [[_seconds(way) for way in ways] for _ in range(rounds + 1)][1:]
    (ours, our_clock), (other, other_clock) = (
        map(median, zip(*way, strict=True)) for way in zip(*taken, strict=True)
    )
    total, operations = clients * steps, counter.get_total_flops()
    by_clock = other_clock / our_clock
    return Rates(engine.name, total / ours, total / other, by_clock, operations, engine.remark)


def _seconds(way: Callable[[], object]) -> tuple[float, float]:
    """What something takes of the processor, and by the clock."""
    begin, began = time.process_time(), time.perf_counter()
    way()
    return time.process_time() - begin, time.perf_counter() - began


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
    most = product(torch.device("cpu"))
    most()
    rate = 2 * SIDE**3 / min(_seconds(most)[0] for _ in range(3))
    print(f"{torch.get_num_threads()} threads; product {rate / 1e9:.3g} GFLOP a second of a core\n")
    print(
        "| network | engine | fedclust | plain loop | ratio | by the clock | product | why |\n"
        "|---|---|---:|---:|---:|---:|---:|---|"
    )
    for name, case in NETWORKS.items():
        if words and not any(word.lower() in name.lower() for word in words):
            continue
        found = measure(case, **given)
        ratio, share = found.ours / found.plain, found.ours * found.operations / rate
        numbers = f"{found.ours:.3g} | {found.plain:.3g} | {ratio:.2f} | {found.by_clock:.2f}"
        numbers += f" | {share:.0%}"
        why = found.remark.partition(": ")[2].partition(";")[0]
        print(f"| {name} | {found.engine} | {numbers} | {why} |", flush=True)


if __name__ == "__main__":
    main()
