"""Servers that wait for nobody: clients arrive in the order in which their devices are done.

As many clients train at any time as a synchronous round has participants. When some have arrived,
others begin at once, from the model that there is then; what arrives at the same instant is all
received before anything is sent. Who begins is drawn as the cohort of the round, without those that
are training. After every `buffer` arrivals the server makes a new model, and a client is as stale
as new models have been made since it began. So a round is some number of arrivals, and lasts until
the last of them.

Without a clock all devices are alike. A client's training is that of the round in which it arrives:
its learning rate, batches and data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from fedclust.algorithms.steps import arrived, clients_with_data
from fedclust.core.calls import LocalResult
from fedclust.core.clock import Devices, Pace
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import Cost, Round, Served
from fedclust.core.verbs import Method


class _Training(NamedTuple):
    """A client that trains."""

    client: int
    done: float  # seconds since the start
    version: int  # of the model that it began from: how many had been made
    place: int  # of that model among those of the state; -1 for one of this round


@dataclass
class Order:
    """Who arrives in a round, in order.

    Attributes:
        training: who trains, in the order in which they began.
        now: seconds since the start.
        made: models that the server has made.
        buffer: arrivals until it makes the next one.
        arrivals: who has arrived in this round.
        num_begun: how many have begun in it.
    """

    training: list[_Training]
    now: float
    made: int
    buffer: int
    arrivals: list[_Training] = field(default_factory=list)
    num_begun: int = 0

    def run(self, count: int, at_once: int, rnd: Round) -> None:
        """Until `count` have arrived, where `at_once` clients train."""
        pace = rnd.pace or _alike(rnd)
        among = clients_with_data(rnd)
        keys = rnd.stream("cohort").keys(among) >> 1  # as `Round.sample` draws
        drawn: list[int] = among[keys.argsort(stable=True)].tolist()
        dropped = {i for i in drawn if bool(rnd.dropped[i])}
        while len(self.arrivals) < count:
            first = min(self.training, key=lambda one: one.done, default=None)
            if first is None or first.done > self.now:
                self._begin(at_once - len(self.training), drawn, dropped, pace)
                first = min(self.training, key=lambda one: one.done)
            self.training.remove(first)
            self.now = max(self.now, first.done)
            self.arrivals.append(first)

    def _begin(self, count: int, drawn: list[int], dropped: set[int], pace: Pace) -> None:
        """So many further clients begin now, first those that have not arrived in this round."""
        busy = {one.client for one in self.training}
        come = {one.client for one in self.arrivals}
        free = [i for i in drawn if i not in busy]
        staying = [i for i in free if i not in dropped] or free[: 0 if busy else 1]
        chosen = sorted(sorted(staying, key=come.__contains__)[: max(0, count)])
        version = self.made + len(self.arrivals) // self.buffer
        ids = torch.tensor(chosen, dtype=torch.int64)
        done = pace.devices.done(ids, self.now, pace.busy[ids]).tolist()
        self.training += [_Training(*one, version, -1) for one in zip(chosen, done, strict=True)]
        self.num_begun += len(chosen)


@dataclass(frozen=True, kw_only=True)
class Asynchronous(Method, ABC):
    """One model for everybody, to which clients contribute when they are done."""

    solver: Solver  # local work

    @dataclass(frozen=True, kw_only=True)
    class State:
        """The server's model, and who trains."""

        model: Tensor  # [1, P]
        made: int  # models that the server has made
        now: float  # seconds since the start
        training: Tensor  # [F] int64 clients, in the order in which they began
        done: Tensor  # [F] float64 when they will be done, seconds since the start
        version: Tensor  # [F] int64 how many models had been made when they began
        start: Tensor  # [F, P] from what they began

    @abstractmethod
    def counts(self, at_once: int) -> tuple[int, int]:
        """Arrivals of a round, and those until the server makes a new model, where `at_once`
        clients train; the latter divide the former.
        """

    @abstractmethod
    def updated(
        self,
        model: Tensor,
        local: LocalResult,
        start: Tensor,
        stale: Tensor,
        ids: Tensor,
        clients: Clients,
    ) -> tuple[Tensor, Cost]:
        """The new model [1, P], and what the trainings cost.

        Args:
            model: [1, P] the one before.
            local: what the clients `ids` [B] made of `start` [B, P].
            stale: [B] float32 how many models have been made since they began.
        """

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Nobody trains yet."""
        model = clients.init(rnd.stream("init"), 1)
        nobody = torch.zeros(0, dtype=torch.int64)
        state = self.State(
            model=model,
            made=0,
            now=0.0,
            training=nobody,
            done=nobody.double(),
            version=nobody,
            start=model[:0],
        )
        return state, Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Arrivals and the models that are made of them."""
        at_once = max(1, round(rnd.share * len(clients_with_data(rnd))))
        count, buffer = self.counts(at_once)
        rows = zip(
            state.training.tolist(), state.done.tolist(), state.version.tolist(), strict=True
        )
        training = [_Training(*row, place) for place, row in enumerate(rows)]
        order = Order(training, state.now, state.made, buffer)
        order.run(count, at_once, rnd)
        models, cost = self._models(state, order, clients, rnd)
        left = order.training
        lasted = order.now - state.now
        cost = replace(cost, models_down=order.num_begun, models_up=count, lasted=lasted)
        after = self.State(
            model=models[-1],
            made=state.made + len(models) - 1,
            now=order.now,
            training=torch.tensor([one.client for one in left], dtype=torch.int64),
            done=torch.tensor([one.done for one in left], dtype=torch.float64),
            version=torch.tensor([one.version for one in left], dtype=torch.int64),
            start=_starts(left, state, models),
        )
        return after, cost

    def _models(
        self, state: State, order: Order, clients: Clients, rnd: Round
    ) -> tuple[list[Tensor], Cost]:
        """The model before the round and those made in it, [1, P] each, and what it cost.

        What can be trained together is: all that began from models that are there already.
        """
        models, cost = [state.model], Cost()
        made: dict[int, tuple[LocalResult, int]] = {}  # by arrival: a call, and the row in it
        device = state.model.device
        for first in range(0, len(order.arrivals), order.buffer):
            here = range(first, first + order.buffer)
            if not made.keys() >= {*here}:
                ready = [
                    i
                    for i, one in enumerate(order.arrivals)
                    if i not in made and one.version < state.made + len(models)
                ]
                some = [order.arrivals[i] for i in ready]
                ids = torch.tensor([one.client for one in some], device=device)
                began = {one.version: one for one in some}  # of one version, from one model
                places = {version: place for place, version in enumerate(began)}
                label = torch.tensor([places[one.version] for one in some], device=device)
                start = _starts([*began.values()], state, models)
                call = clients.train(Train(start, label, ids, self.solver))
                made |= {i: (call, row) for row, i in enumerate(ready)}
            own = [order.arrivals[i] for i in here]
            ids = torch.tensor([one.client for one in own], device=device)
            now = state.made + len(models) - 1
            stale = torch.tensor([float(now - one.version) for one in own], device=device)
            local = _rows([made[i] for i in here])
            start = _starts(own, state, models)
            model, spent = self.updated(models[-1], local, start, stale, ids, clients)
            models.append(model)
            cost = cost.plus(spent)
        return models, cost

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        return Served(models=state.model, label=arrived(torch.zeros_like(rnd.fed.group), rnd))


def _starts(some: list[_Training], state: Asynchronous.State, models: list[Tensor]) -> Tensor:
    """What some clients began from, [B, P]."""
    if not some:
        return state.model[:0]
    return torch.stack(
        [
            models[one.version - state.made][0] if one.place < 0 else state.start[one.place]
            for one in some
        ]
    )


def _rows(rows: list[tuple[LocalResult, int]]) -> LocalResult:
    """The results of single rows of calls, together."""
    columns = {
        name: torch.stack([getattr(call, name)[row] for call, row in rows])
        for name in ("params", "loss", "first_loss", "steps")
    }
    return LocalResult(slots=None, **columns)


def _alike(rnd: Round) -> Pace:
    """Devices that take a second for everything."""
    number = rnd.fed.num_clients
    busy = torch.ones(number, dtype=torch.float64)
    return Pace(devices=Devices.alike(number, 1.0), now=0.0, busy=busy)
