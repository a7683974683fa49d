"""The nouns everything else is written in; the verbs are in `fedclust.verbs`.

Symbols used in every shape comment: M clients in the federation, C rows of one call (usually the
cohort), K models or clusters, P parameters of one model, N examples in the pool, n longest client
of the call, t the 0-based round. A `client` is an id in [0, M), a `row` a position in [0, C);
neither is ever stored as the other. A `label` is a cluster index, a `group` the true one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedclust.core.client_models import ClientModels as ClientModels
from fedclust.core.clock import Pace
from fedclust.core.dataset import Dataset as Dataset
from fedclust.core.dataset import Names as Names
from fedclust.core.own_statistics import OwnStatistics
from fedclust.core.pool import Pool as Pool
from fedclust.helpers.rng import Stream
from fedclust.helpers.rounding import rounded_up


@dataclass(frozen=True)
class Split:
    """Which pool rows each client owns, without padding: client i has `index[start[i]:start[i +
    1]]`.

    Attributes:
        index: [total] int32 pool rows, client after client.
        start: [M + 1] int64 offsets into `index`.
    """

    index: Tensor
    start: Tensor
    # who was taken last, and what: every test takes the same clients; a split that is made from
    # this one begins without
    _taken: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)
    _counted: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, rows: list[Tensor]) -> Split:
        """The split in which client i owns the pool rows `rows[i]`."""
        count = torch.tensor([0] + [len(r) for r in rows], dtype=torch.int64)
        index = torch.cat([torch.empty(0, dtype=torch.int32), *(r.to(torch.int32) for r in rows)])
        return cls(index, count.cumsum(0))

    @property
    def count(self) -> Tensor:
        """[M] int64 examples of every client."""
        return self.start.diff()

    def of_client(self, client: int) -> Tensor:
        """Pool rows of one client, [count] int64."""
        return self.index[int(self.start[client]) : int(self.start[client + 1])].long()

    def owner_and_place(self) -> tuple[Tensor, Tensor]:
        """The client of every row of `index`, and the row's place among its rows, [total] int64."""
        clients = torch.arange(len(self.start) - 1, device=self.start.device)
        owner = torch.repeat_interleave(clients, self.count, output_size=len(self.index))
        return owner, torch.arange(len(owner), device=owner.device) - self.start[owner]

    def take(self, clients: Tensor) -> tuple[Tensor, Tensor]:
        """Padded pool rows of some clients: index [C, n] int64, 0 past the count, and count [C]
        int64. Nobody writes to them: those taken last are kept, on a CPU.
        """
        kept = self._taken
        if kept and torch.equal(kept["clients"], clients):
            return kept["index"], kept["count"]
        count = self.count[clients]
        longest = int(count.max()) if len(count) else 0
        index = self._padded(clients, longest)
        if not clients.is_cuda:  # there the comparison would make the host wait
            kept.update(clients=clients.clone(), index=index, count=count)
        return index, count

    def _padded(self, clients: Tensor, longest: int) -> Tensor:
        """Pool rows of some clients, [C, longest] int64, 0 past their count."""
        start, end = self.start[clients], self.start[clients + 1]
        if not clients.is_cuda:  # row by row, which takes a tenth of the time of what follows
            padded = torch.zeros(len(clients), longest, dtype=torch.int64)
            owned, bounds = self.index.numpy(), zip(start.tolist(), end.tolist(), strict=True)
            for row, (first, past) in zip(padded.numpy(), bounds, strict=True):
                row[: past - first] = owned[first:past]
            return padded
        position = torch.arange(longest, device=clients.device)
        inside = position < (end - start).unsqueeze(1)
        where = (start.unsqueeze(1) + position).masked_fill(~inside, 0)
        return self.index[where].long().masked_fill(~inside, 0)

    def classes(self, y: Tensor, num_classes: int, at_once: int = 1 << 16) -> Tensor:
        """Examples of every class for every client, [M, Y] int64, of the pool's classes y [N];
        looks at `at_once` examples together.

        Nobody writes to them: they are kept, as a method may ask in every round and data seldom
        change.
        """
        kept = self._counted
        if kept.get("y") is y and kept["classes"].shape[1] == num_classes:
            return kept["classes"]
        clients = len(self.start) - 1
        counts = torch.zeros(clients * num_classes, dtype=torch.int64, device=self.start.device)
        owner = torch.repeat_interleave(self.count, output_size=len(self.index))
        for first in range(0, len(owner), at_once):
            some = slice(first, first + at_once)
            cell = owner[some] * num_classes + y[self.index[some].long()]
            counts.scatter_add_(0, cell, torch.ones_like(cell))
        kept.update(y=y, classes=counts.view(clients, num_classes))
        return kept["classes"]

    def to(self, device: torch.device) -> Split:
        """The split on another device."""
        return Split(self.index.to(device), self.start.to(device))


