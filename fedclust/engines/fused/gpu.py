"""The door to what is for NVIDIA GPUs alone (`cuda/`): of it, a run on a CPU imports nothing.

A kernel is a file of that folder in Triton, which PyTorch brings along on Linux. PyTorch's own
operations compute the same, to rounding, and are used without Triton, where compiling fails, or
where a kernel gives other numbers on a small example. `cuda/measured.py` says which are on.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

import torch

from fedclust.engines.fused.network import Network

if TYPE_CHECKING:
    from fedclust.engines.fused.cuda.graphs import Graphs

_MOST_CLASSES = 128  # beside which a batch and some features leave registers free
_LOG = logging.getLogger(__name__)


def runs_on(device: torch.device) -> bool:
    """Whether kernels may be launched on a device."""
    if device.type != "cuda":
        return False
    from fedclust.engines.fused.cuda.measured import KERNELS

    return bool({*KERNELS} & {*paths(device)}) and _can_be_launched()


def paths(device: torch.device) -> list[str]:
    """The fast paths that are on for a device."""
    from fedclust.engines.fused.cuda import measured

    on = measured.wanted(device)
    return [path for path in measured.PATHS if path in on]


def graphs(device: torch.device) -> Graphs | None:
    """Room for CUDA graphs of a chunk's training; None where they are not used."""
    if device.type != "cuda" or "graphs" not in paths(device):
        return None
    from fedclust.engines.fused.cuda.graphs import Graphs

    return Graphs()


@cache
def _can_be_launched() -> bool:
    """Whether this process has Triton, and an NVIDIA GPU."""
    return (
        torch.version.cuda is not None
        and torch.cuda.is_available()
        and find_spec("triton") is not None
    )


def kernel(name: str, device: torch.device) -> ModuleType | None:
    """The file `name` of `cuda/`; None where PyTorch's operations are to be used."""
    return _tried(name, device) if runs_on(device) and name in paths(device) else None


def trains_in_one_launch(network: Network, device: torch.device, frozen: frozenset[str]) -> bool:
    """Whether a model is softmax regression that moves whole, by a kernel the device can launch."""
    small = network.is_regression and network.shapes[-1][0] <= _MOST_CLASSES
    return small and not frozen and kernel("softmax", device) is not None


def version(device: torch.device) -> str | None:
    """Triton's, where kernels may be launched on a device."""
    if not runs_on(device):
        return None
    return str(import_module("triton").__version__)


@cache
def _tried(name: str, device: torch.device) -> ModuleType | None:
    """The file, once its kernel gave what PyTorch gives; None, with a warning, where it did not."""
    try:
        module = import_module(f"{__package__}.cuda.{name}")
        agrees = module.agrees(device)
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
    return module
