"""JGL, a joint gradient and loss based clustered federated learning design: Lin, Chen, Yang, Wu,
Liu, 2023.

https://arxiv.org/abs/2311.13665, Algorithm 1. With `gradient_weight: 0` it is IFCA on mini-batches,
the paper's baseline.

Differs from the paper:
- Scores, eqs. (1)-(4): see `fedclust.algorithms.jgl_score`. The learning rate of (5) grows with the
  batch size as the printed loss does; `loss_reduction: mean` divides both.
- `empty_cluster: refill` and `anchor_all` are two readings of the paper's text, see
  `fedclust.algorithms.empty_clusters`; `none` lets empty clusters rest.
- Line 12 uploads the model from before the step of (5); here the one after it.
- Line 1 takes all devices; here the round's cohort. A device keeps the cluster it was in last; one
  that never took part is served the model of least training loss.
- `local: solver` replaces the one step of (5) by the run's local solver.
There is no released code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fedclust.algorithms.cheapest import join_cheapest
from fedclust.algorithms.descent import check_plain_step, descend
from fedclust.algorithms.empty_clusters import EmptyCluster, occupied
from fedclust.algorithms.jgl_score import Scoring
from fedclust.algorithms.steps import arrived, clients_with_data, train_and_average
from fedclust.helpers.errors import require
from fedclust.helpers.ops import cluster_mean
from fedclust.helpers.ranges import AtLeastOne
from fedclust.types import Cost, Round, Served
from fedclust.verbs import Clients

LocalWork = Literal["step", "solver"]


@dataclass(frozen=True, kw_only=True)
class JGL(Scoring):
    """Every participant joins the cluster whose model fits it and whose last step it would have
    taken too.

    Attributes:
        solver: batch size and learning rate, alpha in the paper; with `local: solver` all the local
            work.
        num_clusters: K in the paper.
        gradient_weight, similarity, sign, loss_reduction: of the score, see `Scoring`.
        empty_cluster: `refill` empty ones with random devices, `anchor_all` with one each, or
            `none`.
        local: one `step` of gradient descent on the mini-batch, or the `solver`.
    """

    num_clusters: AtLeastOne
    empty_cluster: EmptyCluster = "refill"
    local: LocalWork = "step"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Models, where they came from, and who is where.

        Attributes:
            models: [K, P], w_k^t.
            previous: [K, P], w_k^(t-1); the models themselves where there is no last step.
            pace: [K] float32, learning rate times local steps of the last step.
            label: [M] int64 cluster every client chose last, before any refilling; -1 if it never
                did.
        """

        models: Tensor
        previous: Tensor
        pace: Tensor
        label: Tensor

    def __post_init__(self) -> None:
        require(self.num_clusters >= 1, "num_clusters", self.num_clusters, "at least 1")
        super().__post_init__()
        if self.local == "step":
            check_plain_step(self.solver, "algorithm.local=step")
            return
        why = "mean, or sum with algorithm.local=step: the local solver averages over its batches"
        require(self.loss_reduction == "mean", "algorithm.loss_reduction", self.loss_reduction, why)

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Independent models without a last step."""
        models = clients.init(rnd.stream("init"), self.num_clusters)
        pace, label = models.new_ones(self.num_clusters), torch.full_like(rnd.fed.group, -1)
        return self.State(models=models, previous=models, pace=pace, label=label), Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Assignment of the cohort by score, then one step of every cluster."""
        cohort = rnd.cohort
        scores, loss = self.scores(state.models, state.previous, state.pace, clients, rnd)
        chosen = scores.argmax(1)  # eq. (4)
        label = occupied(chosen, self.num_clusters, self.empty_cluster, rnd)
        if self.local == "solver":
            models, local, cost = train_and_average(
                clients, state.models, label, cohort, self.solver, "uniform", rnd
            )
            steps = local.steps
        else:  # eqs. (5) and (7): the mean of w - alpha g_i is w - alpha times the mean of g_i
            batch, scale = self.solver.batch_size, self.scale(rnd).squeeze(1)
            total = clients.grad_sum(state.models, label, cohort, batch, scale)
            models = descend(state.models, total, label, self.solver.rate(rnd.t), "cluster", rnd)
            steps, taken = torch.ones_like(label), loss.gather(1, label.unsqueeze(1))
            cost = Cost(gradient_steps=len(label), train_loss=float(taken.mean()))
        mean_steps = cluster_mean(steps.float().unsqueeze(1), label, empty=state.pace.unsqueeze(1))
        after = self.State(
            models=models,
            previous=state.models,
            pace=self.solver.rate(rnd.t) * mean_steps.squeeze(1),
            label=state.label.index_copy(0, cohort, chosen),
        )
        # the participants keep the models of the round before, so w_k^(t-1) is not sent again
        return after, replace(
            cost,
            models_down=self.num_clusters * len(cohort),
            models_up=len(cohort),
            scalars_up=len(cohort),  # the cluster each has chosen
            notes={**cost.notes, "moved": int((label != chosen).sum())},
        )

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        """The model a client chose last, before any refilling; if it never did, the cheapest."""
        label, _ = join_cheapest(state.models, state.label, clients_with_data(rnd), clients)
        return Served(models=state.models, label=arrived(label, rnd))
