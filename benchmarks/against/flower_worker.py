"""Measures a task in Flower's simulation on Ray, in its environment.

python -m benchmarks.against.flower_worker TASK SECONDS PROCESSES

Chosen: `run_simulation` with `FedAvg`, and as many clients at a time as processes, each with one
CPU and one thread; the clients' data are float32 tensors that every process makes once and keeps,
indexed without a `DataLoader`; no evaluation; Ray without its dashboard. IFCA, which Flower does
not have, is FedAvg of every cluster on its own.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterable
from importlib.metadata import version
from itertools import pairwise
from statistics import median

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")  # else clients yield to everything else that runs

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.against.flower_client import app as client
from benchmarks.against.networks import build
from benchmarks.against.task import Measured, Task, rounds_within


class Ifca(FedAvg):
    """FedAvg of every cluster on its own; one without clients keeps its model.

    Attributes:
        models: all clusters' parameters, named "cluster/parameter".
    """

    models: ArrayRecord

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Clients say which cluster they trained."""
        clusters: dict[int, list[Message]] = {}
        for reply in replies:
            cluster = reply.content.metric_records["metrics"]["cluster"]
            assert isinstance(cluster, int)
            clusters.setdefault(cluster, []).append(reply)
        merged = dict(self.models)
        for members in clusters.values():
            arrays, _ = super().aggregate_train(server_round, members)
            merged.update(arrays or {})
        self.models = ArrayRecord(merged)
        return self.models, None


def measure(task: Task, seconds: float, processes: int) -> Measured:
    """Runs rounds for about `seconds`, after two that do not count and tell how many to run."""
    ends: list[float] = []
    server = ServerApp()

    def note(_round: int, _arrays: ArrayRecord) -> None:
        ends.append(time.perf_counter())

    @server.main()
    def main(grid: Grid, _context: Context) -> None:
        torch.manual_seed(0)
        state = {
            f"{k}/{name}": value
            for k in range(task.models)
            for name, value in build(task.layers).state_dict().items()
        }
        strategy = (FedAvg if task.models == 1 else Ifca)(
            fraction_train=task.clients / task.population,
            fraction_evaluate=0.0,
            min_train_nodes=task.clients,
            min_available_nodes=task.population,
        )
        arrays = ArrayRecord(state)
        if isinstance(strategy, Ifca):
            strategy.models = arrays
        for rounds in (2, None):
            config = ConfigRecord({"task": task.to_json()})
            count = rounds or rounds_within(seconds, ends[2] - ends[1])
            strategy.start(grid, arrays, num_rounds=count, train_config=config, evaluate_fn=note)

    run_simulation(
        server,
        client,
        num_supernodes=task.population,
        backend_config={
            "init_args": {"num_cpus": processes, "num_gpus": 0, "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    times = [b - a for a, b in pairwise(ends[3:])]
    return Measured(
        rate=task.round_steps / median(times),
        rounds=len(times),
        processes=processes,
        threads=1,
        version=f"flwr {version('flwr')}",
    )


if __name__ == "__main__":
    logging.getLogger("flwr").setLevel(logging.ERROR)
    result = measure(Task.from_json(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
    print(result.to_json(), flush=True)
