"""The server's step along the mean update of a cluster: Reddi, Charles, Zaheer, Garrett, Rush,
Konečný, Kumar, McMahan, ICLR 2021, arXiv:2003.00295, Algorithm 2.

With D = mean of the participants' models - the model x, and all operations by coordinate:

    m = beta_1 m + (1 - beta_1) D
    v = v + D^2 (Adagrad), v - (1 - beta_2) D^2 sign(v - D^2) (Yogi),
        beta_2 v + (1 - beta_2) D^2 (Adam)
    x = x + rate m / (sqrt(v) + tau)

from m = 0 and v = tau^2, without a correction of the first steps, as in the paper; Flower begins
with v = 0 and corrects FedAdam's first steps, as torch.optim.Adam does. Server momentum is that of
Hsu, Qi, Brown 2019, arXiv:1909.06335 (FedAvgM): m = momentum m + D; x = x + rate m.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from fedclust.helpers.ranges import BelowOne, Positive, Ranged


@dataclass(frozen=True, kw_only=True)
class Mean(Ranged):
    """No step: the means are the next models."""

    @property
    def first(self) -> tuple[float, ...]:
        """Nothing."""
        return ()

    def __call__(self, models: Tensor, means: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        return means, memory


@dataclass(frozen=True, kw_only=True)
class SGD(Ranged):
    """Server momentum."""

    rate: Positive = 1.0  # of the step; 1 without momentum is the mean to the bit
    momentum: BelowOne = 0.9  # part of the last step that is taken again

    @property
    def first(self) -> tuple[float, ...]:
        """m."""
        return (0.0,)

    def __call__(self, models: Tensor, means: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        moved = means - models
        m = self.momentum * memory[:, 0] + moved
        return means + (self.rate * m - moved), m.unsqueeze(1)


@dataclass(frozen=True, kw_only=True)
class _Adaptive(Ranged):
    """What Adam, Yogi and Adagrad share."""

    rate: Positive = 0.1
    beta_1: BelowOne = 0.9
    tau: Positive = 1e-3

    @property
    def first(self) -> tuple[float, ...]:
        """m and v."""
        return 0.0, self.tau**2

    def __call__(self, models: Tensor, means: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        moved = means - models
        m = self.beta_1 * memory[:, 0] + (1 - self.beta_1) * moved
        v = self.second(memory[:, 1], moved.square())
        return models + self.rate * m / (v.sqrt() + self.tau), torch.stack([m, v], 1)

    @abstractmethod
    def second(self, v: Tensor, square: Tensor) -> Tensor:
        """The second moment [K, P] after an update with these squares [K, P]."""


@dataclass(frozen=True, kw_only=True)
class Adam(_Adaptive):
    """FedAdam."""

    beta_2: BelowOne = 0.99  # part of the second moment that is kept

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        """It forgets at a constant pace."""
        return self.beta_2 * v + (1 - self.beta_2) * square


@dataclass(frozen=True, kw_only=True)
class Yogi(_Adaptive):
    """FedYogi."""

    rate: Positive = 0.01
    beta_2: BelowOne = 0.99  # 1 minus the part of a square by which the second moment moves

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        """It moves by a part of the square, up or down."""
        return v - (1 - self.beta_2) * square * (v - square).sign()


@dataclass(frozen=True, kw_only=True)
class Adagrad(_Adaptive):
    """FedAdagrad; `beta_1` is 0 in the paper.

    Attributes:
        rate: of the step.
        beta_1: part of the first moment that is kept.
        tau: what the root of the second moment begins with, and what is added to it.
    """

    beta_1: BelowOne = 0.0

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        """It only grows."""
        return v + square
