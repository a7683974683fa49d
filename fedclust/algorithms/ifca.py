"""IFCA, the iterative federated clustering algorithm: Ghosh, Chung, Yin, Ramchandran, NeurIPS 2020.

https://arxiv.org/abs/2006.04088, Algorithm 1, options I (gradient averaging) and II (model
averaging).

Differs from the paper:
- Option I divides the summed gradients by `gradient_denominator`; the paper prints the number of
  all clients, which makes the step shrink with the cluster's share and with participation.
- `start: kmeans++` and `restart_fraction` are not in the paper; the latter is in its CIFAR code.
Differs from the released code (jichan3751/ifca):
- Each client is served the model of least training loss; `cluster_choice: test_loss` does what the
  code does.
FlexCFL (arXiv:2108.09749) compares with IFCA where clients keep the cluster of their last
participation (`cluster_choice: last`), and with IFCA-MIG, where those that fail its test of a shift
choose anew at once (`migration`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from fedclust.algorithms import (
    FlexAggregation,
    arrived,
    average,
    check_choice,
    serve_cheapest,
)
from fedclust.algorithms.descent import Averaging, Denominator, check_plain_step, descend
from fedclust.algorithms.shift import ShiftTest
from fedclust.algorithms.start import Start, check_start, initial_models
from fedclust.errors import require
from fedclust.ranges import AtLeastOne, Fraction
from fedclust.solver import Solver
from fedclust.types import Cost, Round, Served
from fedclust.verbs import Clients

Choice = Literal["train_loss", "test_loss", "last"]


@dataclass(frozen=True, kw_only=True)
class IFCA:
    """K models; every participant joins the one that fits its data best, anew in each round.

    Attributes:
        solver: local work; gradient averaging uses its learning rate only.
        num_clusters: k in the paper.
        averaging: `model` (option II) or `gradient` (option I).
        aggregation: of models, `uniform` over a cluster's participants, weighted `by_samples`, or
            `first_client`, see `average`.
        gradient_denominator: what the gradient sum of a cluster is divided by: the number of `all`
            clients, of the round's `participants`, or of the participants in that `cluster`.
        start: `independent` initial models, one `shared` by all clusters (then only rounding breaks
            the tie), or `kmeans++`: see `fedclust.algorithms.start`.
        restart_fraction: redraw independent models until every cluster attracts at least this
            fraction of the first cohort; None takes the first draw.
        cluster_choice: what a client's model is chosen by when it is served: `train_loss`;
            `test_loss`, which looks at test labels; or `last`, the cluster it trained in last.
        migration: with `last`: clients whose data shifted choose a cluster anew at once.
        shift: with `migration`: the test that finds these clients, that of FlexCFL.
    """

    solver: Solver
    num_clusters: AtLeastOne
    averaging: Averaging = "model"
    aggregation: FlexAggregation = "uniform"
    gradient_denominator: Denominator = "all"
    start: Start = "independent"
    restart_fraction: Fraction | None = None
    cluster_choice: Choice = "train_loss"
    migration: bool = False
    shift: ShiftTest = field(default_factory=ShiftTest)

    @dataclass(frozen=True, kw_only=True)
    class State:
        """The clusters' models.

        Attributes:
            models: [K, P].
            label: [M] int64 cluster that each client trained in last, -1 before its first time.
            reference: [M, L + 1] int64 what the test of a shift compares with, None without
                migration.
        """

        models: Tensor
        label: Tensor
        reference: Tensor | None = None

    def __post_init__(self) -> None:
        check_start(self.start, self.restart_fraction, self.num_clusters)
        check_choice("algorithm.averaging", self.averaging, Averaging)
        check_choice("algorithm.aggregation", self.aggregation, FlexAggregation)
        check_choice("algorithm.gradient_denominator", self.gradient_denominator, Denominator)
        check_choice("algorithm.cluster_choice", self.cluster_choice, Choice)
        require(
            not self.migration or self.cluster_choice == "last",
            "algorithm.migration",
            "true",
            "false, unless algorithm.cluster_choice=last: any other choice is made anew when "
            "needed",
        )
        if self.averaging == "gradient":
            check_plain_step(self.solver, "algorithm.averaging=gradient")

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Initial models, by `start` and `restart_fraction`."""
        models, cost = initial_models(
            clients,
            rnd,
            num_clusters=self.num_clusters,
            start=self.start,
            restart_fraction=self.restart_fraction,
            solver=self.solver,
        )
        label = torch.full_like(rnd.fed.group, -1)
        reference = self.shift.start(rnd, rnd.cohort[:0]) if self.migration else None
        return self.State(models=models, label=label, reference=reference), cost

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Assignment of the cohort by loss, then one step of every cluster."""
        moving, reference = self.shift.followed(state.label, state.reference, rnd)
        known = state.label
        if len(moving):
            known = known.index_copy(0, moving, clients.loss(state.models, moving).argmin(1))
        loss = clients.loss(state.models, rnd.cohort)  # [C, K]
        label = loss.argmin(1)  # line 7: cluster identity estimate
        if self.averaging == "model":
            local = clients.train(state.models, label, rnd.cohort, self.solver)
            models, cost = average(local, state.models, label, rnd.cohort, rnd, self.aggregation)
        else:
            models, cost = self._gradient_step(state.models, loss, clients, rnd)
        notes = dict(cost.notes)
        if self.migration:
            notes["migrated"] = int((known[moving] != state.label[moving]).sum())
        cost = replace(
            cost,
            models_down=(len(rnd.cohort) + len(moving)) * self.num_clusters,
            scalars_up=len(rnd.cohort) + len(moving),  # line 8: the cluster each has chosen
            notes=notes,
        )
        label = known.index_copy(0, rnd.cohort, label)
        return self.State(models=models, label=label, reference=reference), cost

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        """Each client's model of least loss, or that of its last cluster."""
        if self.cluster_choice == "last":
            return Served(models=state.models, label=arrived(state.label, rnd))
        return serve_cheapest(state.models, clients, rnd, self.cluster_choice)

    def _gradient_step(
        self, models: Tensor, loss: Tensor, clients: Clients, rnd: Round
    ) -> tuple[Tensor, Cost]:
        """Option I: the models [K, P] after one gradient step, given the cohort's losses [C, K]."""
        label = loss.argmin(1)
        gradient = clients.grad(models, label, rnd.cohort)  # [C, P]
        cost = Cost(
            models_up=len(rnd.cohort),
            gradient_steps=len(rnd.cohort),
            train_loss=float(loss.amin(1).mean()),
        )
        rate = self.solver.rate(rnd.t)
        return descend(models, gradient, label, rate, self.gradient_denominator, rnd), cost
