"""IFCA, the iterative federated clustering algorithm: Ghosh, Chung, Yin, Ramchandran, NeurIPS 2020.

https://arxiv.org/abs/2006.04088, Algorithm 1, options I (gradient averaging) and II (model
averaging).

Differs from the paper:
- Option I divides the summed gradients by `gradient_denominator`; the paper prints the number of
  all clients, which makes the step shrink with the cluster's share and with participation.
- `start: kmeans++` and `restart_fraction` are not in the paper; the latter is in its CIFAR code.
Differs from the released code (jichan3751/ifca 61e44b8, mnist/train_cluster_mnist.py:370-426):
- Each client is served the model of least training loss (`parts/cheapest.py`);
  `cluster_choice: test_loss` does what the code does. Training always chooses by training loss.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedclust.algorithms.parts.descent import descend
from fedclust.algorithms.parts.loss_clusters import LossClusters
from fedclust.algorithms.steps import FlexAggregation, federated_averaging
from fedclust.core.front import Clients, Gradient
from fedclust.core.types import Cost, Round


@dataclass(frozen=True, kw_only=True)
class IFCA(LossClusters):
    """K models; every participant joins the one that fits its data best, anew in each round."""

    # of models, `uniform` over a cluster's participants, weighted `by_samples`, or `first_client`,
    # see `fedclust.algorithms.steps.average`
    aggregation: FlexAggregation = "by_samples"

    @property
    def unnoised(self) -> str:  # type: ignore[override]
        """A client chooses for itself, among models that are noised."""
        if self.start == "kmeans++":
            return "models for the start"
        return "" if self.restart_fraction is None else "choices that decide on a restart"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """The clusters' models."""

        models: Tensor  # [K, P]
        # [M] int64 cluster that each client trained in last, -1 before its first time
        label: Tensor

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Initial models, by `start` and `restart_fraction`."""
        models, cost = self.initial_models(clients, rnd)
        return self.State(models=models, label=torch.full_like(rnd.fed.group, -1)), cost

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Assignment of the cohort by loss, then one step of every cluster."""
        cohort = rnd.cohort
        loss = self.losses(state.models, clients, rnd)  # [C, K]
        label = loss.argmin(1)  # line 7: cluster identity estimate
        if self.averaging == "model":
            models, cost = federated_averaging(self, clients, state.models, label, rnd)
        else:
            total = clients.grad_sum(Gradient(state.models, label, cohort))  # [K, P]
            rate, denominator = self.solver.rate(rnd.t), self.gradient_denominator
            models = descend(state.models, total, label, rate, denominator, rnd)
            train_loss = float(loss.amin(1).mean())
            cost = Cost(models_up=len(cohort), gradient_steps=len(cohort), train_loss=train_loss)
        # each is sent all models; line 8: it says which cluster it has chosen
        cost = replace(cost, models_down=len(cohort) * self.num_clusters, scalars_up=len(cohort))
        label = state.label.index_copy(0, cohort, label)
        return replace(state, models=models, label=label), cost
