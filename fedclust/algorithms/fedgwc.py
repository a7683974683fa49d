"""FedGWC, Gaussian weighting: Licciardi, Leo, Fanì, Caputo, Ciccone, ICML 2025.

https://arxiv.org/abs/2502.03340. A participant whose losses are typical of its cluster's in the
round is rewarded; a matrix keeps the rewards that clients had beside each other. When it has
settled, clients that see the others alike form a new cluster, and so on inside of it. It sees how
hard the clients' data are: groups that are equally hard get equal rewards. A cluster splits into
as many parts as it takes rounds until all took part, at most: with more than half of the clients in
a round it is FedAvg.

Differs from the released code (davedleo/FedGWC 24d0716, agents/servers.py):
- One cohort is drawn from all clients; the code draws as many from every cluster (344-354,
  700-704). A participant counts as one of those that its cluster has in this round.
- Clients may take different numbers of local steps; the code's take as many each (369-381).
- Means and variances are those of the participants; the code can fill them up with random losses
  (386-393).
- A client that comes late joins the cluster of least training loss; the code has none (311-317).
What paper and code call P and W is the other way round; here it is `weight`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from sklearn.cluster import SpectralClustering
from sklearn.manifold import spectral_embedding
from sklearn.metrics import davies_bouldin_score
from torch import Tensor

from fedclust.algorithms.parts.cheapest import join_cheapest
from fedclust.algorithms.steps import Aggregation, arrived, average, clients_with_data
from fedclust.core.calls import LocalWork
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import Cost, Round, Served
from fedclust.core.verbs import Method, Scenario
from fedclust.helpers.errors import counted
from fedclust.helpers.ranges import NonNegative, Positive
from fedclust.helpers.rng import Stream

_LEAST_VARIANCE = 1e-16
_MOST_PARTS = 4


@dataclass(frozen=True, kw_only=True)
class FedGWC(Method):
    """FedAvg in clusters that split by what losses tell; keeps a weight for every pair of
    clients.
    """

    solver: Solver  # local work
    gamma: Positive = 0.1  # sharpness of the affinities
    # the weights of a cluster have settled when their mean squared change stays below
    eps: Positive = 1e-5
    davies_bouldin: NonNegative = 1.0  # a split needs a Davies-Bouldin index below; 0 never splits
    aggregation: Aggregation = "by_samples"

    unnoised = "losses of every step"
    apart = "clusters"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Models, who uses them, and the rewards."""

        models: Tensor  # [K, P]
        label: Tensor  # [M] int64 cluster, -1 for clients without one
        # [M, M] float64 moving mean of the reward of client i, as a part of all, in rounds with
        # client j
        weight: Tensor
        change: Tensor  # [K] float64 moving mean of the squared changes of a cluster's weights
        calm: Tensor  # [K] int64 rounds in a row in which that was below eps

    def beside(self, scenario: Scenario, num_clients: int) -> str:
        """Says so where no cluster can split: it takes two rounds until all took part."""
        size = getattr(scenario, "cohort_size", None)
        if size is None or 2 * size(num_clients) <= num_clients:
            return ""
        return (
            "with more than half of the clients in a round no cluster splits: this is FedAvg; take "
            "participation=0.5 or less"
        )

    def tables(self, num_clients: int) -> Mapping[str, int]:
        return {f"weights of all pairs of {counted(num_clients, 'client')}": 16 * num_clients**2}

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """One cluster with a fresh model, and equal weights."""
        model, label = clients.init(rnd.stream("init"), 1), torch.full_like(rnd.fed.group, -1)
        equal = 1 / len(clients_with_data(rnd)) ** 2
        weight = torch.full((len(label),) * 2, equal, dtype=torch.float64, device=label.device)
        change, calm = weight.new_ones(1), torch.zeros_like(label[:1])
        state = self.State(models=model, label=label, weight=weight, change=change, calm=calm)
        return state, Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """One round of FedAvg in every cluster; rewards, and the splits that are due."""
        cohort, k = rnd.cohort, len(state.models)
        ids = clients_with_data(rnd)
        label, joining = join_cheapest(state.models, state.label, ids, clients)
        own = label[cohort]
        local = clients.train(
            Train(state.models, own, cohort, self.solver, LocalWork(each_step=True))
        )
        models, cost = average(clients, local, state.models, own, cohort, rnd, self.aggregation)
        state = replace(state, models=models, label=label)
        assert local.step_loss is not None
        for cluster in range(k):
            here = own == cluster
            if bool(here.any()):
                state = self._rewarded(state, cluster, cohort[here], local.step_loss[here], rnd)
        notes = {"num_clusters_found": len(state.models)}
        telling = Cost(scalars_up=int(local.steps.sum()), notes=notes)  # the losses
        return state, cost.plus(joining).plus(telling)

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        return Served(models=state.models, label=arrived(state.label, rnd))

    def _rewarded(self, state: State, cluster: int, ids: Tensor, loss: Tensor, rnd: Round) -> State:
        """The state after the participants `ids` [C] of a cluster had the losses [C, S]."""
        members = (state.label == cluster).nonzero().squeeze(1)
        reward = rewards(loss, rnd.fed.train.count[ids])
        turn, pairs = len(members) / len(ids), (ids.unsqueeze(1), ids)  # rounds until all took part
        alpha = 1 / turn
        before = state.weight[pairs]
        after = (1 - alpha) * before + alpha * (reward / reward.sum()).unsqueeze(1)
        weight, change, calm = state.weight.clone(), state.change.clone(), state.calm.clone()
        weight[pairs] = after
        change[cluster] = (1 - alpha) * change[cluster] + alpha * (after - before).square().mean()
        calm[cluster] = calm[cluster] + 1 if float(change[cluster]) < self.eps else 0
        state = replace(state, weight=weight, change=change, calm=calm)
        if int(calm[cluster]) < round(turn):
            return state
        seen = affinity(weight[members.unsqueeze(1), members], self.gamma)
        part = communities(seen, turn, self.davies_bouldin, rnd.stream("split", cluster))
        new = int(part.max())  # the first part stays where it is
        own = torch.where(part > 0, len(state.models) + part - 1, cluster)
        change[cluster], calm[cluster] = 1, 0
        return replace(
            state,
            models=torch.cat([state.models, state.models[cluster].repeat(new, 1)]),
            label=state.label.index_copy(0, members, own),
            change=torch.cat([change, change.new_ones(new)]),
            calm=torch.cat([calm, calm.new_zeros(new)]),
        )


