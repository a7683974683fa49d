"""Cold starts: how the first clients form groups and later ones find theirs, by a short pre-training.

FlexCFL (arXiv:2108.09749), Algorithm 3 and eq. (8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedclust.algorithms import check_choice, clients_with_data, zeros
from fedclust.errors import require
from fedclust.ops import cluster_mean, cosine
from fedclust.solver import Solver
from fedclust.types import LocalResult, Report, Round
from fedclust.verbs import ClusterMethod, ClusterMetric, Engine

Grouping = Literal["clustered", "random_centres"]

_CPU_BLOCK = 2**26  # numbers in the models of one block of joining clients: 256 MiB of float32
_GPU_BLOCK = 2**29


@dataclass(frozen=True, kw_only=True)
class Groups:
    """What a group cold start found.

    Attributes:
        models: [K, P] mean pre-trained model of the members.
        clients: [A] int64 the members.
        label: [A] int64 in [0, K).
        local: what the members' pre-training returned.
        report: what it cost.
    """

    models: Tensor
    clients: Tensor
    label: Tensor
    local: LocalResult
    report: Report


@dataclass(frozen=True, kw_only=True)
class ColdStart:
    """Pre-training from a common model, and what it decides.

    Attributes:
        solver: pre-training of a client.
        metric: dissimilarity of the pre-trained clients.
        method: dissimilarities to groups.
        scale: clients that form the groups, per group; alpha in the paper.
        grouping: `clustered`, or `random_centres`: as many random clients as groups, each a group of its own.
    """

    solver: Solver
    metric: ClusterMetric
    method: ClusterMethod
    scale: int = 20
    grouping: Grouping = "clustered"

    def __post_init__(self) -> None:
        require(self.scale >= 1, "algorithm.cold_start.scale", self.scale, "at least 1")
        check_choice("algorithm.cold_start.grouping", self.grouping, Grouping)

    def groups(self, engine: Engine, base: Tensor, num_clusters: int, rnd: Round) -> Groups:
        """The first groups: Algorithm 3.

        Args:
            engine: what computes.
            base: [1, P] the common model.
            num_clusters: number of groups.
            rnd: round 0.

        Raises:
            ConfigError: if there are fewer clients than groups.
        """
        clients = self._members(num_clusters, rnd)
        local = engine.train(base, zeros(clients), clients, self.solver, rnd, purpose="pretrain")
        label = torch.arange(len(clients), device=clients.device)
        arrays = {}
        if self.grouping == "clustered":
            distance = self.metric(engine, local.params, base, clients, rnd)
            label = self.method(distance, rnd.stream("clustering"))
            arrays = {"distance": distance}
        found = int(label.max()) + 1
        models = cluster_mean(local.params, label, empty=base.repeat(found, 1))
        report = Report(
            models_down=len(clients),
            models_up=len(clients),
            gradient_steps=int(local.steps.sum()),
            notes={"num_clusters_found": found},
            arrays=arrays,
        )
        return Groups(models=models, clients=clients, label=label, local=local, report=report)

    def join(
        self, engine: Engine, base: Tensor, direction: Tensor, clients: Tensor, rnd: Round
    ) -> tuple[Tensor, int]:
        """Group whose direction the client's own update points along most [C] int64, and local steps.

        Args:
            engine: what computes.
            base: [1, P] the common model.
            direction: [K, P] the groups' directions.
            clients: [C] int64.
            rnd: the round.
        """
        label, steps = torch.zeros_like(clients), 0
        # a shift can move everybody at once: block by block no more than one block of models is kept
        rows = max(1, (_GPU_BLOCK if base.is_cuda else _CPU_BLOCK) // base.shape[1])
        for begin in range(0, len(clients), rows):
            some = clients[begin : begin + rows]
            local = engine.train(base, zeros(some), some, self.solver, rnd, purpose="pretrain")
            # eq. (8): argmin of (1 - cos) / 2, ties to the smallest index
            label[begin : begin + rows] = cosine(local.params - base, direction).argmax(1)
            steps += int(local.steps.sum())
        return label, steps

    def _members(self, num_clusters: int, rnd: Round) -> Tensor:
        """The clients that form the groups, [A] int64 sorted."""
        clients = clients_with_data(rnd)
        require(
            num_clusters <= len(clients),
            "num_clusters",
            num_clusters,
            f"at most the {len(clients)} clients to cluster",
        )
        count = num_clusters * (self.scale if self.grouping == "clustered" else 1)
        priority = rnd.stream("cold start").keys(clients).argsort(stable=True)
        return clients[priority[:count]].sort().values
