"""FedEM, every client a mixture of common components: Marfoq, Neglia, Bellet, Kameni, Vidal,
NeurIPS 2021.

https://arxiv.org/abs/2108.10252, the algorithm FedEM. The data of client i come from K unknown
components with shares pi_i. Each participant, with l_ijk the loss of component k on its example j,
    E-step   q_ijk = softmax over k of (log pi_ik - l_ijk),
    M-step   pi_ik = mean over j of q_ijk, and local training of every component k on the loss
             (1 / B) sum over the batch of q_ijk l_ijk;
the server averages every component over the participants, by their examples. A client predicts with
the mean of the components' class probabilities, weighted by pi_i.

Differs from the released code (omarfoq/FedEM 996fadd):
- The participants are averaged; in the code absent clients count too, with the old components,
  which shortens the step of a round (aggregator.py:299-301, 311-314).
- Shares of a client that has not taken part are those of one E-step from uniform shares; the code
  leaves them uniform (utils/utils.py:193, client.py:99-101), and takes a step at every evaluation
  for held-out clients alone (aggregator.py:134-144).
- No weight decay and no momentum unless the solver has them; the code's SGD has 5e-4 and 0.9
  (utils/optim.py:156-162).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedclust.algorithms.parts.apart import check_apart
from fedclust.algorithms.parts.mixtures import mixture_notes, real_examples, shares
from fedclust.algorithms.steps import Aggregation, average, clients_with_data
from fedclust.core.calls import LocalWork
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import Cost, Round, Served
from fedclust.core.verbs import Method
from fedclust.helpers.ranges import AtLeastOne


@dataclass(frozen=True, kw_only=True)
class FedEM(Method):
    """K components for everybody, and every client's shares of them."""

    solver: Solver  # local work on each component
    num_clusters: AtLeastOne  # K, components
    aggregation: Aggregation = "by_samples"  # of components

    unnoised = "a model for every component"
    several = "trains several models of a client in a round"
    serves_mixtures = True

    @dataclass(frozen=True, kw_only=True)
    class State:
        """The components, and what every client knows of its own mixture."""

        models: Tensor  # [K, P] the components, theta in the paper
        share: Tensor  # [M, K], row i is pi_i in the paper; 1 / K before a client's first round
        trained: Tensor  # [M] bool, who has taken part

    def init(self, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        """Independent components: equal ones would stay equal."""
        models = clients.init(rnd.stream("init"), self.num_clusters)
        check_apart(models)
        share = models.new_full((rnd.fed.num_clients, self.num_clusters), 1 / self.num_clusters)
        trained = torch.zeros_like(rnd.present)
        return FedEM.State(models=models, share=share, trained=trained), Cost()

    def round(self, state: Any, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        """E-step and M-step of the cohort."""
        belongs = self.expect(state, rnd.cohort, clients, rnd)
        return self.maximise(state, belongs, clients, rnd)

    def serve(self, state: Any, clients: Clients, rnd: Round) -> Served:
        """Everybody's mixture, by the shares of its last round or of one E-step now."""
        ids = clients_with_data(rnd)
        new, share = ids[~state.trained[ids]], state.share
        if len(new):
            belongs = self.expect(state, new, clients, rnd)
            share = share.index_copy(0, new, shares(belongs, new, rnd))
        return Served.mixture(state.models, share, rnd.present)

    def fit(self, state: Any, ids: Tensor, clients: Clients, rnd: Round) -> Tensor:
        """Log-likelihood of each example of `ids` [C] under each component, [C, n, K]."""
        return -clients.example_losses(state.models, ids)

    def expect(self, state: Any, ids: Tensor, clients: Clients, rnd: Round) -> Tensor:
        """E-step: how far examples of `ids` [C] belong to components, [C, n, K]; else 0."""
        score: Tensor = state.share[ids].log().unsqueeze(1) + self.fit(state, ids, clients, rnd)
        return score.softmax(2) * real_examples(ids, rnd, score.shape[1]).unsqueeze(2)

    def maximise(
        self, state: Any, belongs: Tensor, clients: Clients, rnd: Round
    ) -> tuple[Any, Cost]:
        """M-step of the cohort, whose examples belong to the components by `belongs` [C, n, K]."""
        cohort, k = rnd.cohort, len(state.models)
        component = torch.arange(k, device=cohort.device).repeat_interleave(len(cohort))
        ids, weight = cohort.repeat(k), belongs.permute(2, 0, 1).flatten(0, 1)  # [K * C, n]
        local = clients.train(
            Train(state.models, component, ids, self.solver, LocalWork(example_weight=weight))
        )
        models, cost = average(clients, local, state.models, component, ids, rnd, self.aggregation)
        share = shares(belongs, cohort, rnd)
        state = replace(
            state,
            models=models,
            share=state.share.index_copy(0, cohort, share),
            trained=state.trained.index_fill(0, cohort, True),
        )
        # a client's loss is the sum over its components, whose weights add up to 1
        first = k * cost.notes["train_loss_first_epoch"]
        notes = {**cost.notes, "train_loss_first_epoch": first, **mixture_notes(share)}
        return state, replace(cost, train_loss=k * cost.train_loss, notes=notes)
