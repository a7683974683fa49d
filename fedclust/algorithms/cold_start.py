"""How the first clients form groups, and whose data changed so much that they start cold again.

FlexCFL (arXiv:2108.09749), Algorithm 3 and eq. (9); FeSEM and IFCA-MIG use them too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedclust.algorithms.steps import clients_with_data, each, zeros
from fedclust.core.calls import LocalResult
from fedclust.core.federation import label_histogram
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import Cost, Round
from fedclust.core.verbs import ClusterMethod, ClusterMetric
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.errors import require
from fedclust.helpers.ops import cluster_mean
from fedclust.helpers.ranges import AtLeastOne, NonNegative, Ranged

Grouping = Literal["clustered", "random_centres"]
ShiftDistance = Literal["label_freq_l1", "label_count_l1", "released"]


@dataclass(frozen=True, kw_only=True)
class Groups:
    """The result of a group cold start."""

    models: Tensor  # [K, P] mean pre-trained model of the members
    ids: Tensor  # [A] int64 the members
    label: Tensor  # [A] int64 in [0, K)
    local: LocalResult  # what the members' pre-training returned
    cost: Cost  # what it cost


@dataclass(frozen=True, kw_only=True)
class ColdStart(Ranged):
    """Pre-training from a common model, and what it decides."""

    solver: Solver  # pre-training of a client
    # dissimilarity of the pre-trained clients
    metric: Annotated[ClusterMetric, OnlyWith("grouping", "clustered")]
    method: Annotated[ClusterMethod, OnlyWith("grouping", "clustered")]  # dissimilarities to groups
    # clients that form the groups, per group; alpha in the paper
    scale: Annotated[AtLeastOne, OnlyWith("grouping", "clustered")] = 20
    # `clustered`, or `random_centres`: as many random clients as groups, each a group of its own
    grouping: Grouping = "clustered"

    def check(self, num_clusters: int) -> None:
        """Refuse, by a `ConfigError`, another number of clusters than the cold start makes."""
        given = getattr(self.method, "num_clusters", "auto")
        same = given in (num_clusters, "auto") or self.grouping != "clustered"
        what = f"{given}, as many as the cold start makes: num_clusters=… sets both"
        require(same, "algorithm.num_clusters", num_clusters, what)

    def groups(self, clients: Clients, base: Tensor, num_clusters: int, rnd: Round) -> Groups:
        """The first groups, Algorithm 3, from the common model `base` [1, P] in round 0. Raises
        `ConfigError` if there are fewer clients than groups.
        """
        ids = self._members(num_clusters, rnd)
        local = clients.train(Train(base, zeros(ids), ids, self.solver, purpose="pretrain"))
        label = each(ids)
        arrays = {}
        if self.grouping == "clustered":
            distance = self.metric(clients, local.params, base, ids, rnd)
            label = self.method(distance, rnd.stream("clustering"))
            arrays = {"distance": distance}
        num_groups = int(label.max()) + 1
        start = base.repeat(num_groups, 1)
        means = cluster_mean(local.params, label, empty=start)
        models = clients.server.combined(start, local.params, means, label, None)
        cost = Cost(
            models_down=len(ids),
            models_up=len(ids),
            gradient_steps=int(local.steps.sum()),
            notes={"num_clusters_found": num_groups},
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


@dataclass(frozen=True, kw_only=True)
class ShiftTest(Ranged):
    """Eq. (9): a client's labels changed if their distance to a reference exceeds `fraction` / L.

    L is the number of classes. The paper's threshold on counts, 0.2 n_i / L, is that of
    `label_count_l1`. The default compares relative frequencies, so that more data of the same
    mixture are no shift. With 0.2 both fire when more than a tenth of a client's examples have
    other labels than before. The reference is what the client had when it joined or moved last.

    `released` is the rule of FlexCFL's released code. It takes Wasserstein's distance of the counts
    as two samples. That sorts them, so it does not matter which label a count belongs to: a swap of
    equally sized data with other labels is invisible. n_i is that of the start of the run for good,
    and so is the reference until the client first moves; joining does not renew it. With
    scenario=incremental the code starts with all data and then takes most of them away, which
    fires for everybody; `scenario.complete_start` does that.
    """

    # mean over the labels of the absolute difference of their relative frequencies
    # (`label_freq_l1`), of their counts divided by the present n_i (`label_count_l1`), or of their
    # sorted counts divided by the first n_i (`released`)
    distance: ShiftDistance = "label_freq_l1"
    fraction: NonNegative = 0.2  # 0.2 in the paper

    def start(self, rnd: Round, joined: Tensor) -> Tensor:
        """References [M, L + 1] int64 before round 0, of the clients `joined` [C] int64 that have a
        cluster: training examples of every label, and n_i, that of the first reference; 0 where
        there is none.
        """
        reference = rnd.fed.group.new_zeros(rnd.fed.num_clients, rnd.fed.pool.num_strata + 1)
        known = clients_with_data(rnd) if self.distance == "released" else joined
        return self.after_moving(reference, known, rnd)

    def after_joining(self, reference: Tensor, ids: Tensor, rnd: Round) -> Tensor:
        """The references [M, L + 1] once the clients `ids` [C] have their first cluster."""
        if self.distance == "released":
            ids = ids[reference[ids, -1] == 0]
        return self.after_moving(reference, ids, rnd)

    def after_moving(self, reference: Tensor, ids: Tensor, rnd: Round) -> Tensor:
        """The references [M, L + 1] once the clients `ids` [C] were assigned anew."""
        now, first = label_histogram(rnd.fed, ids), reference[ids, -1]
        size = first.where(first > 0, now.sum(1))
        return reference.index_copy(0, ids, torch.cat([now, size.unsqueeze(1)], 1))

    def followed(
        self, label: Tensor, reference: Tensor | None, rnd: Round
    ) -> tuple[Tensor, Tensor | None]:
        """Who shifted, [A] int64 sorted, from the labels [M] before the round, and the references
        [M, L + 1] after they and the cohort's new clients were assigned; None if nobody ever moves.
        """
        if reference is None:
            return rnd.cohort[:0], None
        moving = self.shifted(label, reference, rnd)
        after = self.after_moving(reference, moving, rnd)
        return moving, self.after_joining(after, rnd.cohort[label[rnd.cohort] < 0], rnd)

    def shifted(self, label: Tensor, reference: Tensor, rnd: Round) -> Tensor:
        """Who is there, has a cluster (`label` [M], else -1) and fails, [A] int64 sorted."""
        warm = (rnd.present & (label >= 0) & (rnd.fed.train.count > 0)).nonzero().squeeze(1)
        return warm[self(label_histogram(rnd.fed, warm), reference[warm])]

    def __call__(self, now: Tensor, reference: Tensor) -> Tensor:
        """Who shifted, [A] bool, by label counts `now` [A, L] and `reference` [A, L + 1]."""
        return self.gap(now, reference) > self.fraction / now.shape[1]  # eq. (9) divided by n_i

    def gap(self, now: Tensor, reference: Tensor) -> Tensor:
        """The distance, [A] float64 per example; arguments as above."""
        before, first = reference[:, :-1], reference[:, -1:].clamp(min=1)
        size = now.sum(1, keepdim=True).clamp(min=1)
        if self.distance == "label_freq_l1":
            had = before.sum(1, keepdim=True).clamp(min=1)
            return (now.double() / size - before.double() / had).abs().mean(1)
        if self.distance == "label_count_l1":
            return ((now - before).double() / size).abs().mean(1)
        # scipy.stats.wasserstein_distance of the counts taken as two samples
        return ((now.sort(1).values - before.sort(1).values).double() / first).abs().mean(1)
