"""Plays rounds in plain PyTorch, one client after the other.

python -m benchmarks.against.loop_worker FOLDER indexed|pfllib|flbench

The ways differ in where a client's batches come from and in what it trains:

indexed: a copy of the model, and tensors indexed by the batch: the least that a loop needs.
pfllib: as PFLlib does it: every client keeps a model, into which the parameters are copied, and a
    `DataLoader` over a list of its examples makes the batches.
flbench: as FL-bench does it: one model loads its state for every client, and a `DataLoader` over a
    subset of all examples makes the batches, each example normalised when it is asked for.

What is left out of the last two: evaluation, logs, and optimizers whose state outlives a round.
Batches are given, not drawn, so that all programs compute the same.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, Subset

from benchmarks.against.networks import OPTIMIZERS, build
from benchmarks.against.steps import fit
from benchmarks.against.turns import Given, Program, serve

Batches = Iterable[tuple[Tensor, Tensor]]
Pair = tuple[Tensor, Tensor]


class Indexed:
    """See above.

    Args:
        given: the round.
    """

    def __init__(self, given: Given) -> None:
        self.x, self.y = torch.from_numpy(given.inputs()), torch.from_numpy(given.y)
        self.rows = torch.from_numpy(given.clients)
        self._model = build(given.task.layers)

    def model(self, client: int, start: nn.Module) -> nn.Module:  # noqa: ARG002
        """What client number `client` trains, with the parameters of `start`."""
        return copy.deepcopy(start)

    def batches(self, client: int, order: NDArray[np.int64]) -> Batches:
        """Inputs and labels of the steps that meet the examples `order` [S, B]."""
        for step in self.rows[client][torch.from_numpy(order)]:
            yield self.x[step], self.y[step]


class PFLlib:
    """See above."""

    def __init__(self, given: Given) -> None:
        x, y = torch.from_numpy(given.inputs()), torch.from_numpy(given.y)
        self._pairs = [[(x[row], y[row]) for row in rows] for rows in given.clients.tolist()]
        self._models = [build(given.task.layers) for _ in given.clients]

    def model(self, client: int, start: nn.Module) -> nn.Module:
        """The client's own, with the parameters of `start` copied in."""
        for kept, new in zip(self._models[client].parameters(), start.parameters(), strict=True):
            kept.data = new.data.clone()
        return self._models[client]

    def batches(self, client: int, order: NDArray[np.int64]) -> Batches:
        """As of `Indexed`."""
        return _loaded(self._pairs[client], order)


class _Normalised(Dataset[Pair]):
    """All examples, each normalised when it is asked for."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self._x, self._y = x, y

    def __getitem__(self, index: int) -> Pair:
        return (self._x[index].to(torch.float32) * (1 / 255)), self._y[index]


class FLbench:
    """See above."""

    def __init__(self, given: Given) -> None:
        self._all = _Normalised(torch.from_numpy(given.x), torch.from_numpy(given.y))
        self._rows = given.clients.tolist()
        self._model = build(given.task.layers)

    def model(self, client: int, start: nn.Module) -> nn.Module:  # noqa: ARG002
        """The one model, with the state of `start`."""
        self._model.load_state_dict(start.state_dict())
        return self._model

    def batches(self, client: int, order: NDArray[np.int64]) -> Batches:
        """As of `Indexed`."""
        return _loaded(Subset(self._all, self._rows[client]), order)


Way = Indexed | PFLlib | FLbench
WAYS: dict[str, Callable[[Given], Way]] = {
    "indexed": Indexed,
    "pfllib": PFLlib,
    "flbench": FLbench,
}


def _loaded(examples: Sequence[Pair] | Dataset[Pair], order: NDArray[np.int64]) -> Batches:
    loader: Batches = DataLoader(examples, batch_sampler=order.tolist())  # type: ignore[arg-type]
    return loader


def program(given: Given, name: str) -> Program:
    """A way's rounds of federated averaging, or of IFCA where there are several models."""
    task, way = given.task, WAYS[name](given)
    starts = [build(task.layers) for _ in range(task.models)]
    for start, flat in zip(starts, torch.from_numpy(given.start), strict=True):
        nn.utils.vector_to_parameters(flat.clone(), start.parameters())
    whole = np.arange(task.examples)[None]

    @torch.no_grad()
    def least(client: int) -> int:
        ((x, y),) = way.batches(client, whole)
        losses = [float(functional.cross_entropy(start(x), y)) for start in starts]
        return losses.index(min(losses))

    def play() -> list[list[Tensor]]:
        sums = [[torch.zeros_like(value) for value in start.parameters()] for start in starts]
        counts = [0] * len(starts)
        for client, order in enumerate(given.order):
            best = least(client) if len(starts) > 1 else 0
            model = way.model(client, starts[best])
            optimizer = OPTIMIZERS[task.optimizer](model.parameters(), lr=task.lr)
            fit(model, optimizer, way.batches(client, order))
            counts[best] += 1
            for total, value in zip(sums[best], model.parameters(), strict=True):
                total += value.detach()
        return [
            [total / count for total in parts] if count else [*start.parameters()]
            for parts, count, start in zip(sums, counts, starts, strict=True)
        ]

    def averaged(models: list[list[Tensor]]) -> NDArray[np.float32]:
        flat = [nn.utils.parameters_to_vector(values) for values in models]
        return torch.stack(flat).detach().numpy()

    return Program(play=play, averaged=averaged, version=f"torch {torch.__version__}")


if __name__ == "__main__":
    folder, name = Path(sys.argv[1]), sys.argv[2]
    serve(program(Given.read(folder), name), folder, name)
