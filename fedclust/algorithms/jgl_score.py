"""What a participant of JGL scores clusters by: arXiv:2311.13665, eqs. (1)-(4).

Differs from the paper:
- Eqs. (2)-(4) as printed prefer the cluster whose last step is most opposed to the device's own:
  (2) is a step of descent and (3) compares it with a gradient. `sign: consistent` turns it round,
  for the Euclidean distance also divides it by rate and steps, so that gradients are compared;
  `literal` is as printed.
- Eq. (1) sums the loss over the mini-batch, so that it outweighs a similarity by the batch size;
  `loss_reduction: mean` divides it, `sum` is as printed.
- A cluster without a last step (at first, or if nobody was in it) has similarity 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedclust.helpers.errors import require
from fedclust.helpers.ops import cosine_of
from fedclust.helpers.ranges import Probability
from fedclust.solver import Solver
from fedclust.types import Round
from fedclust.verbs import Clients, Method

Similarity = Literal["cosine", "euclidean"]
Sign = Literal["consistent", "literal"]
LossReduction = Literal["mean", "sum"]


@dataclass(frozen=True, kw_only=True)
class Scoring(Method):
    """The score lambda S_ik - (1 - lambda) l_ik of participant i and cluster k.

    Attributes:
        solver: its batch size is that of the mini-batch.
        gradient_weight: lambda in [0, 1]; the loss has the weight 1 - lambda.
        similarity: of gradient and step: their `cosine`, or minus their `euclidean` distance.
        sign: `consistent`, or `literal` as printed.
        loss_reduction: over the mini-batch, `mean`, or `sum` as printed.
    """

    solver: Solver
    gradient_weight: Probability = 0.2
    similarity: Similarity = "cosine"
    sign: Sign = "consistent"
    loss_reduction: LossReduction = "mean"

    def __post_init__(self) -> None:
        inside = 0 <= self.gradient_weight <= 1
        require(inside, "algorithm.gradient_weight", self.gradient_weight, "a weight in [0, 1]")

    def scores(
        self,
        models: Tensor,
        previous: Tensor,
        pace: Tensor,
        clients: Clients,
        rnd: Round,
    ) -> tuple[Tensor, Tensor]:
        """Scores and mean losses of the cohort on its mini-batches, [C, K] each.

        Args:
            models, previous: [K, P] now and a round ago.
            pace: [K] learning rate times local steps of the last step.
            clients: what computes, see `fedclust.verbs.Clients`.
            rnd: the round.
        """
        if not self.gradient_weight:  # the gradients are several times the work of the losses
            loss = clients.loss(models, rnd.cohort, self.solver.batch_size)
            return -(loss * self.scale(rnd)), loss  # eq. (1)
        steps, scale = models - previous, self.scale(rnd)  # eq. (2), and [C, 1]
        # cosines differ by 2 at most, so losses further apart choose alone
        margin = 2 * self.gradient_weight / ((1 - self.gradient_weight) * scale.squeeze(1))
        inner, square, loss = clients.align(
            models,
            steps,
            rnd.cohort,
            self.solver.batch_size,
            margin if self.similarity == "cosine" else None,
        )
        step = steps.double().square().sum(1)  # [K]
        inner, square = inner * scale, square * scale**2
        if self.sign == "consistent":  # the mean gradient of the cluster's participants
            inner, step = inner / -pace, step / pace.double().square()
        likeness = self._likeness(inner, square, step).float().where(steps.any(1), 0.0)
        score = (self.gradient_weight - 1) * (loss * scale)
        return score.add_(self.gradient_weight * likeness), loss

    def scale(self, rnd: Round) -> Tensor:
        """What turns a mean over the mini-batch into `loss_reduction`, [C, 1]."""
        size = rnd.fed.train.count[rnd.cohort].unsqueeze(1)
        if self.loss_reduction == "mean":
            return torch.ones_like(size)
        batch_size = self.solver.batch_size
        return size if batch_size is None else size.clamp(max=batch_size)

    def _likeness(self, inner: Tensor, square: Tensor, step: Tensor) -> Tensor:
        """Of the participants' gradients and the clusters' last steps, [C, K]; eq. (3).

        Args:
            inner: [C, K] their inner products.
            square: [C, K] squared norms of the gradients.
            step: [K] squared norms of the steps.
        """
        if self.similarity == "cosine":
            return cosine_of(inner, square, step)
        return -(square - 2 * inner + step).clamp(min=0).sqrt()
