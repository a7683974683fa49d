"""Client-level differential privacy: McMahan, Ramage, Talwar, Zhang, ICLR 2018, arXiv:1710.06963,
Algorithm 1 with equal weights and a fixed denominator.

Every client takes part with probability q, each for itself. With K models and M clients, the update
D_i of a participant is shortened to the norm S, and

    w_k = w_k + (sum over the participants of k of D_i + N(0, (z S)^2 I)) K / (q M).

A client is in one of the K sums, so that together they are one Gaussian mechanism of sensitivity S.
Nothing depends on how many take part: a model without participants gets noise, and a round in which
nobody is drawn counts. The server is trusted; what it publishes are the models.

epsilon is by the privacy loss distribution of dp-accounting (the extra `privacy`), adjacent by one
client more or less. With q = 1 it is exact without that package: with mu = sqrt(rounds) / z,
delta = Phi(-epsilon / mu + mu / 2) - exp(epsilon) Phi(-epsilon / mu - mu / 2) (Balle, Wang 2018).
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace
from functools import cache
from math import exp

import torch
from numpy.random import Generator
from torch import Tensor

from fedclust.core.types import Round
from fedclust.helpers.errors import require
from fedclust.helpers.extras import install
from fedclust.helpers.ranges import InnerFraction, Positive, Ranged
from fedclust.helpers.rng import uniform

_FINE = 1e-3  # of the distribution; epsilon is rounded up by less than 1e-4 of it in our tests


class NoPrivacy(Ranged):
    """Nothing is clipped or noised."""

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
    """

    clip: Positive = 1.0
    noise: Positive = 1.0
    delta: InnerFraction = 1e-5

    def check(self, share: float, num_clients: int, num_buffers: int) -> None:
        """Raise `ConfigError` where this says nothing of so many clients, or cannot be told."""
        allowed = f"below 1 / {num_clients} clients, or one of them may be published whole"
        require(self.delta * num_clients < 1, "privacy.delta", self.delta, allowed)
        there = share == 1 or importlib.util.find_spec("dp_accounting") is not None
        require(there, "privacy", "ClientDP", f"participation=1, or {install('privacy')}")
        allowed = "none, since the statistics of this model are not noised"
        require(num_buffers == 0, "privacy", "ClientDP", allowed)

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
        return _epsilon(share, self.noise, rounds, self.delta)


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
