"""The batches of local training, and what a batch does to the models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedclust.core.calls import TrainCall
from fedclust.core.pool import Pool
from fedclust.engines.fused.heads import Head, head_of
from fedclust.engines.fused.layers import Buffers, Frame, StackedModels
from fedclust.engines.fused.native import batches as compiled
from fedclust.engines.schedule import Schedule

# bytes of a chunk's converted examples; beyond it every batch is converted by itself
_RESIDENT = 256 << 20


def anchor_of(call: TrainCall) -> Tensor | None:
    """Where the rule of a call pulls its rows to, [R, P]; None for their start.

    The proximal and the linear term are both in it, see `Descent`.
    """
    if call.linear is None:
        return call.anchor
    if not call.solver.proximal:
        return -call.linear if call.rates is None else -call.linear * _column(call.rates.lr)
    centre = call.models[call.label] if call.anchor is None else call.anchor
    return torch.sub(centre, call.linear, alpha=1 / call.solver.proximal)


def pulled(call: TrainCall) -> TrainCall:
    """The call with its pull's factors f in the anchor: mu f (w - a) = mu f w - mu (f a)."""
    if call.pull is None:
        return call
    centre = call.models[call.label] if call.anchor is None else call.anchor
    return replace(call, anchor=centre * call.pull, pull=None)


def _column(rate: Tensor) -> Tensor:
    """[R] float64 as [R, 1] float32."""
    return rate.to(torch.float32).unsqueeze(1)


