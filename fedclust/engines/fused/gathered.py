"""A rule for every law of a solver: gradients are gathered, and a step ends when all are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedclust.core.solver import Law
from fedclust.engines.fused.products import Products
from fedclust.engines.fused.weights import Field, Parameters, Weight


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What a law makes of the gradient g + decay * w - pull * a, see `Descent`.

    Attributes:
        law: of the solver.
        lr: learning rate of the call.
        proximal, weight_decay, pull, products: as in `Descent`.
    """

    law: Law
    lr: float
    proximal: float
    weight_decay: float
    pull: float
    products: Products

    linear: ClassVar[bool] = False

    def weight(self, field: Field, rows: int, device: torch.device) -> Weight:
        """See `Rule`."""
        own = 0.0 if self.law.decoupled else self.weight_decay
        return Weight(
            value=field.empty(rows, device),
            decay=own + self.proximal + 2 * field.l2,
            anchor=field.empty(rows, device) if self.pull else None,
            slot=field.empty(rows, device) if self.law.keep else None,
            square=field.empty(rows, device) if self.law.adaptive else None,
            gradient=field.empty(rows, device),
        )

    def product(self, weight: Weight, a: Tensor, b: Tensor) -> None:
        """See `Rule`."""
        assert weight.gradient is not None
        self.products.bmm(a, b, weight.gradient)

    def whole(self, weight: Weight, gradient: Tensor) -> None:
        """See `Rule`."""
        assert weight.gradient is not None
        weight.gradient.copy_(gradient)

    def spread(self, weight: Weight, example: Tensor | None, gradient: Tensor) -> None:
        """Never asked for: what such a law makes of gradients need not stay in their span."""
        raise NotImplementedError

    def close(self, parameters: Parameters, rows: int) -> None:
        """See `TrainingRule`."""
        law, t = self.law, parameters.count[:rows].add_(1)
        apart = self.weight_decay if law.decoupled else 0.0
        for weight in parameters.moving(rows):
            gradient, value = weight.gradient, weight.value
            assert gradient is not None
            if weight.decay:
                gradient.add_(value, alpha=weight.decay)
            if weight.anchor is not None:
                gradient.add_(weight.anchor, alpha=-self.pull)
            law.move(value, gradient, weight.kept, self.lr, apart, t)
