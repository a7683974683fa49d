"""CLoVE, clustering of loss vector embeddings: Bhatia, Papadis, Kodialam, Lakshman, Chakrabarty,
ICML 2026.

https://arxiv.org/abs/2506.22427. A client's losses under all K models are its coordinates: clients
of one cluster have similar ones, whatever the models are. In each round the server clusters these
vectors, and a matching of least total loss gives every group its own model; IFCA's argmin can give
two groups the same.

Differs from the paper:
- With fewer participants than clusters each takes the model of least loss: there is nothing to
  cluster, and a matching would part those who belong together. With `method.num_clusters=auto`
  they are clustered all the same.
- A client that comes late joins the cluster of least training loss; the paper compares its losses
  with the clusters' centroids, which are those of older models.
- Models are averaged (its option II averages gradients, as `solver.steps=1` does).
- With `method.num_clusters=auto` the silhouette finds how many groups there are: at most
  `num_clusters`, `method.max_clusters`, and one fewer than participants; models without a group
  rest.
Differs from the released code (Nokia-Bell-Labs/Loss-Vector-based-Clustered-Federated-Learning
b602090):
- It begins most supervised tasks with random groups (`first_round: random`;
  experiment_driver/experiment_list.csv:17-60), drawn for every participant by itself
  (utils/algorithm_utils.py:283-294); here they are of one size, and those of `ifca_random`. It
  trains with Adam (config.py:110).
- Its k-means has one start (algorithm_utils.py:345, `n_init="auto"`); `method.starts` is ten.
- Where the number of clusters is unknown it is the one at which Ward's clusters have the best
  silhouette (25-70), and k-means then makes as many (330-345); here `auto` is k-means throughout.
- It takes a larger number of clusters only where the silhouette is a tenth better (58).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedclust.algorithms.parts.cheapest import join_cheapest, serve_joined
from fedclust.algorithms.parts.matching import at_most, matched
from fedclust.algorithms.steps import (
    Aggregation,
    clients_with_data,
    federated_averaging,
    random_groups,
)
from fedclust.core.front import Clients
from fedclust.core.solver import Solver
from fedclust.core.types import Cost, Round, Served
from fedclust.core.verbs import ClusterMethod, Method
from fedclust.helpers.ops import cluster_sum, distances
from fedclust.helpers.ranges import AtLeastOne

LossTransform = Literal["identity", "square_root"]
FirstRound = Literal["loss", "random"]


@dataclass(frozen=True, kw_only=True)
class CLoVE(Method):
    """K models; participants are clustered anew in each round by their losses under all of them."""

    solver: Solver  # local work
    num_clusters: AtLeastOne  # K, or the most that `method` may find; its `auto` tries no more
    method: ClusterMethod  # distances of the loss vectors to clusters
    # coordinates are the losses or, as in the paper's proof, their square roots; the matching
    # always sums losses
    loss_transform: LossTransform = "identity"
    first_round: FirstRound = "loss"  # groups by `loss` from the start, or `random` ones in round 0
    # once nobody has changed cluster for so many rounds, losses are no longer asked for and every
    # cluster runs FedAvg; None asks always
    stable_rounds: AtLeastOne | None = None
    aggregation: Aggregation = "by_samples"

    unnoised = "losses of every model"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Models, and who uses them."""

        models: Tensor  # [K, P]
        # [M] int64 cluster that each client trained in last, -1 before its first time
        label: Tensor
        calm: int  # rounds in a row in which everybody had a cluster and kept it

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Independent models: under equal ones all coordinates of a client would be equal."""
        models = clients.init(rnd.stream("init"), self.num_clusters)
        return self.State(models=models, label=torch.full_like(rnd.fed.group, -1), calm=0), Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Groups by losses while they still move, then one round of FedAvg in every cluster."""
        cohort, k = rnd.cohort, self.num_clusters
        settled = self.stable_rounds is not None and state.calm >= self.stable_rounds
        if settled:
            label, telling = join_cheapest(state.models, state.label, cohort, clients)
        elif self.first_round == "random" and rnd.t == 0:
            chosen = random_groups(cohort, k, rnd)
            label, telling = state.label.index_copy(0, cohort, chosen), Cost()
        else:
            chosen = self._groups(clients.loss(state.models, cohort), rnd)
            label = state.label.index_copy(0, cohort, chosen)
            # the model a client trains is one of those it was sent
            telling = Cost(models_down=(k - 1) * len(cohort), scalars_up=k * len(cohort))
        models, cost = federated_averaging(self, clients, state.models, label[cohort], rnd)
        moved = bool((label[clients_with_data(rnd)] < 0).any()) or not label.equal(state.label)
        calm = state.calm if settled else 0 if moved else state.calm + 1
        return self.State(models=models, label=label, calm=calm), cost.plus(telling)

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        return serve_joined(state.models, state.label, clients, rnd)

    def _groups(self, loss: Tensor, rnd: Round) -> Tensor:
        """The cluster of every participant, [C] int64, by its losses [C, K]."""
        if len(loss) < self.num_clusters and self.method.num_clusters != "auto":
            return loss.argmin(1)
        vector = loss.sqrt() if self.loss_transform == "square_root" else loss
        _, copy = vector.unique(dim=0, return_inverse=True)  # type: ignore[no-untyped-call]
        # products leave a little between equal rows
        distance = distances(vector, vector).masked_fill(copy.unsqueeze(1) == copy, 0)
        method = at_most(self.method, self.num_clusters)
        group = method(distance, rnd.stream("clustering")).to(loss.device)
        total = cluster_sum(loss.double(), group, int(group.max()) + 1)  # [A, K]
        return matched(total)[group]
