"""Which clients take part in a round: what all scenarios share.

A method may draw cohorts of its own from the share of clients that this one takes: those that
sample inside every cluster do (`fedclust.algorithms.lcfl.cluster_cohorts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedclust.core.types import Federation, Round, Split
from fedclust.helpers.effects import IfNotOverruled
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastOne, Fraction, Ranged
from fedclust.helpers.rng import Stream, fold

Selection = Literal["random", "round_robin_first"]
Selected = Annotated[Selection, IfNotOverruled("privacy", "draws")]
Change = Callable[[Round, Tensor], Round]


@dataclass(frozen=True, kw_only=True)
class Sampling(Ranged):
    """Uniform cohorts without replacement, of the clients that have arrived and own training
    data.
    """

    participation: Fraction = 1.0  # fraction of the clients in a round, at least one client
    clients_per_round: AtLeastOne | None = None  # number of clients instead of the fraction
    # `random`, or `round_robin_first`: in the order of the client list until everyone was sampled
    # once, the list beginning again where the last of these rounds needs it, then random
    selection: Selected = "random"

    def cohort_size(self, available: int) -> int:
        """Clients of one round out of `available`; `ConfigError` if more are asked for."""
        if self.clients_per_round is None:
            return max(1, round(self.participation * available))
        allowed = f"the federation has {available} clients with training data at that time"
        fits = self.clients_per_round <= available
        require(fits, "clients_per_round", self.clients_per_round, allowed)
        return self.clients_per_round

    def samples_all(self, num_clients: int) -> bool:
        """Whether every client that has arrived is in every cohort, of at most `num_clients`."""
        return self.cohort_size(num_clients) == num_clients

    def share(self, rnd: Round) -> float:
        """The fraction of the clients with data that a cohort takes."""
        if self.clients_per_round is None:
            return self.participation
        available = int((rnd.present & (rnd.fed.train.count > 0)).sum())
        return self.cohort_size(available) / available

    def cohort(self, rnd: Round, seen: Tensor) -> Tensor:
        """The clients of a round, [C] int64 sorted; `seen` [M] bool says who was in one before."""
        among = (rnd.present & (rnd.fed.train.count > 0)).nonzero().squeeze(1)
        size = self.cohort_size(len(among))
        if self.selection == "round_robin_first" and not bool(seen[among].all()):
            # those never sampled come first
            in_turn = among[seen[among].to(torch.int8).argsort(stable=True)]
            return rnd.staying(in_turn[:size]).sort().values
        return rnd.sample(size, among) if size < len(among) else rnd.staying(among)

    def arrived(self, fed: Federation, seed: int, rounds: int) -> Tensor | None:
        return None

    def remark(self, rounds: int) -> str:
        return ""

    def play(self, fed: Federation, seed: int, change: Change) -> Iterator[Round]:
        """Rounds without end, from the data before round 0.

        Args:
            change: what happens at the start of a round. It gets the round as it would be if
                nothing happened, with an empty cohort, and [M] bool who has been in a cohort
                before.

        Raises:
            ConfigError: at once, if round 0 cannot be.
        """
        stream = self._rounds(fed, seed, change)
        return chain([next(stream)], stream)

    def _rounds(self, fed: Federation, seed: int, change: Change) -> Iterator[Round]:
        everyone = torch.ones_like(fed.group, dtype=torch.bool)
        nobody, all_work = ~everyone, everyone.to(torch.float32)
        present, seen = everyone, nobody
        for t in count():
            blank = Round(
                t=t,
                seed=seed,
                fed=fed,
                cohort=fed.group[:0],
                present=present,
                shifted=nobody,
                work=all_work,
                dropped=nobody,
            )
            rnd = change(blank, seen)
            rnd = replace(rnd, cohort=self.cohort(rnd, seen), share=self.share(rnd))
            fed, present, seen = rnd.fed, rnd.present, seen.index_fill(0, rnd.cohort, True)
            yield rnd


def split_of(index: Tensor, count: Tensor) -> Split:
    """The split of pool rows [total], client after client, `count` [M] each."""
    return Split(index.to(torch.int32), torch.cat([count.new_zeros(1), count.cumsum(0)]))


def shuffled(split: Split, stream: Stream) -> Split:
    """The split with the rows of every client in random order."""
    owner, within = split.owner_and_place()
    order = (fold(stream.keys(owner), within) >> 1).argsort(stable=True)
    order = order[owner[order].argsort(stable=True)]  # back to client after client, without padding
    return Split(split.index[order], split.start)
