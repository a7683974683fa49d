"""The engine as an algorithm sees it: client ids in, tensors out, for one seed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedclust.errors import DivergedError
from fedclust.rng import Stream
from fedclust.solver import Solver
from fedclust.types import Backend, Evaluation, LocalResult, Round, Served, Shards, Split


def shards_of(split: Split, clients: Tensor, rnd: Round, purpose: str) -> Shards:
    """The data of some clients, each with the key of its randomness this round."""
    index, count = split.take(clients)
    return Shards(index=index, count=count, key=rnd.stream(purpose).keys(clients))


@dataclass(frozen=True)
class SeedEngine:
    """Translates client ids of one seed into rows of a `Backend`; see `fedclust.types.Engine` for the verbs.

    Attributes:
        backend: what computes; possibly shared with other seeds through `fedclust.lockstep`.
    """

    backend: Backend

    @property
    def num_params(self) -> int:
        """P."""
        return self.backend.num_params

    def init(self, stream: Stream, k: int) -> Tensor:
        """k independent initial models, [k, P]."""
        return torch.stack([self.backend.init(stream.fold(j)) for j in range(k)])

    def train(
        self,
        models: Tensor,
        label: Tensor,
        clients: Tensor,
        solver: Solver,
        rnd: Round,
        slots: Tensor | None = None,
        purpose: str = "train",
    ) -> LocalResult:
        """Local training of `clients` [C], client i from models[label[i]].

        Raises:
            DivergedError: naming the first client whose loss is not finite.
        """
        shards = shards_of(rnd.fed.train, clients, rnd, purpose)
        result = self.backend.train(models, label, shards, solver, solver.rate(rnd.t), slots)
        finite = torch.isfinite(result.loss)
        if not bool(finite.all()):
            row = int((~finite).nonzero()[0])
            raise DivergedError(
                f"seed {rnd.seed}, round {rnd.t}: the training loss of client {int(clients[row])} is "
                f"{float(result.loss[row])}; a smaller solver.lr may help"
            )
        return result

    def loss(self, models: Tensor, clients: Tensor, rnd: Round) -> Tensor:
        """Mean training loss of every model for every client, [C, K] nats per example."""
        return self.backend.loss(models, shards_of(rnd.fed.train, clients, rnd, "loss"))

    def grad(self, models: Tensor, label: Tensor, clients: Tensor, rnd: Round) -> Tensor:
        """Full-batch training gradient of models[label[i]] for client i, [C, P]."""
        return self.backend.grad(models, label, shards_of(rnd.fed.train, clients, rnd, "grad"))

    def evaluate(self, served: Served, rnd: Round) -> Evaluation:
        """Test results of what is served, for every client that has a label and test data."""
        fed = rnd.fed
        clients = ((served.label >= 0) & (fed.test.count > 0)).nonzero().squeeze(1)
        shards = shards_of(fed.test, clients, rnd, "evaluate")
        loss_sum, correct = self.backend.evaluate(served.models, served.label[clients], shards)
        blank = torch.zeros(fed.num_clients, dtype=torch.int64, device=clients.device)
        return Evaluation(
            served=served,
            loss_sum=blank.to(torch.float64).index_copy(0, clients, loss_sum),
            correct=blank.index_copy(0, clients, correct),
            count=blank.index_copy(0, clients, shards.count),
        )
