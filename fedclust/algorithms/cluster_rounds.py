"""FedAvg in every cluster, each with a cohort of its own: LCFL, arXiv:2407.09360, lines 13-15.

Differs from the paper:
- The sampled clients are averaged; the paper leaves the federated optimiser open.
- A client that arrives after the clustering joins the cluster of least training loss; the paper has
  none.
Differs from the released code (wenh06/LCFL):
- Cluster updates are divided by the number of participants; the code divides by rate * cluster
  size, which over-steps small clusters (`divisor: planned`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fedclust.algorithms.cheapest import join_cheapest
from fedclust.algorithms.steps import Aggregation, clients_with_data, train_and_average
from fedclust.helpers.errors import require
from fedclust.helpers.ops import on_host
from fedclust.helpers.ranges import Fraction
from fedclust.solver import Solver
from fedclust.types import Cost, Round
from fedclust.verbs import Clients, Method

Divisor = Literal["participants", "planned"]


@dataclass(frozen=True, kw_only=True)
class ClusterRounds(Method):
    """What a method needs for rounds inside given clusters.

    Attributes:
        solver: local work.
        participation: fraction of a cluster's clients in a round, at least one client; None for the
            fraction that the run samples, rounded in each cluster; `total` for as many clients as
            the run samples, see `shared_out`.
        aggregation: `uniform` mean over a cluster's participants, or weighted `by_samples`.
        divisor: the updates of a cluster are divided by its `participants`, or by the `planned`
            number of them, participation times the cluster's size, as in the released code: a
            cluster of one client then takes a step of 1 / participation times its update.
    """

    solver: Solver
    participation: Fraction | Literal["total"] | None
    aggregation: Aggregation = "by_samples"
    divisor: Divisor = "participants"

    def __post_init__(self) -> None:
        part = self.participation
        require(
            part is None or part == "total" or 0 < part <= 1,
            "algorithm.participation",
            part,
            "a fraction in (0, 1], null to sample that of the run, or total",
        )

    def train_clusters(
        self, models: Tensor, label: Tensor, clients: Clients, rnd: Round
    ) -> tuple[Tensor, Tensor, Cost]:
        """One round of FedAvg in every cluster: models [K, P], labels [M], and what it cost.

        Args:
            models: [K, P].
            label: [M] int64 in [0, K), -1 for clients that arrived after the clustering.
            clients: what computes, see `fedclust.verbs.Clients`.
            rnd: the round.
        """
        ids = clients_with_data(rnd)
        label, sent = join_cheapest(models, label, ids, clients)
        part = self.participation
        share = rnd.share if part is None or part == "total" else part
        cohort = cluster_cohorts(label, ids, share, rnd, in_total=part == "total")
        after, _, cost = train_and_average(
            clients, models, label[cohort], cohort, self.solver, self.aggregation, rnd
        )
        if self.divisor == "planned":
            size, number = (label[c].bincount(minlength=len(models)) for c in (ids, cohort))
            factor = (number / (share * size).clamp(min=1e-9)).to(models.dtype).unsqueeze(1)
            after = models + factor * (after - models)
        # whoever was sent all models says which it chose
        joining = Cost(models_down=sent, scalars_up=sent // len(models))
        return after, label, cost.plus(joining)


def cluster_cohorts(
    label: Tensor, ids: Tensor, share: float, rnd: Round, *, in_total: bool = False
) -> Tensor:
    """The round's participants, at least one of every cluster with clients, [C] int64 sorted.

    Args:
        label: [M] int64 cluster of every client.
        ids: [A] int64 the clients to draw from, each with a cluster.
        share: fraction of the clients.
        rnd: the round.
        in_total: whether the fraction is of all clients, or of each cluster's, which can be more or
            fewer altogether.
    """
    # on the host, which else would wait in every cluster to hear how many there are
    among, known, dropped = on_host(ids, label[ids], rnd.dropped)
    host, size = replace(rnd, dropped=dropped), known.bincount(minlength=1).tolist()
    if in_total:
        counts = shared_out(max(1, round(share * len(among))), size)
    else:
        counts = [max(1, round(share * members)) for members in size]
    cohorts = [host.sample(n, among=among[known == k]) for k, n in enumerate(counts)]
    return torch.cat(cohorts).sort().values.to(label.device, non_blocking=True)


def shared_out(total: int, size: Sequence[int]) -> list[int]:
    """How many clients of every cluster take part, `total` altogether, by largest remainder.

    Each cluster with clients has one seat at least, so that with more clusters than `total` they
    are more. Ties go to the first cluster.

    Args:
        total: participants, at most as many as there are clients.
        size: clients of every cluster.
    """
    everybody = max(1, sum(size))
    seats = [max(min(1, members), total * members // everybody) for members in size]

    def missing(k: int) -> int:
        return total * size[k] - seats[k] * everybody

    while sum(seats) < total:
        seats[max(range(len(size)), key=missing)] += 1
    while sum(seats) > max(total, sum(map(bool, size))):
        seats[min((k for k in range(len(size)) if seats[k] > 1), key=missing)] -= 1
    return seats
