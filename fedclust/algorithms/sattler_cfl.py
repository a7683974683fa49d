"""CFL, clusters split where clients disagree: Sattler, Müller, Samek, IEEE TNNLS 2020.

https://arxiv.org/abs/1910.01991, Algorithms 1 to 3. FedAvg, until the mean update of a cluster has
become small while single clients still want to move: there the cluster is split in two by the
angles of the updates.

Differs from the paper:
- Not everybody takes part in every round: a split is decided on the members whose last update is at
  most `memory` rounds old and began with a model of this cluster. The other members, and newcomers,
  join the cluster of least training loss. With everybody in every round this is the paper's method.
- Newcomers do not descend the tree of splits, which needs the updates of every split kept.
- The mean of the updates is that of `aggregation`; the paper weights by examples.
More in `fedclust.algorithms.splitting`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedclust.algorithms.cheapest import join_cheapest
from fedclust.algorithms.splitting import Splitting, norms
from fedclust.algorithms.steps import Aggregation, arrived, average, clients_with_data, weights
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastOne
from fedclust.solver import Solver
from fedclust.types import ClientModels, Cost, Round, Served
from fedclust.verbs import Clients


@dataclass(frozen=True, kw_only=True)
class SattlerCFL(Splitting):
    """FedAvg in clusters that split; keeps M updates in memory.

    Attributes:
        solver: local work.
        eps1, eps2, gamma_max, bipartition: of splits, see `Splitting`.
        memory: rounds for which an update counts.
        aggregation: `uniform` mean over a cluster's participants, or weighted `by_samples`.
    """

    solver: Solver
    memory: AtLeastOne = 5
    aggregation: Aggregation = "by_samples"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Models, who uses them, and what clients last wanted.

        Attributes:
            models: [K, P].
            born: [K] int64 round at whose end the cluster came to be.
            label: [M] int64 cluster, -1 for clients without one.
            update: [M, P] last update of every client.
            updated: [M] int64 round of that update, -1 for none.
        """

        models: Tensor
        born: Tensor
        label: Tensor
        update: ClientModels
        updated: Tensor

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.memory >= 1, "algorithm.memory", self.memory, "at least 1 round")

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """One cluster with a fresh model."""
        model, label = clients.init(rnd.stream("init"), 1), torch.full_like(rnd.fed.group, -1)
        update = ClientModels.alike(torch.zeros_like(model), rnd.fed.num_clients)
        state = self.State(models=model, born=label[:1], label=label, update=update, updated=label)
        return state, Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Local training, splits, and the mean in every cluster, the new ones included."""
        cohort, ids = rnd.cohort, clients_with_data(rnd)
        placed, asked = join_cheapest(state.models, state.label, ids, clients)
        local = clients.train(state.models, placed[cohort], cohort, self.solver)
        update = local.params - state.models[placed[cohort]]
        state = replace(
            state,
            label=placed,
            update=state.update.replaced(cohort, update),
            updated=state.updated.index_fill(0, cohort, rnd.t),
        )
        sent, (state, notes) = len(state.models), self._split(state, rnd)
        label = state.label[cohort]
        models, cost = average(clients, local, state.models, label, cohort, rnd, self.aggregation)
        label, asked_again = join_cheapest(models, state.label, ids, clients)
        joining = Cost(
            models_down=asked + asked_again,
            # whoever was sent all models says which it chose
            scalars_up=asked // sent + asked_again // len(models),
            notes={**notes, "num_clusters_found": len(models)},
        )
        return replace(state, models=models, label=label), cost.plus(joining)

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        """The model of the client's cluster."""
        return Served(models=state.models, label=arrived(state.label, rnd))

    def _split(self, state: State, rnd: Round) -> tuple[State, dict[str, float]]:
        """The state with every cluster split that should be, and the norms that decided.

        A new cluster begins as a copy of the old one. Members that did not decide lose their label.
        """
        fresh = state.updated > state.born[state.label.clamp(min=0)].clamp(min=rnd.t - self.memory)
        known = rnd.present & (state.label >= 0) & fresh
        models, born, label = [state.models], state.born.clone(), state.label
        means, most = list[float](), list[float]()
        for cluster in range(len(state.models)):
            members = (known & (state.label == cluster)).nonzero().squeeze(1)
            if not len(members):
                continue
            update = state.update[members]
            mean, largest = norms(update, weights(members, rnd, self.aggregation))
            means.append(mean)
            most.append(largest)
            if (side := self.sides(update, mean, largest)) is None:
                continue
            label = label.masked_fill(state.label == cluster, -1)
            label = label.index_copy(0, members, torch.where(side, len(born), cluster))
            models.append(state.models[cluster : cluster + 1])
            born[cluster] = rnd.t
            born = torch.cat([born, torch.full_like(born[:1], rnd.t)])
        notes = {"mean_update_norm": min(means), "max_update_norm": max(most)} if means else {}
        return replace(state, models=torch.cat(models), born=born, label=label), notes
