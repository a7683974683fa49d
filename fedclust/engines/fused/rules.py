"""What becomes of gradients: rules that move the parameters, or add up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from fedclust.core.solver import Solver, clip
from fedclust.engines.fused.native import moments
from fedclust.engines.fused.products import Products
from fedclust.engines.fused.weights import Field, Parameters, Weight

_NARROW = 64  # outputs below which adding number by number is faster than row by row


class Sum(NamedTuple):
    """Where a gradient g is added up: to = beta * to + alpha * g, shaped as the parameter."""

    to: Tensor
    beta: float
    alpha: float


class Rule(Hashable, Protocol):
    """What becomes of a gradient; called once per parameter and step."""

    def weight(self, field: Field, rows: int, device: torch.device) -> Weight:
        """Room for a parameter of `rows` rows and for what the rule keeps beside it."""

    def product(self, weight: Weight, a: Tensor, b: Tensor) -> None:
        """Use the gradient a @ b, where a is [R, o, B], b [R, B, i] and the parameter [R, o, i]."""

    def sum_of(self, weight: Weight) -> Sum | None:
        """Where a gradient is added up, so that the code that makes it can; None if it is not."""

    def settle(self, weight: Weight) -> None:
        """Do what is left to do when that sum is made."""

    def whole(self, weight: Weight, gradient: Tensor) -> None:
        """Use the gradient [R, *shape]."""

    def scattered(self, weight: Weight, place: Tensor, gradient: Tensor) -> None:
        """Use a gradient that is 0 but for sums [R, n, D] at places [R, n] int64 of [R, V, D]."""


class TrainingRule(Rule, Protocol):
    """A rule that moves the parameters of local training.

    Attributes:
        linear: whether it moves them by -lr times a combination of gradients.
    """

    linear: ClassVar[bool]

    @property
    def lr(self) -> float:
        """Learning rate of the call."""

    @property
    def pull(self) -> float:
        """Factor of the anchor in the gradient, 0 where there is none; see `Descent`."""

    @property
    def products(self) -> Products:
        """Computes gradients."""

    def close(self, parameters: Parameters, rows: int, step: int) -> None:
        """End a local step of the first rows, all of whose gradients have been used."""


class Summing(ABC):
    """What rules have in common that add every gradient up."""

    products: Products

    @abstractmethod
    def sum_of(self, weight: Weight) -> Sum:
        """See `Rule.sum_of`."""

    @abstractmethod
    def settle(self, weight: Weight) -> None:
        """See `Rule.settle`."""

    def product(self, weight: Weight, a: Tensor, b: Tensor) -> None:
        """The product that is the gradient adds it up itself."""
        to, beta, alpha = self.sum_of(weight)
        if beta == 0 and alpha == 1:
            self.products.bmm(a, b, to)
        else:
            self.products.baddbmm(to, a, b, to, beta=beta, alpha=alpha)
        self.settle(weight)


def _add_at(to: Tensor, example: Tensor | None, values: Tensor) -> None:
    """Add values [R, B, o] to rows `example` [R, B] of to [R, n, o], all n counted through."""
    rows, batch, width = values.shape
    if example is None:
        to[:rows, :batch].add_(values)
        return
    flat, index = to.flatten(0, 1), example.reshape(-1)
    # index_add_ costs a call per row on a CPU, index_put_ works number by number, but sorts on a
    # GPU
    if width < _NARROW and not to.is_cuda:
        flat.index_put_((index,), values.reshape(-1, width), accumulate=True)
    else:
        flat.index_add_(0, index, values.reshape(-1, width))


def summed(weight: Weight, place: Tensor, gradient: Tensor) -> Tensor:
    """All of a gradient [R, V, D] that is known at places; see `Rule.scattered`."""
    whole = torch.zeros_like(weight.value)
    _add_at(whole, _through(whole, place), gradient)
    return whole


def _through(to: Tensor, place: Tensor) -> Tensor:
    """Places [R, n] of to [R, V, D], counted through all of its rows."""
    rows, number = to.shape[:2]
    return place + torch.arange(rows, device=place.device).unsqueeze(1) * number


@dataclass(frozen=True, kw_only=True)
class Descent(Summing):
    """Gradient descent w = w - lr * (g + decay * w - pull * a); a dense gradient is never stored.

    The proximal term mu (w - c) and a linear term l are one pull: mu (w - c) + l = mu w - mu a with
    a = c - l / mu. Without a proximal term the pull is 1 and a = -l.

    Attributes:
        proximal: mu of FedProx, whose part of the pull on w itself is in `Weight.decay`.
        weight_decay: coefficient of w in the gradient.
        pull: mu, or 1 for a linear term alone, or 0 for neither.
    """

    lr: float
    proximal: float
    weight_decay: float
    pull: float
    products: Products

    linear: ClassVar[bool] = True

    def weight(self, field: Field, rows: int, device: torch.device) -> Weight:
        return Weight(
            value=field.empty(rows, device),
            decay=self.weight_decay + self.proximal * field.pull + 2 * field.l2,
            anchor=field.empty(rows, device) if self.pull else None,
        )

    def sum_of(self, weight: Weight) -> Sum:
        return Sum(weight.value, 1 - self.lr * weight.decay, -self.lr)

    def settle(self, weight: Weight) -> None:
        if weight.anchor is not None:
            weight.value.add_(weight.anchor, alpha=self.lr * self.pull)

    def whole(self, weight: Weight, gradient: Tensor) -> None:
        """One step with a gradient at hand."""
        if weight.decay:
            weight.value.mul_(1 - self.lr * weight.decay)
        weight.value.add_(gradient, alpha=-self.lr)
        self.settle(weight)

    def scattered(self, weight: Weight, place: Tensor, gradient: Tensor) -> None:
        """One step, of the places only where nothing moves the others."""
        if weight.decay or weight.anchor is not None:
            self.whole(weight, summed(weight, place, gradient))
        else:
            _add_at(weight.value, _through(weight.value, place), gradient * -self.lr)

    def spread(self, weight: Weight, example: Tensor | None, gradient: Tensor) -> None:
        """Use a gradient that is known by its coefficients, see `fedclust.engines.fused.span`.

        Args:
            weight: coefficients [R, n, o] of the parameter in units of -lr, and of its momentum.
            example: [R, B] int64 rows of [.. * n, o] that `gradient` belongs to; None for its first
                B of each.
            gradient: [R, B, o] coefficients of these; those of all others are 0.
        """
        if weight.decay:
            weight.value[: len(gradient)].mul_(1 - self.lr * weight.decay)
        _add_at(weight.value, example, gradient)

    def close(self, parameters: Parameters, rows: int, step: int) -> None:
        """The parameters have moved."""


@dataclass(frozen=True, kw_only=True)
class HeavyBall(Descent):
    """Momentum u = momentum * u + g + decay * w - pull * a; w = w - lr * u; see `Descent`."""

    momentum: float

    def weight(self, field: Field, rows: int, device: torch.device) -> Weight:
        return replace(super().weight(field, rows, device), slot=field.empty(rows, device))

    def sum_of(self, weight: Weight) -> Sum:
        assert weight.slot is not None
        return Sum(weight.slot, self.momentum, 1)

    def settle(self, weight: Weight) -> None:
        slot = weight.slot
        assert slot is not None
        if weight.decay:
            slot.add_(weight.value, alpha=weight.decay)
        if weight.anchor is not None:
            slot.add_(weight.anchor, alpha=-self.pull)
        weight.value.add_(slot, alpha=-self.lr)

    def whole(self, weight: Weight, gradient: Tensor) -> None:
        assert weight.slot is not None
        weight.slot.mul_(self.momentum).add_(gradient)
        self.settle(weight)

    def scattered(self, weight: Weight, place: Tensor, gradient: Tensor) -> None:
        """One step, of all: momentum moves the others."""
        self.whole(weight, summed(weight, place, gradient))

    def spread(self, weight: Weight, example: Tensor | None, gradient: Tensor) -> None:
        assert weight.slot is not None
        value, slot = weight.value[: len(gradient)], weight.slot[: len(gradient)]
        slot.mul_(self.momentum)
        _add_at(slot, example, gradient)
        if weight.decay:
            slot.add_(value, alpha=-self.lr * weight.decay)
        value.add_(slot)


@dataclass(frozen=True, kw_only=True)
class Gathered(Summing):
    """What any law of a solver makes of the gradient g + decay * w - pull * a, see `Descent`:
    gradients are gathered, and a step ends when all are there.

    Attributes:
        pull, products: as in `Descent`.
    """

    solver: Solver
    lr: float
    pull: float
    products: Products

    linear: ClassVar[bool] = False

    def weight(self, field: Field, rows: int, device: torch.device) -> Weight:
        law, solver = self.solver.law, self.solver
        decay = 0.0 if self.apart else solver.weight_decay
        return Weight(
            value=field.empty(rows, device),
            decay=decay + solver.proximal * field.pull + 2 * field.l2,
            anchor=field.empty(rows, device) if self.pull else None,
            slot=field.empty(rows, device) if law.keep else None,
            square=field.empty(rows, device) if law.adaptive else None,
            gradient=field.empty(rows, device),
        )

    @property
    def apart(self) -> bool:
        """Whether weight decay is no part of the gradient that is gathered."""
        return self.solver.law.decoupled or self.solver.clip_norm is not None

    def sum_of(self, weight: Weight) -> Sum:
        assert weight.gradient is not None
        return Sum(weight.gradient, 0, 1)

    def settle(self, weight: Weight) -> None:
        """The step ends when all gradients are there."""

    def whole(self, weight: Weight, gradient: Tensor) -> None:
        assert weight.gradient is not None
        if gradient.data_ptr() != weight.gradient.data_ptr():  # else it was made there
            weight.gradient.copy_(gradient)

    def scattered(self, weight: Weight, place: Tensor, gradient: Tensor) -> None:
        self.whole(weight, summed(weight, place, gradient))

    def close(self, parameters: Parameters, rows: int, step: int) -> None:
        solver, count = self.solver, parameters.count[:rows]
        weights, lr = parameters.moving(rows), solver.step_rate(self.lr, step)
        # compiled code counts from the start of the call
        if not moments.move(weights, solver, lr, self.pull, count - step, step):
            self._move(weights, lr, count + 1)
        count += 1

    def _move(self, weights: list[Weight], lr: float, t: Tensor) -> None:
        """As compiled code does, by PyTorch's operations; step t [R] of the rows."""
        solver, gathered = self.solver, list[Tensor]()
        for weight in weights:
            assert weight.gradient is not None
            gathered.append(weight.gradient)
            if weight.decay:
                weight.gradient.add_(weight.value, alpha=weight.decay)
            if weight.anchor is not None:
                weight.gradient.add_(weight.anchor, alpha=-self.pull)
        if solver.clip_norm is not None:
            clip(gathered, solver.clip_norm)
        decay = solver.weight_decay if self.apart else 0.0
        for weight, gradient in zip(weights, gathered, strict=True):
            solver.law.move(weight.value, gradient, weight.kept, lr, decay, t)


@dataclass(frozen=True)
class Accumulate(Summing):
    """Sums gradients in the slot and leaves the parameters alone."""

    products: Products

    def weight(self, field: Field, rows: int, device: torch.device) -> Weight:
        return Weight(value=field.empty(rows, device), slot=field.empty(rows, device))

    def sum_of(self, weight: Weight) -> Sum:
        assert weight.slot is not None
        return Sum(weight.slot, 1, 1)

    def settle(self, weight: Weight) -> None:
        """Nothing moves."""

    def whole(self, weight: Weight, gradient: Tensor) -> None:
        """Add the gradient."""
        assert weight.slot is not None
        weight.slot.add_(gradient)

    def scattered(self, weight: Weight, place: Tensor, gradient: Tensor) -> None:
        """Add the gradient."""
        assert weight.slot is not None
        _add_at(weight.slot, _through(weight.slot, place), gradient)
