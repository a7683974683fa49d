"""JGL, a joint gradient and loss based clustered federated learning design: Lin, Chen, Yang, Wu,
Liu, 2023.

https://arxiv.org/abs/2311.13665, Algorithm 1. With `gradient_weight: 0` it is IFCA on mini-batches,
the paper's baseline.

Differs from the paper:
- Eqs. (2)-(4) as printed prefer the cluster whose last step is most opposed to the device's own:
  (2) is a step of descent and (3) compares it with a gradient. `sign: consistent` turns it round,
  for the Euclidean distance also divides it by rate and steps, so that gradients are compared;
  `literal` is as printed.
- Eq. (1) sums the loss over the mini-batch, so that it outweighs a similarity by the batch size,
  and the learning rate of (5) grows with it; `loss_reduction: mean` divides both, `sum` is as
  printed.
- A cluster without a last step (at first, or if nobody was in it) has similarity 0.
- `empty_cluster: refill` moves random devices into empty clusters only and `anchor_all` one into
  every cluster in every round, redrawn each time; the paper's text can be read as either. `none`
  lets them rest.
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

from fedclust.algorithms import arrived, average, check_choice, clients_with_data
from fedclust.algorithms.descent import check_plain_step, descend
from fedclust.errors import require
from fedclust.ops import cluster_mean, cosine, distances
from fedclust.ranges import AtLeastOne, Probability
from fedclust.solver import Solver
from fedclust.types import Cost, Round, Served
from fedclust.verbs import Clients

Similarity = Literal["cosine", "euclidean"]
Sign = Literal["consistent", "literal"]
LossReduction = Literal["mean", "sum"]
EmptyCluster = Literal["refill", "anchor_all", "none"]
LocalWork = Literal["step", "solver"]


@dataclass(frozen=True, kw_only=True)
class JGL:
    """Every participant joins the cluster whose model fits it and whose last step it would have
    taken too.

    Attributes:
        solver: batch size and learning rate, alpha in the paper; with `local: solver` all the local
            work.
        num_clusters: K in the paper.
        gradient_weight: lambda in [0, 1]; the loss has the weight 1 - lambda.
        similarity: of gradient and step: their `cosine`, or minus their `euclidean` distance.
        sign: `consistent`, or `literal` as printed.
        loss_reduction: over the mini-batch, `mean`, or `sum` as printed.
        empty_cluster: `refill` empty ones with random devices, `anchor_all` with one each, or
            `none`.
        local: one `step` of gradient descent on the mini-batch, or the `solver`.
    """

    solver: Solver
    num_clusters: AtLeastOne
    gradient_weight: Probability = 0.2
    similarity: Similarity = "cosine"
    sign: Sign = "consistent"
    loss_reduction: LossReduction = "mean"
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
        inside = 0 <= self.gradient_weight <= 1
        require(inside, "algorithm.gradient_weight", self.gradient_weight, "a weight in [0, 1]")
        check_choice("algorithm.similarity", self.similarity, Similarity)
        check_choice("algorithm.sign", self.sign, Sign)
        check_choice("algorithm.loss_reduction", self.loss_reduction, LossReduction)
        check_choice("algorithm.empty_cluster", self.empty_cluster, EmptyCluster)
        check_choice("algorithm.local", self.local, LocalWork)
        if self.local == "step":
            check_plain_step(self.solver, "algorithm.local=step")
            return
        why = (
            "mean, or sum with algorithm.local=step, "
            "because the local solver averages over its batches"
        )
        require(self.loss_reduction == "mean", "algorithm.loss_reduction", self.loss_reduction, why)

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Independent models without a last step."""
        models = clients.init(rnd.stream("init"), self.num_clusters)
        state = self.State(
            models=models,
            previous=models,
            pace=models.new_ones(self.num_clusters),
            label=torch.full_like(rnd.fed.group, -1),
        )
        return state, Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Assignment of the cohort by score, then one step of every cluster."""
        loss = clients.loss(state.models, rnd.cohort, self.solver.batch_size)  # [C, K]
        chosen = self._scores(state, loss, clients, rnd).argmax(1)  # eq. (4)
        label = self._filled(chosen, rnd)
        if self.local == "solver":
            local = clients.train(state.models, label, rnd.cohort, self.solver)
            models, cost = average(local, state.models, label, rnd.cohort, rnd, "uniform")
            steps = local.steps
        else:
            models, steps = self._step(state.models, label, clients, rnd), torch.ones_like(label)
            taken = loss.gather(1, label.unsqueeze(1))
            cost = Cost(gradient_steps=len(label), train_loss=float(taken.mean()))
        mean_steps = cluster_mean(steps.float().unsqueeze(1), label, empty=state.pace.unsqueeze(1))
        after = self.State(
            models=models,
            previous=state.models,
            pace=self.solver.rate(rnd.t) * mean_steps.squeeze(1),
            label=state.label.index_copy(0, rnd.cohort, chosen),
        )
        # the participants keep the models of the round before, so w_k^(t-1) is not sent again
        return after, replace(
            cost,
            models_down=self.num_clusters * len(rnd.cohort),
            models_up=len(rnd.cohort),
            scalars_up=len(rnd.cohort),  # the cluster each has chosen
            notes={**cost.notes, "moved": int((label != chosen).sum())},
        )

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        """The model every client chose last, before any refilling, or if it never did that of
        least loss.
        """
        label, ids = state.label.clone(), clients_with_data(rnd)
        new = ids[label[ids] < 0]
        if len(new):
            label[new] = clients.loss(state.models, new).argmin(1)
        return Served(models=state.models, label=arrived(label, rnd))

    def _scores(self, state: State, loss: Tensor, clients: Clients, rnd: Round) -> Tensor:
        """lambda S_ik - (1 - lambda) l_ik, [C, K], from the mean losses [C, K] on the
        mini-batch.
        """
        scale = self._scale(rnd)
        score = (self.gradient_weight - 1) * (loss * scale)  # eq. (1)
        if self.gradient_weight:  # the gradients are several times the work of the losses
            score += self.gradient_weight * self._similarities(state, scale, clients, rnd)
        return score

    def _step(self, models: Tensor, label: Tensor, clients: Clients, rnd: Round) -> Tensor:
        """The models after one step on the mini-batch, [K, P]; eqs. (5) and (7)."""
        gradient = clients.grad(models, label, rnd.cohort, self.solver.batch_size)
        # the mean of w_k - alpha * gradient_i is w_k - alpha * the mean of gradient_i
        return descend(
            models, gradient.mul_(self._scale(rnd)), label, self.solver.rate(rnd.t), "cluster", rnd
        )

    def _scale(self, rnd: Round) -> Tensor:
        """What turns a mean over the mini-batch into `loss_reduction`, [C, 1]."""
        size = rnd.fed.train.count[rnd.cohort].unsqueeze(1)
        if self.loss_reduction == "mean":
            return torch.ones_like(size)
        return size if self.solver.batch_size is None else size.clamp(max=self.solver.batch_size)

    def _similarities(self, state: State, scale: Tensor, clients: Clients, rnd: Round) -> Tensor:
        """S_ik, [C, K], one cluster at a time because the gradients of all would be [C, K, P]."""
        similarity = torch.zeros(len(rnd.cohort), self.num_clusters, device=rnd.cohort.device)
        for cluster in range(self.num_clusters):
            step = state.models[cluster] - state.previous[cluster]  # eq. (2)
            if not bool(step.any()):
                continue
            label = torch.full_like(rnd.cohort, cluster)
            gradient = clients.grad(state.models, label, rnd.cohort, self.solver.batch_size)
            similarity[:, cluster] = self._similarity(
                gradient.mul_(scale), step, state.pace[cluster]
            )
        return similarity

    def _similarity(self, gradient: Tensor, step: Tensor, pace: Tensor) -> Tensor:
        """Of the gradients [C, P] of the participants and the last step [P] of a cluster, [C]; eq.
        (3).
        """
        if self.sign == "consistent":
            step = -step / pace  # the mean gradient of the cluster's participants
        if self.similarity == "cosine":
            return cosine(gradient, step.unsqueeze(0)).squeeze(1)
        return -distances(gradient, step.unsqueeze(0)).squeeze(1)

    def _filled(self, chosen: Tensor, rnd: Round) -> Tensor:
        """The clusters [C] the participants work in: as chosen [C], but as `empty_cluster` wants
        them.
        """
        if self.empty_cluster == "none":
            return chosen
        order = rnd.stream("refill").numpy().permutation(len(chosen)).tolist()
        label, size = chosen.tolist(), chosen.bincount(minlength=self.num_clusters).tolist()
        if self.empty_cluster == "anchor_all":
            for cluster, row in zip(range(self.num_clusters), order, strict=False):
                label[row] = cluster
        else:
            for cluster in [k for k in range(self.num_clusters) if not size[k]]:
                row = next((row for row in order if size[label[row]] > 1), None)
                if row is not None:  # there may be fewer participants than clusters
                    size[label[row]], size[cluster] = size[label[row]] - 1, 1
                    label[row] = cluster
        return torch.tensor(label, device=chosen.device)