@dataclass(frozen=True, kw_only=True)
class Federation:
    """Who owns what.

    Attributes:
        pool: the examples.
        train, test: rows of the pool per client.
        group: [M] int64 true group of every client, or -1 where there is none.
        validation: rows to choose a hyper-parameter or a round by, which nobody trains on; None
            without them, and in all that an algorithm sees.
        names: of features, classes, clients and groups, where the data have some.
        remarks: what a reader of the results must know of the data, one line each.
        hostile: [M] bool, who attacks, which no algorithm looks at; None where nobody does.
        raw: how the values of the file became what a model sees, see `fedclust.datasets.raw`.
    """

    pool: Pool
    train: Split
    test: Split
    group: Tensor
    validation: Split | None = None
    names: Names = field(default_factory=Names)
    remarks: tuple[str, ...] = ()
    hostile: Tensor | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_clients(self) -> int:
        """M."""
        return len(self.group)

    @property
    def tested(self) -> Tensor:
        """[M] bool, honest clients with test examples."""
        there = self.test.count > 0
        return there if self.hostile is None else there & ~self.hostile

    @property
    def splits(self) -> dict[str, Split]:
        """The splits there are, by name."""
        there = {"train": self.train, "test": self.test}
        return there if self.validation is None else {**there, "validation": self.validation}


@dataclass(frozen=True, kw_only=True)
class Round:
    """All that an algorithm may know of round t, identical for every algorithm.

    Attributes:
        t: 0-based round.
        seed: the run's seed.
        fed: the data as they are now.
        cohort: [C] int64 clients sampled this round, sorted.
        present: [M] bool, who has arrived.
        shifted: [M] bool, whose data changed at the start of this round.
        work: [M] float32 in (0, 1], the fraction of its local steps a client manages in this round.
        dropped: [M] bool, who drops out of this round if sampled.
        share: the fraction of the clients with data that is sampled, before anybody drops out.
        pace: how long every client takes; None without a clock.
        is_change: whether a change begins here from which the clients' recovery is measured: what
            is served is then tested once more, before this round trains. None in scenarios whose
            changes are not measured.
    """

    t: int
    seed: int
    fed: Federation
    cohort: Tensor
    present: Tensor
    shifted: Tensor
    work: Tensor
    dropped: Tensor
    share: float = 1.0
    pace: Pace | None = None
    is_change: bool | None = None

    def stream(self, purpose: str, *identities: int) -> Stream:
        """Randomness of this round for one purpose."""
        return Stream.of(self.seed, purpose, self.t, *identities)

    def sample(self, count: int, among: Tensor) -> Tensor:
        """`count` of the clients `among` [A] without replacement, without those that drop out,
        sorted.

        One priority per client and round decides, so the draw of a larger count contains that of a
        smaller one, and every algorithm that asks for the same clients gets the same ones.
        """
        priority = (self.stream("cohort").keys(among) >> 1).argsort(stable=True)
        more = 0 if self.pace is None else rounded_up(self.pace.over, count)
        left = self.staying(among[priority[: count + more]])
        return (left if self.pace is None else self.pace.first(left, count)).sort().values

    def staying(self, clients: Tensor) -> Tensor:
        """Those of `clients` [A] that do not drop out; where all would, the first one stays."""
        left = clients[~self.dropped[clients]]
        return left if len(left) else clients[:1]