def rewards(loss: Tensor, weight: Tensor) -> Tensor:
    """How typical every participant's losses are, [C] float64 in (0, 1].

    r_i is the mean over the local steps s of exp(-(l_is - mu_s)^2 / (2 sigma_s^2)), where mu_s and
    sigma_s^2 are the weighted mean and variance of the losses at step s.

    Args:
        loss: [C, S] of every step, NaN past a client's last.
        weight: [C] examples.
    """
    taken = loss.isfinite()
    value, share = loss.double().nan_to_num(0), weight.double().unsqueeze(1) * taken
    total = share.sum(0)  # 0 at steps that none of them takes
    share = share / total.where(total > 0, 1.0)
    mean = (share * value).sum(0)
    square = (value - mean).square()
    variance = (share * square).sum(0) + _LEAST_VARIANCE
    return ((-square / (2 * variance)).exp() * taken).sum(1) / taken.sum(1)


def affinity(weight: Tensor, gamma: float) -> Tensor:
    """Affinities of clients by what they gave others, [A, A] float64 with a zero diagonal.

    A_ij = exp(-gamma sum over m other than i and j of (x_im - x_jm)^2), where x is the transposed
    weights, moved to [0, 1].

    Args:
        weight: [A, A], row i what client i was given beside every other.
        gamma: above 0.
    """
    low, high = weight.min(), weight.max()
    x = (weight.T - low) / (high - low).clamp(min=1e-8)
    square = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square()
    own = x.diagonal()
    # entry i of both rows, then entry j
    square = square - (own.unsqueeze(1) - x.T).square() - (x - own).square()
    return (-gamma * square.clamp(min=0)).exp().fill_diagonal_(0)


def communities(affinity: Tensor, parts: float, davies_bouldin: float, stream: Stream) -> Tensor:
    """The part of every client, [A] int64 from 0; all 0 if no split is good enough.

    Spectral clustering into 2, 3, ... parts, of which the one with the least Davies-Bouldin index
    (of the spectral embedding) is taken.

    Args:
        affinity: [A, A].
        parts: at most so many, and four, rounded down.
        davies_bouldin: the index has to be below.
        stream: randomness of the eigenvectors.
    """
    matrix, size = affinity.cpu().numpy(), len(affinity)
    best, least, state = np.zeros(size, np.int64), davies_bouldin, int(stream.key >> 33)
    for k in range(2, min(int(parts), _MOST_PARTS, size - 2) + 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of a graph that falls apart: the ideal
            place = spectral_embedding(matrix, n_components=k, random_state=state)
            found = SpectralClustering(
                k, affinity="precomputed", assign_labels="cluster_qr", random_state=state
            ).fit_predict(matrix)
        if 2 <= len(np.unique(found)) < size:
            index = davies_bouldin_score(place, found)
            if index < least:
                best, least = np.unique(found, return_inverse=True)[1].reshape(-1), index
    return torch.from_numpy(best).to(affinity.device, torch.int64)
