"""Parameters of the rows of a chunk, stacked per layer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedclust.engines.fused.native import adding


@dataclass(frozen=True, kw_only=True)
class Weight:
    """One parameter of R rows.

    Attributes:
        value: [R, *shape], a bias as [R, 1, o]; contiguous but for the order of a convolution's
            channels.
        decay: factor of `value` in the gradient: weight decay, proximal pull and the model's own L2
            together.
        anchor: A of the constant part -pull * A of the gradient, see `Descent`; None without one.
        slot: momentum, or whatever else the rule accumulates.
        square: mean of the gradient's squares.
        gradient: room for it, where the rule moves the parameter later.
        frozen: whether it stays as it is, so that its gradient is not asked for.
    """

    value: Tensor
    decay: float = 0.0
    anchor: Tensor | None = None
    slot: Tensor | None = None
    square: Tensor | None = None
    gradient: Tensor | None = None
    frozen: bool = False

    @property
    def kept(self) -> list[Tensor]:
        """What the rule keeps from step to step, in the order of `Law.move`."""
        return [x for x in (self.slot, self.square) if x is not None]

    def rows(self, low: int, high: int) -> Weight:
        """The rows [low, high) as views."""
        cut = {
            name: None if (own := getattr(self, name)) is None else own[low:high]
            for name in ("anchor", "slot", "square", "gradient")
        }
        return Weight(value=self.value[low:high], decay=self.decay, frozen=self.frozen, **cut)


@dataclass(frozen=True, kw_only=True)
class Field:
    """Where one parameter lies in flat rows, and how its stack is stored.

    Attributes:
        offset: first column in [.., P].
        shape: shape of the parameter.
        l2: c of the model's penalty c * sum(w^2).
        pull: factor of the proximal weight.
        moves: whether gradients move it; statistics are no parameters.
    """

    offset: int
    shape: tuple[int, ...]
    l2: float = 0.0
    pull: float = 1.0
    moves: bool = True

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def empty(self, rows: int, device: torch.device) -> Tensor:
        """Room for `rows` values like `Weight.value`; convolution kernels are channels last."""
        if len(self.shape) == 1:
            return torch.empty(rows, 1, *self.shape, device=device)
        if len(self.shape) < 4:
            return torch.empty(rows, *self.shape, device=device)
        out, channels, _, width = self.shape
        # PyTorch calls tensors of one channel contiguous either way, so the strides are given
        # explicitly
        strides = (self.size, self.size // out, 1, width * channels, channels)
        return torch.empty_strided((rows, *self.shape), strides, device=device)

    def load(self, flat: Tensor, label: Tensor, stack: Tensor) -> None:
        """Copy the parameter of models `label` [R] of flat [K, P] into the stack [R, *shape]."""
        part = flat[:, self.offset : self.offset + self.size]
        if stack.is_contiguous():
            torch.index_select(part, 0, label, out=stack.view(len(label), -1))
        else:
            stack.copy_(part.index_select(0, label).view(stack.shape))

    def store(self, stack: Tensor, flat: Tensor, rows: Tensor) -> None:
        """Write the stack [R, *shape] into the rows `rows` [R] of flat [C, P]."""
        part = flat[:, self.offset : self.offset + self.size]
        part.index_copy_(0, rows, stack.reshape(len(rows), -1))

    def add(self, stack: Tensor, total: Tensor, label: Tensor, factor: Tensor) -> None:
        """Add the stack [R, *shape], times factors [R], to the rows `label` [R] of [K, P]."""
        part = total[:, self.offset : self.offset + self.size]
        adding.add(part, stack.reshape(len(label), -1), label, factor)


class Parameters:
    """The parameters of R rows, and what a rule keeps beside them.

    Args:
        fields: where each lies in a flat row, by name.
        weights: room for each, by the same names.

    Attributes:
        still: names of those that training leaves as they are.
        count: [R] float32 local steps of the rows, for rules that look at them.
    """

    def __init__(
        self,
        fields: Mapping[str, Field],
        weights: Mapping[str, Weight],
        still: frozenset[str] = frozenset(),
    ) -> None:
        self._fields, self.weights, self.still = fields, weights, still
        self._size = sum(field.size for field in fields.values())
        value = next(iter(weights.values())).value
        self.count = value.new_zeros(len(value))

    def moving(self, rows: int) -> list[Weight]:
        """The first rows of all parameters that are not frozen."""
        return [w.rows(0, rows) for w in self.weights.values() if not w.frozen]

    def moves(self, layer: int) -> bool:
        """Whether a layer has parameters that are not frozen."""
        own = (self.weights.get(f"{layer}.{part}") for part in ("weight", "bias"))
        return any(weight is not None and not weight.frozen for weight in own)

    def load(
        self,
        models: Tensor,
        label: Tensor,
        slots: Tensor | None = None,
        anchor: Tensor | None = None,
    ) -> None:
        """Take parameters, and what the rule keeps beside them.

        Args:
            models: [K, P].
            label: [R] int64 model of every row.
            slots: [K, W] likewise what is kept of the models, see `Law.width`; None for zeros.
            anchor: [R, P] see `Weight.anchor`; None for the models themselves.
        """
        own = torch.arange(len(label), device=label.device)
        for name, field in self._fields.items():
            weight = self.weights[name]
            field.load(models, label, weight.value)
            if weight.anchor is not None and anchor is not None:
                field.load(anchor, own, weight.anchor)
            elif weight.anchor is not None:
                weight.anchor.copy_(weight.value)
            for number, kept in enumerate(weight.kept):
                if slots is None:
                    kept.zero_()
                else:
                    field.load(self._part(slots, number), label, kept)
        if slots is None or slots.shape[1] % self._size == 0:
            self.count.zero_()
        else:
            torch.index_select(slots[:, -1], 0, label, out=self.count)

    def _part(self, slots: Tensor, number: int) -> Tensor:
        """[.., P] a slot of flat rows [.., W]."""
        return slots[:, number * self._size : (number + 1) * self._size]

    def scale_slots(self, factor: Tensor) -> None:
        """Multiply what the rule keeps, if it keeps anything, by the factor [R] of every row."""
        for weight in self.weights.values():
            if weight.slot is not None:
                by_row = factor.to(weight.slot.dtype)
                weight.slot.mul_(by_row.view(-1, *[1] * (weight.slot.dim() - 1)))

    def store(self, rows: Tensor, params: Tensor | None, slots: Tensor | None) -> None:
        """Write parameters and slots into the rows `rows` [R] of flat tensors [C, P]."""
        for field, stack, flat in self._flat(params, slots):
            field.store(stack, flat, rows)
        if slots is not None and slots.shape[1] % self._size:
            slots[:, -1].index_copy_(0, rows, self.count)

    def add(self, label: Tensor, factor: Tensor, params: Tensor, slots: Tensor | None) -> None:
        """Add parameters and slots times factor [R] to float64 totals [K, P], [K, W] by label."""
        for field, stack, flat in self._flat(params, slots):
            field.add(stack, flat, label, factor)
        if slots is not None and slots.shape[1] % self._size:
            slots[:, -1].index_add_(0, label, self.count * factor)

    def _flat(
        self, params: Tensor | None, slots: Tensor | None
    ) -> Iterator[tuple[Field, Tensor, Tensor]]:
        """Every stack of parameters and slots, with the flat rows that it belongs to."""
        for name, field in self._fields.items():
            weight = self.weights[name]
            if params is not None:
                yield field, weight.value, params
            for number, kept in enumerate(() if slots is None else weight.kept):
                assert slots is not None
                yield field, kept, self._part(slots, number)
