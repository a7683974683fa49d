"""What `precision=bf16` gains, workload by workload, measured in turn in one process.

python -m benchmarks.precision [W2 W5 …] [--rounds 4] [--threads 2]
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from statistics import median

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.measure import seconds_of
from benchmarks.workloads import WORKLOADS, Prepare
from fedclust.engines.choose import simulated
from fedclust.engines.fused.native import bfloat16
from fedclust.runtime.memory import keep_freed_memory

PRECISIONS = ("highest", "bf16")
_CPU = torch.device("cpu")
_NAMES = {workload.name: workload for workload in WORKLOADS}


def measure(prepare: Prepare, rounds: int) -> Mapping[str, float]:
    """Units of work per second by precision, medians of calls in turn; the first is not counted."""
    cases = {precision: prepare("fused", _CPU, precision) for precision in PRECISIONS}
    seconds: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
    for _ in range(rounds + 1):
        for precision, case in cases.items():
            seconds[precision].append(seconds_of(case.fast, _CPU))
    return {
        precision: case.fast_units / median(seconds[precision][1:])
        for precision, case in cases.items()
    }


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.precision", description=__doc__)
    parser.add_argument("workloads", nargs="*", default=list(_NAMES), help="default all")
    parser.add_argument("--rounds", type=int, default=4, help="calls of each that are counted")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    asked = parser.parse_args()
    for name in asked.workloads:
        if name not in _NAMES:
            parser.error(f"{name} is not one of {', '.join(_NAMES)}")
    if min(asked.rounds, asked.threads) < 1:
        parser.error("--rounds and --threads are at least 1")
    torch.set_num_threads(asked.threads)
    keep_freed_memory()
    by = bfloat16.instructions() or "no instructions for bfloat16"
    table = Table("workload", "unit", *PRECISIONS, "ratio", title=f"{asked.threads} threads, {by}")
    for name in asked.workloads:
        rates = measure(_NAMES[name].prepare, asked.rounds)
        told = [f"{rate:,.0f}" for rate in rates.values()]
        ratio = rates["bf16"] / rates["highest"]
        table.add_row(name, f"{_NAMES[name].unit}/s", *told, f"{ratio:.2f}")
    console = Console()
    console.print(table)
    if said := simulated("bf16", _CPU):
        console.print(said)


if __name__ == "__main__":
    main()
