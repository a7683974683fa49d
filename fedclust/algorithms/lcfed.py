"""LCFed, clusters told apart by few numbers of a model: Zhang, Chen, Lin, Chen, Zhao, ICASSP 2025.

https://arxiv.org/abs/2501.01850; we know its abstract, and the code of the package `cfla` 1.0.4.

A participant begins at the model of its cluster, Omega_k, and makes its loss small plus
    (mu / 2) ||w - Omega_k||^2 + (lambda / 2) ||phi - Phi||^2,
where phi is the body of w, all layers but the last, and Phi the mean body of all participants. It
then belongs to the cluster of the largest cosine between z = M (w - m) and M (Omega_k - m): the
rows of M are the first `directions` right singular vectors of the participants' models about their
mean m, so that few numbers decide. A cluster becomes the mean of those who belong to it.

Differs from that code:
- It makes M of copies of the first model, which differ by nothing, begins with K equal clusters,
  assigned at random, and starts local work at Phi under a head that nobody ever trains. Here the
  participants of round 0 train first; `method` clusters them by the distances of their z, and M is
  made of their models, anew every `refresh` rounds.
- Its z is M w. About the mean, as a principal component analysis is meant, two clusters lie on two
  sides; without it the mean model's own part can outweigh what tells them apart.
- The server computes z from the models it is sent anyhow, so nobody is sent M.
- A client without a cluster joins that of least training loss.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedclust.algorithms.parts.cheapest import join_cheapest, serve_joined
from fedclust.algorithms.parts.shared_layers import Layers, check_layers, common_mean, shared
from fedclust.algorithms.steps import Shares, average, weights
from fedclust.core.calls import LocalWork
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import Cost, Round, Served
from fedclust.core.verbs import ClusterMethod, Method
from fedclust.helpers.errors import require
from fedclust.helpers.ops import cosine_of, distances, inner_products, leading_directions
from fedclust.helpers.ranges import AtLeastOne, NonNegative


@dataclass(frozen=True, kw_only=True)
class LCFed(Method):
    """Clusters by low-rank similarity, which share a body by a pull; keeps `directions` rows of a
    model's size in memory.
    """

    solver: Solver  # local work
    method: ClusterMethod  # distances of the first z to clusters
    mu: NonNegative = 2.0  # pull of a participant to its cluster's model
    lam: NonNegative = 1.0  # lambda, pull of what is shared to the mean of all
    layers: Layers = "body"  # what is shared: the `body`, or `all` layers
    directions: AtLeastOne = 50  # rows of M; where there are fewer participants, there are fewer
    refresh: AtLeastOne = 10  # rounds from one M to the next
    aggregation: Shares = "by_samples"

    unnoised = "models of single clients, which are compared"

    def __post_init__(self) -> None:
        super().__post_init__()
        pull, allowed = self.solver.proximal, "0, since algorithm.mu and algorithm.lam are the pull"
        require(pull == 0, "solver.proximal", pull, allowed)

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Models, who uses them, and what they are compared by."""

        models: Tensor  # [1, P] before the first round, [K, P] after it
        common: Tensor  # [1, P] mean of all participants of the last round; its body is Phi
        # [M] int64 cluster; 0 before the first round, -1 for clients without one after it
        label: Tensor
        middle: Tensor  # [1, P] m
        projection: Tensor  # [D, P] M, without rows before the first round

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """A fresh model. Raises `ConfigError` if it has no body and that is to be shared, or fewer
        clients take part than clusters are asked for.
        """
        check_layers(self.layers, clients.layout)
        k, allowed = self.method.num_clusters, f"at most the {len(rnd.cohort)} clients of round 0"
        require(not isinstance(k, int) or k <= len(rnd.cohort), "num_clusters", k, allowed)
        model = clients.init(rnd.stream("init"), 1)
        label = torch.zeros_like(rnd.fed.group)
        state = self.State(
            models=model, common=model, label=label, middle=model, projection=model[:0]
        )
        return state, Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Local work, then the clusters, by the models it has made."""
        cohort, models = rnd.cohort, state.models
        label, joining = join_cheapest(models, state.label, cohort, clients)
        own, mask = label[cohort], shared(self.layers, clients.layout).to(cohort.device)
        solver = replace(self.solver, proximal=self.mu + self.lam)
        work = self.pulls(models[own], state.common, mask)
        local = clients.train(Train(models, own, cohort, solver, work))
        weight = weights(cohort, rnd, self.aggregation)
        common = common_mean(clients, local, models, own, weight)
        if rnd.t % self.refresh == 0:
            state = self._renewed(state, clients, local.params)
        if rnd.t == 0:
            z = self._seen(state, clients, local.params).float()
            joined = self.method(distances(z, z), rnd.stream("clustering"))
            models, label = models.repeat(int(joined.max()) + 1, 1), torch.full_like(label, -1)
            further = Cost(notes={"num_clusters_found": len(models)})
        else:
            joined = self._nearest(state, clients, local.params)
            further = Cost(floats_down=len(cohort) * int(mask.sum()) if self.lam else 0)  # Phi
        models, cost = average(clients, local, models, joined, cohort, rnd, self.aggregation)
        label = label.index_copy(0, cohort, joined)
        state = replace(state, models=models, common=common, label=label)
        return state, joining.plus(further).plus(cost)

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        return serve_joined(state.models, state.label, clients, rnd)

    def pulls(self, own: Tensor, common: Tensor, mask: Tensor) -> LocalWork:
        """Both pulls as one, of the weight mu + lambda: to the models `own` [C, P] of the
        participants' clusters, and of what is shared, the `mask` [P] bool, to the `common` one
        [1, P].
        """
        total = self.mu + self.lam
        if total == 0:
            return LocalWork()
        between = (self.mu * own + self.lam * common) / total
        pull = torch.full_like(own[0], self.mu / total).masked_fill(mask, 1.0)
        return LocalWork(anchor=between.where(mask, own), pull=pull)

    def _renewed(self, state: State, clients: Clients, params: Tensor) -> State:
        """The state with M and m of the participants' models [C, P], where these differ."""
        trained = clients.layout.of_trained
        middle = params.mean(0, keepdim=True, dtype=torch.float64)
        found = leading_directions(trained(params), trained(middle), self.directions)
        middle = middle.to(params.dtype)
        return replace(state, middle=middle, projection=found) if len(found) else state

    def _seen(self, state: State, clients: Clients, rows: Tensor) -> Tensor:
        """z of the models [C, P], [C, D] float64."""
        trained = clients.layout.of_trained
        inner, _ = inner_products(trained(rows), state.projection)
        return inner - inner_products(trained(state.middle), state.projection)[0]

    def _nearest(self, state: State, clients: Clients, params: Tensor) -> Tensor:
        """The cluster of largest cosine for every model [C, P], [C] int64."""
        z, centre = (self._seen(state, clients, rows) for rows in (params, state.models))
        norms = z.square().sum(1, keepdim=True), centre.square().sum(1)
        return cosine_of(z @ centre.T, *norms).argmax(1)
