"""Prints how fast an engine is.

python -m benchmarks [W1 W2 …] [--device cpu|cuda] [--engine fused|vmap|loop] [--seconds 5] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.measure import Result, measure
from benchmarks.workloads import WORKLOADS
from fedclust.memory import keep_freed_memory


def table_of(results: Sequence[Result]) -> Table:
    """The results for a terminal."""
    first = results[0]
    table = Table(
        title=f"{first.engine} on {first.device}, {first.threads} threads",
        caption="limit: a 2048 x 2048 float32 product; plain loop: deepcopy, autograd, optim.SGD; "
        "medians of interleaved rounds in one process; set-up not in the rates; GFLOP/s: of the steps as "
        "written, so more than the limit where the engine needs fewer operations",
    )
    for name in ("workload", "what one call does"):
        table.add_column(name)
    for name in (
        "per second",
        "x plain loop",
        "GFLOP/s",
        "of limit",
        "peak MiB",
        "padding",
        "set-up s",
        "seeds",
    ):
        table.add_column(name, justify="right")
    for r in results:
        table.add_row(
            r.workload,
            r.title,
            f"{r.rate:,.0f} {r.unit}",
            f"{r.ratio:.2f}",
            f"{r.gflops:.0f}",
            f"{r.share:.0%}",
            f"{r.peak_mib:,.0f}",
            f"{r.padding:.1%}",
            f"{r.setup_seconds:.1f}",
            "" if r.seeds_cost is None else f"{r.seeds_cost:.2f} x one",
        )
    return table


def main() -> None:
    """Measure the chosen workloads and print a table."""
    names = [w.name for w in WORKLOADS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed of the engines.")
    parser.add_argument("workload", nargs="*", default=names, help=f"any of {' '.join(names)}; default all")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--engine", default="fused", choices=["fused", "vmap", "loop"])
    parser.add_argument("--seconds", type=float, default=5.0, help="time per workload; default 5")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    unknown = sorted(set(options.workload) - set(names))
    if unknown:
        parser.error(f"workload {unknown[0]} is not one of {' '.join(names)}")
    keep_freed_memory()  # as jobs do
    console, results = Console(), []
    for workload in WORKLOADS:
        if workload.name in options.workload:
            with console.status(f"{workload.name}: {workload.title}"):
                results.append(
                    measure(workload, options.engine, torch.device(options.device), options.seconds)
                )
    console.print(table_of(results))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(r) for r in results], indent=2) + "\n")


if __name__ == "__main__":
    main()
