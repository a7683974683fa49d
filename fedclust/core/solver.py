"""The local solver: what one client does to its model between two exchanges with the server."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastOne, BelowOne, Fraction, NonNegative, Positive


@dataclass(frozen=True, kw_only=True)
class Solver:
    """Stochastic gradient descent on one client; every engine gives it the same meaning.

    One step on the batch loss f; the anchor a is the start of the call, unless the call names
    another:
        g = grad f(w) + weight_decay * w + proximal * (w - a) + the model's own L2 gradient
        u = momentum * u + g;  w = w - lr_t * u          (without momentum: w = w - lr_t * g)

    Attributes:
        lr: learning rate of round 0.
        decay: factor on the learning rate per round, lr_t = lr * decay**t.
        batch_size: examples of one step; None takes all of the client's examples, in order.
        epochs: passes over the client's data, each in a fresh order, the last short batch kept.
        steps: number of steps instead of epochs; the data are then cycled, without short batches.
        momentum: heavy-ball coefficient (PyTorch's convention: no dampening, not Nesterov).
        proximal: mu of FedProx.
        weight_decay: coefficient of w in the gradient.
    """

    lr: Positive
    decay: Fraction = 1.0
    batch_size: AtLeastOne | None = 10
    epochs: AtLeastOne | None = 1
    steps: AtLeastOne | None = None
    momentum: BelowOne = 0.0
    proximal: NonNegative = 0.0
    weight_decay: NonNegative = 0.0

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
        require(0 <= self.momentum < 1, "solver.momentum", self.momentum, "a coefficient in [0, 1)")
        require(self.proximal >= 0, "solver.proximal", self.proximal, "at least 0")
        require(self.weight_decay >= 0, "solver.weight_decay", self.weight_decay, "at least 0")

    @property
    def form(self) -> tuple[int | float | None, ...]:
        """What solvers share whose rows are computed together: all but the numbers that a row may
        have by itself, see `fedclust.core.calls.Rates`.
        """
        return self.batch_size, self.epochs, self.steps, self.momentum, bool(self.proximal)

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
