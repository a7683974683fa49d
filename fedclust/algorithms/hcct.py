"""HCCT, groups that raise the sum of the clients' own bounds: Sun, Kountouris, Zhang, 2024.

https://arxiv.org/abs/2401.13236. Before every round the server merges clients, the pair of groups
that gains most first, as long as the total utility rises. That of client i in group c is
    u_i = -alpha / n_c + cos(g_c, g_i),
with n_c the examples of the group, g_i the last update of i, and g_c the mean of the group's by
examples: partners with much data and updates like its own raise it. No number of groups is given.
Then one round of FedAvg in every group, from the mean of what its members used, by examples.

Follows the released code (hiyuchang/HCCT c37ac21: merging in utils/keyfunc.py:24-74, the round in
main_cluster.py:196-291); of the paper the abstract was at hand.
Differs from it:
- Clients are compared by their last update; not everybody takes part in every round.
- Clients that have never taken part are a group of their own, which uses the mean of all models by
  examples; at first these are all clients, and the mean is the common model.

Size pays at most alpha / n_i. With alpha = 1, as in the code, clients of a hundred examples merge
only where the cosines of their updates with the group's are above 0.99: alpha has to fit the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedclust.algorithms.steps import Aggregation, arrived, average
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import ClientModels, Cost, Round, Served
from fedclust.core.verbs import Method
from fedclust.helpers.ranges import NonNegative

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class HCCT(Method):
    """Groups anew in every round, by mergers that raise the total utility. Keeps M updates."""

    solver: Solver  # local work
    alpha: NonNegative = 1.0  # what the size of a group is worth
    aggregation: Aggregation = "by_samples"

    unnoised = "updates of single clients, which are compared"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Models of the groups, who is in which, and every client's last update."""

        models: Tensor  # [K, P]; the last is that of clients that never took part, if there are any
        label: Tensor  # [M] int64 group
        update: ClientModels  # [M, P] last update of every client, 0 before its first training
        known: Tensor  # [M] bool whether a client has taken part

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        models, label = clients.init(rnd.stream("init"), 1), torch.zeros_like(rnd.fed.group)
        update = ClientModels.alike(torch.zeros_like(models), rnd.fed.num_clients)
        known = torch.zeros_like(label, dtype=torch.bool)
        return self.State(models=models, label=label, update=update, known=known), Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Groups by the last updates, then one round of FedAvg in each."""
        models, label = self._grouped(state, clients, rnd)
        cohort = rnd.cohort
        local = clients.train(Train(models, label[cohort], cohort, self.solver))
        update = state.update.replaced(cohort, local.params - models[label[cohort]])
        models, cost = average(clients, local, models, label[cohort], cohort, rnd, self.aggregation)
        known = state.known.index_fill(0, cohort, True)
        return self.State(models=models, label=label, update=update, known=known), cost

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        """The group of the client's last round, or the mean of all for one that never took part."""
        return Served(models=state.models, label=arrived(state.label, rnd))

    def _grouped(self, state: State, clients: Clients, rnd: Round) -> tuple[Tensor, Tensor]:
        """The models [K, P] of the new groups before they train, and the group [M] of everybody."""
        ids = state.known.nonzero().squeeze(1)
        if not len(ids):
            return state.models, state.label
        size = rnd.fed.train.count[ids].clamp(min=1).double()  # data may have gone since
        update = clients.layout.of_trained(state.update[ids]).double()
        found = merged((update @ update.T).cpu().numpy(), size.cpu().numpy(), self.alpha)
        own = torch.from_numpy(found).to(state.label.device)
        used = state.models[state.label[ids]]
        share = torch.zeros(int(own.max()) + 1, len(ids), dtype=torch.float64, device=own.device)
        share[own, torch.arange(len(ids), device=own.device)] = size
        rows = [share / share.sum(1, keepdim=True)]
        if not bool(state.known.all()):
            rows.append((size / size.sum()).unsqueeze(0))
        models = (torch.cat(rows) @ used.double()).to(used.dtype)
        label = torch.full_like(state.label, len(models) - 1).index_copy(0, ids, own)
        return models, label


def merged(product: Floats, size: Floats, alpha: float) -> NDArray[np.int64]:
    """[n] groups of clients, from the inner products [n, n] of their updates and their numbers of
    examples [n]; see the top of the file.

    With Q the inner products of the groups' sums of n_i g_i, and T[a, b] the sum over the members j
    of b of those of a's sum with g_j / |g_j|, the utility of a group c of M_c clients with N_c
    examples is -alpha M_c / N_c + T_cc / √Q_cc. All four are sums over members, so a merger adds
    two rows and two columns.
    """
    norm = np.sqrt(np.diag(product))
    unit = np.divide(1.0, norm, out=np.zeros_like(norm), where=norm > 0)
    q, t = size[:, None] * product * size, size[:, None] * product * unit
    n, a = size.astype(np.float64), np.full(len(size), float(alpha))
    label = np.arange(len(size))
    groups = np.arange(len(size))  # the first member of each
    while len(groups) > 1:
        own = _utility(a, n, np.diag(t), np.diag(q))
        both = _utility(
            a[:, None] + a,
            n[:, None] + n,
            np.diag(t)[:, None] + np.diag(t) + t + t.T,
            np.diag(q)[:, None] + np.diag(q) + 2 * q,
        )
        gain = np.tril(both - own[:, None] - own, -1) + np.triu(np.full_like(q, -np.inf))
        into_later, into = np.unravel_index(int(gain.argmax()), gain.shape)
        if not gain[into_later, into] > 0:
            break
        label[label == groups[into_later]] = groups[into]
        kept = np.delete(np.arange(len(groups)), into_later)
        for table in (q, t):
            table[into] += table[into_later]
            table[:, into] += table[:, into_later]
        for vector in (n, a):
            vector[into] += vector[into_later]
        q, t, n, a, groups = q[kept][:, kept], t[kept][:, kept], n[kept], a[kept], groups[kept]
    return np.searchsorted(groups, label).astype(np.int64)


def _utility(alpha: Floats, size: Floats, along: Floats, square: Floats) -> Floats:
    """The sum of the members' utilities, of groups or of pairs of them."""
    length = np.sqrt(np.maximum(square, 0.0))
    cosines = np.divide(along, length, out=np.zeros_like(along), where=length > 0)
    return np.asarray(-alpha / size + cosines)
