"""FedRC, clusters that only a change of P(Y|X) tells apart: Guo, Tang, Lin, ICML 2024.

https://arxiv.org/abs/2301.12379. FedEM whose likelihood is divided by how common the label is in
the cluster, Q_k(y), so that clients of one concept belong together although their labels or inputs
are distributed differently. Each participant, with the shares omega_i of the clusters,
    E-step   gamma_ijk = softmax over k of (log omega_ik - l_ijk - log Q_k(y_ij)),
    M-step   omega_ik = mean over j of gamma_ijk, and local training with the weights gamma_ijk;
the server averages the clusters' models, and takes for the next round
    T_k(y) = sum over clients i and their examples j of label y of gamma_ijk,
    Q_k(y) = T_k(y) / sum over labels of T_k.
The first round has no Q and is FedEM's.

Differs from the released code (LINs-lab/FedRC ce79229):
- A client that has not taken part is in no T; in the code it is one example of every cluster,
  spread evenly over the labels (client.py:107, run_experiment.py:420-429). Of others both keep the
  part of their last round (client.py:377-408).
- Clients that have not taken part choose their shares with Q too. In the code they keep 1 / K
  (utils/utils.py:675); its held-out clients choose by FedEM's rule, for they get no Q
  (client.py:102, aggregator.py:171-180, run_experiment.py:432-435).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from torch import Tensor

from fedclust.algorithms.fedem import FedEM
from fedclust.core.front import Clients
from fedclust.core.types import Cost, Round, Served
from fedclust.helpers.ops import one_hot
from fedclust.helpers.ranges import Positive

Prediction = Literal["mixture", "heaviest"]


@dataclass(frozen=True, kw_only=True)
class FedRC(FedEM):
    """K models for everybody, and every client's shares of them by what its labels mean."""

    needs_classes: ClassVar[bool] = True

    # below which T_k(y) counts as this many examples; the smaller, the more a cluster attracts
    # labels that it has never met
    least_count: Positive = 1e-8
    # by the `mixture` of a client's clusters, or by its `heaviest` one
    prediction: Prediction = "mixture"

    @dataclass(frozen=True, kw_only=True)
    class State(FedEM.State):
        """The models, the clients' shares, and their labels in every cluster."""

        # [M, K, Y] examples of each label in each cluster, 0 before a client's first round; summed
        # over the clients it is T
        count: Tensor

    def init(self, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        """Independent models; no label has been met."""
        start, cost = super().init(clients, rnd)
        count = start.models.new_zeros(*start.share.shape, rnd.fed.pool.num_classes)
        state = self.State(
            models=start.models, share=start.share, trained=start.trained, count=count
        )
        return state, cost

    def round(self, state: Any, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        """E-step and M-step of the cohort, which also sends its labels' part of every cluster."""
        belongs = self.expect(state, rnd.cohort, clients, rnd)  # [C, n, K]
        after, cost = self.maximise(state, belongs, clients, rnd)
        label = one_hot(labels_of(rnd.cohort, rnd), rnd.fed.pool.num_classes)  # [C, n, Y]
        count = belongs.transpose(1, 2) @ label.to(belongs.dtype)  # [C, K, Y]
        after = replace(after, count=state.count.index_copy(0, rnd.cohort, count))
        # T comes back to the server, and its Q went to the clients before
        return after, replace(cost, floats_down=count.numel(), floats_up=count.numel())

    def fit(self, state: Any, ids: Tensor, clients: Clients, rnd: Round) -> Tensor:
        """Log-likelihood over the label's frequency in the cluster, [C, n, K]."""
        fit = super().fit(state, ids, clients, rnd)
        if not bool(state.trained.any()):
            return fit
        total: Tensor = state.count.sum(0).clamp(min=self.least_count)  # [K, Y], T
        frequency = total / total.sum(1, keepdim=True)  # Q
        return fit - frequency.log().T[labels_of(ids, rnd)]

    def serve(self, state: Any, clients: Clients, rnd: Round) -> Served:
        """Everybody's mixture, or the heaviest model of it."""
        served = super().serve(state, clients, rnd)
        return served if self.prediction == "mixture" else replace(served, weight=None)


def labels_of(ids: Tensor, rnd: Round) -> Tensor:
    """Labels of the training examples of `ids` [C], [C, n] int64; of anything past the count."""
    index, _ = rnd.fed.train.take(ids)
    return rnd.fed.pool.y[index]
