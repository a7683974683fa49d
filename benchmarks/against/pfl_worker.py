"""Measures a task in pfl-research, in its environment; one of several processes where torchrun
starts them.

python -m benchmarks.against.pfl_worker TASK SECONDS

Chosen: `SimulatedBackend` and `FederatedAveraging` with a `PyTorchModel` as in pfl's benchmarks;
users are `PyTorchTensorDataset`s of float32 tensors made once, and kept with the batches that pfl
caches in them (it does not shuffle); one process per core through torchrun, as pfl recommends, each
with one thread; no evaluation, no postprocessors, no callbacks but the clock; models are not
compiled. IFCA, which pfl does not have, sums into the chosen cluster's tensors in place, which is
less work than pfl's own sum.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from statistics import median
from typing import Any

import torch
from pfl.aggregate.base import SumAggregator
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.internal.ops.pytorch_ops import distributed
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from pfl.stats import MappedVectorStatistics
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.against.networks import OPTIMIZERS, build, random_clients
from benchmarks.against.task import Measured, Task, rounds_within


class Net(nn.Module):
    """The task's model with the two methods that pfl asks for."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.layers = build(task.layers)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Mean over the examples."""
        return functional.cross_entropy(self.layers(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        """Loss per example."""
        return {"loss": Weighted(self.loss(x, y).item() * len(y), len(y))}


def wrapped(task: Task) -> PyTorchModel:
    """A fresh model of the task, whose central step sets it to the mean of its users' models."""
    net = Net(task)
    central = torch.optim.SGD(net.parameters(), lr=1.0)
    return PyTorchModel(net, OPTIMIZERS[task.optimizer], central)


class Clock(TrainingProcessCallback):
    """Notes when rounds end, and stops all processes after the same round.

    Attributes:
        ends: seconds at which rounds ended.
    """

    def __init__(self, seconds: float) -> None:
        self.ends: list[float] = []
        self._seconds, self._last = seconds, -1

    def after_central_iteration(self, *_: object, central_iteration: int) -> tuple[bool, Metrics]:
        """The second round tells how many more to run; process 0 decides."""
        self.ends.append(time.perf_counter())
        if central_iteration == 1:
            more = torch.tensor([rounds_within(self._seconds, self.ends[1] - self.ends[0])])
            if distributed.world_size > 1:
                torch.distributed.broadcast(more, src=0)
            self._last = 1 + int(more)
        return central_iteration == self._last, Metrics()


class Ifca(FederatedAveraging):
    """Every user trains the model of least loss on its data; clusters are averaged on their own.

    Statistics are named "cluster/parameter"; "cluster/" counts users.
    """

    def __init__(self, models: list[PyTorchModel]) -> None:
        super().__init__()
        self.models = models

    def simulate_one_user(
        self,
        model: PyTorchModel,  # noqa: ARG002
        user_dataset: PyTorchTensorDataset,
        central_context: Any,
    ) -> tuple[MappedVectorStatistics | None, Metrics]:
        """The update of the chosen model."""
        x, y = user_dataset.raw_data
        with torch.no_grad():
            losses = [float(each.pytorch_model.loss(x, y)) for each in self.models]
        best = losses.index(min(losses))
        update, metrics = super().simulate_one_user(
            self.models[best], user_dataset, central_context
        )
        named = {f"{best}/{name}": value for name, value in update.items()}
        return MappedVectorStatistics({**named, f"{best}/": torch.ones(1)}), metrics

    def process_aggregated_statistics(
        self,
        central_context: Any,  # noqa: ARG002
        aggregate_metrics: Metrics,  # noqa: ARG002
        model: PyTorchModel,
        statistics: MappedVectorStatistics,
    ) -> tuple[PyTorchModel, Metrics]:
        """Every cluster's mean becomes its model."""
        for k, each in enumerate(self.models):
            count = statistics[f"{k}/"]
            if count > 0:
                mean = {name: statistics[f"{k}/{name}"] / count for name in each.variable_map}
                each.apply_model_update(MappedVectorStatistics(mean))
        return model, Metrics()


class ClusterSum(SumAggregator):
    """Sums into all clusters' tensors, so that all processes hold the same ones."""

    def __init__(self, models: list[PyTorchModel]) -> None:
        self._models = models

    def accumulate(
        self, *, accumulated: MappedVectorStatistics | None, user_stats: MappedVectorStatistics
    ) -> MappedVectorStatistics:
        """In place."""
        if accumulated is None:
            accumulated = MappedVectorStatistics({}, weight=0)
            for k, each in enumerate(self._models):
                accumulated[f"{k}/"] = torch.zeros(1)
                for name, value in each.variable_map.items():
                    accumulated[f"{k}/{name}"] = torch.zeros_like(value)
        for name, value in user_stats.items():
            accumulated[name].add_(value)
        accumulated.weight += user_stats.weight
        return accumulated


def simulate(
    task: Task,
    users: Sequence[PyTorchTensorDataset],
    models: list[PyTorchModel],
    callback: TrainingProcessCallback,
) -> None:
    """Rounds with participants drawn from the users, until the callback stops them.

    Args:
        task: federated averaging, or IFCA where there are several models.
        users: the population.
        models: fresh ones.
        callback: hears of every round's end.
    """
    sampler = get_user_sampler("minimize_reuse", list(range(len(users))))
    data = FederatedDataset(users.__getitem__, sampler)
    algorithm = FederatedAveraging() if task.models == 1 else Ifca(models)
    algorithm.run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=10**6,
            evaluation_frequency=10**6,
            train_cohort_size=task.clients,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(
            training_data=data,
            val_data=data,
            aggregator=SumAggregator() if task.models == 1 else ClusterSum(models),
        ),
        model=models[0],
        model_train_params=NNTrainHyperParams(
            local_num_epochs=task.epochs, local_learning_rate=task.lr, local_batch_size=task.batch
        ),
        callbacks=[callback],
        send_metrics_to_platform=False,
    )


def leave() -> None:
    """The end of one of several processes, when the others have come so far too."""
    if distributed.world_size > 1:
        torch.distributed.barrier()
        os._exit(0)  # gloo's threads sometimes abort the interpreter's orderly end


def measure(task: Task, seconds: float) -> Measured:
    """Runs rounds for about `seconds`, after two that do not count."""
    torch.manual_seed(0)
    users = [PyTorchTensorDataset(pair) for pair in random_clients(task)]
    clock = Clock(seconds)
    simulate(task, users, [wrapped(task) for _ in range(task.models)], clock)
    times = [b - a for a, b in zip(clock.ends[1:-1], clock.ends[2:], strict=True)]
    return Measured(
        rate=task.round_steps / median(times),
        rounds=len(times),
        processes=distributed.world_size,
        threads=torch.get_num_threads(),
        version=f"pfl {version('pfl')}",
    )


if __name__ == "__main__":
    logging.disable(logging.INFO)
    torch.set_num_threads(1)
    result = measure(Task.from_json(sys.argv[1]), float(sys.argv[2]))
    if distributed.global_rank == 0:
        print(result.to_json(), flush=True)
    leave()
