"""What a method computes with in a round: the clients of one seed, by their ids.

`fedclust.engines.clients` has those that an engine computes. Whatever changes what clients do is a
`Layer` around them (`fedclust.core.attack`, `fedclust.algorithms.layers`), which gives others on
and changes none.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Protocol, Self

from torch import Tensor

from fedclust.core.calls import PLAIN, Alignment, LocalResult, LocalWork, MeanResult, TestResult
from fedclust.core.server import Server
from fedclust.core.solver import Solver
from fedclust.core.types import Evaluation, Round, Served
from fedclust.helpers.ops import cluster_sum
from fedclust.helpers.rng import Stream
from fedclust.models.params import Layout


@dataclass(frozen=True)
class _Asked:
    """What is asked of some clients.

    Attributes:
        models: [K, P].
        label: [C] int64 in [0, K), the model that each client starts from.
        ids: [C] int64 clients.
        weight: [C] of the clients in what is added up of them, None = equal.
        start: [C, P] a version of its own of its model that each client starts from, where a layer
            gives it one; None where clients start from models[label[i]].
    """

    models: Tensor
    label: Tensor
    ids: Tensor
    _: KW_ONLY
    weight: Tensor | None = None
    start: Tensor | None = None

    @property
    def begun(self) -> Tensor:
        """Where each client starts, [C, P]."""
        return self.models[self.label] if self.start is None else self.start


@dataclass(frozen=True)
class Gradient(_Asked):
    """Gradients that are asked of some clients: models, labels and ids, and

    Attributes:
        batch_size: of one batch of min(batch_size, count) random examples, see `Clients.loss`; None
            for all examples.
        weight: [C] of the clients in the sums that `Clients.grad_sum` makes, None = equal.
    """

    batch_size: int | None = None


@dataclass(frozen=True)
class Train(_Asked):
    """Local training that is asked of some clients: models, labels and ids, and

    Attributes:
        solver: what a local step is.
        work: what else training is given, as `LocalWork(anchor=anchor)`; where a layer gives each
            client a `start`, the slots of the work are those of each client, [C, W].
        weight: [C] of the clients in the means that `Clients.train_mean` makes, None = equal.
        purpose: the name of the randomness, "train" of what the clients of a round train for its
            mean; under another one a method gets to know clients, or serves them.
        stays: [P] bool, what of the parameters stays with the client and is sent to nobody; None
            for nothing.
    """

    solver: Solver
    work: LocalWork = PLAIN
    _: KW_ONLY
    purpose: str = "train"
    stays: Tensor | None = None

    def starting(self, start: Tensor) -> Train:
        """The same of clients that start from `start` [C, P]."""
        slots = self.work.slots
        if slots is not None and self.start is None:
            slots = slots[self.label]
        return replace(self, start=start, work=replace(self.work, slots=slots))


class Clients(Protocol):
    """What a method computes with: the clients of one seed in one round, by their ids."""

    @property
    def rnd(self) -> Round:
        """The round."""
        ...

    @property
    def server(self) -> Server:
        """What replaces models by means of participants' models, see `algorithms/steps.py`."""
        ...

    @property
    def exact(self) -> bool:
        """Whether the engine gives a row the same bits in any company."""
        ...

    @property
    def discrepancy(self) -> bool:
        """Whether it is asked how far local models lie from their mean, which needs every one."""
        ...

    @property
    def layout(self) -> Layout:
        """Where each parameter lies in a model's row [P], by name: `layout["4.weight"]`."""
        ...

    def at(self, rnd: Round) -> Clients:
        """The same clients as they are in `rnd`, for instance with other data."""
        ...

    def aside(self) -> Clients:
        """The same clients as they are now, to serve and to test within a round as after it: what
        tuning changes with them is kept by nobody.
        """
        ...

    def init(self, stream: Stream, k: int) -> Tensor:
        """k independent initial models, [k, P]; model j depends on (stream, j) only."""
        ...

    def train(self, asked: Train) -> LocalResult:
        """Local training, client i from model label[i]."""
        ...

    def train_mean(self, asked: Train) -> MeanResult:
        """Local training as that of `train`, and the mean of what it makes of every model.

        The models of single clients are kept where `discrepancy` is asked for only. Where the work
        has `slots`, their means are computed too. The losses of single steps are not returned.
        """
        ...

    def recalibrated(self, models: Tensor, label: Tensor, ids: Tensor) -> Tensor:
        """[C, P] models[label[i]] with the statistics of the two or more examples of client i."""
        ...

    def loss(self, models: Tensor, ids: Tensor, batch_size: int | None = None) -> Tensor:
        """Mean training loss of every model [K, P] for every client, [C, K] nats per example.

        With a `batch_size`, of one batch of min(batch_size, count) random examples of the client;
        it is a function of (seed, round, client), so the same one for every model and for `grad`.
        """
        ...

    def loss_of_each(self, models: Tensor, ids: Tensor, batch_size: int | None = None) -> Tensor:
        """Mean training loss of models[i], of [C, P], for client i, [C] nats; see `loss`."""
        ...

    def example_losses(self, models: Tensor, ids: Tensor, passes: int | None = None) -> Tensor:
        """Loss of every model [K, P] on every training example, [C, n, K] nats.

        Examples are in the order of the client's data, 0 past its count: that of `example_weight`.
        It costs a client `passes` forward passes, None for one with every model.
        """
        ...

    def grad(self, asked: Gradient) -> Tensor:
        """Gradient [C, P] of the mean training loss of the model of each client."""
        ...

    def grad_sum(self, asked: Gradient) -> Tensor:
        """Sum [K, P] of the gradients, as of `grad`, of every model's clients, by their weights."""
        ...

    def align(
        self,
        models: Tensor,
        directions: Tensor,
        ids: Tensor,
        batch_size: int | None = None,
        margin: Tensor | None = None,
    ) -> Alignment:
        """How the gradients of every model [K, P] for every client lie to the model's direction
        [K, P]: inner products and squared norms, without the gradients, and the losses; see `loss`
        for the `batch_size`. A direction of zeros counts as no gradient. Products and norms are 0
        for clients one of whose losses is lower than the others by more than their `margin` [C],
        nats.
        """
        ...

    def trial(self, served: Served) -> TestResult:
        """What a test of what is served would add up, [M, ...] of every client, for a method that
        chooses by it: with the running statistics that training begins with.
        """
        ...

    def evaluate(self, served: Served) -> Evaluation:
        """Test results of what is served, the same within a round as after it: with the running
        statistics that each client is tested with, those of `served.own` or else its own now.
        """
        ...


