"""The local solver: what one client does to its model between two exchanges with the server."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastOne, Fraction, NonNegative, Positive

_APART = 1e-6  # of torch.nn.utils.clip_grad_norm_, so that a gradient of 0 can be divided by


@dataclass(frozen=True, kw_only=True)
class Law:
    """What one local step makes of a gradient g, number by number; t = 1, 2, … counts the steps.

        m = keep * m + take * g;  d = m, or g + keep * m with `nesterov`
        v = square * v + add * g^2
        w = w - lr / (1 - keep^t) * d / (sqrt(v / (1 - square^t)) + eps)

    The powers are left out unless `unbiased`; the division by the root unless `adaptive`.

    Attributes:
        keep, take: of the mean m, which is not kept where `keep` is 0. A first step takes all of g.
        nesterov: see above.
        square, add: of the mean of squares v; None and 0 for none.
        eps: see above.
        unbiased: whether m and v are divided by what they lack of a whole mean; then a first step
            takes no more of g than others.
        decoupled: whether weight decay is no part of g: w is first multiplied by 1 - lr * decay.
    """

    keep: float = 0.0
    take: float = 1.0
    nesterov: bool = False
    square: float | None = None
    add: float = 0.0
    eps: float = 0.0
    unbiased: bool = False
    decoupled: bool = False

    @property
    def adaptive(self) -> bool:
        """Whether a step is divided by the root of the mean of squares."""
        return self.square is not None

    @property
    def plain(self) -> bool:
        """Whether it is gradient descent, or that with heavy-ball momentum."""
        return not self.adaptive and not self.nesterov and self.take == 1

    @property
    def slots(self) -> int:
        """Numbers that are kept of every parameter."""
        return bool(self.keep) + self.adaptive

    @property
    def counts(self) -> bool:
        """Whether a step looks at t."""
        return self.unbiased or (bool(self.keep) and self.take != 1)

    def width(self, num_params: int) -> int:
        """Numbers that a row keeps: the slots of all parameters one after the other, then t."""
        return self.slots * num_params + self.counts

    def move(
        self,
        value: Tensor,
        gradient: Tensor,
        slots: Sequence[Tensor],
        lr: float | Tensor,
        decay: float | Tensor,
        t: float | Tensor,
    ) -> None:
        """One step of rows, in place.

        Args:
            value: [R, *shape] parameters.
            gradient: [R, *shape], which is changed.
            slots: as many of [R, *shape].
            lr: learning rate, or that of every row [R].
            decay: weight decay, likewise.
            t: the number of the step, likewise.
        """
        if self.decoupled:
            plus(value, value, -lr * decay, out=value)
        else:
            gradient = plus(gradient, value, decay)
        taken = gradient
        if self.keep:
            taken = slots[0].mul_(self.keep)
            plus(taken, gradient, self._taken(t), out=taken)
            if self.nesterov:
                taken = gradient.add(taken, alpha=self.keep)
        if self.square is None:
            plus(value, taken, -lr, out=value)
            return
        squares = slots[-1].mul_(self.square).addcmul_(gradient, gradient, value=self.add)
        root = squares.sqrt()
        if self.unbiased:
            lr = lr / (1 - self.keep**t)
            root = _divided(root, (1 - self.square**t) ** 0.5)
        plus(value, taken / root.add_(self.eps), -lr, out=value)

    def _taken(self, t: float | Tensor) -> float | Tensor:
        """Factor of the gradient in the mean at step t, or at that of every row [R]."""
        if self.unbiased or not self.counts:
            return self.take
        return (
            torch.where(t == 1, 1.0, self.take)
            if isinstance(t, Tensor)
            else (1.0 if t == 1 else self.take)
        )


def plus(to: Tensor, values: Tensor, factor: float | Tensor, out: Tensor | None = None) -> Tensor:
    """to + factor * values, [R, *shape], with one factor or that of every row [R]; `out` is `to` or
    new memory.
    """
    if isinstance(factor, Tensor):
        return torch.addcmul(to, values, by_row(factor, to), out=out)
    if not factor:
        return to
    return torch.add(to, values, alpha=factor, out=out)


def by_row(numbers: Tensor, like: Tensor) -> Tensor:
    """Numbers [R] in the shape [R, 1, …] and the type of `like`."""
    return numbers.to(like.dtype).view(-1, *[1] * (like.dim() - 1))


def _divided(values: Tensor, by: float | Tensor) -> Tensor:
    return values.div_(by_row(by, values) if isinstance(by, Tensor) else by)


def clip(gradients: Iterable[Tensor], norm: float) -> None:
    """Shorten the gradient of every row, whose parts are [R, *shape] each, to a norm, in place;
    as torch.nn.utils.clip_grad_norm_ does.
    """
    parts = list(gradients)
    norms = torch.stack([torch.linalg.vector_norm(part.flatten(1), dim=1) for part in parts])
    factor = (norm / (torch.linalg.vector_norm(norms, dim=0) + _APART)).clamp(max=1.0)
    for part in parts:
        part.mul_(by_row(factor, part))


@dataclass(frozen=True, kw_only=True)
class Solver(ABC):
    """Base of the solvers; every engine gives each the same meaning.

    A step goes against
        g = grad f(w) + proximal * (w - a) + the model's own L2 gradient + weight_decay * w
    on the batch loss f; the anchor a is the start of the call, unless the call names another. What
    it makes of g says `law`. What a solver keeps from step to step begins anew in every call.

    Attributes:
        lr: learning rate of round 0.
        decay: factor on the learning rate per round, lr_t = lr * decay**t.
        batch_size: examples of one step; None takes all of the client's examples, in order.
        epochs: passes over the client's data, each in a fresh order, the last short batch kept.
        steps: number of steps instead of epochs; the data are then cycled, without short batches.
        proximal: mu of FedProx.
        weight_decay: coefficient of w in the gradient.
    """

    lr: Positive
    decay: Fraction = 1.0
    batch_size: AtLeastOne | None = 10
    epochs: AtLeastOne | None = 1
    steps: AtLeastOne | None = None
    proximal: NonNegative = 0.0
    weight_decay: NonNegative = 0.0

    # what torch.optim calls the slots of the law, in its order
    kept_as: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        require(math.isfinite(self.lr) and self.lr > 0, "solver.lr", self.lr, "a number above 0")
        require(0 < self.decay <= 1, "solver.decay", self.decay, "a factor in (0, 1]")
        require(
            self.batch_size is None or self.batch_size >= 1,
            "solver.batch_size",
            self.batch_size,
            "at least 1, or null for all examples of the client",
        )
        require(
            (self.epochs is None) != (self.steps is None),
            "solver.epochs",
            self.epochs,
            "give either solver.epochs or solver.steps, the other null",
        )
        require(self.epochs is None or self.epochs >= 1, "solver.epochs", self.epochs, "at least 1")
        require(self.steps is None or self.steps >= 1, "solver.steps", self.steps, "at least 1")
        require(self.proximal >= 0, "solver.proximal", self.proximal, "at least 0")
        require(self.weight_decay >= 0, "solver.weight_decay", self.weight_decay, "at least 0")

    @property
    @abstractmethod
    def law(self) -> Law:
        """What a step makes of a gradient."""

    @abstractmethod
    def optimizer(
        self, parameters: Iterable[torch.nn.Parameter], lr: float
    ) -> torch.optim.Optimizer:
        """PyTorch's own, by which the law is meant."""

    @property
    def name(self) -> str:
        """As a user chooses it."""
        return type(self).__name__.lower()

    @property
    def form(self) -> Self:
        """What solvers share whose rows are computed together: all but the numbers that a row may
        have by itself, see `fedclust.core.calls.Rates`.
        """
        pulled = float(bool(self.proximal))
        return replace(self, lr=1.0, decay=1.0, proximal=pulled, weight_decay=0.0)

    def all_steps(self, count: Tensor) -> Tensor:
        """Local steps of clients with `count` [C] examples that do all their work, [C] int64."""
        if self.epochs is None:
            assert self.steps is not None
            return torch.where(count > 0, self.steps, 0)
        if self.batch_size is None:
            return torch.where(count > 0, self.epochs, 0)
        return (count + self.batch_size - 1) // self.batch_size * self.epochs

    def rate(self, t: int) -> float:
        """Learning rate of round t."""
        return self.lr * self.decay**t
