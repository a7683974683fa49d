"""Group cold start: how the first clients form groups, by a short pre-training.

FlexCFL (arXiv:2108.09749), Algorithm 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedclust.algorithms.steps import clients_with_data, zeros
from fedclust.calls import LocalResult
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.errors import require
from fedclust.helpers.ops import cluster_mean
from fedclust.helpers.ranges import AtLeastOne
from fedclust.solver import Solver
from fedclust.types import Cost, Round
from fedclust.verbs import Clients, ClusterMethod, ClusterMetric

Grouping = Literal["clustered", "random_centres"]


@dataclass(frozen=True, kw_only=True)
class Groups:
    """What a group cold start found.

    Attributes:
        models: [K, P] mean pre-trained model of the members.
        ids: [A] int64 the members.
        label: [A] int64 in [0, K).
        local: what the members' pre-training returned.
        cost: what it cost.
    """

    models: Tensor
    ids: Tensor
    label: Tensor
    local: LocalResult
    cost: Cost


@dataclass(frozen=True, kw_only=True)
class ColdStart:
    """Pre-training from a common model, and what it decides.

    Attributes:
        solver: pre-training of a client.
        metric: dissimilarity of the pre-trained clients.
        method: dissimilarities to groups.
        scale: clients that form the groups, per group; alpha in the paper.
        grouping: `clustered`, or `random_centres`: as many random clients as groups, each a group
            of its own.
    """

    solver: Solver
    metric: Annotated[ClusterMetric, OnlyWith("grouping", "clustered")]
    method: Annotated[ClusterMethod, OnlyWith("grouping", "clustered")]
    scale: Annotated[AtLeastOne, OnlyWith("grouping", "clustered")] = 20
    grouping: Grouping = "clustered"

    def __post_init__(self) -> None:
        require(self.scale >= 1, "algorithm.cold_start.scale", self.scale, "at least 1")

    def check(self, num_clusters: int) -> None:
        """Refuse another number of clusters than the cold start makes.

        Raises:
            ConfigError: naming both.
        """
        given = getattr(self.method, "num_clusters", "auto")
        same = given in (num_clusters, "auto") or self.grouping != "clustered"
        what = f"{given}, as many as the cold start makes: num_clusters=… sets both"
        require(same, "algorithm.num_clusters", num_clusters, what)

    def groups(self, clients: Clients, base: Tensor, num_clusters: int, rnd: Round) -> Groups:
        """The first groups: Algorithm 3.

        Args:
            clients: what computes, see `fedclust.verbs.Clients`.
            base: [1, P] the common model.
            num_clusters: number of groups.
            rnd: round 0.

        Raises:
            ConfigError: if there are fewer clients than groups.
        """
        ids = self._members(num_clusters, rnd)
        local = clients.train(base, zeros(ids), ids, self.solver, purpose="pretrain")
        label = torch.arange(len(ids), device=ids.device)
        arrays = {}
        if self.grouping == "clustered":
            distance = self.metric(clients, local.params, base, ids, rnd)
            label = self.method(distance, rnd.stream("clustering"))
            arrays = {"distance": distance}
        found = int(label.max()) + 1
        models = cluster_mean(local.params, label, empty=base.repeat(found, 1))
        cost = Cost(
            models_down=len(ids),
            models_up=len(ids),
            gradient_steps=int(local.steps.sum()),
            notes={"num_clusters_found": found},
            arrays=arrays,
        )
        return Groups(models=models, ids=ids, label=label, local=local, cost=cost)

    def _members(self, num_clusters: int, rnd: Round) -> Tensor:
        """The clients that form the groups, [A] int64 sorted."""
        ids = clients_with_data(rnd)
        allowed = f"at most the {len(ids)} clients to cluster"
        require(num_clusters <= len(ids), "num_clusters", num_clusters, allowed)
        count = num_clusters * (self.scale if self.grouping == "clustered" else 1)
        priority = rnd.stream("cold start").keys(ids).argsort(stable=True)
        return ids[priority[:count]].sort().values
