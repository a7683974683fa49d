"""Some clients arrive later: they are not served, sampled or clustered before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from fedclust.core.types import Federation, Round
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastOne, InnerFraction
from fedclust.helpers.rng import Stream
from fedclust.scenarios.sampling import Sampling


@dataclass(frozen=True, kw_only=True)
class Newcomers(Sampling):
    """A random part of the clients with training data is away at first and arrives in equal
    parts.
    """

    shifts: ClassVar[bool] = False

    # of the clients, who arrives later; at least one client, and one is there from the start
    fraction: InnerFraction = 0.2
    # rounds of arrival, ascending; the clients are divided among them
    arrive_at: Sequence[AtLeastOne] = (10,)

    def __post_init__(self) -> None:
        super().__post_init__()
        rounds, allowed = list(self.arrive_at), "one or more ascending rounds from 1"
        ascending = len(rounds) > 0 and all(a < b for a, b in pairwise([0, *rounds]))
        require(ascending, "scenario.arrive_at", rounds, f"{allowed}, such as [10,20]")

    def arrived(self, fed: Federation, seed: int, rounds: int) -> Tensor:
        return self._arrival(fed, seed) < rounds

    def remark(self, rounds: int) -> str:
        """Says so where a run ends before somebody arrives."""
        never = [t for t in self.arrive_at if t >= rounds]
        if not never:
            return ""
        return (
            f"some clients never arrive and are never tested: the next would in round "
            f"{never[0] + 1}, and the run has {rounds}; raise rounds, or lower scenario.arrive_at"
        )

    def rounds(self, fed: Federation, seed: int) -> Iterator[Round]:
        """Rounds without end, clients still away not present; `ConfigError` if too few are left."""
        arrival = self._arrival(fed, seed)

        def arrive(rnd: Round, seen: Tensor) -> Round:  # noqa: ARG001
            return replace(rnd, present=arrival <= rnd.t) if rnd.t in (0, *self.arrive_at) else rnd

        return self.play(fed, seed, arrive)

    def _arrival(self, fed: Federation, seed: int) -> Tensor:
        """The round of arrival of every client, [M] int64, 0 for those there from the start."""
        clients = fed.train.count.nonzero().squeeze(1)
        late = min(max(len(self.arrive_at), round(self.fraction * len(clients))), len(clients) - 1)
        most = f"at most {len(clients) - 1} rounds of arrival for {len(clients)} clients"
        allowed = f"{most} with training data"
        fits = late >= len(self.arrive_at)
        require(fits, "scenario.arrive_at", list(self.arrive_at), allowed)
        order = (Stream.of(seed, "newcomers").keys(clients) >> 1).argsort(stable=True)
        rounds = torch.tensor(list(self.arrive_at), device=clients.device)
        turn = torch.arange(late, device=clients.device) * len(rounds) // late
        return torch.zeros_like(fed.group).index_copy(0, clients[order[:late]], rounds[turn])
