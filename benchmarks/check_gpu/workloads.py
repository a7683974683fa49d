"""W1 to W7 in all ways to compute them, in turn in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import torch

from benchmarks.check_gpu.agree import LIMITS, apart
from benchmarks.check_gpu.paths import PATHS, taken, without
from benchmarks.measure import seconds_of
from benchmarks.workloads import WORKLOADS, Case, Prepare, Training, Workload

CALLS_BEFORE = 3  # a graph is captured in the second and replayed from the third on
_LEAST, _SECONDS = 3, 8.0  # turns of all ways, and time for them
_CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to compute a workload.

    Attributes:
        name: `all` with every fast path, `without X`, `PyTorch` without any kernel and graph, a
            precision, another engine, or the plain loop.
        engine, precision: what `make_engine` is given.
        left_out: fast paths that are not taken.
        plain: the plain loop, on a part of the clients.
    """

    name: str
    engine: str = "fused"
    precision: str = "highest"
    left_out: Collection[str] = ()
    plain: bool = False


ALL, PYTORCH = Way(name="all"), Way(name="PyTorch", left_out=("graphs", "gather", "softmax"))
OTHERS = (
    PYTORCH,
    Way(name="high", precision="high"),
    Way(name="bf16", precision="bf16"),
    Way(name="vmap", engine="vmap"),
    Way(name="plain loop", plain=True),
)


class _Measured:
    """A way on a device: its calls, and what they took."""

    def __init__(self, way: Way, prepare: Prepare, device: torch.device) -> None:
        self.way, self._device, self.seconds = way, device, list[float]()
        with self._chosen():
            self.case = prepare(way.engine, device, way.precision)
        self.left: object = None
        self.peak_mib = 0.0

    @contextmanager
    def _chosen(self) -> Iterator[None]:
        """Its fast paths."""
        with without(self.way.left_out):
            yield

    def call(self) -> float:
        """Seconds of one call."""
        work = self.case.plain if self.way.plain else self._fast
        with self._chosen():
            return seconds_of(work, self._device)

    def _fast(self) -> None:
        self.left = self.case.fast()

    def begin(self) -> None:
        """Calls that are not counted, and the memory of the first."""
        cuda = self._device.type == "cuda"
        before = torch.cuda.memory_allocated(self._device) if cuda else 0
        if cuda:
            torch.cuda.reset_peak_memory_stats(self._device)
        self.first = self.call()
        if cuda:
            most = torch.cuda.max_memory_allocated(self._device)
            self.peak_mib = (most - before) / 2**20
        for _ in range(0 if self.way.plain or not cuda else CALLS_BEFORE - 1):
            self.call()

    @property
    def units(self) -> int:
        """Units of work of a call."""
        return self.case.plain_units if self.way.plain else self.case.fast_units


def check(name: str, device: torch.device, tell: Callable[[dict[str, Any]], None]) -> None:
    """Measure a workload in all ways; every way is told as soon as it is known.

    Args:
        name: of the workload.
        device: where.
        tell: takes a row: way, rate per second, `apart` from the CPU (the worst client, and the
            median one), whether that is right, peak MiB, and the paths it has taken.
    """
    workload = next(w for w in WORKLOADS if w.name == name)
    dry = device.type == "cpu"
    prepare = _small(workload) if dry else workload.prepare
    reference = prepare("fused", _CPU)
    began = time.perf_counter()
    expected = reference.fast()
    cpu = time.perf_counter() - began
    tell({"way": "CPU, one call", "rate": reference.fast_units / cpu, "unit": workload.unit})
    first = _Measured(ALL, prepare, device)
    _begin(first, reference, expected, tell)
    paths = set(PATHS) if dry else taken(first.case.engine)
    tell({"way": "all", "paths": sorted(paths)})
    ways = [Way(name=f"without {path}", left_out=(path,)) for path in PATHS if path in paths]
    measured = [first]
    for way in (*ways, *OTHERS):
        try:
            one = _Measured(way, prepare, device)
            _begin(one, reference, expected, tell)
        except RuntimeError as error:  # out of memory, or an operation that a GPU lacks
            tell({"way": way.name, "error": str(error).strip().partition("\n")[0]})
            _alive(device)
        else:
            measured.append(one)
    least, seconds = (1, 0.0) if dry else (_LEAST, _SECONDS)
    began, turns = time.perf_counter(), 0
    while turns < least or time.perf_counter() - began < seconds:
        for one in measured:
            if one.first < 5 or not one.seconds:  # a slow one once
                one.seconds.append(one.call())
        turns += 1
    for one in measured:
        tell({"way": one.way.name, "rate": one.units / median(one.seconds), "unit": workload.unit})


def _begin(
    one: _Measured, reference: Case, expected: object, tell: Callable[[dict[str, Any]], None]
) -> None:
    """The first calls of a way, and how far the last of them is from the CPU."""
    one.begin()
    row: dict[str, Any] = {"way": one.way.name, "peak_mib": one.peak_mib}
    if not one.way.plain:
        rows = apart(one.left, expected, reference.starts)
        worst, middle = float(rows.max()), float(rows.median())
        # rounded factors may turn a client's choice of a cluster
        seen = worst if one.way.precision == "highest" else middle
        row |= {"apart": worst, "median": middle, "right": seen <= LIMITS[one.way.precision]}
    tell(row)


def _alive(device: torch.device) -> None:
    """Raises where the device computes nothing more, as after a fault in its memory."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        assert torch.ones(2, device=device).sum().item() == 2


def _small(workload: Workload) -> Prepare:
    """A part of a workload, for a run that only shows that everything runs."""
    if isinstance(workload.prepare, Training):
        return replace(workload.prepare, rows=2, count=20, plain_rows=1, epochs=2)
    return partial(workload.prepare, rows=6)
