"""A rule for every law of a solver: gradients are gathered, and a step ends when all are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedclust.core.solver import Solver, clip
from fedclust.engines.fused.native import moments
from fedclust.engines.fused.products import Products
from fedclust.engines.fused.rules import summed
from fedclust.engines.fused.weights import Field, Parameters, Weight


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What a solver makes of the gradient g + decay * w - pull * a, see `Descent`.

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

    def product(self, weight: Weight, a: Tensor, b: Tensor) -> None:
        assert weight.gradient is not None
        self.products.bmm(a, b, weight.gradient)

    def whole(self, weight: Weight, gradient: Tensor) -> None:
        assert weight.gradient is not None
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
