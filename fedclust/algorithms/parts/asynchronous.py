"""Servers that wait for nobody: one of each cluster's own, whose clients arrive as
`fedclust.algorithms.parts.arrivals` says.

A client that begins is sent the models that there are then. If they are several, it joins the
cluster whose model has the least loss on its data, as in IFCA, and trains that one; when it
arrives, its update is put into the buffer of this cluster. A server makes a new model of its
cluster when its buffer is full, from nothing but what is in it, so each cluster has rounds of its
own pace. A client is as stale as new models have been made of its cluster since it began.

A round is some number of arrivals, and lasts until the last of them. What the buffers hold then is
kept for the next one. A client's training is that of the round in which it arrives: its learning
rate, batches and data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from fedclust.algorithms.parts.apart import check_apart
from fedclust.algorithms.parts.arrivals import Moment, Order, Training
from fedclust.algorithms.parts.cheapest import serve_cheapest
from fedclust.algorithms.steps import arrived, clients_with_data
from fedclust.core.calls import LocalResult
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import Cost, Round, Served
from fedclust.core.verbs import Method
from fedclust.helpers.ranges import AtLeastOne

_RESULTS = ("params", "loss", "first_loss", "steps")


class _Begun(NamedTuple):
    """What a client began with."""

    client: int
    label: int  # the cluster that it has joined
    version: int  # of the model: how many had been made of this cluster
    start: Tensor  # [P] the model


@dataclass(frozen=True, kw_only=True)
class Asynchronous(Method, ABC):
    """K models, to each of which clients contribute when they are done."""

    solver: Solver  # local work
    num_clusters: AtLeastOne = 1  # K

    @dataclass(frozen=True, kw_only=True)
    class State:
        """The servers' models, who trains, and what the buffers hold."""

        models: Tensor  # [K, P]
        made: Tensor  # [K] int64 models that the servers have made
        now: float  # seconds since the start
        training: Tensor  # [F] int64 clients, in the order in which they began
        done: Tensor  # [F] float64 when they will be done, seconds since the start
        label: Tensor  # [F] int64 clusters that they have joined
        version: Tensor  # [F] int64 how many models had been made of these when they began
        start: Tensor  # [F, P] from what they began
        held: Tensor  # [B] int64 clients of whose updates no model has been made, as they arrived
        held_label: Tensor  # [B] int64, and so on, as of those that train
        held_version: Tensor  # [B] int64
        held_start: Tensor  # [B, P]
        held_params: Tensor  # [B, P] what they made of it
        held_loss: Tensor  # [B] nats, see `fedclust.core.calls.LocalResult`
        held_first_loss: Tensor  # [B] nats
        held_steps: Tensor  # [B] int64

    @abstractmethod
    def counts(self, at_once: int) -> tuple[int, int | None]:
        """Arrivals of a round, and those until a server makes a new model, where `at_once` clients
        train; None for as many as these, without those that train for other clusters.

        With one cluster the latter divide the former.
        """

    @abstractmethod
    def updated(
        self,
        models: Tensor,
        local: LocalResult,
        start: Tensor,
        stale: Tensor,
        label: Tensor,
        ids: Tensor,
        clients: Clients,
    ) -> tuple[Tensor, Cost]:
        """The new models [K, P], and what the trainings cost.

        Args:
            models: [K, P] those before.
            local: what the clients `ids` [B] made of `start` [B, P].
            stale: [B] float32 how many models have been made of their cluster since they began.
            label: [B] int64 in [0, K), their clusters; one without any keeps its model.
        """

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Independent models, which nobody trains yet."""
        models = clients.init(rnd.stream("init"), self.num_clusters)
        made = torch.zeros(self.num_clusters, dtype=torch.int64)
        nothing = LocalResult(
            params=models[:0], slots=None, loss=models[:0, 0], first_loss=models[:0, 0], steps=made
        )
        return self._state(models, made.tolist(), 0.0, [], [], [], nothing), Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Arrivals and the models that are made of them."""
        at_once = max(1, round(rnd.share * len(clients_with_data(rnd))))
        count, buffer = self.counts(at_once)
        rows = zip(state.training.tolist(), state.done.tolist(), strict=True)
        training = [Training(*row, place) for place, row in enumerate(rows)]
        order = Order(training, state.now, self.num_clusters)
        order.run(count, at_once, rnd)
        servers = _Servers.of(self, state, clients, order.arrivals)
        for moment in order.moments:
            servers.play(moment, at_once, buffer)
        after = servers.after(order)
        chosen = order.num_begun if self.num_clusters > 1 else 0
        cost = replace(
            servers.cost(),
            models_down=self.num_clusters * order.num_begun,
            models_up=count,
            scalars_up=chosen,  # each says which cluster it has joined
            lasted=order.now - state.now,
        )
        return after, cost

    def _state(
        self,
        models: Tensor,
        made: Sequence[int],
        now: float,
        done: Sequence[float],
        training: Sequence[_Begun],
        held: Sequence[_Begun],
        local: LocalResult,
    ) -> State:
        """The state, where `local` has what the clients `held` [B] made."""

        def whole(numbers: Sequence[int]) -> Tensor:
            return torch.tensor([*numbers], dtype=torch.int64)

        def starts(some: Sequence[_Begun]) -> Tensor:
            return torch.stack([one.start for one in some]) if some else models[:0]

        return self.State(
            models=models,
            made=whole(made),
            now=now,
            training=whole([one.client for one in training]),
            done=torch.tensor([*done], dtype=torch.float64),
            label=whole([one.label for one in training]),
            version=whole([one.version for one in training]),
            start=starts(training),
            held=whole([one.client for one in held]),
            held_label=whole([one.label for one in held]),
            held_version=whole([one.version for one in held]),
            held_start=starts(held),
            **{f"held_{name}": getattr(local, name)[: len(held)] for name in _RESULTS},
        )

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        """Of several models each client gets that of least training loss."""
        if self.num_clusters > 1:
            return serve_cheapest(state.models, clients, rnd, "train_loss")
        return Served(models=state.models, label=arrived(torch.zeros_like(rnd.fed.group), rnd))


