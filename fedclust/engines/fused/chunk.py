"""Rows that are trained together: loaded, begun, moved step by step, finished and stored."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

import torch
from torch import Tensor

from fedclust.core.calls import TrainCall
from fedclust.core.pool import Pool
from fedclust.engines.fused import gpu
from fedclust.engines.fused.heads import head_of
from fedclust.engines.fused.layers import Layers, StackedModels
from fedclust.engines.fused.network import Network
from fedclust.engines.fused.plan import Compiled, Path
from fedclust.engines.fused.rules import Descent, TrainingRule
from fedclust.engines.fused.span import Span
from fedclust.engines.fused.training import Batches, anchor_of, descend, first_of
from fedclust.engines.schedule import Schedule
from fedclust.helpers.meter import meter

if TYPE_CHECKING:
    from fedclust.engines.fused.cuda.graphs import Graphs

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ChunkTask:
    """What a chunk is to do.

    Attributes:
        call: the training of its R rows, whose steps descend.
        compiled: the code of `Path.COMPILED`.
        in_span: [R] bool, the host's, whose first layer is trained in the span of their examples.
    """

    call: TrainCall
    schedule: Schedule
    pool: Pool
    path: Path
    compiled: Compiled | None
    in_span: Tensor


def train(chunk: Chunk, task: ChunkTask) -> Tensor:
    """Local training of a chunk's rows: all that happens to it before `store` or `add`.

    Returns:
        [R, 2] mean losses of the steps, and of the first local epoch; nats per example. Where the
        call asks for each step's, they stand behind, [R, 2 + S].
    """
    chunk.load(task)
    compiled = task.path is Path.COMPILED
    losses = chunk.by_compiled(task) if compiled else _step_by_step(chunk, task)
    if task.call.rates is not None:  # the weights of the examples were multiplied by them
        chunk.parameters.scale_slots(1 / task.call.rates.lr)
        losses = losses / task.call.rates.lr.to(losses.dtype).unsqueeze(1)
    return losses


def _step_by_step(chunk: Chunk, task: ChunkTask) -> Tensor:
    """As `train`, of a chunk that is loaded, by the batches of its steps."""
    batches = chunk.begin(task)
    if task.call.each_step:  # neither compiled code nor a graph keeps them
        losses = chunk.all_steps(batches, each_step=True)
    elif chunk.one_launch and batches.data is not None:
        losses = chunk.all_in_one_launch(batches)
    elif chunk.graphs is None:
        losses = chunk.all_steps(batches)
    else:
        losses = chunk.graphs.train(chunk, batches, task)
    chunk.finish(task)
    return losses


class Chunk:
    """Room for R rows and their training, used again for other rows of as many.

    Args:
        models: room for their models, with a rule that trains them.
        one_launch: whether a kernel knows such models.
        graphs: of the training on a GPU; None for none.

    Attributes:
        parameters: of the models, with what the rule keeps.
        span: the first layer, where it is trained in the span of the examples.
    """

    def __init__(
        self,
        models: StackedModels,
        rule: TrainingRule,
        *,
        one_launch: bool,
        graphs: Graphs | None,
    ) -> None:
        self.models, self.rule, self.graphs = models, rule, graphs
        self.parameters, self.one_launch = models.parameters, one_launch
        self.span: Span | None = None
        self._layers = models.layers

    @classmethod
    def of(
        cls, network: Network, rows: int, device: torch.device, rule: TrainingRule, *frozen: str
    ) -> Chunk:
        """A chunk of R rows of a network, some of whose parameters are frozen, on a device."""
        still = frozenset(frozen)
        return cls(
            StackedModels(network, rows, device, rule.products, rule, still),
            rule,
            one_launch=rule.linear and gpu.trains_in_one_launch(network, device, still),
            graphs=gpu.graphs(device) if network.softmax else None,
        )

    def load(self, task: ChunkTask) -> None:
        """Take the rows' models, momenta and anchors, and what their randomness comes from."""
        call = task.call
        self.parameters.load(call.models, call.label, call.slots, anchor_of(call))
        if call.rates is not None and call.slots is not None:
            self.parameters.scale_slots(call.rates.lr)
        self.models.key.copy_(call.shards.key)
        own = call.anchor is not None or call.linear is not None
        kind = (call.shards.index.shape[1], own) if task.path is Path.SPAN else None
        if kind != (None if self.span is None else self.span.kind):
            self.span = None if kind is None else self._spanned(*kind)
            self._layers = Layers(self.models, self.span)

    def begin(self, task: ChunkTask) -> Batches:
        """The batches of all steps, and the examples they are taken from."""
        call, buffers = task.call, self.models.buffers
        # on a GPU a chunk is chosen so that all examples of regression have room
        whole = self.span is not None or self.one_launch
        batches = Batches.of(task.pool, call, task.schedule, buffers, whole=whole)
        if self.span is None:
            return batches
        assert batches.data is not None
        self.span.begin(batches.data.flatten(2), batches.example.shape[0])
        return replace(batches, data=self.span.gram)

    def by_compiled(self, task: ChunkTask) -> Tensor:
        """Everything in one call of compiled code; see `train`."""
        assert task.compiled is not None
        network, weights, steps = self.models.network, self.parameters.weights, task.schedule.steps
        losses = task.compiled(
            network, weights, self.rule, task.pool, task.call, steps, task.in_span
        )
        self.parameters.count += steps
        return losses

    def all_in_one_launch(self, batches: Batches) -> Tensor:
        """Every step at once; see `train`."""
        from fedclust.engines.fused.cuda import regression

        assert isinstance(self.rule, Descent)
        weights, layer = self.parameters.weights, self.models.network.first_dense
        weight, bias = weights[f"{layer}.weight"], weights.get(f"{layer}.bias")
        return regression.train_softmax(weight, bias, self.rule, self.span, batches)

    def all_steps(self, batches: Batches, *, each_step: bool = False) -> Tensor:
        """Step after step; see `train`."""
        logp = batches.room_for_labels()
        meter.steps = len(batches.rows)
        for step in range(len(batches.rows)):
            meter.step = step
            self.step(batches, step, logp)
        return batches.mean_losses(logp, each_step=each_step)

    def step(self, batches: Batches, step: int, logp: Tensor) -> None:
        """One local step; losses with their signs changed are written to logp [S, R, B]."""
        rows, width = batches.rows[step], batches.width[step]
        clock, frame = self.models.clock, self._layers.frame(rows, width)
        clock.step = step
        if self.models.network.normalises:
            clock.sizes = batches.known[:rows, step].tolist()
        clock.example = None if batches.ordered else first_of(batches.example[step], rows, width)
        label, share = (first_of(x[step], rows, width) for x in (batches.label, batches.share))
        head = head_of(batches.pool.task)
        x = batches.inputs(step, frame.inputs)
        descend(frame, head, x, label, share, logp[step, :rows, :width])
        self.rule.close(self.parameters, rows, step)

    def finish(self, task: ChunkTask) -> None:
        """Turn coefficients of the examples into weights."""
        if self.span is not None:
            self.span.finish(task.schedule.known_steps)

    def moved(self) -> list[Tensor]:
        """All that local steps change."""
        changed = [] if self.span is None else [self.span.coefficients]
        changed += self.parameters.weights.values()
        kept = [x for weight in changed for x in (weight.value, *weight.kept)]
        return [*kept, self.parameters.count]

    def _spanned(self, examples: int, own_anchor: bool) -> Span:
        """The first layer in the span of up to `examples` examples of every row."""
        assert isinstance(self.rule, Descent)
        layer = self.parameters.weights[f"{self.models.network.first_dense}.weight"]
        return Span(layer, self.rule, self.models.buffers, examples, own_anchor=own_anchor)


class RoomCache(Generic[T]):
    """Rooms that `make` gives by number of rows and kind, kept for chunks of their kind.

    `most` bounds the bytes of parameters that more than one of them may keep.
    """

    def __init__(self, make: Callable[..., T], row_bytes: int, most: int = 0) -> None:
        self._make, self._row_bytes, self._most = make, row_bytes, most
        self._last: dict[tuple[int, *tuple[Hashable, ...]], T] = {}

    def of(self, rows: int, *kind: Hashable) -> T:
        """One for `rows` rows with any content."""
        key: tuple[int, *tuple[Hashable, ...]] = (rows, *kind)
        if key in self._last:
            self._last[key] = self._last.pop(key)  # the newest
            return self._last[key]
        # before the next one is made, so that there is never room for more
        while self._last and self._row_bytes * (rows + self._rows) > self._most:
            del self._last[next(iter(self._last))]
        self._last[key] = self._make(rows, *kind)
        return self._last[key]

    @property
    def _rows(self) -> int:
        """Rows of all."""
        return sum(rows for rows, *_ in self._last)
