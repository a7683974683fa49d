"""Client-level differential privacy: McMahan, Ramage, Talwar, Zhang, ICLR 2018, arXiv:1710.06963,
Algorithm 1 with equal weights and a fixed denominator.

Every client takes part with probability q, each for itself. With K models and M clients, the update
D_i of a participant is shortened to the norm S, and

    w_k = w_k + (sum over the participants of k of D_i + N(0, (z S)^2 I)) K / (q M).

A client is in one of the K sums, so that together they are one Gaussian mechanism of sensitivity S.
Nothing depends on how many take part: a model without participants gets noise, and a round in which
nobody is drawn counts. The server is trusted; what it publishes are the models.

With `min_members` B, a cluster of fewer than B participants is filled up by random ones of larger
clusters, who train its model in this round: random rebalancing, as RR-Cluster (Yang, Hu, Kim, Li
2025, arXiv:2508.06183) means it, whose Algorithm 1 and proof we have not seen. By `rebalanced` the
sums then differ by at most 3 S, and epsilon is that of the noise z / 3.

epsilon is by the privacy loss distribution of dp-accounting (the extra `privacy`), adjacent by one
client more or less, of all rounds so far, each with its own q. With q = 1 in all of them it is
exact without that package: with mu = sqrt(rounds) / z,
delta = Phi(-epsilon / mu + mu / 2) - exp(epsilon) Phi(-epsilon / mu - mu / 2) (Balle, Wang 2018).
A distribution is rounded upwards to a grid of a power of 2, a 10,000th to a 20,000th of an upper
bound on epsilon, so that epsilon never falls as rounds go on. The bound is that of Renyi's
divergences at whole orders (Mironov 2017), or of the same rounds with q = 1 where that is less.
Where it is above 10,000, it is epsilon, and infinite above 5e13.

epsilon takes the seed for secret: cohorts, noise and who is moved follow from it. It is of one
seed; whoever publishes the models of n seeds releases the same data n times.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import exp, floor, inf, log2, sqrt
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from fedclust.core.types import Round
from fedclust.helpers.errors import require
from fedclust.helpers.extras import install
from fedclust.helpers.ranges import AtLeastZero, InnerFraction, Positive, Ranged
from fedclust.helpers.rounding import rounded_down

_FINE = 1e-4  # of the bound; epsilon is rounded up by less than 2e-3 of it in our tests
_LARGEST = 1e4  # above it, the bound will do
_SHARPEST = 1e7  # mu beyond which epsilon, above 5e13, is infinite: numbers have no more digits
_ORDERS = (*range(2, 65), 128, 256, 512, 1024)  # for other ones dp-accounting does not converge

Rounds = tuple[tuple[tuple[float, float], int], ...]  # how many have a share and a noise


class NoPrivacy(Ranged):
    """Nothing is clipped or noised."""

    def assigned(
        self, label: Tensor, num_models: int, ids: Tensor, rnd: Round, expected: float
    ) -> Tensor:
        return label

    def noised(
        self, updates: Tensor, label: Tensor, num_models: int, expected: float, draw: Generator
    ) -> Tensor:
        total = updates.new_zeros(num_models, updates.shape[1])
        return total.index_add(0, label, updates) / expected

    def epsilon(self, rounds: Mapping[tuple[float, int], int]) -> float:
        return inf


@dataclass(frozen=True, kw_only=True)
class ClientDP(NoPrivacy):
    """Clipped updates and Gaussian noise."""

    clip: Positive = 1.0  # S, the largest norm of an update
    noise: Positive = 1.0  # z, the noise on the sum in multiples of the clip
    delta: InnerFraction = 1e-5  # the probability with which epsilon may fail; below 1 / clients
    # B, participants that every cluster has in a round as long as there are enough of them; 0
    # leaves clusters as they are, and so does one model
    min_members: AtLeastZero = 0

    @staticmethod
    def draws(arguments: Mapping[str, Any]) -> str:  # noqa: ARG004
        """Why the scenario does not select who takes part, in words."""
        return "with privacy every client is drawn by itself, with the probability participation"

    def check(self, share: float, num_clients: int, num_buffers: int, num_models: int) -> None:
        """Raise `ConfigError` where this says nothing of so many clients, or cannot be told."""
        allowed = f"below 1 / {num_clients} clients, or one of them may be published whole"
        require(self.delta * num_clients < 1, "privacy.delta", self.delta, allowed)
        _check_accountant(share)
        allowed = "none, since the statistics of this model are not noised"
        require(num_buffers == 0, "privacy", "client", allowed)
        self._check_members(num_models, share * num_clients)

    def _check_members(self, num_models: int, expected: float) -> None:
        """Raise `ConfigError` where there are too few participants on average."""
        most = rounded_down(expected, 1) // num_models
        allowed = f"at most {most}, for {num_models} clusters share "
        allowed += f"{expected:g} participants of a round"
        require(self.min_members <= most, "privacy.min_members", self.min_members, allowed)

    def assigned(
        self, label: Tensor, num_models: int, ids: Tensor, rnd: Round, expected: float
    ) -> Tensor:
        if num_models == 1:
            return label
        self._check_members(num_models, expected)
        return rebalanced(label, num_models, self.min_members, ids, rnd)

    def noised(
        self, updates: Tensor, label: Tensor, num_models: int, expected: float, draw: Generator
    ) -> Tensor:
        length = updates.norm(dim=1, keepdim=True).clamp(min=1e-300)
        short = (self.clip / length).clamp(max=1.0) * updates
        mean = super().noised(short, label, num_models, expected, draw)
        noise = torch.from_numpy(draw.standard_normal(tuple(mean.shape))).to(mean)
        return mean + self.noise * self.clip / expected * noise

    def epsilon(self, rounds: Mapping[tuple[float, int], int]) -> float:
        alike = Counter[tuple[float, float]]()
        for (share, num_models), count in rounds.items():
            moved = self.min_members > 0 and num_models > 1
            alike[share, self.noise / 3 if moved else self.noise] += count
        return _epsilon(tuple(sorted(alike.items())), self.delta)


def rebalanced(label: Tensor, num_models: int, least: int, ids: Tensor, rnd: Round) -> Tensor:
    """The labels [C], with random participants moved to clusters of fewer than `least`.

    Of every cluster `least` random members stay. The others form one pool, of whom random ones fill
    the small clusters, the first cluster first; no cluster falls below `least`. Where the pool is
    too small, the last clusters stay small.

    One participant j more, of cluster a, changes the random sets in a few clients. If a is small,
    one who filled it up stays at home. If not, the pool has one more of a: whoever is moved for it
    takes another's place, and j may take its place among those who stay. The sums differ in D_j, in
    one client who leaves a, and one who leaves the filled cluster: (2 S, 2 S, S) in three clusters
    at worst, 3 S together.

    Args:
        label: [C] int64 in [0, K).
    """
    lacking = (least - label.bincount(minlength=num_models)).clamp(min=0)
    if not bool(lacking.any()):
        return label
    place = rnd.stream("rebalanced stay").keys(ids).argsort(stable=True).argsort()
    before = (label.unsqueeze(1) == label) & (place.unsqueeze(1) > place)  # [C, C]
    pool = (before.sum(1) >= least).nonzero().squeeze(1)
    pool = pool[rnd.stream("rebalanced go").keys(ids[pool]).argsort(stable=True)]
    clusters = torch.arange(num_models, device=label.device)
    wanted = clusters.repeat_interleave(lacking)[: len(pool)]
    return label.index_copy(0, pool[: len(wanted)], wanted)


def _check_accountant(share: float) -> None:
    """Raise `ConfigError` where epsilon needs a package that is not there."""
    there = share == 1 or importlib.util.find_spec("dp_accounting") is not None
    require(there, "privacy", "client", f"participation=1, or {install('privacy')}")


@lru_cache(maxsize=1024)  # seeds share their rounds
def _epsilon(rounds: Rounds, delta: float) -> float:
    """The epsilon of so many rounds of every share and noise; the order is that of the sums."""
    everybody = gaussian_epsilon(sqrt(sum(n / noise / noise for (_, noise), n in rounds)), delta)
    if everybody in (0, inf) or all(share == 1 for (share, _), _ in rounds):
        return everybody
    _check_accountant(0)
    with np.errstate(over="ignore"):  # of a bound that is none; the least of all is taken
        return _of_shares(rounds, delta, everybody)


def _of_shares(rounds: Rounds, delta: float, everybody: float) -> float:
    """The epsilon of rounds in which not everybody takes part, at most that of everybody."""
    from dp_accounting import dp_event
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(_ORDERS)
    for (share, noise), count in rounds:
        one = dp_event.PoissonSampledDpEvent(share, dp_event.GaussianDpEvent(noise))
        accountant.compose(one, count)
    bound = min(everybody, float(accountant.get_epsilon(delta)))
    if bound > _LARGEST:
        return bound
    grid = 2.0 ** floor(log2(_FINE * bound))
    first, *others = (_losses(*one, grid).self_compose(count) for one, count in rounds)
    for other in others:
        first = first.compose(other)
    return min(bound, float(first.get_epsilon_for_delta(delta)))


@lru_cache(maxsize=64)
def _losses(share: float, noise: float, grid: float) -> Any:
    """The distribution of one round's privacy loss, in steps of `grid`."""
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    return from_gaussian_mechanism(noise, value_discretization_interval=grid, sampling_prob=share)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The exact epsilon of mechanisms of everybody; mu² is the sum of their 1 / noise²."""
    from scipy.optimize import brentq  # a second to import
    from scipy.stats import norm

    def excess(epsilon: float) -> float:
        second = norm.logcdf(-epsilon / mu - mu / 2) + epsilon
        return float(norm.cdf(-epsilon / mu + mu / 2) - exp(min(second, 0.0)) - delta)

    if mu > _SHARPEST:
        return inf
    if mu == 0 or excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, mu * mu / 2 + 40 * mu))
