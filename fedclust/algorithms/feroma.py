"""FEROMA, models mixed by how alike clients' data are: Li, Fenoglio, Gjoreski, Langheinrich,
ICLR 2026.

https://arxiv.org/abs/2602.07671. There are no clusters. After some rounds of FedAvg its model
describes everybody's data (see `fedclust.cluster_metrics.descriptor`). From then on a participant i
begins each round with its own mix of the models that clients have trained last,
    sum_j n_j r_ij theta_j / sum_j n_j r_ij,   r_ij closer to 1 the more alike profiles i and j are,
where profile j is that of the data theta_j was trained on: a client whose data have changed goes on
with the models of those who had such data. r is 1 / (distance + 1e-8), each row divided by its sum.

Follows the released code (dariofenoglio98/FEROMA), which differs from what others say of the paper:
there r is a softmax of minus the distance, and weights below a threshold are 0 (`weighting:
softmax`, `least_weight`); we have not read the paper's text.
Differs from the released code (8109aca):
- Data are described by what enters the last layer; in the code by what the convolutions put out
  (public/models.py:51-63), as in FLUX.
- Models and profiles are kept by client; the code keeps them in the order in which clients answer,
  which can change from round to round, and then mixes wrong pairs.
- Not everybody takes part in every round: a mix is of the models trained in the last `memory`
  rounds, and clients without a profile are sent what describes data besides.
- Random halves are of a client's training examples; the code holds a fifth of them out for it.
- Directions and scale are those of the descriptor here; the code's scale takes the least and the
  largest number of 22 blocks.
- A client is served its own last model, and one that has not trained on the data it has now the
  model of the nearest profile, by the part that needs no labels. The code tests every client so, by
  the inputs of its test examples (feroma/server.py:820-937): that is its printed average, and what
  `serve_by: inputs` does with training inputs. For a shift of P(Y|X) labelled test examples help
  there (867-897).
- Its private mode, which ends with an error in the code, is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from fedclust.algorithms.parts.clustering import tables_of_pairs
from fedclust.algorithms.parts.profiles import (
    DescribesClients,
    fitted,
    nearest,
    placed,
    random_halves,
)
from fedclust.algorithms.steps import (
    Aggregation,
    arrived,
    clients_with_data,
    each,
    federated_averaging,
    weights,
    zeros,
)
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import ClientModels, Cost, Round, Served
from fedclust.core.verbs import Method
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.errors import counted, typed
from fedclust.helpers.ops import distances
from fedclust.helpers.ranges import AtLeastOne, NonNegative

Weighting = Literal["inverse", "softmax"]
ServeBy = Literal["own", "inputs"]
_LEAST = 1e-8  # of a distance, as in the released code


@dataclass(frozen=True, kw_only=True)
class Feroma(Method):
    """Every client's own mix of the others' models; keeps M models."""

    solver: Solver  # local work
    descriptor: DescribesClients  # of the clients' data
    warmup: AtLeastOne = 5  # rounds of FedAvg before the first profile
    # a profile is of so many random halves of the examples together, so that it changes a little
    # from round to round; None takes every example once, and then a client whose data stay goes on
    # with its own model alone
    halves: AtLeastOne | None = 3
    # r is the `inverse` distance, or a `softmax` of minus the distance
    weighting: Weighting = "inverse"
    # weights r below are 0, and equal where none is left
    least_weight: Annotated[NonNegative, OnlyWith("weighting", "softmax")] = 0.0
    memory: AtLeastOne = 1  # rounds, back from the last one, whose models can be part of a mix
    # a client is served its `own` last model where that is of the data it has, or the model of the
    # profile that its `inputs` are nearest to, whatever its own is
    serve_by: ServeBy = "own"
    aggregation: Aggregation = "by_samples"  # models are weighted `by_samples`, or not

    averages = False  # but for the warm-up: later everybody has a mix of others' models

    needs_softmax: ClassVar[bool] = True  # as its descriptor

    unnoised = "descriptions of data"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """The common model, and what every client trained last."""

        model: Tensor  # [1, P] of FedAvg; what describes data
        own: ClientModels  # [M, P] each client's last model
        # [M, D] of the data it was trained on, on the scale; [M, 0] without a scale
        profile: Tensor
        scale: Tensor  # [2, D], see `fitted`; [2, 0] before the first profiles
        trained: Tensor  # [M] int64 round of that model, -1 for none
        stale: Tensor  # [M] bool, whose data have changed since

    def remark(self, rounds: int) -> str:
        """Says so where a run ends before the first mix."""
        if rounds > self.warmup + 1:
            return ""
        return (
            f"nobody gets a mix of its own: the first comes after {counted(self.warmup, 'round')} "
            f"of warm-up and one more, and the run has {rounds}; "
            f"take {typed('rounds', self.warmup + 2)} or more, or lower algorithm.warmup"
        )

    tables = tables_of_pairs

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        model, num_clients = clients.init(rnd.stream("init"), 1), rnd.fed.num_clients
        state = self.State(
            model=model,
            own=ClientModels.alike(model, num_clients),
            profile=model.new_zeros(num_clients, 0),
            scale=model.new_zeros(2, 0),
            trained=torch.full_like(rnd.fed.group, -1),
            stale=torch.zeros_like(rnd.present),
        )
        self._blocks(model, rnd.cohort[:0], clients, rnd)  # refuses what it cannot describe
        return state, Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """A round of FedAvg, or profiles, mixes, and training from them."""
        cohort = rnd.cohort
        if rnd.t < self.warmup:
            model, cost = federated_averaging(self, clients, state.model, zeros(cohort), rnd)
            return replace(state, model=model), cost
        blocks = self._blocks(state.model, cohort, clients, rnd)
        if not state.scale.shape[1]:
            scale = fitted(blocks)
            wide = scale.new_zeros(rnd.fed.num_clients, scale.shape[1])
            state = replace(state, scale=scale, profile=wide)
        profile = placed(blocks, state.scale)
        start, label, new = state.model, zeros(cohort), 0
        sources = self._sources(state)
        if len(sources):  # before, everybody begins at what describes the data
            share = self.shares(distances(profile, state.profile[sources]))
            start = share_by(share, weights(sources, rnd, self.aggregation)) @ state.own[sources]
            label = each(cohort)
            new = int((state.trained[cohort] < 0).sum())  # who lacks what describes data
        local = clients.train(Train(start, label, cohort, self.solver))
        state = replace(
            state,
            own=state.own.replaced(cohort, local.params),
            profile=state.profile.index_copy(0, cohort, profile),
            trained=state.trained.index_fill(0, cohort, rnd.t),
            stale=(state.stale | rnd.shifted).index_fill(0, cohort, False),
        )
        return state, Cost(
            models_down=len(cohort) + new,
            models_up=len(cohort),
            floats_up=profile.numel(),
            gradient_steps=int(local.steps.sum()),
            train_loss=float(local.loss.mean()),
        )

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        """A client's own last model if it is of the data it has and `serve_by` says so, else that
        of the nearest profile without labels; the common model before the first profiles.
        """
        sources = self._sources(state)
        if not len(sources):
            common = torch.zeros_like(rnd.fed.group)
            return Served(models=state.model, label=arrived(common, rnd))
        fresh = ~state.stale & ~(rnd.shifted & (state.trained < rnd.t))
        label = each(rnd.present)
        ids = clients_with_data(rnd)
        if self.serve_by == "own":
            ids = ids[~((state.trained >= 0) & fresh)[ids]]
        if len(ids):
            profile = placed(self.descriptor.blocks(state.model, ids, clients, rnd), state.scale)
            found = nearest(profile, state.profile[sources], rnd.fed.pool.num_classes)
            label = label.index_copy(0, ids, sources[found])
        return Served(models=state.own.all(), label=arrived(label, rnd))

    def shares(self, distance: Tensor) -> Tensor:
        """r [C, S], how much each model counts, by distances [C, S] of profiles; rows sum to 1."""
        if self.weighting == "inverse":
            close = 1 / (distance.double() + _LEAST)
            return (close / close.sum(1, keepdim=True)).float()
        close = torch.softmax(-distance.double(), 1)
        close = close.where(close >= self.least_weight, 0)
        total = close.sum(1, keepdim=True)
        equal = torch.full_like(close, 1 / close.shape[1])
        return (close / total.where(total > 0, 1)).where(total > 0, equal).float()

    def _sources(self, state: State) -> Tensor:
        """The clients whose models can be part of a mix, [S] int64."""
        oldest = (state.trained.max() - self.memory + 1).clamp(min=0)
        return (state.trained >= oldest).nonzero().squeeze(1)

    def _blocks(self, model: Tensor, ids: Tensor, clients: Clients, rnd: Round) -> list[Tensor]:
        times = None if self.halves is None else random_halves(ids, self.halves, rnd)
        return self.descriptor.blocks(model, ids, clients, rnd, times)


def share_by(share: Tensor, weight: Tensor | None) -> Tensor:
    """Shares [C, S] times the weights [S] of the models, None = 1; rows sum to 1."""
    heavy = share if weight is None else share * weight
    return heavy / heavy.sum(1, keepdim=True)