@dataclass
class _Servers:
    """The clusters' servers in a round.

    Attributes:
        models: [K, P].
        made: [K] how many each has made.
        begun: by their place, what all those have begun with that have.
        updates: what those have begun with that have arrived: first those that are held from
            before the round, then those of the round.
        arrivals: all that will arrive in the round.
        results: by their place in `updates`: a call, and the row in it.
        buffers: places in `updates` for every cluster.
        in_training: how many train for every cluster.
        num_held: how many of `updates` are from before the round.
        spent: what the steps have cost.
    """

    method: Asynchronous
    clients: Clients
    models: Tensor
    made: list[int]
    begun: dict[int, _Begun]
    updates: list[_Begun]
    arrivals: list[Training]
    results: dict[int, tuple[LocalResult, int]]
    buffers: list[list[int]]
    in_training: list[int]
    num_held: int
    spent: Cost = field(default_factory=Cost)

    @classmethod
    def of(
        cls,
        method: Asynchronous,
        state: Asynchronous.State,
        clients: Clients,
        arrivals: list[Training],
    ) -> _Servers:
        """Those of a state, where some will arrive."""
        began = _rows_of(state.training, state.label, state.version, state.start)
        held = _rows_of(state.held, state.held_label, state.held_version, state.held_start)
        local = LocalResult(
            slots=None, **{name: getattr(state, f"held_{name}") for name in _RESULTS}
        )
        clusters = range(method.num_clusters)
        return cls(
            method=method,
            clients=clients,
            models=state.models,
            made=state.made.tolist(),
            begun=dict(enumerate(began)),
            updates=held,
            arrivals=arrivals,
            results={i: (local, i) for i in range(len(held))},
            buffers=[[i for i, one in enumerate(held) if one.label == k] for k in clusters],
            in_training=[sum(one.label == k for one in began) for k in clusters],
            num_held=len(held),
        )

    def play(self, moment: Moment, at_once: int, buffer: int | None) -> None:
        """Some begin, others arrive; then the servers whose buffers are full make new models."""
        self._begin(moment.begun)
        others = [sum(self.in_training) - own for own in self.in_training]
        full = [buffer or max(1, at_once - count) for count in others]
        # the first steps of all clusters, then the second ones, …: nothing is sent in between
        steps = [list[list[int]]() for _ in self.buffers]
        for one in moment.arrived:
            update = self.begun[one.place]
            self.in_training[update.label] -= 1
            self.buffers[update.label].append(len(self.updates))
            self.updates.append(update)
            self._empty(update.label, full, steps)
        for cluster in range(len(full)):  # where fewer train than before
            self._empty(cluster, full, steps)
        for i in range(max(map(len, steps))):
            self._step(sorted(j for own in steps if i < len(own) for j in own[i]))

    def _empty(self, cluster: int, full: list[int], steps: list[list[list[int]]]) -> None:
        """A full buffer becomes a step."""
        if len(self.buffers[cluster]) >= full[cluster]:
            steps[cluster].append(self.buffers[cluster])
            self.buffers[cluster] = []

    def _begin(self, some: list[Training]) -> None:
        """Each joins the cluster of the model that fits its data best."""
        if not some:
            return
        label = [0] * len(some)
        if len(self.models) > 1:
            ids = torch.tensor([one.client for one in some], device=self.models.device)
            loss = self.clients.loss(self.models, ids)
            if not any(self.made):
                check_apart(loss.T)
            label = loss.argmin(1).tolist()
        for one, k in zip(some, label, strict=True):
            self.begun[one.place] = _Begun(one.client, k, self.made[k], self.models[k])
            self.in_training[k] += 1

    def _train(self) -> None:
        """All that will arrive in the round and have begun, together."""
        ready = [
            (self.num_held + i, self.begun[one.place])
            for i, one in enumerate(self.arrivals)
            if one.place in self.begun and self.num_held + i not in self.results
        ]
        if not ready:
            return
        some = [one for _, one in ready]
        began = {(one.label, one.version): one.start for one in some}
        places = {model: place for place, model in enumerate(began)}
        device = self.models.device
        ids = torch.tensor([one.client for one in some], device=device)
        label = torch.tensor([places[one.label, one.version] for one in some], device=device)
        start = torch.stack([*began.values()])
        call = self.clients.train(Train(start, label, ids, self.method.solver))
        self.results |= {i: (call, row) for row, (i, _) in enumerate(ready)}

    def _step(self, places: list[int]) -> None:
        """New models of the updates at these places."""
        if not self.results.keys() >= {*places}:
            self._train()
        own, device = [self.updates[i] for i in places], self.models.device
        ids = torch.tensor([one.client for one in own], device=device)
        label = torch.tensor([one.label for one in own], device=device)
        stale = [float(self.made[one.label] - one.version) for one in own]
        start = torch.stack([one.start for one in own])
        self.models, spent = self.method.updated(
            self.models,
            self._results(places),
            start,
            torch.tensor(stale, device=device),
            label,
            ids,
            self.clients,
        )
        for cluster in {one.label for one in own}:
            self.made[cluster] += 1
        self.spent = self.spent.plus(spent)

    def _results(self, places: list[int]) -> LocalResult:
        """What was made at these places."""
        rows = [self.results[i] for i in places]
        columns = {
            name: torch.stack([getattr(call, name)[row] for call, row in rows]) for name in _RESULTS
        }
        return LocalResult(slots=None, **columns)

    def after(self, order: Order) -> Asynchronous.State:
        """The state at the end of the round."""
        self._train()  # what the buffers hold
        held = sorted(i for own in self.buffers for i in own)
        left = order.training
        return self.method._state(
            self.models,
            self.made,
            order.now,
            [one.done for one in left],
            [self.begun[one.place] for one in left],
            [self.updates[i] for i in held],
            self._results(held or [0]),  # any row, of which nothing is kept
        )

    def cost(self) -> Cost:
        """Of the round: the steps of all that have arrived in it, and the loss of the last step; if
        there was none, of all that have arrived.
        """
        local = self._results([*range(self.num_held, len(self.updates))])
        cost = Cost(train_loss=float(local.loss.mean())).plus(self.spent)
        return replace(cost, gradient_steps=int(local.steps.sum()))


def _rows_of(client: Tensor, label: Tensor, version: Tensor, start: Tensor) -> list[_Begun]:
    """What some clients began with, of the columns of a state."""
    columns = client.tolist(), label.tolist(), version.tolist(), start.unbind()
    return [_Begun(*row) for row in zip(*columns, strict=True)]
