"""Kernels for NVIDIA GPUs, written in Triton, which PyTorch brings along on Linux.

Each is a file of this folder that imports Triton, so it is imported where it is used only.
PyTorch's own operations compute the same, to rounding, and are used wherever a kernel cannot be:
without Triton, where compiling fails, and where a kernel gives other numbers on a small example,
which is tried when a process first asks for it.

`measured.py` says which are on.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import torch

from fedclust.engines.fused.cuda.measured import KERNELS, wanted

_LOG = logging.getLogger(__name__)


def runs_on(device: torch.device) -> bool:
    """Whether kernels may be launched on a device."""
    on = device.type == "cuda" and bool(set(KERNELS) & set(wanted(device)))
    return on and _can_be_launched()


@cache
def _can_be_launched() -> bool:
    """Whether this process has Triton, and an NVIDIA GPU."""
    return (
        torch.version.cuda is not None
        and torch.cuda.is_available()
        and find_spec("triton") is not None
    )


def kernel(name: str, device: torch.device) -> ModuleType | None:
    """The file `name` of this folder; None where PyTorch's operations are to be used."""
    return _tried(name, device) if name in wanted(device) and runs_on(device) else None


def version(device: torch.device) -> str | None:
    """Triton's, where kernels may be launched on a device."""
    if not runs_on(device):
        return None
    return str(import_module("triton").__version__)


@cache
def _tried(name: str, device: torch.device) -> ModuleType | None:
    """The file, once its kernel gave what PyTorch gives; None, with a warning, where it did not."""
    try:
        found = import_module(f"{__package__}.{name}")
        agrees = found.agrees(device)
    except Exception as e:  # of whatever kind: a compiler, an assembler and a driver may fail here
        lines = str(e).strip().splitlines() or [type(e).__name__]
        _LOG.warning(
            "the kernel %s cannot be used, going on with PyTorch's operations: %s", name, lines[-1]
        )
        return None
    if not agrees:
        _LOG.warning(
            "the kernel %s gave other numbers than PyTorch's operations and is not used", name
        )
        return None
    return found
