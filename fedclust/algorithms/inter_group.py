"""Groups that share a little after every round: FlexCFL, arXiv:2108.09749, eq. (20).

Differs from the paper: the default is the released code's convex combination. Eq. (20) adds a
vector of norm up to rate * (K - 1) in every round, which diverges (`normalize: false`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedclust.helpers.errors import require
from fedclust.helpers.ops import discrepancy
from fedclust.helpers.ranges import NonNegative
from fedclust.types import Cost

_TINY_NORM = 1e-12  # below this a model has no direction


@dataclass(frozen=True, kw_only=True)
class InterGroup:
    """Groups move towards each other after each round: w_g + rate * sum over l != g of w_l /
    ||w_l||.

    Attributes:
        rate: eta_g in the paper; 0 keeps the groups apart.
        normalize: divide by 1 + rate * sum over l != g of 1 / ||w_l||, a convex combination of the
            models; False is eq. (20) as printed.
    """

    rate: NonNegative = 0.0
    normalize: bool = True

    def __post_init__(self) -> None:
        require(self.rate >= 0, "algorithm.inter_group.rate", self.rate, "at least 0")

    def __call__(self, models: Tensor) -> Tensor:
        """The models [K, P] after the exchange."""
        if self.rate == 0:
            return models
        norm = torch.linalg.vector_norm(models, dim=1)
        pull = self.rate * (norm >= _TINY_NORM) / norm.clamp(min=_TINY_NORM)  # [K]
        others = ~torch.eye(len(models), dtype=torch.bool, device=norm.device)
        weight = pull.expand(len(models), -1) * others
        moved: Tensor = models + weight @ models  # eq. (20)
        return moved / (1 + weight.sum(1, keepdim=True)) if self.normalize else moved

    def cost(self, models: Tensor, params: Tensor | None, label: Tensor) -> Cost:
        """What an exchange cost, and eq. (3), which is of the models that a round ends with.

        Args:
            models: [K, P] after the exchange.
            params: [C, P] what the participants made in the round; None where nobody asks for
                eq. (3).
            label: [C] int64 in [0, K), their groups.
        """
        if self.rate == 0:
            return Cost()
        cost = Cost(models_up=len(models))
        if params is None:
            return cost
        return replace(cost, notes={"discrepancy": float(discrepancy(params, models, label))})
