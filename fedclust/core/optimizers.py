"""The solvers by the names of torch.optim, whose they are: the loop engine calls it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn import Parameter
from torch.optim import Optimizer

from fedclust.core.solver import Law, Solver
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import BelowOne, InnerFraction, Positive, Probability


@dataclass(frozen=True, kw_only=True)
class SGD(Solver):
    """Stochastic gradient descent.

        u = momentum * u + (1 - dampening) * g;  w = w - lr_t * u    (the first u is g)

    With `nesterov` w = w - lr_t * (g + momentum * u); without momentum w = w - lr_t * g.
    """

    momentum: BelowOne = 0.0  # heavy-ball coefficient
    nesterov: bool = False
    dampening: Probability = 0.0

    kept_as: ClassVar[tuple[str, ...]] = ("momentum_buffer",)

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = self.momentum > 0 or not self.nesterov
        require(fits, "solver.nesterov", "true", "false without solver.momentum")
        fits = self.momentum > 0 or not self.dampening
        require(fits, "solver.dampening", self.dampening, "0 without solver.momentum")
        fits = not (self.nesterov and self.dampening)
        require(fits, "solver.dampening", self.dampening, "0 with solver.nesterov=true")

    @property
    def law(self) -> Law:
        return Law(keep=self.momentum, take=1 - self.dampening, nesterov=self.nesterov)

    def optimizer(self, parameters: Iterable[Parameter], lr: float) -> Optimizer:
        return torch.optim.SGD(
            parameters,
            lr=lr,
            momentum=self.momentum,
            dampening=self.dampening,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
        )


@dataclass(frozen=True, kw_only=True)
class Adam(Solver):
    """Adam (Kingma and Ba 2015); weight decay is part of the gradient.

    m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2
    w = w - lr_t / (1 - beta1^s) * m / (sqrt(v / (1 - beta2^s)) + eps)    in step s = 1, 2, …
    """

    # beta1, beta2: of the means of gradients and of their squares
    beta1: InnerFraction = 0.9
    beta2: InnerFraction = 0.999
    eps: Positive = 1e-8

    kept_as: ClassVar[tuple[str, ...]] = ("exp_avg", "exp_avg_sq")
    decoupled: ClassVar[bool] = False

    @property
    def law(self) -> Law:
        return Law(
            keep=self.beta1,
            take=1 - self.beta1,
            square=self.beta2,
            add=1 - self.beta2,
            eps=self.eps,
            unbiased=True,
            decoupled=self.decoupled,
        )

    def optimizer(self, parameters: Iterable[Parameter], lr: float) -> Optimizer:
        kind = torch.optim.AdamW if self.decoupled else torch.optim.Adam
        betas = self.beta1, self.beta2
        return kind(parameters, lr=lr, betas=betas, eps=self.eps, weight_decay=self.weight_decay)


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam with weight decay apart from the gradient (Loshchilov and Hutter 2019): before each step
    w = (1 - lr_t * weight_decay) * w.
    """

    decoupled: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Adagrad(Solver):
    """Adagrad (Duchi, Hazan and Singer 2011).

    v = v + g^2;  w = w - lr_t * g / (sqrt(v) + eps)
    """

    eps: Positive = 1e-10

    kept_as: ClassVar[tuple[str, ...]] = ("sum",)

    @property
    def law(self) -> Law:
        return Law(square=1.0, add=1.0, eps=self.eps)

    def optimizer(self, parameters: Iterable[Parameter], lr: float) -> Optimizer:
        decay = self.weight_decay
        return torch.optim.Adagrad(parameters, lr=lr, weight_decay=decay, eps=self.eps)


@dataclass(frozen=True, kw_only=True)
class RMSprop(Solver):
    """RMSprop (Tieleman and Hinton 2012), without momentum.

    v = alpha * v + (1 - alpha) * g^2;  w = w - lr_t * g / (sqrt(v) + eps)
    """

    alpha: BelowOne = 0.99  # of the mean of squares
    eps: Positive = 1e-8

    kept_as: ClassVar[tuple[str, ...]] = ("square_avg",)

    @property
    def law(self) -> Law:
        return Law(square=self.alpha, add=1 - self.alpha, eps=self.eps)

    def optimizer(self, parameters: Iterable[Parameter], lr: float) -> Optimizer:
        decay = self.weight_decay
        return torch.optim.RMSprop(
            parameters, lr=lr, alpha=self.alpha, eps=self.eps, weight_decay=decay
        )
