"""Cold starts: how the first clients form groups and later ones find theirs, by a short
pre-training.

FlexCFL (arXiv:2108.09749), Algorithm 3 and eq. (8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedclust.algorithms import check_choice, clients_with_data, zeros
from fedclust.calls import LocalResult
from fedclust.errors import require
from fedclust.ops import cluster_mean, cosine
from fedclust.ranges import AtLeastOne
from fedclust.solver import Solver
from fedclust.types import Cost, Round
from fedclust.verbs import Clients, ClusterMethod, ClusterMetric

Grouping = Literal["clustered", "random_centres"]

_CPU_BLOCK = 2**26  # numbers in the models of one block of joining clients: 256 MiB of float32
_GPU_BLOCK = 2**29


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
    metric: ClusterMetric
    method: ClusterMethod
    scale: AtLeastOne = 20
    grouping: Grouping = "clustered"

    def __post_init__(self) -> None:
        require(self.scale >= 1, "algorithm.cold_start.scale", self.scale, "at least 1")
        check_choice("algorithm.cold_start.grouping", self.grouping, Grouping)

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

    def join(
        self, clients: Clients, base: Tensor, direction: Tensor, ids: Tensor, rnd: Round
    ) -> tuple[Tensor, int]:
        """Group whose direction the client's own update points along most [C] int64, and local
        steps.

        Args:
            clients: what computes, see `fedclust.verbs.Clients`.
            base: [1, P] the common model.
            direction: [K, P] the groups' directions.
            ids: [C] int64.
            rnd: the round.
        """
        label, steps = torch.zeros_like(ids), 0
        # a shift can move everybody at once: block by block no more than one block of models is
        # kept
        rows = max(1, (_GPU_BLOCK if base.is_cuda else _CPU_BLOCK) // base.shape[1])
        for begin in range(0, len(ids), rows):
            some = ids[begin : begin + rows]
            local = clients.train(base, zeros(some), some, self.solver, purpose="pretrain")
            # eq. (8): argmin of (1 - cos) / 2, ties to the smallest index
            label[begin : begin + rows] = cosine(local.params - base, direction).argmax(1)
            steps += int(local.steps.sum())
        return label, steps

    def _members(self, num_clusters: int, rnd: Round) -> Tensor:
        """The clients that form the groups, [A] int64 sorted."""
        ids = clients_with_data(rnd)
        require(
            num_clusters <= len(ids),
            "num_clusters",
            num_clusters,
            f"at most the {len(ids)} clients to cluster",
        )
        count = num_clusters * (self.scale if self.grouping == "clustered" else 1)
        priority = rnd.stream("cold start").keys(ids).argsort(stable=True)
        return ids[priority[:count]].sort().values
