"""FedAsync, asynchronous federated optimisation: Xie, Koyejo, Gupta 2019, arXiv:1903.03934.

Algorithm 1: after every arrival w = (1 - alpha_t) w + alpha_t w_new, where alpha_t = alpha s(tau)
and s(tau) is 1 (`constant`), (1 + tau)^-a (`polynomial`), or 1 for tau <= b and 1 / (a (tau - b) +
1) beyond (`hinge`). A round is as many arrivals as clients train at the same time, so that it is
about the work of a synchronous one.

Differs from the paper:
- The weight rho of the local problem's proximal term is `solver.proximal`, 0 by default.
- With `num_clusters` there is such a server for each of several models, see
  `parts/asynchronous.py`; a round is as many arrivals in all.
- Staleness follows from the clock, and tau is 0 where no model has been made since a client began.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from fedclust.algorithms.parts.asynchronous import Asynchronous
from fedclust.core.calls import LocalResult
from fedclust.core.front import Clients
from fedclust.core.types import Cost
from fedclust.helpers.effects import OnlyWith, OnlyWithout
from fedclust.helpers.ranges import Fraction, NonNegative, Positive


@dataclass(frozen=True, kw_only=True)
class FedAsync(Asynchronous):
    """K models, with which every client's model is mixed when it arrives: with its cluster's."""

    alpha: Fraction = 0.6  # weight of a client's model that is not stale
    # how the weight of a stale one falls
    staleness: Literal["constant", "polynomial", "hinge"] = "polynomial"
    a: Annotated[Positive, OnlyWithout("staleness", "constant")] = 0.5
    b: Annotated[NonNegative, OnlyWith("staleness", "hinge")] = 4.0

    def counts(self, at_once: int) -> tuple[int, int | None]:
        return at_once, 1

    def share(self, stale: Tensor) -> Tensor:
        """The weights [B] of clients' models."""
        if self.staleness == "constant":
            return self.alpha + 0 * stale
        if self.staleness == "polynomial":
            return self.alpha * (1 + stale) ** -self.a
        return self.alpha / (self.a * (stale - self.b).clamp(min=0) + 1)

    def updated(
        self,
        models: Tensor,
        local: LocalResult,
        start: Tensor,
        stale: Tensor,
        label: Tensor,
        ids: Tensor,
        clients: Clients,
    ) -> tuple[Tensor, Cost]:
        """One client's model mixed with that of its cluster, in each of some clusters."""
        mixed = models[label].lerp(local.params, self.share(stale).unsqueeze(1))
        cost = Cost(gradient_steps=int(local.steps.sum()), train_loss=float(local.loss.mean()))
        return models.index_copy(0, label, mixed), cost
