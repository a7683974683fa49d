"""Local training of a chunk as a CUDA graph: all of its kernels by one call of the host.

A step of a small model is a dozen kernels of a few microseconds, which take the host longer to
start than the GPU to compute. A graph fixes the memory that is read and written, and every number
that is not in memory: how many rows and examples each step has, and the rule with its learning
rate. So the first chunk of a kind runs as usual, the second is captured and checked against the
usual way, and those after it are replayed. Chunks that never come twice (cohorts of unequal
clients, a learning rate that decays) cost what they cost without graphs.

FEDCLUST_CUDA_GRAPHS=0 in the environment turns them off.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedclust.engines.fused.network import Stack
from fedclust.engines.fused.training import Batches, train_chunk

_LOG = logging.getLogger(__name__)
_MOST_STEPS = 2000  # a graph of more would take long to make and much memory
_KINDS = 8  # graphs of a stack, and kinds it remembers


@dataclass(frozen=True)
class _Captured:
    """A graph, the batches it reads, and where it leaves the losses [R, 2]."""

    graph: Any
    batches: Batches
    loss: Tensor


class Graphs:
    """The graphs of one stack."""

    def __init__(self) -> None:
        self._met: dict[object, None] = {}  # the last kinds, oldest first
        self._kept: dict[object, _Captured | None] = {}  # None where a graph cannot be used

    def train(self, stack: Stack, batches: Batches, again: Callable[[], Batches]) -> Tensor:
        """As `train_chunk`.

        Args:
            stack: the models, always the same stack.
            batches: what they are trained on.
            again: brings stack and batches back to where they were given.
        """
        kind = (batches.kind, stack.span)
        if kind not in self._kept and kind in self._met and len(self._kept) < _KINDS:
            self._kept[kind] = _capture(stack, batches, again)
            batches = again()
        captured = self._kept.get(kind)
        if captured is None:
            if len(batches.rows) <= _MOST_STEPS:
                self._met[kind] = None
            if len(self._met) > _KINDS:
                del self._met[next(iter(self._met))]
            return train_chunk(stack, batches)
        captured.batches.take(batches)
        captured.graph.replay()
        return captured.loss.clone()


def _capture(stack: Stack, batches: Batches, again: Callable[[], Batches]) -> _Captured | None:
    """A graph that gives what `train_chunk` gives; None, with a warning, where there is none."""
    loss = train_chunk(stack, batches)
    expected = [loss, *(x.clone() for x in stack.trained())]
    own = again().copied()
    start = [torch.zeros_like(loss), *(x.clone() for x in stack.trained())]
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            left = train_chunk(stack, own)
        graph.replay()
    except RuntimeError as e:
        _LOG.warning("no CUDA graph of local training: %s", str(e).partition("\n")[0])
        return None
    if not all(map(_agree, [left, *stack.trained()], expected, start)):
        _LOG.warning("a CUDA graph of local training gave other numbers and is not used")
        return None
    return _Captured(graph, own, left)


def _agree(found: Tensor, expected: Tensor, start: Tensor) -> bool:
    """Whether every row [R, ...] has moved from its start as expected.

    To a twentieth of the way: another order of sums turns a ReLU now and then, which changes single
    numbers.
    """
    if not torch.equal(found.isfinite(), expected.isfinite()):
        return False
    found, expected, start = (
        x.nan_to_num(0, 0, 0).reshape(len(x), -1) for x in (found, expected, start)
    )
    pairs = (found - expected, expected - start, expected)
    off, way, size = (torch.linalg.vector_norm(x, dim=1) for x in pairs)
    return bool((off <= 0.05 * way + 1e-5 * size + 1e-9).all())


def enabled(device: torch.device) -> bool:
    """Whether graphs are used on a device."""
    return device.type == "cuda" and os.environ.get("FEDCLUST_CUDA_GRAPHS") != "0"
