"""FedDrift and FedDrift-Eager, for concepts that change: Jothimurugesan, Hsieh, Wang, Joshi,
Gibbons, AISTATS 2023.

https://arxiv.org/abs/2206.00799. When data have changed, every client tries all models and takes
the best; where even that is much worse than the best was before, the concept is new and the client
opens a model. Models that are as good on each other's data are merged. Eager opens one model for
all new concepts of a step and merges none.

Differs from the paper:
- It compares losses; accuracies on training data, here, are those of the released code
  (`train_acc_matrix`).
Differs from the released code (microsoft/FedDrift e4ac32f, fedml_api/distributed/fedavg_ens,
FedAvgEnsDataLoader.py:580-1085 and FedAvgEnsTrainerSoftCluster.py):
- Local work is that of `solver`. The code's optimiser is Adam as AMSGrad with a weight decay of
  0.001, whose moments live through a step, for every client and model.
- A client trains one model on the data it has now. In the code old data stay with the model they
  were assigned to, and clients go on training it with them.
- A step begins in every round in which somebody's data change; the code takes one every so many
  rounds, whether or not they change: `every`.
- A new model stays out of merging until the next step, W = 1 of the code.
- A client that comes late joins the model of least training loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from torch import Tensor

from fedclust.algorithms.parts.cheapest import join_cheapest
from fedclust.algorithms.parts.uniting import unite
from fedclust.algorithms.steps import Aggregation, arrived, clients_with_data, federated_averaging
from fedclust.core.front import Clients
from fedclust.core.solver import Solver
from fedclust.core.types import Cost, Round, Served
from fedclust.core.verbs import Method, Scenario
from fedclust.helpers.effects import IfDataChange, OnlyWithout
from fedclust.helpers.errors import require
from fedclust.helpers.ops import cluster_mean, one_hot
from fedclust.helpers.ranges import AtLeastOne, Probability

FirstModels = Literal["apart", "together"]
Opening = Literal["each", "one"]
STEPS = IfDataChange(otherwise="every")
Linkage = Literal["complete", "average"]


@dataclass(frozen=True, kw_only=True)
class FedDrift(Method):
    """Models that open where concepts are new, and merge where they are one.

    Attributes:
        delta: a concept is new if the best accuracy falls by more; of another task what
            `Task.merit` says, so of regression the error in standard deviations of the targets.
        merge_delta: models within this distance are merged; None merges none.
        linkage: distance of sets of models, see `merged_models`.
        first_models: every client begins with a model of its own (`apart`), or all `together`.
        opening: `each` client with a new concept opens a model, or all of a step share `one`.
        every: a step begins every so many rounds too, from that round on; None: only where data
            change.
        max_models: at most so many, None for as many as clients; then the one that has rested
            longest is given up, or none opens.
    """

    solver: Solver
    delta: Annotated[Probability, STEPS] = 0.1
    merge_delta: Annotated[Probability | None, STEPS] = 0.1
    linkage: Annotated[Linkage, OnlyWithout("merge_delta", None)] = "complete"
    first_models: FirstModels = "apart"
    opening: Annotated[Opening, STEPS] = "each"
    every: AtLeastOne | None = None
    max_models: Annotated[AtLeastOne | None, STEPS] = None
    aggregation: Aggregation = "by_samples"

    unnoised = "losses of every model"

    @property
    def apart(self) -> str:
        """Models between steps, which begin where data change."""
        return "clusters" if self.every is None else ""

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Models, who uses them, and how good they were."""

        models: Tensor  # [K, P]
        used: Tensor  # [K] int64 round in which a client trained the model last, -1 for none
        label: Tensor  # [M] int64 model, -1 for clients without one
        # [M] float64 accuracy of the best model when the step began, -inf before; of another task
        # what `Task.merit` says
        best: Tensor

    def beside(self, scenario: Scenario, num_clients: int) -> str:
        """Says so where no step ever begins."""
        if self.every is not None or getattr(scenario, "shifts", True):
            return ""
        equal = "training alone" if self.first_models == "apart" else "FedAvg"
        return (
            f"nobody's data change, so no model opens and none merge: this is {equal}; take "
            "algorithm.every for a step every so many rounds, or a scenario with drift"
        )

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        ids, label = clients_with_data(rnd), torch.full_like(rnd.fed.group, -1)
        count = len(ids) if self.first_models == "apart" else 1
        most, allowed = self.max_models, f"at least {count} with algorithm.first_models=apart"
        require(most is None or most >= count, "algorithm.max_models", most, allowed)
        models = clients.init(rnd.stream("init"), 1).repeat(count, 1)
        own = torch.arange(len(ids), device=ids.device) % count
        best = torch.full_like(label, -torch.inf, dtype=torch.float64)
        used, label = torch.full_like(own[:count], -1), label.index_copy(0, ids, own)
        return self.State(models=models, used=used, label=label, best=best), Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """A step where data have changed, then one round of FedAvg for every model."""
        cohort, step = rnd.cohort, Cost()
        ids = clients_with_data(rnd)
        label, joining = join_cheapest(state.models, state.label, ids, clients)
        state = replace(state, label=label)
        due = self.every is not None and rnd.t > 0 and rnd.t % self.every == 0
        if due or bool(rnd.shifted.any()):
            state, step = self._step(state, clients, rnd)
        label = state.label[cohort]
        models, cost = federated_averaging(self, clients, state.models, label, rnd)
        cost = replace(cost, notes={**cost.notes, "num_clusters_found": len(models)})
        state = replace(state, models=models, used=state.used.index_fill(0, label, rnd.t))
        return state, joining.plus(step).plus(cost)

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        return Served(models=state.models, label=arrived(state.label, rnd))

    def _step(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """The best model for everybody, merged ones, and new ones for new concepts."""
        ids = clients_with_data(rnd)
        hits, count = training_hits(state.models, ids, clients, rnd), rnd.fed.train.count[ids]
        best, choice = rnd.fed.pool.task.merit(hits, count.unsqueeze(1)).max(1)
        new = state.best[ids] - best > self.delta  # never in the first step
        copies = state.models[choice[new]][: None if self.opening == "each" else 1]
        models, used, label = state.models, state.used, state.label.index_copy(0, ids, choice)
        if self.merge_delta is not None and not bool(new.all()):
            data = ids[~new], hits[~new], count[~new]
            how = rnd.fed.pool.task.merit, self.merge_delta, self.linkage
            models, used, label = merged(models, used, label, *data, *how)
        most = self.max_models or rnd.fed.num_clients
        models, used, label = opened(models, used, label, ids[new], copies, most)
        # each tries all models and says how good they are
        tried = len(ids) * len(state.models)
        cost = Cost(models_down=tried, scalars_up=tried, forward_passes=tried)
        known = state.best.index_copy(0, ids, best)
        return self.State(models=models, used=used, label=label, best=known), cost


def training_hits(models: Tensor, ids: Tensor, clients: Clients, rnd: Round) -> Tensor:
    """What a test of every model [K, P] on the training examples of every one of `ids` [A] adds
    up, [A, K, S] float64; of classification the correct ones.
    """
    here = clients.at(replace(rnd, fed=replace(rnd.fed, test=rnd.fed.train)))
    label, hits = torch.full_like(rnd.fed.group, -1), list[Tensor]()
    for model in range(len(models)):
        label[ids] = model
        hits.append(here.trial(Served(models=models, label=label.clone())).sums[ids])
    return torch.stack(hits, 1)


def model_distances(accuracy: Tensor) -> Tensor:
    """d(i, j) = max(a_ii - a_ij, a_jj - a_ji, 0), [K, K]: how much worse models are on each other's
    data; `accuracy` a_ij [K, K] is that of model i on the data of model j.
    """
    own = accuracy.diagonal()
    worse = (own.unsqueeze(1) - accuracy).clamp(min=0)
    return worse.maximum(worse.T)


def merged_models(distance: Tensor, most: float, how: Linkage) -> Tensor:
    """The set of every model, [K] int64, where sets up to the distance `most` from each other are
    one; that of two sets is the largest (`complete`) or mean (`average`) `distance` [K, K] of their
    models.
    """
    if len(distance) < 2:
        return torch.zeros(len(distance), dtype=torch.int64, device=distance.device)
    tree = linkage(squareform(distance.double().cpu().numpy(), checks=False), how)
    found = fcluster(tree, most, "distance") - 1
    return torch.from_numpy(found).to(distance.device, torch.int64)


def merged(
    models: Tensor,
    used: Tensor,
    label: Tensor,
    ids: Tensor,
    hits: Tensor,
    count: Tensor,
    merit: Callable[[Tensor, Tensor], Tensor],
    most: float,
    how: Linkage,
) -> tuple[Tensor, Tensor, Tensor]:
    """Models [K', P], their last use [K'] and labels [M] once models of one concept are merged.

    A merged model is the mean of its parts, weighted by their clients. Models without clients have
    no data to be compared on and stay.

    Args:
        models, used, label: [K, P], [K] and [M] before.
        ids: [A] the clients whose data decide.
        hits, count: [A, K, S] what a test of every model adds up, and [A] examples.
        merit: of the task.
        most, how: see `merged_models`.
    """
    here, place = label[ids].unique(return_inverse=True)  # type: ignore[no-untyped-call]
    member = one_hot(place, len(here)).double()  # [A, J]
    added = torch.einsum("aj,aks->jks", member, hits[:, here])
    accuracy = merit(added, (member.T @ count.double()).unsqueeze(1)).T
    part = merged_models(model_distances(accuracy), most, how)
    after, kept = unite(label, here, part, len(models), len(models))
    now = here.index_copy(0, place, after[ids])  # [J] the new number of every model
    mean = cluster_mean(models[here], now, place.bincount(), empty=models[kept])
    several = now.bincount(minlength=len(kept)) > 1  # the others keep every bit
    return torch.where(several.unsqueeze(1), mean, models[kept]), used[kept], after


def opened(
    models: Tensor, used: Tensor, label: Tensor, ids: Tensor, copies: Tensor, most: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Models, their last use and labels once the clients `ids` [A] have new models.

    Args:
        models, used, label: [K, P], [K] and [M] before.
        ids: [A] int64.
        copies: [A, P] what each begins with, or [1, P] for all.
        most: models there may be. Beyond, of those without clients the longest unused gives way;
            whoever finds no room stays where it is.
    """
    if not len(ids):
        return models, used, label
    idle = [k for k in used.argsort(stable=True).tolist() if not bool((label == k).any())]
    room = [*range(len(models), max(len(models), most)), *idle][: len(copies)]
    slot = torch.tensor(room, dtype=torch.int64, device=ids.device)
    if not room:
        return models, used, label
    added = max(0, max(room) + 1 - len(models))
    models = torch.cat([models, models.new_zeros(added, models.shape[1])])
    models = models.index_copy(0, slot, copies[: len(room)])
    used = torch.cat([used, used.new_full((added,), -1)])
    if len(copies) == 1:
        return models, used, label.index_fill(0, ids, room[0])
    return models, used, label.index_copy(0, ids[: len(room)], slot)