@dataclass(frozen=True, kw_only=True)
class Batches:
    """The batches of a chunk, step by step.

    Attributes:
        example: [S, R, B] int64 rows of `data` counted through all clients, or of the pool where
            there are no data.
        data: [R, n, *shape] float32 examples of the chunk, or None where they would take too much
            memory or differ from step to step.
        key: [R] int64 randomness of the rows.
        label: [S, R, B, 1] int64 classes, or targets [S, R, B, T].
        size: [R, S] int64 examples of every batch.
        known: the same in the host's memory.
        share: [S, R, B, 1] weight of every example in the loss of its batch, 0 in padding; times
            the row's own learning rate, where it has one.
        weighted: whether these differ within a batch.
        steps: [R] int64 local steps of every row.
        first: [R, E] float32 what the loss of each of the first E steps weighs in the mean over the
            first local epoch.
        rows: active rows by step; rows are sorted, so these are the first ones.
        width: largest batch of the active rows by step.
        ordered: every batch of a row is its first examples in order.
    """

    pool: Pool
    example: Tensor
    data: Tensor | None
    key: Tensor
    label: Tensor
    size: Tensor
    known: Tensor
    share: Tensor
    weighted: bool
    steps: Tensor
    first: Tensor
    rows: list[int]
    width: list[int]
    ordered: bool

    # in every step, besides the data
    _READ: ClassVar[tuple[str, ...]] = ("example", "key", "label", "share", "steps", "first")

    @classmethod
    def of(
        cls, pool: Pool, call: TrainCall, plan: Schedule, buffers: Buffers, *, whole: bool
    ) -> Batches:
        """The batches that `plan` gives to the rows of `call`, whose steps descend.

        Args:
            buffers: memory for the data.
            whole: whether all examples of a row are needed, however many there are.
        """
        shards, solver, weight = call.shards, call.solver, call.example_weight
        rows, longest = shards.index.shape
        batches = 1 if solver.batch_size is None else -(-longest // solver.batch_size)
        source, known, data = shards.index.reshape(-1), plan.known_size, None
        if pool.y.dim() == 1 and compiled.lays_out(plan):
            example, label, share = compiled.lay_out(plan, pool.y)
        else:
            # [S, R, 1], [S, R, B]
            size, position = plan.size.T.unsqueeze(2), plan.position.transpose(0, 1)
            inside = torch.arange(position.shape[2], device=size.device) < size
            example = position + torch.arange(rows, device=size.device).unsqueeze(1) * longest
            label, share = pool.y[source][example], inside / size.clamp(min=1)
        if weight is not None:
            share *= weight.reshape(-1)[example]
        if call.rates is not None:
            share *= _column(call.rates.lr)
        small = source.numel() * pool.x[0].numel() * 4 <= _RESIDENT
        if pool.view is None and pool.vocabulary is None and (small or whole):
            # in memory that was written before
            data = pool.inputs_into(source, buffers("data", rows, longest, *pool.shape))
        return cls(
            pool=pool,
            example=example.contiguous() if data is not None else source[example],
            data=data,
            key=shards.key,
            label=label if label.dim() == 4 else label.unsqueeze(3),
            size=plan.size,
            known=known,
            share=share.unsqueeze(3),
            weighted=weight is not None or call.rates is not None,
            steps=plan.steps,
            first=plan.first_epoch()[:, :batches],
            rows=(known > 0).sum(0).tolist(),
            width=known.amax(0).tolist() if rows else [],
            ordered=plan.ordered,
        )

    @property
    def kind(self) -> object:
        """What of the steps is known to the host, and where the data lie."""
        where = None if self.data is None else self.data.data_ptr()
        return tuple(self.rows), tuple(self.width), self.ordered, self.example.shape, where

    def copied(self) -> Batches:
        """The same batches in memory of their own, but for the data."""
        own = {name: getattr(self, name).clone() for name in self._READ}
        return replace(self, **own)

    def take(self, other: Batches) -> None:
        """Become batches of the same kind, in the same memory."""
        for name in self._READ:
            getattr(self, name).copy_(getattr(other, name))

    def inputs(self, step: int, room: Tensor) -> Tensor:
        """What the models see at a step, [R, B, *shape] of the active rows, possibly in `room`."""
        rows, width = room.shape[:2]
        if self.data is not None and self.ordered:
            return self.data[:rows, :width]
        example = first_of(self.example[step], rows, width)
        if self.data is None:
            return self.pool.training_inputs(example, self.key[:rows], step)
        # one copy per batch: indexing would copy twice, and a shuffled copy per pass would leave
        # the cache
        torch.index_select(self.data.flatten(0, 1), 0, example.reshape(-1), out=room.flatten(0, 1))
        return room

    def room_for_labels(self) -> Tensor:
        """[S, R, B] zeros, for the loss of every example with its sign changed."""
        return torch.zeros_like(self.share).squeeze(3)

    def mean_losses(self, logp: Tensor, *, each_step: bool = False) -> Tensor:
        """Mean losses of the steps, and of the first local epoch, [R, 2] nats per example; logp is
        changed. With `each_step` [R, 2 + S]: then the loss of every step, 0 past a row's last.
        """
        losses = logp.unsqueeze(3).mul_(self.share)  # of every example, negative
        early = losses[: self.first.shape[1]].sum((2, 3)).T * self.first
        mean = losses.sum((0, 2, 3)) / self.steps.clamp(min=1)
        means = torch.stack([mean, early.sum(1)], 1)
        return (torch.cat([means, losses.sum((2, 3)).T], 1) if each_step else means).neg_()


def first_of(x: Tensor, rows: int, width: int) -> Tensor:
    """x[:rows, :width], free where that is all."""
    return x if x.shape[0] == rows and x.shape[1] == width else x[:rows, :width]


def descend(
    frame: Frame, head: Head, x: Tensor, label: Tensor, share: Tensor, out: Tensor | None = None
) -> None:
    """Carry the gradient of the weighted loss of a batch through the models, which their rule
    changes.

    Args:
        x: [R, B, *shape] inputs.
        label: [R, B, 1] int64 classes, or targets [R, B, T].
        share: [R, B, 1] weight of every example's loss.
        out: [R, B] where to write the losses with their signs changed.
    """
    given = head.look(frame, x)
    if out is not None:
        head.losses(given, label, out)
    head.back(frame, given, label, share)


def targets(pool: Pool, index: Tensor) -> Tensor:
    """Targets of the examples `index` [R, B]: classes [R, B, 1], or [R, B, T]."""
    y = pool.y[index]
    return y if y.dim() == 3 else y.unsqueeze(2)


def add_gradients(
    models: StackedModels, pool: Pool, index: Tensor, share: Tensor, counts: list[int], block: int
) -> None:
    """Add to the slots the gradient of every row's weighted loss over its own examples.

    Args:
        index: [R, n] int64 pool rows.
        share: [R, n] weight of every example's loss, 0 in padding.
        counts: examples of every row, descending.
        block: examples of a row taken at once.
    """
    head = head_of(pool.task)
    for first in range(0, counts[0], block):
        rows, width = sum(count > first for count in counts), min(block, counts[0] - first)
        part = index[:rows, first : first + width]
        weight = share[:rows, first : first + width].unsqueeze(2)
        frame = models.layers.frame(rows, width)
        descend(frame, head, pool.inputs(part), targets(pool, part), weight)
