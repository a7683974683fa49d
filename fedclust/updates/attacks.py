"""What hostile clients do. They are omniscient: they know the updates of all honest participants.

Honest updates D_i have the mean mu and, by coordinate, the standard deviation s; n participants
started from a model, m of them hostile. These all send the same, but for `SignFlip`, `Noise` and
`LabelFlip`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor

from fedclust.core.types import Federation, Pool
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import Positive, Range, Ranged
from fedclust.helpers.rng import Stream

Spread = Literal["evenly", "one_group"]
Direction = Literal["std", "unit", "sign"]
Share = Annotated[float, Range(0, 1, open_low=True)]  # above 1/2 a message of its own
_Z = 1.5  # of ALIE


class NoAttack(Ranged):
    """Nobody is hostile."""

    forges: ClassVar[bool] = False

    def hostile(self, fed: Federation, seed: int) -> Tensor:
        return torch.zeros_like(fed.group, dtype=torch.bool)

    def targets(self, pool: Pool) -> Tensor | None:
        return None

    def updates(self, honest: Tensor, own: Tensor, draws: Sequence[np.random.Generator]) -> Tensor:
        return own


@dataclass(frozen=True, kw_only=True)
class _Some(NoAttack):
    """Some clients are hostile."""

    share: Share = 0.2  # of all clients, rounded; at least one client, at most half of them
    # `evenly`, one of every true group in turn, or `one_group`: all of one random group, or as many
    # of it as the share allows
    spread: Spread = "evenly"

    forges: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = "at most 0.5: more than half of the clients cannot be told from the honest"
        require(self.share <= 0.5, "attack.share", self.share, allowed)

    def hostile(self, fed: Federation, seed: int) -> Tensor:
        number = max(1, round(self.share * fed.num_clients))
        allowed = f"a share that leaves most of the {fed.num_clients} clients honest"
        require(2 * number <= fed.num_clients, "attack.share", self.share, allowed)
        stream = Stream.of(seed, "attack")
        ids = torch.arange(fed.num_clients, device=fed.group.device)
        order = (stream.keys(ids) >> 1).argsort(stable=True)
        group = fed.group[order]
        if self.spread == "one_group":
            groups: Tensor = group[group >= 0].unique()  # type: ignore[no-untyped-call]
            allowed = "evenly, since the clients have no true groups"
            require(len(groups) > 0, "attack.spread", self.spread, allowed)
            order = order[group == groups[int(stream.fold(0).numpy().integers(len(groups)))]]
        else:
            before = (group.unsqueeze(1) == group).tril(-1).sum(1)  # those of its group
            order = order[before.argsort(stable=True)]
        found = torch.zeros_like(fed.group, dtype=torch.bool)
        found[order[:number]] = True
        return found


@dataclass(frozen=True, kw_only=True)
class LabelFlip(_Some):
    """They train on class Y - 1 - y in place of y, and send what they have trained."""

    needs_classes: ClassVar[bool] = True
    forges: ClassVar[bool] = False

    def targets(self, pool: Pool) -> Tensor | None:
        return pool.num_classes - 1 - pool.y


@dataclass(frozen=True, kw_only=True)
class SignFlip(_Some):
    """They send -scale times their own update."""

    scale: Positive = 1.0  # how much longer it is

    def updates(self, honest: Tensor, own: Tensor, draws: Sequence[np.random.Generator]) -> Tensor:
        return -self.scale * own


@dataclass(frozen=True, kw_only=True)
class Noise(_Some):
    """They send normal noise."""

    # its standard deviation, in root mean squares of the coordinates of honest updates
    scale: Positive = 3.0

    def updates(self, honest: Tensor, own: Tensor, draws: Sequence[np.random.Generator]) -> Tensor:
        rows = np.stack([draw.standard_normal(own.shape[1]) for draw in draws])
        size = self.scale * honest.square().mean().sqrt()
        return torch.from_numpy(rows).to(own) * size


@dataclass(frozen=True, kw_only=True)
class ALIE(_Some):
    """A little is enough: Baruch, Baruch, Goldberg, NeurIPS 2019, arXiv:1902.06156. They send
    mu - z s.
    """

    # null takes the largest that hides behind a majority, the normal quantile of (n - m - r) / (n -
    # m) with r = floor(n / 2 + 1) - m, which is 0 in small clusters. Where the hostile are the
    # majority (r <= 0) it has no bound, and 1.5 is taken.
    z: Positive | None = _Z

    @property
    def remark(self) -> str:
        """What a reader of the results should know of it, in words; "" for nothing."""
        where = (
            "attack.z=null hides behind a majority, and takes 1.5 in a cluster whose participants"
        )
        return f"{where} are mostly hostile" if self.z is None else ""

    def updates(self, honest: Tensor, own: Tensor, draws: Sequence[np.random.Generator]) -> Tensor:
        z = hidden(len(honest) + len(own), len(own)) if self.z is None else self.z
        return (honest.mean(0) - z * _deviation(honest)).expand_as(own)


@dataclass(frozen=True, kw_only=True)
class IPM(_Some):
    """Inner-product manipulation: Xie, Koyejo, Gupta, UAI 2019, arXiv:1903.03936. They send
    -epsilon mu, which turns the plain mean round where epsilon > (n - m) / m.
    """

    epsilon: Positive = 1.0  # see there

    def updates(self, honest: Tensor, own: Tensor, draws: Sequence[np.random.Generator]) -> Tensor:
        return (-self.epsilon * honest.mean(0)).expand_as(own)


@dataclass(frozen=True, kw_only=True)
class MinMax(_Some):
    """Min-max: Shejwalkar, Houmansadr, NDSS 2021. They send mu + g p with the largest g for which
    no honest update is farther away than two honest ones can be; here by its closed form.
    """

    direction: Direction = "std"  # p: -s (`std`), -mu / |mu| (`unit`) or -sign(mu) (`sign`)

    def updates(self, honest: Tensor, own: Tensor, draws: Sequence[np.random.Generator]) -> Tensor:
        mean = honest.mean(0)
        p = {
            "std": -_deviation(honest),
            "unit": -mean / mean.norm().clamp(min=1e-300),
            "sign": -mean.sign(),
        }[self.direction]
        square = p.square().sum()
        if not bool(square > 0):
            return mean.expand_as(own)
        away = mean - honest  # [h, P]
        widest = max(float((honest - one).square().sum(1).max()) for one in honest)
        b = away @ p
        room = square * (widest - away.square().sum(1)).clamp(min=0)
        g = ((b.square() + room).sqrt() - b).min() / square
        far: Tensor = mean + g * p
        return far.expand_as(own)


def hidden(n: int, m: int) -> float:
    """The z of ALIE for n participants, m of them hostile; at least 0."""
    honest = n - m
    supporters = n // 2 + 1 - m
    if supporters <= 0:
        return _Z
    return max(0.0, float(norm.ppf((honest - supporters) / honest)))


def _deviation(honest: Tensor) -> Tensor:
    """The standard deviation of every coordinate [P]; 0 for one update."""
    return honest.std(0) if len(honest) > 1 else torch.zeros_like(honest[0])
