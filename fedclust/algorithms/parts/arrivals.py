"""In which order clients arrive at a server that waits for nobody: as their devices are done.

As many clients train at any time as a synchronous round has participants. When some have arrived,
others begin at once; what arrives at the same instant is all received before anything is sent. Who
begins is drawn as the cohort of the round, without those that are training.

Where there are K models, a client receives all of them and computes their losses before it trains
one. That takes the same time whichever it chooses, so the order does not depend on the models.

Without a clock all devices are alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from fedclust.algorithms.steps import clients_with_data
from fedclust.core.clock import Devices, Pace
from fedclust.core.types import Round


class Training(NamedTuple):
    """A client that trains."""

    client: int
    done: float  # seconds since the start
    # among all that train in the round: first those that have begun before it, in that order, then
    # those that begin in it
    place: int


class Moment(NamedTuple):
    """Some clients that begin together, and those that arrive next, all at the same instant."""

    begun: list[Training]
    arrived: list[Training]


@dataclass
class Order:
    """Who begins and arrives in a round, in order.

    Attributes:
        training: who trains, in the order in which they began.
        now: seconds since the start.
        num_models: how many models a client is sent.
        moments: what has happened in this round.
        num_begun: how many have begun in it.
    """

    training: list[Training]
    now: float
    num_models: int = 1
    moments: list[Moment] = field(default_factory=list)
    num_begun: int = 0

    @property
    def arrivals(self) -> list[Training]:
        """Who has arrived in this round."""
        return [one for moment in self.moments for one in moment.arrived]

    def run(self, count: int, at_once: int, rnd: Round) -> None:
        """Until `count` have arrived, where `at_once` clients train."""
        pace = rnd.pace or _alike(rnd)
        busy = pace.choosing(self.num_models)
        among = clients_with_data(rnd)
        keys = rnd.stream("cohort").keys(among) >> 1  # as `Round.sample` draws
        drawn: list[int] = among[keys.argsort(stable=True)].tolist()
        dropped = {i for i in drawn if bool(rnd.dropped[i])}
        before = len(self.training)
        come = set[int]()
        for _ in range(count):
            first = min(self.training, key=lambda one: one.done, default=None)
            if first is None or first.done > self.now:
                chosen = self._chosen(at_once - len(self.training), drawn, dropped, come)
                self._begin(chosen, pace.devices, busy, before)
                first = min(self.training, key=lambda one: one.done)
            elif not self.moments:
                self.moments.append(Moment([], []))
            self.training.remove(first)
            self.now = max(self.now, first.done)
            self.moments[-1].arrived.append(first)
            come.add(first.client)

    def _chosen(self, count: int, drawn: list[int], dropped: set[int], come: set[int]) -> list[int]:
        """So many further clients, first those that have not arrived in this round."""
        busy = {one.client for one in self.training}
        free = [i for i in drawn if i not in busy]
        staying = [i for i in free if i not in dropped] or free[: 0 if busy else 1]
        return sorted(sorted(staying, key=come.__contains__)[: max(0, count)])

    def _begin(self, chosen: list[int], devices: Devices, busy: Tensor, before: int) -> None:
        """These clients begin now, in a round at whose start `before` were training."""
        ids = torch.tensor(chosen, dtype=torch.int64)
        done = devices.done(ids, self.now, busy[ids]).tolist()
        first = before + self.num_begun
        begun = [Training(*one, first + i) for i, one in enumerate(zip(chosen, done, strict=True))]
        self.training += begun
        self.num_begun += len(begun)
        self.moments.append(Moment(begun, []))


def _alike(rnd: Round) -> Pace:
    """Devices that take a second for everything."""
    number = rnd.fed.num_clients
    busy = torch.ones(number, dtype=torch.float64)
    return Pace(devices=Devices.alike(number, 1.0), now=0.0, busy=busy)
