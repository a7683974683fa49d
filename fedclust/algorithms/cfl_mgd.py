"""CFL-MGD (MCFL): Zhao, Xie, Xing, Zhang, Ma, Electronics 2023, 12(9), 1972.

Clustered federated learning based on momentum gradient descent for heterogeneous data,
https://doi.org/10.3390/electronics12091972, Algorithm 1, options I (gradient averaging) and II
(model averaging). The coefficient beta is `solver.momentum`; with 0 the method is IFCA.

Differs from the paper:
- Line 9 and eq. (3) update the momentum with the gradient of the round before although line 8
  computes this round's; `momentum_gradient: current` uses this round's, `lagged` is the printed
  one.
- LocalUpdate prints the step of the parameters before that of the momentum; its indices need the
  momentum first, which makes one client alone a heavy ball.
- Momentum belongs to the cluster, so a client that changes cluster leaves its old momentum behind;
  `momentum_owner: client` lets it carry the momentum of its last participation along.
- Option I divides the summed momenta by `gradient_denominator`; the paper prints the number of all
  clients.
- A cluster without participants keeps its model and its momentum; the paper leaves this open.
- `start: kmeans++` and `restart_fraction` are not in the paper; the latter is in IFCA's CIFAR code.
There is no released code. The served model is chosen as in IFCA.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fedclust.algorithms import (
    Aggregation,
    ClusterChoice,
    average,
    check_choice,
    serve_cheapest,
    weights,
)
from fedclust.algorithms.descent import Averaging, Denominator, check_plain_step, descend
from fedclust.algorithms.start import Start, check_start, initial_models
from fedclust.errors import require
from fedclust.ops import cluster_mean
from fedclust.ranges import AtLeastOne, Fraction
from fedclust.solver import Solver
from fedclust.types import Cost, Round, Served
from fedclust.verbs import Clients

Owner = Literal["cluster", "client"]
MomentumGradient = Literal["current", "lagged"]


@dataclass(frozen=True, kw_only=True)
class CFLMGD:
    """IFCA whose momentum lives on from round to round.

    Attributes:
        solver: local work and beta, its momentum; gradient averaging uses learning rate and
            momentum only.
        num_clusters: P in the paper.
        averaging: `model` (option II) or `gradient` (option I).
        aggregation: of models and their momenta, `uniform` over a cluster's participants or
            `by_samples`.
        gradient_denominator: what the momentum sum of a cluster is divided by: the number of `all`
            clients, of the round's `participants`, or of the participants in that `cluster`.
        momentum_owner: a participant goes on from the momentum of its `cluster`, or from its own,
            that of the `client`: what its cluster had after its last participation. The latter
                keeps [M, P].
        momentum_gradient: of gradient averaging, the `current` one, or the one `lagged` by a
            participation, which keeps another [M, P].
        start, restart_fraction: see `fedclust.algorithms.start`.
        cluster_choice: what a client's model is chosen by when it is served: `train_loss`, or
            `test_loss`, which looks at test labels.
    """

    solver: Solver
    num_clusters: AtLeastOne
    averaging: Averaging = "model"
    aggregation: Aggregation = "uniform"
    gradient_denominator: Denominator = "all"
    momentum_owner: Owner = "cluster"
    momentum_gradient: MomentumGradient = "current"
    start: Start = "independent"
    restart_fraction: Fraction | None = None
    cluster_choice: ClusterChoice = "train_loss"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Models and momenta.

        Attributes:
            models: [K, P], chi_p in the paper.
            momentum: [K, P] of the clusters, u_p, or [M, P] of the clients, u_i.
            gradient: [M, P] every client's gradient at its last participation, None unless lagged.
        """

        models: Tensor
        momentum: Tensor
        gradient: Tensor | None

    def __post_init__(self) -> None:
        check_start(self.start, self.restart_fraction, self.num_clusters)
        check_choice("algorithm.averaging", self.averaging, Averaging)
        check_choice("algorithm.aggregation", self.aggregation, Aggregation)
        check_choice("algorithm.gradient_denominator", self.gradient_denominator, Denominator)
        check_choice("algorithm.momentum_owner", self.momentum_owner, Owner)
        check_choice("algorithm.momentum_gradient", self.momentum_gradient, MomentumGradient)
        check_choice("algorithm.cluster_choice", self.cluster_choice, ClusterChoice)
        if self.averaging == "gradient":
            check_plain_step(self.solver, "algorithm.averaging=gradient", momentum=True)
        require(
            self.averaging == "gradient" or self.momentum_gradient == "current",
            "algorithm.momentum_gradient",
            self.momentum_gradient,
            "current, or lagged with algorithm.averaging=gradient",
        )

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Initial models, by `start` and `restart_fraction`, at rest."""
        models, cost = initial_models(
            clients,
            rnd,
            num_clusters=self.num_clusters,
            start=self.start,
            restart_fraction=self.restart_fraction,
            solver=self.solver,
        )
        owners = self.num_clusters if self.momentum_owner == "cluster" else rnd.fed.num_clients
        rest = models.new_zeros(owners, models.shape[1])
        lagged = self.momentum_gradient == "lagged"
        gradient = models.new_zeros(rnd.fed.num_clients, models.shape[1]) if lagged else None
        return self.State(models=models, momentum=rest, gradient=gradient), cost

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Assignment of the cohort by loss, then one heavy-ball step of every cluster."""
        loss = clients.loss(state.models, rnd.cohort)  # [C, K]
        label = loss.argmin(1)  # lines 4-5: cluster identity estimate
        step = self._average_models if self.averaging == "model" else self._average_gradients
        state, cost = step(state, label, clients, rnd)
        # every participant gets K models, sends one back, or a gradient, and with it a momentum
        # both ways, where there is any; and it says which cluster it estimates
        number, momenta = len(rnd.cohort), int(self.solver.momentum > 0)
        if self.averaging == "gradient":
            cost = replace(cost, train_loss=float(loss.amin(1).mean()))
        cost = replace(
            cost,
            models_down=number * (self.num_clusters + momenta),
            models_up=number * (1 + momenta),
            scalars_up=number,
        )
        return state, cost

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        """Each client's model of least loss."""
        return serve_cheapest(state.models, clients, rnd, self.cluster_choice)

    def _average_models(
        self, state: State, label: Tensor, clients: Clients, rnd: Round
    ) -> tuple[State, Cost]:
        """Option II, lines 11-12, 16 and LocalUpdate: local heavy balls, then the mean of both
        halves.
        """
        cohort = rnd.cohort
        if self.momentum_owner == "cluster":
            local = clients.train(state.models, label, cohort, self.solver, slots=state.momentum)
        else:
            own = torch.arange(len(cohort), device=cohort.device)
            slots = state.momentum[cohort]
            local = clients.train(state.models[label], own, cohort, self.solver, slots=slots)
        models, cost = average(local, state.models, label, cohort, rnd, self.aggregation)
        momentum = state.momentum  # at rest for good without beta
        if local.slots is not None:
            momentum = self._shared(local.slots, state, label, rnd, self.aggregation)
        return replace(state, models=models, momentum=momentum), cost

    def _average_gradients(
        self, state: State, label: Tensor, clients: Clients, rnd: Round
    ) -> tuple[State, Cost]:
        """Option I, lines 7-10 and 15: one step against the momenta of the participants."""
        cohort = rnd.cohort
        fresh = clients.grad(state.models, label, cohort)  # line 8, [C, P]
        used, kept = fresh, None
        if state.gradient is not None:
            used, kept = state.gradient[cohort], state.gradient.index_copy(0, cohort, fresh)
        before = label if self.momentum_owner == "cluster" else cohort
        momentum = self.solver.momentum * state.momentum[before] + used  # line 9, eq. (3)
        rate = self.solver.rate(rnd.t)
        models = descend(
            state.models, momentum, label, rate, self.gradient_denominator, rnd
        )  # eq. (5)
        cost = Cost(gradient_steps=len(cohort))
        shared = self._shared(momentum, state, label, rnd, "uniform")
        return self.State(models=models, momentum=shared, gradient=kept), cost

    def _shared(
        self, momentum: Tensor, state: State, label: Tensor, rnd: Round, aggregation: Aggregation
    ) -> Tensor:
        """Momenta after the participants of each cluster took the mean of theirs [C, P]: [K, P] or
        [M, P].
        """
        weight = weights(rnd.cohort, rnd, aggregation)
        if self.momentum_owner == "cluster":
            return cluster_mean(momentum, label, weight, empty=state.momentum)
        mean = cluster_mean(momentum, label, weight, empty=torch.zeros_like(state.models))
        return state.momentum.index_copy(0, rnd.cohort, mean[label])
