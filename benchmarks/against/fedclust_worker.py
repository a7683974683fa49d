"""Plays rounds in fedclust, with the engine that `engine=auto` takes.

python -m benchmarks.against.fedclust_worker FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.against.networks import build
from benchmarks.against.task import Task
from benchmarks.against.turns import Given, Program, serve
from fedclust.core.calls import LossCall, Shards, SumCall, TrainCall
from fedclust.core.pool import Pool
from fedclust.engines import make_engine
from fedclust.helpers.ops import mean_of
from fedclust.helpers.rng import Stream
from fedclust.runtime.memory import keep_freed_memory
from fedclust.solver import Adam, Solver

SOLVERS: dict[str, type[Solver | Adam]] = {"sgd": Solver, "adam": Adam}


def solver_of(task: Task) -> Solver | Adam:
    """A task's local steps."""
    return SOLVERS[task.optimizer](lr=task.lr, batch_size=task.batch, epochs=task.epochs)


def shards_of(clients: Tensor) -> Shards:
    """Participants with the examples [C, n], and the keys of their batches."""
    rows, count = clients.shape
    return Shards(
        index=clients,
        count=torch.full((rows,), count),
        key=Stream.of(0, "train", 0).keys(torch.arange(rows)),
    )


def program(given: Given) -> Program:
    """fedclust's rounds: the verbs of `FedAvg.round`, or of `IFCA.round`."""
    task = given.task
    pool = Pool(
        x=torch.from_numpy(given.x),
        y=torch.from_numpy(given.y),
        scale=torch.tensor(1 / 255),
        shift=torch.tensor(0.0),
        num_classes=task.classes,
    )
    engine = make_engine("auto", build(task.layers), pool)
    solver, data = solver_of(task), shards_of(torch.from_numpy(given.clients))
    starts = engine.init(Stream.of(0, "init")).repeat(task.models, 1)  # for the statistics
    starts[:, : engine.layout.num_trained] = torch.from_numpy(given.start)
    common = torch.zeros(len(data), dtype=torch.int64)

    def play() -> Tensor:
        label = common if task.models == 1 else engine.answer(LossCall(starts, data)).argmin(1)
        sums = engine.answer(SumCall(TrainCall(starts, label, data, solver, solver.lr)))
        return mean_of(sums.params, label, empty=starts)

    def averaged(models: Tensor) -> NDArray[np.float32]:
        return engine.layout.of_trained(models).numpy()

    return Program(play=play, averaged=averaged, version=f"engine={engine.name}")


if __name__ == "__main__":
    keep_freed_memory()  # as jobs do
    folder = Path(sys.argv[1])
    serve(program(Given.read(folder)), folder, "fedclust")
