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
2025, arXiv:2508.06183) means it, whose Algorithm 1 and proof we have not seen. Then one client more
or less also changes who is moved: at most one other client stays that was moved, or is moved in its
place, and one more changes places with the new one, see `rebalanced`. So the sums differ by at most
3 S, and epsilon is that of the noise z / 3.

epsilon is by the privacy loss distribution of dp-accounting (the extra `privacy`), adjacent by one
client more or less. With q = 1 it is exact without that package: with mu = sqrt(rounds) / z,
delta = Phi(-epsilon / mu + mu / 2) - exp(epsilon) Phi(-epsilon / mu - mu / 2) (Balle, Wang 2018).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import exp
from typing import Any

import torch
from numpy.random import Generator
from torch import Tensor

from fedclust.core.types import Round
from fedclust.helpers.errors import require
from fedclust.helpers.extras import install
from fedclust.helpers.ranges import AtLeastZero, InnerFraction, Positive, Ranged
from fedclust.helpers.rng import uniform

_FINE = 1e-3  # of the distribution; epsilon is rounded up by less than 1e-4 of it in our tests


class NoPrivacy(Ranged):
    """Nothing is clipped or noised."""

    def assigned(
        self,
        label: Tensor,
        num_models: int,  # noqa: ARG002
        ids: Tensor,  # noqa: ARG002
        rnd: Round,  # noqa: ARG002
        expected: float,  # noqa: ARG002
    ) -> Tensor:
        """See `fedclust.core.server.Privacy`."""
        return label

    def noised(
        self,
        updates: Tensor,
        label: Tensor,
        num_models: int,
        expected: float,
        draw: Generator,  # noqa: ARG002
    ) -> Tensor:
        """See `fedclust.core.server.Privacy`."""
        total = updates.new_zeros(num_models, updates.shape[1])
        return total.index_add(0, label, updates) / expected

    def epsilon(self, share: float, rounds: int) -> float:  # noqa: ARG002
        """See `fedclust.core.server.Privacy`."""
        return float("inf")


@dataclass(frozen=True, kw_only=True)
class ClientDP(NoPrivacy):
    """Clipped updates and Gaussian noise.

    Attributes:
        clip: S, the largest norm of an update.
        noise: z, the noise on the sum in multiples of the clip.
        delta: the probability with which epsilon may fail; below 1 / clients.
        min_members: B, participants that every cluster has in a round as long as there are enough
            of them; 0 leaves clusters as they are.
    """

    clip: Positive = 1.0
    noise: Positive = 1.0
    delta: InnerFraction = 1e-5
    min_members: AtLeastZero = 0

    @staticmethod
    def draws(arguments: Mapping[str, Any]) -> str:  # noqa: ARG004
        """Why the scenario does not select who takes part, in words."""
        return "with privacy every client is drawn by itself, with the probability participation"

    def check(self, share: float, num_clients: int, num_buffers: int, num_models: int) -> None:
        """Raise `ConfigError` where this says nothing of so many clients, or cannot be told."""
        allowed = f"below 1 / {num_clients} clients, or one of them may be published whole"
        require(self.delta * num_clients < 1, "privacy.delta", self.delta, allowed)
        there = share == 1 or importlib.util.find_spec("dp_accounting") is not None
        require(there, "privacy", "ClientDP", f"participation=1, or {install('privacy')}")
        allowed = "none, since the statistics of this model are not noised"
        require(num_buffers == 0, "privacy", "ClientDP", allowed)
        self._check_members(num_models, share * num_clients)

    def _check_members(self, num_models: int, expected: float) -> None:
        """Raise `ConfigError` where there are too few participants on average."""
        allowed = f"at most {int(expected / num_models)}, for {num_models} clusters share "
        allowed += f"{expected:g} participants of a round"
        require(
            self.min_members * num_models <= expected,
            "privacy.min_members",
            self.min_members,
            allowed,
        )

    def assigned(
        self, label: Tensor, num_models: int, ids: Tensor, rnd: Round, expected: float
    ) -> Tensor:
        """See `fedclust.core.server.Privacy`."""
        if num_models == 1:
            return label
        self._check_members(num_models, expected)
        return rebalanced(label, num_models, self.min_members, ids, rnd)

    def noised(
        self, updates: Tensor, label: Tensor, num_models: int, expected: float, draw: Generator
    ) -> Tensor:
        """See `fedclust.core.server.Privacy`."""
        length = updates.norm(dim=1, keepdim=True).clamp(min=1e-300)
        short = (self.clip / length).clamp(max=1.0) * updates
        mean = super().noised(short, label, num_models, expected, draw)
        noise = torch.from_numpy(draw.standard_normal(tuple(mean.shape))).to(mean)
        return mean + self.noise * self.clip / expected * noise

    def epsilon(self, share: float, rounds: int) -> float:
        """See `fedclust.core.server.Privacy`."""
        noise = self.noise / 3 if self.min_members else self.noise
        return _epsilon(share, noise, rounds, self.delta)


def rebalanced(label: Tensor, num_models: int, least: int, ids: Tensor, rnd: Round) -> Tensor:
    """The labels [C], with random participants moved to clusters of fewer than `least`.

    Of every cluster `least` random members stay. The others form one pool, of whom random ones fill
    the small clusters, the first cluster first; no cluster falls below `least`. Where the pool is
    too small, the last clusters stay small.

    One participant j more, of cluster a: the same random sets do without it but for a few clients.
    If a is small, one who filled it up stays at home. If a is not, the pool has one more of a. Who
    is that one, and moved, has taken the place of another, who stays at home; is it not j, then j
    has taken its place among those who stay. So the sums differ in D_j, in one client who leaves a,
    one who leaves the filled cluster, and both where they come to: (2 S, 2 S, S) in three clusters
    in the worst case, 3 S together.

    Args:
        label: [C] int64 in [0, K).
        num_models: K.
        least: participants that every cluster is to have.
        ids: [C] int64 participants.
        rnd: the round.
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


def as_drawn(rnd: Round) -> tuple[Round, bool]:
    """The round with a cohort in which everybody is drawn with probability `rnd.share`, and whether
    nobody was: then one client takes part whose update must not count.
    """
    able = (rnd.present & (rnd.fed.train.count > 0) & ~rnd.dropped).nonzero().squeeze(1)
    chance = uniform(rnd.stream("poisson").keys(able), 1).squeeze(1)
    drawn = able[chance < rnd.share]
    if len(drawn):
        return replace(rnd, cohort=drawn), False
    return replace(rnd, cohort=able[chance.argsort()[:1]]), True


@cache
def _epsilon(share: float, noise: float, rounds: int, delta: float) -> float:
    if share == 1:
        return gaussian_epsilon(noise, rounds, delta)
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant

    one = dp_event.PoissonSampledDpEvent(share, dp_event.GaussianDpEvent(noise))
    accountant = PLDAccountant(value_discretization_interval=_FINE)
    accountant.compose(dp_event.SelfComposedDpEvent(one, rounds))
    return float(accountant.get_epsilon(delta))


def gaussian_epsilon(noise: float, rounds: int, delta: float) -> float:
    """The exact epsilon of so many Gaussian mechanisms in which everybody takes part."""
    from scipy.optimize import brentq  # a second to import
    from scipy.stats import norm

    mu = rounds**0.5 / noise

    def excess(epsilon: float) -> float:
        second = norm.logcdf(-epsilon / mu - mu / 2) + epsilon
        return float(norm.cdf(-epsilon / mu + mu / 2) - exp(min(second, 0.0)) - delta)

    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, mu * mu / 2 + 40 * mu))
