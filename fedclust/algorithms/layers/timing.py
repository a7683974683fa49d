"""Any method with a clock; see `fedclust.core.clock`.

What a device does in a round is what the method asks of it, counted in examples. One that is
trained counts 1 for each step that it is part of, and 1 in a gradient; in a loss it counts a third,
since the way back through a network takes about twice as long as the way forth. What is sent in a
round, see `fedclust.core.types.Cost`, is divided equally among the clients that do anything in it.
A device receives, computes and sends, one after the other, and the server takes no time. Serving
and testing take none either.

A round lasts as long as its slowest participant. With a deadline, clients that would need longer
for a plain exchange (one model down, local training by the run's solver, one model up) drop out,
and the round lasts at least until the deadline if one of them was sampled. So all methods have the
same participants; one that sends or computes more may take longer than the deadline.

With `wait=cluster` the model of every cluster has a time of its own, if the method says that
clusters are `apart`: a participant begins when the model that it is sent is there, and the model is
there again when the slowest participant of the cluster is done. One without participants stays at
its time. The round lasts from when the last cluster was done before to when the last one is now.
Everybody waits for the last one where the number of clusters changes, where clients are asked for
anything but one training of a model, such as the losses of all clusters' models, and where the data
of clients change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedclust.core.calls import Alignment, LocalResult, MeanResult
from fedclust.core.clock import FORWARD, Clock, Devices, Pace, Wait
from fedclust.core.front import Clients, Gradient, Layer, Train
from fedclust.core.solver import Solver
from fedclust.core.traits import traits_of
from fedclust.core.types import Cost, Round
from fedclust.core.verbs import Algorithm
from fedclust.core.wrapper import Wrapper
from fedclust.helpers.ops import on_host
from fedclust.models.params import Layout


@dataclass
class _Given:
    """Which models clients were given to train in a round."""

    ids: Tensor | None = None  # [C] int64 who trained
    label: Tensor | None = None  # [C] int64 which model
    num_models: int = 0  # of how many
    only: bool = True  # whether nobody was asked for anything else

    def train(self, asked: Train) -> None:
        """Note who trains, once, for the mean of the round."""
        self.only &= self.ids is None and asked.purpose == "train"
        self.ids, self.label, self.num_models = asked.ids, asked.label, len(asked.models)

    def models_of(self, ids: Tensor, rnd: Round) -> Tensor:
        """Which model the clients `ids` [C] trained, of those that did, [C] int64 on the host."""
        assert self.ids is not None
        assert self.label is not None
        trained, label = on_host(self.ids, self.label)
        return torch.zeros(rnd.fed.num_clients).long().index_copy(0, trained, label)[ids]


@dataclass(frozen=True)
class _Measured(Layer):
    """Clients whose work is added up."""

    examples: Tensor  # [M] float64, in the host's memory, changed in place
    asked: Tensor  # [M] bool, likewise: who did anything
    given: _Given

    @classmethod
    def of(cls, clients: Clients) -> _Measured:
        """Those that have not done anything."""
        none = torch.zeros(clients.rnd.fed.num_clients, dtype=torch.float64)
        return cls(clients, none, none > 0, _Given())

    def aside(self) -> Clients:
        return self.behind.aside()

    def _add(self, ids: Tensor, examples: Tensor) -> None:
        ids, examples = on_host(ids, examples)
        self.examples.index_add_(0, ids, examples.double())
        self.asked[ids] = True

    def _passes(self, ids: Tensor, times: float, batch_size: int | None = None) -> None:
        self.given.only = False
        count = self.rnd.fed.train.count[ids].double()
        self._add(ids, times * (count if batch_size is None else count.clamp(max=batch_size)))

    def _trained(self, asked: Train) -> None:
        rnd, ids = self.rnd, asked.ids
        self.given.train(asked)
        self._add(ids, asked.solver.examples(rnd.fed.train.count[ids], rnd.work[ids]))

    def train(self, asked: Train) -> LocalResult:
        self._trained(asked)
        return self.behind.train(asked)

    def train_mean(self, asked: Train) -> MeanResult:
        self._trained(asked)
        return self.behind.train_mean(asked)

    def recalibrated(self, models: Tensor, label: Tensor, ids: Tensor) -> Tensor:
        self._passes(ids, FORWARD)
        return self.behind.recalibrated(models, label, ids)

    def loss(self, models: Tensor, ids: Tensor, batch_size: int | None = None) -> Tensor:
        self._passes(ids, len(models) * FORWARD, batch_size)
        return self.behind.loss(models, ids, batch_size)

    def loss_of_each(self, models: Tensor, ids: Tensor, batch_size: int | None = None) -> Tensor:
        self._passes(ids, FORWARD, batch_size)
        return self.behind.loss_of_each(models, ids, batch_size)

    def example_losses(self, models: Tensor, ids: Tensor, passes: int | None = None) -> Tensor:
        self._passes(ids, (len(models) if passes is None else passes) * FORWARD)
        return self.behind.example_losses(models, ids, passes)

    def grad(self, asked: Gradient) -> Tensor:
        self._passes(asked.ids, 1, asked.batch_size)
        return self.behind.grad(asked)

    def grad_sum(self, asked: Gradient) -> Tensor:
        self._passes(asked.ids, 1, asked.batch_size)
        return self.behind.grad_sum(asked)

    def align(
        self,
        models: Tensor,
        directions: Tensor,
        ids: Tensor,
        batch_size: int | None = None,
        margin: Tensor | None = None,
    ) -> Alignment:
        back = int(directions.any(1).sum())
        self._passes(ids, len(models) * FORWARD + back * (1 - FORWARD), batch_size)
        return self.behind.align(models, directions, ids, batch_size, margin)


@dataclass(frozen=True, kw_only=True)
class Plain:
    """A plain exchange of a client and the server.

    Attributes:
        solver: local training.
        received, sent: bytes.
    """

    solver: Solver
    received: float
    sent: float

    def examples(self, rnd: Round) -> Tensor:
        """[M] that every client trains, in the host's memory."""
        count, work = on_host(rnd.fed.train.count, rnd.work)
        return self.solver.examples(count, work)


