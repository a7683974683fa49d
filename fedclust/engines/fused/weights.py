"""Parameters of the rows of a chunk, stacked per layer, and the rules that change them."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedclust.engines.fused.products import baddbmm

_NARROW = 64  # outputs below which adding number by number is faster than row by row


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


class Rule(Hashable, Protocol):
    """What becomes of a gradient; called once per parameter and step."""

    def weight(self, field: Field, rows: int, device: torch.device) -> Weight:
        """Room for a parameter of `rows` rows and for what the rule keeps beside it."""
        ...

    def product(self, weight: Weight, a: Tensor, b: Tensor) -> None:
        """Use the gradient a @ b, where a is [R, o, B], b [R, B, i] and the parameter [R, o, i]."""
        ...

    def whole(self, weight: Weight, gradient: Tensor) -> None:
        """Use the gradient [R, *shape]."""
        ...


class TrainingRule(Rule, Protocol):
    """A rule that moves the parameter by lr times a combination of gradients."""

    @property
    def lr(self) -> float:
        """Learning rate of the call."""
        ...

    @property
    def pull(self) -> float:
        """Factor of the anchor in the gradient, 0 where there is none; see `Descent`."""
        ...

    def spread(self, weight: Weight, place: Tensor | None, gradient: Tensor) -> None:
        """Use a gradient that is known by its coefficients, see `fedclust.engines.fused.span`.

        Args:
            weight: coefficients [R, n, o] of the parameter in units of -lr, and of its momentum.
            place: [R, B] int64 rows of [.. * n, o] that `gradient` belongs to; None for its first B
                of each.
            gradient: [R, B, o] coefficients of these; those of all others are 0.
        """
        ...


def _add_at(to: Tensor, place: Tensor | None, values: Tensor) -> None:
    """Add values [R, B, o] to the rows `place` [R, B] of to [R, n, o], all of its n counted
    through.
    """
    rows, batch, width = values.shape
    if place is None:
        to[:rows, :batch].add_(values)
        return
    flat, index = to.flatten(0, 1), place.reshape(-1)
    # index_add_ costs a call per row on a CPU, index_put_ works number by number, but sorts on a
    # GPU
    if width < _NARROW and not to.is_cuda:
        flat.index_put_((index,), values.reshape(-1, width), accumulate=True)
    else:
        flat.index_add_(0, index, values.reshape(-1, width))


@dataclass(frozen=True, kw_only=True)
class Descent:
    """Gradient descent w = w - lr * (g + decay * w - pull * a); a dense gradient is never stored.

    The proximal term mu (w - c) and a linear term l are one pull: mu (w - c) + l = mu w - mu a with
    a = c - l / mu. Without a proximal term the pull is 1 and a = -l.

    Attributes:
        lr: learning rate of the call.
        proximal: mu of FedProx, whose part of the pull on w itself is in `Weight.decay`.
        weight_decay: coefficient of w in the gradient.
        pull: mu, or 1 for a linear term alone, or 0 for neither.
    """

    lr: float
    proximal: float
    weight_decay: float
    pull: float

    def weight(self, field: Field, rows: int, device: torch.device) -> Weight:
        """See `Rule`."""
        return Weight(
            value=field.empty(rows, device),
            decay=self.weight_decay + self.proximal + 2 * field.l2,
            anchor=field.empty(rows, device) if self.pull else None,
        )

    def product(self, weight: Weight, a: Tensor, b: Tensor) -> None:
        """One step, fused into the product that is the gradient."""
        baddbmm(weight.value, a, b, weight.value, beta=1 - self.lr * weight.decay, alpha=-self.lr)
        if weight.anchor is not None:
            weight.value.add_(weight.anchor, alpha=self.lr * self.pull)

    def whole(self, weight: Weight, gradient: Tensor) -> None:
        """One step with a gradient at hand."""
        if weight.decay:
            weight.value.mul_(1 - self.lr * weight.decay)
        weight.value.add_(gradient, alpha=-self.lr)
        if weight.anchor is not None:
            weight.value.add_(weight.anchor, alpha=self.lr * self.pull)

    def spread(self, weight: Weight, place: Tensor | None, gradient: Tensor) -> None:
        """See `TrainingRule`."""
        if weight.decay:
            weight.value[: len(gradient)].mul_(1 - self.lr * weight.decay)
        _add_at(weight.value, place, gradient)


@dataclass(frozen=True, kw_only=True)
class HeavyBall:
    """Momentum u = momentum * u + g + decay * w - pull * a; w = w - lr * u.

    Attributes:
        lr: learning rate of the call.
        momentum: coefficient of the old u.
        proximal, weight_decay, pull: as in `Descent`.
    """

    lr: float
    momentum: float
    proximal: float
    weight_decay: float
    pull: float

    def weight(self, field: Field, rows: int, device: torch.device) -> Weight:
        """See `Rule`."""
        return Weight(
            value=field.empty(rows, device),
            decay=self.weight_decay + self.proximal + 2 * field.l2,
            anchor=field.empty(rows, device) if self.pull else None,
            slot=field.empty(rows, device),
        )

    def product(self, weight: Weight, a: Tensor, b: Tensor) -> None:
        """One step, the gradient fused into the momentum's update."""
        assert weight.slot is not None
        baddbmm(weight.slot, a, b, weight.slot, beta=self.momentum)
        self._move(weight, weight.slot)

    def whole(self, weight: Weight, gradient: Tensor) -> None:
        """One step with a gradient at hand."""
        assert weight.slot is not None
        weight.slot.mul_(self.momentum).add_(gradient)
        self._move(weight, weight.slot)

    def spread(self, weight: Weight, place: Tensor | None, gradient: Tensor) -> None:
        """See `TrainingRule`."""
        assert weight.slot is not None
        value, slot = weight.value[: len(gradient)], weight.slot[: len(gradient)]
        slot.mul_(self.momentum)
        _add_at(slot, place, gradient)
        if weight.decay:
            slot.add_(value, alpha=-self.lr * weight.decay)
        value.add_(slot)

    def _move(self, weight: Weight, slot: Tensor) -> None:
        if weight.decay:
            slot.add_(weight.value, alpha=weight.decay)
        if weight.anchor is not None:
            slot.add_(weight.anchor, alpha=-self.pull)
        weight.value.add_(slot, alpha=-self.lr)


@dataclass(frozen=True)
class Accumulate:
    """Sums gradients in the slot and leaves the parameters alone."""

    def weight(self, field: Field, rows: int, device: torch.device) -> Weight:
        """See `Rule`."""
        return Weight(value=field.empty(rows, device), slot=field.empty(rows, device))

    def product(self, weight: Weight, a: Tensor, b: Tensor) -> None:
        """Add a @ b."""
        assert weight.slot is not None
        baddbmm(weight.slot, a, b, weight.slot)

    def whole(self, weight: Weight, gradient: Tensor) -> None:
        """Add the gradient."""
        assert weight.slot is not None
        weight.slot.add_(gradient)


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