@dataclass(frozen=True)
class Layer:
    """Clients that do one thing otherwise; all else as those behind them. See `Clients`.

    Attributes:
        behind: the clients.
    """

    behind: Clients

    @property
    def rnd(self) -> Round:
        return self.behind.rnd

    @property
    def server(self) -> Server:
        return self.behind.server

    @property
    def exact(self) -> bool:
        return self.behind.exact

    @property
    def discrepancy(self) -> bool:
        return self.behind.discrepancy

    @property
    def layout(self) -> Layout:
        return self.behind.layout

    def at(self, rnd: Round) -> Clients:
        return self._around(self.behind.at(rnd))

    def aside(self) -> Clients:
        return self._around(self.behind.aside())

    def _around(self, behind: Clients) -> Self:
        return replace(self, behind=behind)

    def init(self, stream: Stream, k: int) -> Tensor:
        return self.behind.init(stream, k)

    def train(self, asked: Train) -> LocalResult:
        return self.behind.train(asked)

    def train_mean(self, asked: Train) -> MeanResult:
        return self.behind.train_mean(asked)

    def recalibrated(self, models: Tensor, label: Tensor, ids: Tensor) -> Tensor:
        return self.behind.recalibrated(models, label, ids)

    def loss(self, models: Tensor, ids: Tensor, batch_size: int | None = None) -> Tensor:
        return self.behind.loss(models, ids, batch_size)

    def loss_of_each(self, models: Tensor, ids: Tensor, batch_size: int | None = None) -> Tensor:
        return self.behind.loss_of_each(models, ids, batch_size)

    def example_losses(self, models: Tensor, ids: Tensor, passes: int | None = None) -> Tensor:
        return self.behind.example_losses(models, ids, passes)

    def grad(self, asked: Gradient) -> Tensor:
        return self.behind.grad(asked)

    def grad_sum(self, asked: Gradient) -> Tensor:
        return self.behind.grad_sum(asked)

    def align(
        self,
        models: Tensor,
        directions: Tensor,
        ids: Tensor,
        batch_size: int | None = None,
        margin: Tensor | None = None,
    ) -> Alignment:
        return self.behind.align(models, directions, ids, batch_size, margin)

    def trial(self, served: Served) -> TestResult:
        return self.behind.trial(served)

    def evaluate(self, served: Served) -> Evaluation:
        return self.behind.evaluate(served)


def mean_by_rows(clients: Clients, asked: Train) -> MeanResult:
    """`Clients.train_mean` from the models of single clients."""
    local = clients.train(replace(asked, work=replace(asked.work, each_step=False)))
    how = asked.models, asked.label, asked.weight, asked.work.slots
    return MeanResult.of(local, *how, keep=clients.discrepancy, exact=clients.exact)


def sum_by_rows(clients: Clients, asked: Gradient) -> Tensor:
    """`Clients.grad_sum` from the gradients of single clients."""
    return cluster_sum(clients.grad(asked), asked.label, len(asked.models), asked.weight)
