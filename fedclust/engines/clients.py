"""The engine as an algorithm sees it: client ids in, tensors out, for one seed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedclust.errors import DivergedError
from fedclust.rng import Stream, permutations
from fedclust.solver import Solver
from fedclust.types import Evaluation, LocalResult, Round, Served, Shards, Split
from fedclust.verbs import Engine


def shards_of(split: Split, clients: Tensor, rnd: Round, purpose: str) -> Shards:
    """The data of some clients, each with the key of its randomness this round."""
    index, count = split.take(clients)
    return Shards(index=index, count=count, key=rnd.stream(purpose).keys(clients))


def batch_of(clients: Tensor, rnd: Round, batch_size: int) -> Shards:
    """One batch of min(batch_size, count) random training examples of each client, its own every
    round.
    """
    shards = shards_of(rnd.fed.train, clients, rnd, "batch")
    longest = shards.index.shape[1]
    order = permutations(shards.key, shards.count, longest)[
        :, :batch_size
    ]  # the real examples come first
    count = shards.count.clamp(max=batch_size)
    inside = torch.arange(order.shape[1], device=count.device) < count.unsqueeze(1)
    return replace(shards, index=shards.index.gather(1, order).masked_fill(~inside, 0), count=count)


@dataclass
class Passes:
    """(model, client) pairs computed so far apart from local training and testing: losses and
    gradients.
    """

    forward: int = 0
    backward: int = 0


@dataclass
class LastBatches:
    """The batches drawn last: JGL asks for its own once per cluster, and drawing sorts all
    examples.
    """

    clients: Tensor | None = None
    rnd: Round | None = None
    batch_size: int = 0
    drawn: Shards | None = None

    def of(self, clients: Tensor, rnd: Round, batch_size: int) -> Shards:
        """See `batch_of`; the very same `clients` and `rnd` are not drawn for again."""
        same = self.clients is clients and self.rnd is rnd and self.batch_size == batch_size
        if self.drawn is None or not same:
            self.clients, self.rnd, self.batch_size = clients, rnd, batch_size
            self.drawn = batch_of(clients, rnd, batch_size)
        return self.drawn


@dataclass(frozen=True)
class SeedClients:
    """Translates client ids of one seed into rows of a `Engine`; see `fedclust.verbs.Clients` for
    the verbs.

    Attributes:
        engine: what computes; possibly shared with other seeds through `fedclust.engines.lockstep`.
        passes: counts what `loss` and `grad` are asked for.
        batches: those drawn last.
    """

    engine: Engine
    passes: Passes = field(default_factory=Passes)
    batches: LastBatches = field(default_factory=LastBatches)

    @property
    def num_params(self) -> int:
        """P."""
        return self.engine.num_params

    def init(self, stream: Stream, k: int) -> Tensor:
        """k independent initial models, [k, P]."""
        return torch.stack([self.engine.init(stream.fold(j)) for j in range(k)])

    def train(
        self,
        models: Tensor,
        label: Tensor,
        clients: Tensor,
        solver: Solver,
        rnd: Round,
        slots: Tensor | None = None,
        purpose: str = "train",
        anchor: Tensor | None = None,
    ) -> LocalResult:
        """Local training of `clients` [C], client i from models[label[i]], each as far as it gets
        this round.

        Raises:
            DivergedError: naming the first client whose loss is not finite.
        """
        shards = replace(shards_of(rnd.fed.train, clients, rnd, purpose), work=rnd.work[clients])
        result = self.engine.train(models, label, shards, solver, solver.rate(rnd.t), slots, anchor)
        _check_finite(result.loss, "training", clients, rnd)
        return result

    def loss(
        self, models: Tensor, clients: Tensor, rnd: Round, batch_size: int | None = None
    ) -> Tensor:
        """Mean training loss of every model for every client, [C, K] nats per example."""
        self.passes.forward += len(models) * len(clients)
        return self.engine.loss(models, self._read(clients, rnd, "loss", batch_size))

    def grad(
        self,
        models: Tensor,
        label: Tensor,
        clients: Tensor,
        rnd: Round,
        batch_size: int | None = None,
    ) -> Tensor:
        """Gradient of the mean training loss of models[label[i]] for client i, [C, P]."""
        self.passes.backward += len(clients)
        return self.engine.grad(models, label, self._read(clients, rnd, "grad", batch_size))

    def _read(self, clients: Tensor, rnd: Round, purpose: str, batch_size: int | None) -> Shards:
        """All training data of the clients, or a batch that does not depend on the purpose."""
        if batch_size is None:
            return shards_of(rnd.fed.train, clients, rnd, purpose)
        return self.batches.of(clients, rnd, batch_size)

    def evaluate(self, served: Served, rnd: Round) -> Evaluation:
        """Test results of what is served, for every client that has a label and test data.

        Raises:
            DivergedError: naming the first client whose loss is not finite.
        """
        fed = rnd.fed
        clients = ((served.label >= 0) & (fed.test.count > 0)).nonzero().squeeze(1)
        shards = shards_of(fed.test, clients, rnd, "evaluate")
        loss_sum, correct = self.engine.evaluate(served.models, served.label[clients], shards)
        _check_finite(loss_sum, "test", clients, rnd)
        blank = torch.zeros(fed.num_clients, dtype=torch.int64, device=clients.device)
        return Evaluation(
            served=served,
            loss_sum=blank.to(torch.float64).index_copy(0, clients, loss_sum),
            correct=blank.index_copy(0, clients, correct),
            count=blank.index_copy(0, clients, shards.count),
        )


def _check_finite(loss: Tensor, kind: str, clients: Tensor, rnd: Round) -> None:
    """Refuse losses [C] of which one is not finite."""
    finite = torch.isfinite(loss)
    if not bool(finite.all()):
        row = int((~finite).nonzero()[0])
        raise DivergedError(
            f"seed {rnd.seed}, round {rnd.t}: the {kind} loss of client {int(clients[row])} is "
            f"{float(loss[row])}; a smaller solver.lr may help"
        )
