"""Parameters of the rows of a chunk, stacked per layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
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
        frozen: whether it stays as it is, so that its gradient is not asked for.
    """

    value: Tensor
    decay: float = 0.0
    anchor: Tensor | None = None
    slot: Tensor | None = None
    frozen: bool = False

    def rows(self, low: int, high: int) -> Weight:
        """The rows [low, high) as views."""
        return Weight(
            value=self.value[low:high],
            decay=self.decay,
            anchor=None if self.anchor is None else self.anchor[low:high],
            slot=None if self.slot is None else self.slot[low:high],
            frozen=self.frozen,
        )


@dataclass(frozen=True, kw_only=True)
class Field:
    """Where one parameter lies in flat rows, and how its stack is stored.

    Attributes:
        offset: first column in [.., P].
        shape: shape of the parameter.
        l2: c of the model's penalty c * sum(w^2).
    """

    offset: int
    shape: tuple[int, ...]
    l2: float = 0.0

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def empty(self, rows: int, device: torch.device) -> Tensor:
        """Room for `rows` values as `Weight.value` wants them; kernels of convolutions lie
        channels last.
        """
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
        """Copy the parameter of the models `label` [R] of flat [K, P] into the stack [R,
        *shape].
        """
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
    """

    def __init__(self, fields: Mapping[str, Field], weights: Mapping[str, Weight]) -> None:
        self._fields, self.weights = fields, weights

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
            slots: [K, P] likewise; None for zeros.
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
            if weight.slot is not None and slots is not None:
                field.load(slots, label, weight.slot)
            elif weight.slot is not None:
                weight.slot.zero_()

    def scale_slots(self, factor: Tensor) -> None:
        """Multiply what the rule keeps, if it keeps anything, by the factor [R] of every row."""
        for weight in self.weights.values():
            if weight.slot is not None:
                by_row = factor.to(weight.slot.dtype)
                weight.slot.mul_(by_row.view(-1, *[1] * (weight.slot.dim() - 1)))

    def store(self, rows: Tensor, params: Tensor | None, slots: Tensor | None) -> None:
        """Write parameters and slots into the rows `rows` [R] of flat tensors [C, P]."""
        for name, field in self._fields.items():
            weight = self.weights[name]
            if params is not None:
                field.store(weight.value, params, rows)
            if slots is not None:
                assert weight.slot is not None
                field.store(weight.slot, slots, rows)

    def add(self, label: Tensor, factor: Tensor, params: Tensor, slots: Tensor | None) -> None:
        """Add parameters and slots of every row, times its factor [R], to the float64 totals [K, P]
        of the model `label` [R] int64; all on the host.
        """
        for name, field in self._fields.items():
            weight = self.weights[name]
            field.add(weight.value, params, label, factor)
            if slots is not None:
                assert weight.slot is not None
                field.add(weight.slot, slots, label, factor)