@dataclass(frozen=True, kw_only=True)
class Served:
    """Which model, or mixture of models, each client uses now.

    Attributes:
        models: [K, P].
        label: [M] int64 in [0, K), or -1 where nobody serves the client yet; of a mixture the
            heaviest model, which purity and its relatives are about.
        weight: [M, K] float32 shares of the models in every client's mixture, whose class
            probabilities are averaged with them; None where each client uses one model.
        own: what clients have in place of some numbers of their model in a test, as running
            statistics; None where they have nothing of their own.
    """

    models: Tensor
    label: Tensor
    weight: Tensor | None = None
    own: OwnStatistics | None = None

    @classmethod
    def mixture(cls, models: Tensor, weight: Tensor, served: Tensor) -> Served:
        """Mixtures for the clients `served` [M] bool; ties go to the smallest index."""
        return cls(models=models, label=weight.argmax(1).where(served, -1), weight=weight)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Test results per client; clients without label or test data count nothing.

    Attributes:
        served: what was evaluated.
        loss_sum: [M] float64 summed test loss, nats.
        sums: [M, S] float64 what the task adds up, such as correctly classified test examples.
        count: [M] int64 test examples evaluated, 0 where the label is -1.
    """

    served: Served
    loss_sum: Tensor
    sums: Tensor
    count: Tensor


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """What is said of the test examples of all clients that are served, one after the other, on the
    host.

    Attributes:
        client: [n] int64 whose example.
        row: [n] int64 its row of the pool.
        targets: [n] int64 classes, or [n, T] flags or numbers, those in the unit of the file.
        predictions: [n, Y] float64 probabilities, or numbers in that unit.
    """

    client: Tensor
    row: Tensor
    targets: Tensor
    predictions: Tensor


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one call of an algorithm cost and what is worth keeping of it.

    Attributes:
        models_down, models_up: model transfers from and to clients.
        floats_down, floats_up: numbers sent besides whole models, such as the head of a model or a
            descriptor of the data; below 0 where models above are sent without some of theirs.
        bits_up: bits that clients send besides; below 0 where models or floats above are sent in
            fewer than 32 bits for a number.
        scalars_up: single numbers that clients send, such as losses, or the cluster a client has
            chosen. Not those the server could know anyway: how many examples a client has, or what
            follows from a model it has sent. Single numbers to clients are not counted.
        gradient_steps: local steps of all clients.
        forward_passes: (model, client) pairs whose loss on the client's training data, or on a
            batch of them, was computed apart from local training. Algorithms leave it to the
            engine, which counts.
        backward_passes: likewise gradients, also those a server takes its step with.
        lasted: simulated seconds of the round, where the method follows the clock itself; NaN where
            it lasts as long as its slowest participant.
        train_loss: mean over the cohort of the local training loss, nats per example; NaN where
            unknown.
        notes: further numbers by metric name, e.g. discrepancy.
        arrays: arrays to keep beside the run by name, e.g. the distance matrix.
    """

    models_down: int = 0
    models_up: int = 0
    floats_down: int = 0
    floats_up: int = 0
    bits_up: int = 0
    scalars_up: int = 0
    gradient_steps: int = 0
    forward_passes: int = 0
    backward_passes: int = 0
    lasted: float = float("nan")
    train_loss: float = float("nan")
    notes: Mapping[str, float] = field(default_factory=dict)
    arrays: Mapping[str, Tensor] = field(default_factory=dict)

    def plus(self, other: Cost) -> Cost:
        """What both cost; training loss, notes and arrays of `other` where it has them."""
        return Cost(
            models_down=self.models_down + other.models_down,
            models_up=self.models_up + other.models_up,
            floats_down=self.floats_down + other.floats_down,
            floats_up=self.floats_up + other.floats_up,
            bits_up=self.bits_up + other.bits_up,
            scalars_up=self.scalars_up + other.scalars_up,
            gradient_steps=self.gradient_steps + other.gradient_steps,
            forward_passes=self.forward_passes + other.forward_passes,
            backward_passes=self.backward_passes + other.backward_passes,
            lasted=self.lasted if math.isnan(other.lasted) else other.lasted,
            train_loss=self.train_loss if math.isnan(other.train_loss) else other.train_loss,
            notes={**self.notes, **other.notes},
            arrays={**self.arrays, **other.arrays},
        )
