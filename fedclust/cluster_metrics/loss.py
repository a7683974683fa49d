"""How much worse clients' models fit each other's data than their own: LCFL, arXiv:2407.09360, eq.
(2).

Differs from the paper: with `landmarks` the table of losses has a column for some of the models
only, so that its cost grows with the number of clients and no longer with its square.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedclust.core.front import Clients
from fedclust.core.types import Round, Split
from fedclust.helpers.ranges import AtLeastTwo, Ranged

Data = Literal["train", "train_and_test"]


@dataclass(frozen=True, kw_only=True)
class Loss(Ranged):
    """d(i, j) = |L_i(v_i) - L_i(v_j)| + |L_j(v_i) - L_j(v_j)|, every client with its own data.

    L_i is the mean training loss of client i and v_i its model. A dissimilarity, not a metric: the
    triangle inequality does not hold in general.

    With L landmarks, clients drawn at random, every model v_j is replaced by that of its
    representative: of all landmark models the one that fits the data of client j best, which for a
        landmark is its own. So d(i, j) = |L_i(r_i) - L_i(r_j)| + |L_j(r_i) - L_j(r_j)|,  r_i =
        argmin over landmarks v of L_i(v),
    which is eq. (2) when all are landmarks. Clients with the same representative are at distance 0,
    and a cluster without a landmark cannot be told apart: L should be several times the number of
    clusters. They spare losses, not memory: the distances are still those of all pairs of clients.
    """

    # L, at least 2; null, or as many as there are clients, takes all
    landmarks: AtLeastTwo | None = None
    # `train`, or `train_and_test` as LCFL's released code, which lets test labels shape the
    # clusters
    data: Data = "train"

    num_components: ClassVar[None] = None

    def __call__(
        self, clients: Clients, models: Tensor, common: Tensor, ids: Tensor, rnd: Round
    ) -> Tensor:
        """[C, C] float32 nats per example; see `fedclust.verbs.ClusterMetric`."""
        if self.data == "train_and_test":
            clients = clients.at(_with_test_data(rnd))
        if self._some(ids):
            return self._by_landmarks(clients, models, ids, rnd)
        table = clients.loss(models, ids)  # [C, C], table[i, j] = L_i(v_j)
        half = table.sub(table.diagonal().unsqueeze(1)).abs_()  # what client i computes alone
        return half + half.T  # eq. (2)

    def reads(self, ids: Tensor, rnd: Round) -> Tensor:
        """The landmarks' models; see `fedclust.verbs.ClusterMetric`."""
        return ids[self._chosen(ids, rnd)] if self._some(ids) else ids

    def transfers(self, num_clients: int, num_classes: int) -> tuple[int, int, int]:
        """Every landmark's model goes to the server once and from there to all other clients.

        Every client sends back its half of the distance to every other, or with landmarks all
        losses.
        """
        chosen = num_clients if self.landmarks is None else min(self.landmarks, num_clients)
        scalars = num_clients * (num_clients - 1) if chosen == num_clients else num_clients * chosen
        return chosen * (num_clients - 1), chosen, scalars

    def _some(self, ids: Tensor) -> bool:
        """Whether not all clients are landmarks."""
        return self.landmarks is not None and self.landmarks < len(ids)

    def _chosen(self, ids: Tensor, rnd: Round) -> Tensor:
        """Rows of the landmarks among `ids` [C], [L] int64."""
        priority = (rnd.stream("landmarks").keys(ids) >> 1).argsort(stable=True)
        return priority[: self.landmarks].sort().values

    def _by_landmarks(self, clients: Clients, models: Tensor, ids: Tensor, rnd: Round) -> Tensor:
        """Distances [C, C] from the losses of the landmarks' models only."""
        chosen = self._chosen(ids, rnd)
        table = clients.loss(models[chosen], ids)  # [C, L]
        stands_for = table.argmin(1)
        stands_for[chosen] = torch.arange(len(chosen), device=chosen.device)
        own = table.gather(1, stands_for.unsqueeze(1))  # [C, 1], L_i(r_i)
        half = table.sub(own).abs_()[:, stands_for]
        return half + half.T


def _with_test_data(rnd: Round) -> Round:
    """The round in which every client's test examples belong to its training examples."""
    fed = rnd.fed
    rows = [
        torch.cat([fed.train.of_client(i), fed.test.of_client(i)]).cpu()
        for i in range(fed.num_clients)
    ]
    return replace(rnd, fed=replace(fed, train=Split.of(rows).to(fed.group.device)))
