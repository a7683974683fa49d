"""CFL-MGD (MCFL): Zhao, Xie, Xing, Zhang, Ma, Electronics 2023, 12(9), 1972.

Clustered federated learning based on momentum gradient descent for heterogeneous data,
https://doi.org/10.3390/electronics12091972, Algorithm 1, options I (gradient averaging) and II
(model averaging). The coefficient beta is `solver.momentum`; with 0 the method is IFCA.

Differs from the paper:
- Line 9 and eq. (3) update the momentum with the gradient of the round before although line 8
  computes this round's; `momentum_gradient: current` uses this round's, `lagged` is the printed
  one.
- LocalUpdate prints the parameters' step before the momentum's; its indices need the reverse, which
  makes one client alone a heavy ball.
- A participant goes on from the momentum of its cluster, so that a client that changes cluster
  leaves its old one behind; with `momentum_owner: client` it carries along what its cluster had
  after its last participation.
- Option I divides the summed momenta by `gradient_denominator`; the paper prints the number of all
  clients.
- A cluster without participants keeps its model and its momentum; the paper leaves this open.
- `start: kmeans++` and `restart_fraction` are not in the paper; the latter is in IFCA's CIFAR code.
There is no released code. The served model is chosen as in IFCA.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from torch import Tensor

from fedclust.algorithms.parts.descent import check_descent, descend
from fedclust.algorithms.parts.loss_clusters import LossClusters
from fedclust.algorithms.steps import Aggregation, average, each, train_and_average, weights
from fedclust.core.calls import LocalWork
from fedclust.core.front import Clients, Gradient, Train
from fedclust.core.server import Server
from fedclust.core.types import Cost, Round
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.errors import require
from fedclust.helpers.ops import cluster_mean, cluster_sum

MomentumGradient = Literal["current", "lagged"]
Owner = Literal["cluster", "client"]


@dataclass(frozen=True, kw_only=True)
class CFLMGD(LossClusters):
    """IFCA whose momentum lives on from round to round; beta is the solver's momentum."""

    # of models and their momenta, `uniform` or `by_samples`
    aggregation: Aggregation = "by_samples"
    momentum_owner: Owner = "cluster"  # `cluster` or `client`, which keeps [M, P]
    # of gradient averaging, the `current` one, or the one `lagged` by a participation, which keeps
    # another [M, P]
    momentum_gradient: Annotated[MomentumGradient, OnlyWith("averaging", "gradient")] = "current"
    has_momentum = True

    unnoised = "momenta"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Models and momenta."""

        models: Tensor  # [K, P], chi_p in the paper
        momentum: Tensor  # [K, P] of the clusters, u_p, or [M, P] of the clients, u_i
        # [M, P] every client's gradient at its last participation, None unless lagged
        gradient: Tensor | None

    def __post_init__(self) -> None:
        super().__post_init__()
        why = "0, because the momentum of CFL-MGD is a heavy ball"
        check_descent(self.solver, why, momentum=True)
        keep, anew = self.solver.keep, "call, because CFL-MGD says where momenta stay"
        require(keep == "call", "solver.keep", keep, anew)
        allowed = "current, or lagged with algorithm.averaging=gradient"
        fits = self.averaging == "gradient" or self.momentum_gradient == "current"
        require(fits, "algorithm.momentum_gradient", self.momentum_gradient, allowed)

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Initial models, by `start` and `restart_fraction`, at rest."""
        models, cost = self.initial_models(clients, rnd)
        owners = len(models) if self.momentum_owner == "cluster" else rnd.fed.num_clients
        rest = models.new_zeros(owners, models.shape[1])
        lagged = self.momentum_gradient == "lagged"
        gradient = models.new_zeros(rnd.fed.num_clients, models.shape[1]) if lagged else None
        return self.State(models=models, momentum=rest, gradient=gradient), cost

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Assignment of the cohort by loss, then one heavy-ball step of every cluster."""
        loss = self.losses(state.models, clients, rnd)  # [C, K]
        label = loss.argmin(1)  # lines 4-5: cluster identity estimate
        if self.averaging == "model":
            state, cost = self._option_two(state, label, clients, rnd)
        else:
            state = self._option_one(state, label, clients, rnd)
            cost = Cost(gradient_steps=len(label), train_loss=float(loss.amin(1).mean()))
        # every participant gets K models, sends one back, or a gradient, and with it a momentum
        # both ways, where there is any; and it says which cluster it estimates
        c, momenta = len(label), self.solver.law.slots
        down, up = c * (self.num_clusters + momenta), c * (1 + momenta)
        return state, replace(cost, models_down=down, models_up=up, scalars_up=c)

    def _option_two(
        self, state: State, label: Tensor, clients: Clients, rnd: Round
    ) -> tuple[State, Cost]:
        """Option II, lines 11-12, 16 and LocalUpdate: local heavy balls, then the means."""
        cohort, models, momentum = rnd.cohort, state.models, state.momentum
        if self.momentum_owner == "cluster":
            how = self.solver, self.aggregation, rnd
            models, means, cost = train_and_average(
                clients, models, label, cohort, *how, slots=momentum
            )
            momentum = momentum if means.slots is None else means.slots  # at rest without beta
            return replace(state, models=models, momentum=momentum), cost
        own, slots = each(cohort), momentum[cohort]
        local = clients.train(
            Train(models[label], own, cohort, self.solver, LocalWork(slots=slots))
        )
        if local.slots is not None:
            weight, k = weights(cohort, rnd, self.aggregation), len(models)
            momentum = shared_momenta(
                local.slots, momentum, label, weight, "client", k, clients.server, rnd
            )
        models, cost = average(clients, local, models, label, cohort, rnd, self.aggregation)
        return replace(state, models=models, momentum=momentum), cost

    def _option_one(self, state: State, label: Tensor, clients: Clients, rnd: Round) -> State:
        """Option I, lines 7-10 and 15: one step against the momenta of the participants."""
        cohort, owner, k = rnd.cohort, self.momentum_owner, len(state.models)
        fresh = clients.grad(Gradient(state.models, label, cohort))  # line 8, [C, P]
        used, kept = fresh, None
        if state.gradient is not None:
            used, kept = state.gradient[cohort], state.gradient.index_copy(0, cohort, fresh)
        before = state.momentum[label if owner == "cluster" else cohort]
        momentum = self.solver.law.keep * before + used  # line 9, eq. (3)
        rate, denominator = self.solver.rate(rnd.t), self.gradient_denominator
        total = cluster_sum(momentum, label, k)
        models = descend(state.models, total, label, rate, denominator, rnd)  # eq. (5)
        shared = shared_momenta(momentum, state.momentum, label, None, owner, k, None, rnd)
        return self.State(models=models, momentum=shared, gradient=kept)


def shared_momenta(
    momentum: Tensor,
    before: Tensor,
    label: Tensor,
    weight: Tensor | None,
    owner: Owner,
    num_clusters: int,
    server: Server | None,
    rnd: Round,
) -> Tensor:
    """All momenta once the participants of each cluster took the mean of theirs [C, P]: [K, P] or
    [M, P].

    Args:
        before: [K, P] or [M, P] of the clusters or clients; without participants they keep it.
        label: [C] int64 in [0, K), cluster of every participant.
        weight: [C] of the participants in the mean; None for equal ones.
        server: makes robust means, where it has to; None for plain ones.
    """
    if owner == "cluster":
        return cluster_mean(momentum, label, weight, empty=before)
    none = momentum.new_zeros(num_clusters, momentum.shape[1])
    mean = cluster_mean(momentum, label, weight, empty=none)
    if server is not None:
        mean = server.combined(none, momentum, mean, label, weight)
    return before.index_copy(0, rnd.cohort, mean[label])
