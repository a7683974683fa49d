"""The checks, one after the other in this process, told line by line to a file."""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from benchmarks.check_gpu import ROOT
from benchmarks.check_gpu.paths import Said, without
from benchmarks.machine import SIDE, TRIAD_BYTES, torch_product, triad
from benchmarks.measure import seconds_of
from fedclust.engines.fused import gpu

Tell = Callable[[dict[str, Any]], None]


def prepare() -> None:
    """Let this process find the small jobs of the tests."""
    sys.path += [str(ROOT / "tests" / part) for part in ("engines", "algorithms", "")]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def kernel(name: str, device: torch.device, tell: Tell) -> None:
    """Compile a kernel, and compare it with PyTorch's operations as every process does."""
    if not gpu.runs_on(device):
        tell({"way": name, "note": "no Triton for this device"})
        return
    began = time.perf_counter()
    there = gpu.kernel(name, device) is not None
    tell({"way": name, "right": there, "compiled": time.perf_counter() - began})


def machine(name: str, device: torch.device, tell: Tell) -> None:  # noqa: ARG001
    """What computes, and its limits."""
    facts: dict[str, Any] = {"PyTorch": torch.__version__, "CUDA": torch.version.cuda}
    if device.type == "cuda":
        facts["GPU"] = torch.cuda.get_device_name(device)
        facts["GiB"] = round(torch.cuda.mem_get_info(device)[1] / 2**30, 1)
    tell({"way": "machine", **facts})

    if device.type == "cpu":
        return
    for precision in ("float32", "TF32"):
        torch.backends.cuda.matmul.allow_tf32 = precision == "TF32"
        tell(
            {"way": precision, "gflops": 2 * SIDE**3 / _least(torch_product(device), device) / 1e9}
        )
    torch.backends.cuda.matmul.allow_tf32 = False
    half = torch.randn(SIDE, SIDE, device=device).to(torch.bfloat16)
    tell({"way": "bfloat16", "gflops": 2 * SIDE**3 / _least(lambda: half @ half, device) / 1e9})
    tell({"way": "memory", "gbytes": TRIAD_BYTES / _least(triad(device), device) / 1e9})


def _least(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of the fastest of twenty calls."""
    for _ in range(3):
        seconds_of(work, device)
    return min(seconds_of(work, device) for _ in range(20))


def _function(kind: str) -> Callable[[str, torch.device, Tell], None]:
    """What checks a kind; the modules import what not every machine has."""
    if kind in ("machine", "kernel"):
        return {"machine": machine, "kernel": kernel}[kind]
    found: Callable[[str, torch.device, Tell], None]
    found = import_module(f"benchmarks.check_gpu.{kind}").check
    return found


def work(checks: Sequence[tuple[str, str]], device: torch.device, out: Path) -> None:
    """Do the checks, given as kind and name; the file gets a line of JSON for everything known.

    Raises:
        RuntimeError: where the device computes nothing more; a new process goes on.
    """
    said = Said()
    logging.getLogger("fedclust").addHandler(said)
    with out.open("a") as file:

        def tell(row: Mapping[str, Any]) -> None:
            file.write(json.dumps(row) + "\n")
            file.flush()

        for kind, name in checks:
            about = {"kind": kind, "name": name}
            tell({**about, "state": "begun"})
            began, already = time.perf_counter(), len(said.lines)
            end: dict[str, Any] = {"state": "done"}
            try:
                with without(()):
                    _function(kind)(name, device, lambda row, about=about: tell({**about, **row}))
            except ModuleNotFoundError as error:
                end = {"state": "missing", "error": f"needs {error.name}"}
            except Exception as error:  # whatever goes wrong, the other checks are wanted
                end = {"state": "failed", "error": _line(error), "trace": traceback.format_exc()}
            taken = time.perf_counter() - began
            tell({**about, **end, "took": taken, "said": said.lines[already:]})
            if end["state"] == "failed" and device.type == "cuda":
                torch.cuda.synchronize(device)  # raises after a fault in its memory


def _line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
