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
- Random participants work in clusters that nobody chose: `empty_cluster: refill` moves them into
  empty clusters only, `anchor_all` one into every cluster, redrawn in every round; the paper's text
  can be read as either. `none` lets empty clusters rest.
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

from fedclust.algorithms.parts.cheapest import serve_joined
from fedclust.algorithms.parts.descent import check_descent, check_plain_step, descend
from fedclust.algorithms.steps import train_and_average
from fedclust.core.front import Clients, Gradient
from fedclust.core.solver import Solver
from fedclust.core.types import Cost, Round, Served
from fedclust.core.verbs import Method
from fedclust.helpers.errors import require
from fedclust.helpers.ops import cluster_mean, cosine_of
from fedclust.helpers.ranges import AtLeastOne, Probability

Similarity = Literal["cosine", "euclidean"]
Sign = Literal["consistent", "literal"]
LossReduction = Literal["mean", "sum"]
EmptyCluster = Literal["refill", "anchor_all", "none"]


@dataclass(frozen=True, kw_only=True)
class JGL(Method):
    """Every participant joins the cluster whose model fits it and whose last step it would have
    taken too.
    """

    # batch size and learning rate, alpha in the paper; with `local: solver` all the local work
    solver: Solver
    num_clusters: AtLeastOne  # K in the paper
    gradient_weight: Probability = 0.2  # lambda in [0, 1]; the loss has the weight 1 - lambda
    # of gradient and step: their `cosine`, or minus their `euclidean` distance
    similarity: Similarity = "cosine"
    sign: Sign = "consistent"  # `consistent`, or `literal` as printed
    loss_reduction: LossReduction = "mean"  # over the mini-batch, `mean`, or `sum` as printed
    # `refill` empty ones with random devices, `anchor_all` with one each, or `none`
    empty_cluster: EmptyCluster = "refill"
    # one `step` of gradient descent on the mini-batch, or the `solver`
    local: Literal["step", "solver"] = "step"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Models, where they came from, and who is where."""

        models: Tensor  # [K, P], w_k^t
        previous: Tensor  # [K, P], w_k^(t-1); the models themselves where there is no last step
        pace: Tensor  # [K] float32, learning rate times local steps of the last step
        # [M] int64 cluster every client chose last, before any refilling; -1 if it never did
        label: Tensor

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps_by_gradients:
            check_plain_step(self.solver, self.steps_by_gradients)
            return
        why = "0, because JGL reads gradients off the movement of a cluster's model"
        check_descent(self.solver, why, momentum=True)
        why = "mean, or sum with algorithm.local=step: the local solver averages over its batches"
        require(self.loss_reduction == "mean", "algorithm.loss_reduction", self.loss_reduction, why)

    @property
    def steps_by_gradients(self) -> str:  # type: ignore[override]
        """Of eq. (5)."""
        return "algorithm.local=step" if self.local == "step" else ""

    @property
    def several(self) -> str:
        """Gradients of every model are computed with the statistics of that model."""
        return "compares gradients of every model" if self.gradient_weight else ""

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        models = clients.init(rnd.stream("init"), self.num_clusters)
        pace, label = models.new_ones(self.num_clusters), torch.full_like(rnd.fed.group, -1)
        return self.State(models=models, previous=models, pace=pace, label=label), Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Assignment of the cohort by score, then one step of every cluster."""
        cohort = rnd.cohort
        scores, loss = self.scores(state, clients, rnd)
        chosen = scores.argmax(1)  # eq. (4)
        label = occupied(chosen, self.num_clusters, self.empty_cluster, rnd)
        if self.local == "solver":
            models, local, cost = train_and_average(
                clients, state.models, label, cohort, self.solver, "uniform", rnd
            )
            steps = local.steps
        else:  # eqs. (5) and (7): the mean of w - alpha g_i is w - alpha times the mean of g_i
            batch, scale = self.solver.batch_size, self._scale(rnd).squeeze(1)
            total = clients.grad_sum(Gradient(state.models, label, cohort, batch, weight=scale))
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
        return serve_joined(state.models, state.label, clients, rnd)

    def scores(self, state: State, clients: Clients, rnd: Round) -> tuple[Tensor, Tensor]:
        """Scores and mean losses of the cohort on its mini-batches, [C, K] each."""
        models = state.models
        if not self.gradient_weight:  # the gradients are several times the work of the losses
            loss = clients.loss(models, rnd.cohort, self.solver.batch_size)
            return -(loss * self._scale(rnd)), loss  # eq. (1)
        steps, scale = models - state.previous, self._scale(rnd)  # eq. (2), and [C, 1]
        steps = clients.layout.joined(steps, torch.zeros_like(steps))
        # cosines differ by 2 at most, so losses further apart choose alone
        margin = 2 * self.gradient_weight / ((1 - self.gradient_weight) * scale.squeeze(1))
        decides = margin if self.similarity == "cosine" else None
        batch_size = self.solver.batch_size
        inner, square, loss = clients.align(models, steps, rnd.cohort, batch_size, decides)
        step = steps.double().square().sum(1)  # [K]
        inner, square = inner * scale, square * scale**2
        if self.sign == "consistent":  # the mean gradient of the cluster's participants
            inner, step = inner / -state.pace, step / state.pace.double().square()
        likeness = self._likeness(inner, square, step).float().where(steps.any(1), 0.0)
        score = (self.gradient_weight - 1) * (loss * scale)
        return score.add_(self.gradient_weight * likeness), loss

    def _scale(self, rnd: Round) -> Tensor:
        """The factor from a mean over the mini-batch to `loss_reduction`, [C, 1]."""
        size = rnd.fed.train.count[rnd.cohort].unsqueeze(1)
        if self.loss_reduction == "mean":
            return torch.ones_like(size)
        batch_size = self.solver.batch_size
        return size if batch_size is None else size.clamp(max=batch_size)

    def _likeness(self, inner: Tensor, square: Tensor, step: Tensor) -> Tensor:
        """Of the participants' gradients and the clusters' last steps, [C, K], eq. (3): from their
        inner products [C, K] and the squared norms of gradients [C, K] and steps [K].
        """
        if self.similarity == "cosine":
            return cosine_of(inner, square, step)
        return -(square - 2 * inner + step).clamp(min=0).sqrt()


def occupied(chosen: Tensor, num_clusters: int, how: EmptyCluster, rnd: Round) -> Tensor:
    """Clusters that participants work in, [C] int64 in [0, K); see `JGL.empty_cluster`."""
    if how == "none":
        return chosen
    order = rnd.stream("refill").numpy().permutation(len(chosen)).tolist()
    label, size = chosen.tolist(), chosen.bincount(minlength=num_clusters).tolist()
    if how == "anchor_all":
        for cluster, row in zip(range(num_clusters), order, strict=False):
            label[row] = cluster
    else:
        for cluster in [k for k in range(num_clusters) if not size[k]]:
            row = next((row for row in order if size[label[row]] > 1), None)
            if row is not None:  # there may be fewer participants than clusters
                size[label[row]], size[cluster] = size[label[row]] - 1, 1
                label[row] = cluster
    return torch.tensor(label, device=chosen.device)
