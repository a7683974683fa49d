"""Plays rounds in pfl-research, in its environment; one of several processes where torchrun starts
them.

python -m benchmarks.against.pfl_turns FOLDER

Chosen as in `pfl_worker`, but for the batches, which are given: a user indexes its tensors by them
where pfl would keep slices.
"""

from __future__ import annotations

import itertools
import logging
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from pfl.callback.base import TrainingProcessCallback
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.internal.ops.pytorch_ops import distributed
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from benchmarks.against.pfl_worker import leave, simulate, wrapped
from benchmarks.against.turns import Given, Turns, peak_mib


class User(PyTorchTensorDataset):
    """A user whose every pass meets given batches.

    Args:
        pair: inputs and labels.
        passes: [E, batches of a pass, B] which examples they meet, over and over.
        batch: asked for in training; None for all examples.
    """

    def __init__(self, pair: tuple[Tensor, Tensor], passes: Tensor, batch: int | None) -> None:
        super().__init__(pair)
        self._passes, self._batch = itertools.cycle(passes), batch

    def iter(self, batch_size: int | None) -> Iterator[list[Tensor]]:
        """The batches of the next pass; pfl's own where it evaluates, as in its first round."""
        if batch_size != self._batch:
            yield from super().iter(batch_size)
            return
        for batch in next(self._passes):
            yield [value[batch] for value in self.raw_data]


class InTurns(TrainingProcessCallback):
    """Begins every round anew from the start, and lets others have their turns between them.

    Attributes:
        averaged: models [K, P] of the last round.
    """

    def __init__(self, models: list[PyTorchModel], start: Tensor, turns: Turns) -> None:
        self._models, self._start, self._turns = models, start, turns
        self._began = time.perf_counter()
        self.averaged = start

    def after_central_iteration(self, *_: object, **_named: object) -> tuple[bool, Metrics]:
        """Process 0 decides."""
        seconds = time.perf_counter() - self._began
        on = torch.zeros(1)
        if distributed.global_rank == 0:
            on[0] = self._turns.note(seconds)
        if distributed.world_size > 1:
            torch.distributed.broadcast(on, src=0)
        values = [list(model.variable_map.values()) for model in self._models]
        if not on:
            self.averaged = torch.stack([nn.utils.parameters_to_vector(each) for each in values])
        self._began = time.perf_counter()
        for each, flat in zip(values, self._start, strict=True):
            nn.utils.vector_to_parameters(flat.clone(), each)
        return not on, Metrics()


def play(folder: Path) -> None:
    """Rounds of federated averaging, or of IFCA where there are several models."""
    given, turns = Given.read(folder), Turns()
    task = given.task
    x, y = torch.from_numpy(given.inputs()), torch.from_numpy(given.y)
    passes = torch.from_numpy(given.order).unflatten(1, (task.epochs, -1))
    rows = torch.from_numpy(given.clients)
    users = [User((x[own], y[own]), met, task.batch) for own, met in zip(rows, passes, strict=True)]
    models, start = [wrapped(task) for _ in range(task.models)], torch.from_numpy(given.start)
    for model, flat in zip(models, start, strict=True):
        nn.utils.vector_to_parameters(flat.clone(), model.variable_map.values())
    clock = InTurns(models, start, turns)
    simulate(task, users, models, clock)
    peak = torch.tensor([peak_mib()])
    if distributed.world_size > 1:
        torch.distributed.all_reduce(peak)
    if distributed.global_rank == 0:
        np.save(folder / "pfl.npy", clock.averaged.detach().numpy())
        turns.tell({"peak_mib": float(peak), "version": f"pfl {version('pfl')}", "compiling": 0.0})
    leave()


if __name__ == "__main__":
    logging.disable(logging.INFO)
    torch.set_num_threads(1)
    play(Path(sys.argv[1]))