@dataclass(frozen=True, kw_only=True)
class _Timed(Wrapper):
    """A method with the time that has passed."""

    devices: Mapping[int, Devices] = field(repr=False)  # by seed
    plain: Plain
    deadline: float | None
    over: float
    num_params: int
    wait: Wait = "all"

    @property
    def added(self) -> Mapping[str, type[Any]]:
        """elapsed: seconds since the start until the last cluster is done; with `wait=cluster`
        there: [K] float64 those at which the model of each is, or [1] where all wait.
        """
        kept: dict[str, type[Any]] = {"elapsed": float}
        return kept if self.wait == "all" else {**kept, "there": Tensor}

    def init(self, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        """As the base; what it takes is a part of round 0."""
        paced, _ = self._waiting(self._paced(rnd, 0.0))
        began = torch.zeros(1, dtype=torch.float64)
        return self._timed(self.base.init, clients, paced, began, least=0.0)

    def round(self, state: Any, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        """As the base, with the participants that the server waits for."""

        def verb(clients: Clients, rnd: Round) -> tuple[Any, Cost]:
            return self.base.round(state, clients, rnd)

        last = state.elapsed
        began = torch.tensor([last], dtype=torch.float64)
        if self.wait == "cluster":
            (began,) = on_host(state.there)
        rnd, least = self._waiting(self._paced(rnd, last))
        after, cost = self._timed(verb, clients, rnd, began, least)
        # the seconds of round 0 are those since the start
        seconds = after.elapsed - (last if rnd.t else 0.0)
        return after, replace(cost, notes={**cost.notes, "simulated_seconds": seconds})

    def _paced(self, rnd: Round, now: float) -> Round:
        """The round with how long its clients take."""
        devices, plain = self.devices[rnd.seed], self.plain
        ids = torch.arange(rnd.fed.num_clients)
        received, sent = (torch.full((len(ids),), x).double() for x in (plain.received, plain.sent))
        none, (count,) = torch.zeros_like(sent), on_host(rnd.fed.train.count)
        pace = Pace(
            devices=devices,
            now=now,
            busy=devices.busy(ids, received, plain.examples(rnd), sent),
            over=self.over,
            received=devices.busy(ids, received, none, none),
            passed=devices.busy(ids, none, FORWARD * count, none),
        )
        return replace(rnd, pace=pace)

    def _waiting(self, rnd: Round) -> tuple[Round, float]:
        """The round with those that the server waits for, and its seconds at least."""
        assert rnd.pace is not None
        among = (rnd.present & (rnd.fed.train.count > 0)).nonzero().squeeze(1)
        size = max(1, round(rnd.share * len(among)))
        late = torch.zeros_like(rnd.dropped)
        if self.deadline is not None:
            late = (rnd.pace.seconds > self.deadline).to(late.device)

        def sampled(rnd: Round) -> Tensor:
            if self.over and size < len(among):
                return rnd.sample(size, among)
            return rnd.staying(rnd.cohort)

        everybody = sampled(rnd)
        missed = bool(late[everybody].any())
        rnd = replace(rnd, dropped=rnd.dropped | late)
        rnd = replace(rnd, cohort=sampled(rnd))
        return rnd, (self.deadline or 0.0) if missed else 0.0

    def _timed(
        self,
        verb: Callable[[Clients, Round], tuple[Any, Cost]],
        clients: Clients,
        rnd: Round,
        began: Tensor,
        least: float,
    ) -> tuple[Any, Cost]:
        """What a verb of the base returns, with the times at its end, from those [K] before."""
        front = _Measured.of(clients.at(rnd))
        state, cost = verb(front, rnd)
        if math.isnan(cost.lasted):
            ended = self._ended(front, cost, rnd, began, least)
        else:
            ended = began.max().view(1) + cost.lasted
        added: dict[str, Any] = {"elapsed": float(ended.max())}
        if self.wait == "cluster":
            added["there"] = ended
        return self.with_added(state, **added), cost

    def _ended(
        self, front: _Measured, cost: Cost, rnd: Round, began: Tensor, least: float
    ) -> Tensor:
        """When the slowest participant is done, [1], or that of every cluster, [K]."""
        ids, last = front.asked.nonzero().squeeze(1), began.max().view(1)
        if not len(ids):
            return last + least
        down = 4 * (self.num_params * cost.models_down + cost.floats_down)
        up = 4 * (self.num_params * cost.models_up + cost.floats_up) + cost.bits_up / 8
        received, sent = (torch.full((len(ids),), x / len(ids)).double() for x in (down, up))
        devices = self.devices[rnd.seed]
        busy = devices.busy(ids, received, front.examples[ids], sent)
        apart = self._apart(front.given, rnd)
        label, count = torch.zeros_like(ids), 1
        if apart == "clusters":
            label, count = front.given.models_of(ids, rnd), front.given.num_models
        elif apart == "clients":
            label, count, least = ids, rnd.fed.num_clients, 0.0
        if len(began) != count:
            began = last.repeat(count)
        done = devices.done(ids, began[label], busy).maximum(began[label] + least)
        ended = began.scatter_reduce(0, label, done, "amax")
        if apart == "clients":  # who has not arrived does not begin before the others
            ended = ended.where(on_host(rnd.present)[0], ended.max())
        return ended

    def _apart(self, given: _Given, rnd: Round) -> str:
        """What does not wait for each other in the round, see `fedclust.core.traits.Traits`."""
        if self.wait == "all" or not given.only or bool(rnd.shifted.any()):
            return ""
        return traits_of(self.base).apart


def timing(
    method: Algorithm, clock: Clock, plain: Plain, devices: Mapping[int, Devices], layout: Layout
) -> Algorithm:
    """A method with a clock."""
    return _Timed(
        base=method,
        devices=devices,
        plain=plain,
        deadline=clock.deadline,
        over=clock.over,
        num_params=layout.num_params,
        wait=clock.wait,
    )
