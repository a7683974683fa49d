"""The fast paths of a GPU, and how one is left out."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from fedclust.core.verbs import Engine
from fedclust.engines.fused import FusedEngine, gpu, layers, plan
from fedclust.engines.fused.cuda import measured


@dataclass(frozen=True, kw_only=True)
class FastPath:
    """One of them.

    Attributes:
        name: in words.
        off: what to change so that it is off; empty where the verdict decides.
    """

    name: str
    off: str = ""


_FUSED = "fedclust/engines/fused"
PATHS = {
    "graphs": FastPath(name="CUDA graphs of local training"),
    "gather": FastPath(name="kernel that gathers examples"),
    "softmax": FastPath(name="kernel of softmax regression"),
    "span": FastPath(
        name="first layers in the span of the examples",
        off=f"pays in {_FUSED}/span.py gives False on a GPU",
    ),
    "unfold": FastPath(
        name="convolutions as products of unfolded images",
        off=f'convolving in {_FUSED}/layers.py gives "row by row" on a GPU',
    ),
}


@contextmanager
def without(names: Collection[str]) -> Iterator[None]:
    """Some paths are left out, all others are taken, whatever the defaults and the environment."""
    on = ",".join(path for path in measured.PATHS if path not in names)
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, {measured.VARIABLE: on or "none"}))
        if "span" in names:
            stack.enter_context(patch.object(plan, "pays", _never))
        if "unfold" in names:
            stack.enter_context(patch.object(layers, "convolving", lambda *_: "row by row"))
        yield


def _never(count: torch.Tensor, *_: object) -> torch.Tensor:
    """No row is trained in the span of its examples."""
    return torch.zeros_like(count, dtype=torch.bool)


def taken(fused: Engine) -> set[str]:
    """The paths that the calls of an engine so far have taken; its last calls are replays."""
    if not isinstance(fused, FusedEngine):
        return set()
    device, network = fused.pool.x.device, fused.network
    chunks = [chunk for kept in fused._kept.values() for chunk in kept._last.values()]
    graphs = [captured for chunk in chunks if chunk.graphs for captured in _graphs_of(chunk)]
    found = {
        "graphs": any(graphs),
        "gather": fused.pool.gather is not None,
        "softmax": device.type == "cuda" and gpu.trains_in_one_launch(network, device, frozenset()),
        "span": any(chunk.span is not None for chunk in chunks),
        "unfold": device.type == "cuda" and any(isinstance(x, nn.Conv2d) for x in network.layers),
    }
    return {name for name, there in found.items() if there}


def _graphs_of(chunk: Any) -> list[bool]:
    return [captured is not None for captured in chunk.graphs._kept.values()]


class Said(logging.Handler):
    """What the package warns of, each line once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        if (line := record.getMessage()) not in self.lines:
            self.lines.append(line)
