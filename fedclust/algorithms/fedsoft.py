"""FedSoft, soft clusters by one proximal task per client: Ruan, Joe-Wong, AAAI 2022.

https://arxiv.org/abs/2112.06053, the algorithm FedSoft. There are K centres c_s. In every tau-th
round every client k finds for how many of its n_k examples each centre has the least loss, n_ks:
    importance u_ks = n_ks / n_k, or sigma where n_ks is 0,
    weight v_ks = u_ks n_k / sum over clients of u_ks n_k.
A participant goes on with its own last model w_k, now on f_k(w) + (lambda / 2) sum over s of
u_ks ||w - c_s||^2: a pull to the mean of the centres, weighted by u_ks. A centre becomes the mean
of the participants' models, weighted by v_ks.

Differs from the released code (ycruan/FedSoft e71a4ab):
- Importances are divided by their sum, which sigma makes exceed 1, before they pull; the code's
  pull as they are (clients.py:62-65, 92-99).
- The run's cohort trains unless `selected` is given; the code draws clients for every centre
  (servers.py:64-67), or trains all.
- Local training is by SGD on shuffled data; the code has Adam, kept over rounds, without shuffling
  (clients.py:18, 32; solvers.py:111).
- Clients are tested on test data; the code takes their training data (validators.py:85-101).
- Clients that have never taken part are served the centre of their largest importance.
What is served is one model per client and no mixture of the centres. So every personal model counts
as a cluster of its own in purity and its relatives, not as the centre of its largest importance,
and there is no `share_error`; `mixture_entropy` is of the importances.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fedclust.algorithms.parts.mixtures import drawn, fitting_shares, mixture_notes
from fedclust.algorithms.parts.personal import serve_personal
from fedclust.algorithms.steps import clients_with_data, each
from fedclust.core.calls import LocalWork
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import ClientModels, Cost, Round, Served
from fedclust.core.verbs import Method
from fedclust.helpers.ranges import AtLeastOne, InnerFraction


@dataclass(frozen=True, kw_only=True)
class FedSoft(Method):
    """K centres, and a personal model per client near those it has data of; keeps M models."""

    solver: Solver  # local work; its `proximal` is lambda, 0 trains alone
    num_clusters: AtLeastOne  # K, centres
    estimate_every: AtLeastOne = 2  # tau, rounds between two estimations of all importances
    least_importance: InnerFraction = 1e-4  # sigma, of a centre that fits no example of a client
    # clients drawn for every centre with the probabilities v_ks, whose plain mean it becomes; None
    # trains the run's cohort
    selected: AtLeastOne | None = None

    whole = "has clients go on from the model that they send"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """The centres and the clients' own models."""

        models: Tensor  # [K, P], row s is c_s
        personal: ClientModels  # [M, P], row k is w_k
        importance: Tensor  # [M, K], row k is u_k; 0 for clients that have not arrived
        trained: Tensor  # [M] bool, who has taken part

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Independent centres, and one model more with which all clients start."""
        k, num_clients = self.num_clusters, rnd.fed.num_clients
        models = clients.init(rnd.stream("init"), k + 1)
        state = self.State(
            models=models[:k],
            personal=ClientModels.alike(models[k:], num_clients),
            importance=models.new_zeros(num_clients, k),
            trained=torch.zeros_like(rnd.present),
        )
        return state, Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Importances where they are due, then one local task of every participant."""
        asked = clients_with_data(rnd)
        if rnd.t % self.estimate_every:  # only those that have just arrived
            asked = asked[~state.importance[asked].any(1)]
        fitting = fitting_shares(state.models, asked, clients, rnd)
        estimate = fitting.where(fitting > 0, self.least_importance)
        importance = state.importance.index_copy(0, asked, estimate)
        cohort, weight = self._participants(importance, rnd)
        pull = normalize(importance[cohort], p=1)
        anchor = pull @ state.models
        own = each(cohort)
        local = clients.train(
            Train(state.personal[cohort], own, cohort, self.solver, LocalWork(anchor=anchor))
        )
        state = self.State(
            models=weight.T @ local.params,
            personal=state.personal.replaced(cohort, local.params),
            importance=importance,
            trained=state.trained.index_fill(0, cohort, True),
        )
        reached = len(asked) + int((~torch.isin(cohort, asked)).sum())
        return state, Cost(
            models_down=reached * self.num_clusters,
            models_up=len(cohort),
            scalars_up=len(asked) * self.num_clusters,
            gradient_steps=int(local.steps.sum()),
            train_loss=float(local.loss.mean()),
            notes=mixture_notes(pull),
        )

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        """Everybody's own model; the centre of largest importance where there is none."""
        centre = state.importance.argmax(1).where(state.importance.any(1), -1)
        others = Served(models=state.models, label=centre)
        return serve_personal(state.personal, state.trained, others, rnd)

    def _participants(self, importance: Tensor, rnd: Round) -> tuple[Tensor, Tensor]:
        """Who trains, [C] int64 sorted, and what each weighs in every centre, [C, K]."""
        ids = rnd.cohort if self.selected is None else rnd.staying(clients_with_data(rnd))
        mass = importance[ids] * rnd.fed.train.count[ids].unsqueeze(1)
        weight = mass / mass.sum(0)  # v
        if self.selected is None:
            return ids, weight
        weight = drawn(weight, self.selected, rnd)
        taken = weight.any(1)
        return ids[taken], weight[taken]
