"""Rates, memory and the limits of arithmetic and memory, measured side by side in one process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch

from benchmarks.against.turns import peak_mib
from benchmarks.machine import SIDE, TRIAD_BYTES, product, torch_product, triad
from benchmarks.workloads import Case, Workload

_CLEAR = Path("/proc/self/clear_refs")


@dataclass(frozen=True, kw_only=True)
class Result:
    """One workload on one engine.

    Attributes:
        workload: its name.
        title: what was computed per call.
        engine: name of the engine.
        device: cpu or cuda.
        threads: threads of a CPU operation.
        unit: what the rates count.
        rate: units per second of the engine, median.
        plain_rate: units per second of the plain loop, median.
        ratio: median over rounds of the two rates' ratio.
        gflops: floating-point operations per second of the engine, 1e9.
        limit_gflops: those of a 2048 x 2048 float32 product in the same rounds, by the faster
            library.
        torch_gflops: those of this product as PyTorch computes it by itself.
        share: gflops / limit_gflops.
        gbytes: bytes per second that the engine must move at the least, 1e9; see `step_bytes`; None
            where that is not counted.
        limit_gbytes: those of a = b + 2c over arrays of 256 MiB in the same rounds, two reads and
            one write.
        memory_share: gbytes / limit_gbytes.
        setup_seconds: building the case and the first call.
        peak_mib: highest resident (CPU) or allocated (CUDA) memory of the engine's first call, MiB.
        padding: fraction of padded examples in the engine's last training call.
        together: rows that this call trained at once at most; 0 where the engine does not say.
        seeds_cost: time of all seeds in one call over that of one seed alone, where there are
            several.
        rounds: repetitions that the medians are over.
        whole_seconds, plain_whole_seconds: time that all of the workload takes at these rates,
            where its size is given.
    """

    workload: str
    title: str
    engine: str
    device: str
    threads: int
    unit: str
    rate: float
    plain_rate: float
    ratio: float
    gflops: float
    limit_gflops: float
    torch_gflops: float
    share: float
    gbytes: float | None
    limit_gbytes: float
    memory_share: float | None
    setup_seconds: float
    peak_mib: float
    padding: float
    together: int
    seeds_cost: float | None
    rounds: int
    whole_seconds: float | None
    plain_whole_seconds: float | None


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """Wall-clock time of one call."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif _CLEAR.exists():
        _CLEAR.write_text("5")  # Linux: the high-water mark starts again from the present size


def _peak_mib(device: torch.device) -> float:
    """Highest memory since `_reset_peak`, MiB; NaN where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return peak_mib()


class Times(NamedTuple):
    """Seconds of every repetition: engine, plain loop, one seed of several, product, PyTorch's,
    triad.
    """

    fast: list[float]
    plain: list[float]
    single: list[float]
    products: list[float]
    torch_products: list[float]
    moves: list[float]


def measure(workload: Workload, engine: str, device: torch.device, seconds: float) -> Result:
    """The workload's result; engine, plain loop and limit take turns until `seconds` are spent."""
    began = time.perf_counter()
    case = workload.prepare(engine, device)
    _reset_peak(device)
    seconds_of(case.fast, device)
    setup, peak = time.perf_counter() - began, _peak_mib(device)
    seconds_of(case.plain, device)
    multiply, torchs, move = product(device), torch_product(device), triad(device)
    for limit in (multiply, torchs, move):
        seconds_of(limit, device)
    times = Times([], [], [], [], [], [])
    began = time.perf_counter()
    while len(times.fast) < 3 or time.perf_counter() - began < seconds:
        times.moves.append(seconds_of(move, device))
        times.products.append(seconds_of(multiply, device))
        times.torch_products.append(seconds_of(torchs, device))
        times.fast.append(seconds_of(case.fast, device))
        times.plain.append(seconds_of(case.plain, device))
        if case.single is not None:
            times.single.append(seconds_of(case.single, device))
    return _result(workload, case, device, setup, peak, times)


def _result(
    workload: Workload, case: Case, device: torch.device, setup: float, peak: float, times: Times
) -> Result:
    rates = [case.fast_units / t for t in times.fast]
    plain_rates = [case.plain_units / t for t in times.plain]
    gflops = median(rates) * case.flops / 1e9
    limit = 2 * SIDE**3 / median(times.products) / 1e9
    gbytes = None if case.memory is None else median(rates) * case.memory / 1e9
    limit_gbytes = TRIAD_BYTES / median(times.moves) / 1e9
    return Result(
        workload=workload.name,
        title=workload.title,
        engine=case.engine.name,
        device=device.type,
        threads=torch.get_num_threads(),
        unit=workload.unit,
        rate=median(rates),
        plain_rate=median(plain_rates),
        ratio=median([a / b for a, b in zip(rates, plain_rates, strict=True)]),
        gflops=gflops,
        limit_gflops=limit,
        torch_gflops=2 * SIDE**3 / median(times.torch_products) / 1e9,
        share=gflops / limit,
        gbytes=gbytes,
        limit_gbytes=limit_gbytes,
        memory_share=None if gbytes is None else gbytes / limit_gbytes,
        setup_seconds=setup,
        peak_mib=peak,
        padding=getattr(case.engine, "padding", float("nan")),
        together=getattr(case.engine, "together", 0),
        seeds_cost=median([a / b for a, b in zip(times.fast, times.single, strict=True)])
        if times.single
        else None,
        rounds=len(times.fast),
        whole_seconds=None if workload.total is None else workload.total / median(rates),
        plain_whole_seconds=None
        if workload.total is None
        else workload.total / median(plain_rates),
    )
