"""Prints how fast an engine is, beside a plain loop or another simulator.

python -m benchmarks [W1 W2 …] [--against loop|pfl|flower] [--device cpu|cuda] [--engine
fused|vmap|loop]
                     [--threads N] [--seconds 5] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.compare import OTHERS, Comparison, check_environment, compare
from benchmarks.measure import Result, measure
from benchmarks.workloads import WORKLOADS
from fedclust.runtime.memory import keep_freed_memory

_COLUMNS = (
    "per second",
    "x plain loop",
    "GFLOP/s",
    "of limit",
    "GB/s",
    "of limit",
    "peak MiB",
    "padding",
    "rows",
    "set-up s",
    "seeds",
)


def _table(title: str, caption: str, numbers: Sequence[str]) -> Table:
    table = Table(title=title, caption=caption)
    for name in ("workload", "what is done"):
        table.add_column(name)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def duration(seconds: float) -> str:
    """Hours, minutes and seconds, as 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def table_of(results: Sequence[Result]) -> Table:
    """The results for a terminal."""
    first = results[0]
    limit = (
        f"{first.limit_gflops:.0f} GFLOP/s, PyTorch by itself {first.torch_gflops:.0f}, and "
        f"{first.limit_gbytes:.0f} GB/s when {first.workload} ran"
    )
    table = _table(
        f"{first.engine} on {first.device}, {first.threads} threads",
        "plain loop: deepcopy, autograd, optim.SGD; medians of interleaved rounds in one process; "
        "set-up not "
        "in the rates; limits: a 2048 x 2048 float32 product by the faster library, and a = b + "
        "2c over "
        f"256 MiB each ({limit}); "
        "GFLOP/s: of the steps as written, so more than the limit where the engine needs fewer "
        "operations; "
        "rows: trained at once; "
        "GB/s: what the steps must move at the least, see step_bytes in benchmarks/workloads.py",
        _COLUMNS,
    )
    for r in results:
        table.add_row(
            r.workload,
            r.title,
            f"{r.rate:,.0f} {r.unit}",
            f"{r.ratio:.2f}",
            f"{r.gflops:.0f}",
            f"{r.share:.0%}",
            "" if r.gbytes is None else f"{r.gbytes:.2f}",
            "" if r.memory_share is None else f"{r.memory_share:.1%}",
            f"{r.peak_mib:,.0f}",
            f"{r.padding:.1%}",
            f"{r.together:,}" if r.together else "",
            f"{r.setup_seconds:.1f}",
            "" if r.seeds_cost is None else f"{r.seeds_cost:.2f} x one",
        )
    return table


def table_against(results: Sequence[Comparison]) -> Table:
    """The comparisons for a terminal."""
    first = results[0]
    table = _table(
        f"{first.engine} on cpu, 1 process x {first.threads} threads, and {first.other}, "
        f"{first.other_processes} processes x {first.other_threads} threads",
        "client steps per second of whole rounds: choice of a cluster (W4), training, averaging; "
        "all "
        "participants; medians; set-up and first rounds not counted; fedclust before, then the "
        "other, "
        "then fedclust after",
        ("fedclust", "before", "after", "rounds", "other", "rounds", "x other"),
    )
    for r in results:
        table.add_row(
            r.workload,
            r.title,
            f"{r.rate:,.0f}",
            f"{r.before:,.0f}",
            f"{r.after:,.0f}",
            f"{r.rounds}",
            f"{r.other_rate:,.0f}",
            f"{r.other_rounds}",
            f"{r.ratio:.2f}",
        )
    return table


def projections(results: Sequence[Result] | Sequence[Comparison]) -> list[str]:
    """A line for every workload that is a part of a larger one: how long that takes at these
    rates.
    """
    lines = []
    for r in results:
        slow = r.plain_whole_seconds if isinstance(r, Result) else r.other_whole_seconds
        name = "plain loop" if isinstance(r, Result) else r.other
        if r.whole_seconds is not None and slow is not None:
            lines.append(
                f"all of {r.workload}: {duration(r.whole_seconds)} (h:mm:ss), {name} "
                f"{duration(slow)}"
            )
    return lines


def main() -> None:
    """Measure the chosen workloads and print a table."""
    names = [w.name for w in WORKLOADS]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Speed of the engines."
    )
    parser.add_argument("workload", nargs="*", help=f"any of {' '.join(names)}; default all")
    parser.add_argument("--against", default="loop", choices=["loop", *OTHERS], help="default loop")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--engine", default="fused", choices=["fused", "vmap", "loop"])
    parser.add_argument(
        "--threads", type=int, help="of fedclust, and processes of the other; default all cores"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="time per workload; default 5")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    possible = [w.name for w in WORKLOADS if options.against == "loop" or w.rounds is not None]
    chosen = options.workload or possible
    unknown = sorted(set(chosen) - set(possible))
    if unknown:
        parser.error(f"workload {unknown[0]} is not one of {' '.join(possible)}")
    if options.against != "loop":
        if options.device != "cpu":
            parser.error(f"--against {options.against} measures on the CPU")
        check_environment(options.against)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    torch.backends.cudnn.allow_tf32 = False  # in the plain loop, as in the engines
    keep_freed_memory()  # as jobs do
    console, device = (
        Console(width=None if sys.stdout.isatty() else 160),
        torch.device(options.device),
    )
    results: list[Result] = []
    comparisons: list[Comparison] = []
    for workload in WORKLOADS:
        if workload.name in chosen:
            with console.status(f"{workload.name}: {workload.title}"):
                if options.against == "loop":
                    results.append(measure(workload, options.engine, device, options.seconds))
                else:
                    comparisons.append(
                        compare(workload, options.against, options.engine, options.seconds)
                    )
            # after each workload, so that an interrupted program leaves some
            if options.json is not None:
                rows = [asdict(r) for r in results or comparisons]
                options.json.write_text(json.dumps(rows, indent=2) + "\n")
    console.print(table_of(results) if results else table_against(comparisons))
    for line in projections(results or comparisons):
        console.print(line)


if __name__ == "__main__":
    main()
