"""Local training of a chunk as a CUDA graph: all of its kernels by one call of the host.

A step of a small model is a dozen kernels that take longer to start than to compute. A graph fixes
memory and all numbers not in it, such as batch sizes and the learning rate. So the first chunk of
a kind runs as usual, the second is captured and checked, and those after it are replayed. Chunks
that never come twice cost what they cost without graphs.

`measured.py` says whether they are on.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from fedclust.engines.fused.training import Batches

_LOG = logging.getLogger(__name__)
_MOST_STEPS = 2000  # a graph of more would take long to make and much memory
_KINDS = 8  # graphs of a chunk, and kinds it remembers


class Repeatable(Protocol):
    """A chunk whose training can be begun again; see `fedclust.engines.fused.chunk.Chunk`."""

    @property
    def span(self) -> object:
        """The first layer, where it is trained in the span of the examples."""

    def load(self, task: Any) -> None:
        """Take the rows' models."""

    def begin(self, task: Any) -> Batches:
        """The batches of all steps."""

    def all_steps(self, batches: Batches) -> Tensor:
        """Mean losses [R, 2] after all steps."""

    def moved(self) -> list[Tensor]:
        """All that local steps change."""


@dataclass(frozen=True)
class _Captured:
    """A graph, the batches it reads, and where it leaves the losses [R, 2]."""

    graph: Any
    batches: Batches
    losses: Tensor


class Graphs:
    """The graphs of one chunk's training."""

    def __init__(self) -> None:
        self._met: dict[object, None] = {}  # the last kinds, oldest first
        self._kept: dict[object, _Captured | None] = {}  # None where a graph cannot be used

    def train(self, chunk: Repeatable, batches: Batches, task: Any) -> Tensor:
        """As `Repeatable.all_steps`, always of one chunk, which `task` resets."""
        kind = (batches.kind, chunk.span)
        if kind not in self._kept and kind in self._met and len(self._kept) < _KINDS:
            self._kept[kind] = _capture(chunk, batches, task)
            batches = _again(chunk, task)
        captured = self._kept.get(kind)
        if captured is None:
            if len(batches.rows) <= _MOST_STEPS:
                self._met[kind] = None
            if len(self._met) > _KINDS:
                del self._met[next(iter(self._met))]
            return chunk.all_steps(batches)
        captured.batches.take(batches)
        captured.graph.replay()
        return captured.losses.clone()


def _again(chunk: Repeatable, task: Any) -> Batches:
    """The chunk as before its first step."""
    chunk.load(task)
    return chunk.begin(task)


def _capture(chunk: Repeatable, batches: Batches, task: Any) -> _Captured | None:
    """A graph that gives what `all_steps` gives; None, with a warning, without one."""
    losses = chunk.all_steps(batches)
    expected = [losses, *(x.clone() for x in chunk.moved())]
    own = _again(chunk, task).copied()
    start = [torch.zeros_like(losses), *(x.clone() for x in chunk.moved())]
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            left = chunk.all_steps(own)
        graph.replay()
    except RuntimeError as e:
        _LOG.warning("no CUDA graph of local training: %s", str(e).partition("\n")[0])
        return None
    if not all(map(_agree, [left, *chunk.moved()], expected, start)):
        _LOG.warning("a CUDA graph of local training gave other numbers and is not used")
        return None
    return _Captured(graph, own, left)


def _agree(found: Tensor, expected: Tensor, start: Tensor) -> bool:
    """Whether every row [R, ...] has moved from its start as expected, to a twentieth of the way.

    Another order of sums turns a ReLU now and then, which changes single numbers.
    """
    if not torch.equal(found.isfinite(), expected.isfinite()):
        return False
    found, expected, start = (
        x.nan_to_num(0, 0, 0).reshape(len(x), -1) for x in (found, expected, start)
    )
    pairs = (found - expected, expected - start, expected)
    off, way, size = (torch.linalg.vector_norm(x, dim=1) for x in pairs)
    return bool((off <= 0.05 * way + 1e-5 * size + 1e-9).all())
