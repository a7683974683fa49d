"""How often each rule of `num_clusters=auto` finds the true number of groups, and what a wrong
number costs.

    python -m benchmarks.finding_k [WORD …] [--seeds 10] [--root data]
    python -m benchmarks.finding_k --costs [WORD …] [--seeds 10] [--root data]

Every client of ten federations of MNIST, 40 clients with 100 examples, trains a softmax regression
once from a common start, two passes in batches of 20 at a rate of 0.1. What is clustered are the
cosine distances of these updates (`cluster_metric=update_distance cluster_metric.norm=cosine`).
Shown are, of the seeds, those in which a rule found the true number, and the mean number it found.
With words, only federations whose name has one of them.

With `--costs` the same clients train for 30 rounds, half of them in each, as clusters of LCFL on
these distances (one round of FedAvg, agglomerative clustering) and of IFCA, which are given the
true number k, one less, one more, or twice as many. Shown are the test accuracy with k, and of the
others the mean difference to it over the seeds, with its standard deviation; in points. Beside them
stand FedAvg, k = 1, and the true groups.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from fedclust.algorithms.fedavg import FedAvg
from fedclust.algorithms.ifca import IFCA
from fedclust.algorithms.lcfl import LCFL
from fedclust.algorithms.oracle import Oracle
from fedclust.algorithms.warmup import Warmup
from fedclust.cluster_methods.agglomerative import Agglomerative
from fedclust.cluster_methods.kmeans import KMeans
from fedclust.cluster_metrics.update_distance import UpdateDistance
from fedclust.config.data import federate
from fedclust.core.front import Train
from fedclust.core.types import Federation
from fedclust.core.verbs import Algorithm, Partition
from fedclust.datasets.images import MNIST
from fedclust.engines import make_engine
from fedclust.engines.clients import SeedClients
from fedclust.helpers.rng import Stream
from fedclust.models.mlp import mlp
from fedclust.partitions.class_subsets import ClassSubsets
from fedclust.partitions.class_transform import ClassTransform
from fedclust.partitions.iid import IID
from fedclust.partitions.label_map import LabelMap
from fedclust.partitions.majority_class import MajorityClass
from fedclust.partitions.rotated import Rotated
from fedclust.partitions.transform import Transform
from fedclust.scenarios.static import Static
from fedclust.solver import Solver

Numbers = NDArray[np.float64]
RULES = ("silhouette", "gap", "eigengap", "stability")
_CLIENTS, _EXAMPLES, _MOST = 40, 100, 12
_ROUNDS = 30
_SIZE: Mapping[str, Any] = {"num_clients": _CLIENTS, "examples_per_client": _EXAMPLES}
_BASE = IID(**_SIZE)
_TURNS = ["identity", "rotate 90", "rotate 180", "rotate 270"]
# by name, with the true number of groups
FEDERATIONS: Mapping[str, tuple[Partition, int]] = {
    "iid": (_BASE, 1),
    "rotated, 2": (Rotated(num_rotations=2, **_SIZE), 2),
    "rotated, 4": (Rotated(num_rotations=4, **_SIZE), 4),
    "inverted": (Transform(base=_BASE, bank=["identity", "inverse"]), 2),
    "labels permuted, 3": (LabelMap(base=_BASE, maps="fedrc"), 3),
    "labels permuted, 4": (LabelMap(base=_BASE, maps="feddrift4"), 4),
    "two classes each": (ClassSubsets(subsets=[[i, i + 1] for i in range(0, 10, 2)], **_SIZE), 5),
    "eight classes each": (
        ClassSubsets(subsets="random", num_clusters=4, classes_per_cluster=8, **_SIZE),
        4,
    ),
    "most of one class": (MajorityClass(**_SIZE), 10),
    "three classes turned": (ClassTransform(base=_BASE, bank=_TURNS), 4),
}


def distances(partition: Partition, seeds: list[int], dataset: Any) -> list[torch.Tensor]:
    """The clients' distances [C, C] in every seed."""
    feds = federate(dataset, partition, seeds, torch.device("cpu"))
    solver = Solver(lr=0.1, batch_size=20, epochs=2)
    found = []
    for seed, fed in feds.items():
        rnd = next(Static().rounds(fed, seed))
        engine = make_engine(
            "fused", mlp(fed.pool.shape, fed.pool.width, hidden=[]), fed.pool, None
        )
        clients, ids = SeedClients(engine, rnd), torch.arange(fed.num_clients)
        start = clients.init(rnd.stream("init"), 1)
        params = clients.train(Train(start, torch.zeros_like(ids), ids, solver)).params
        found.append(UpdateDistance(norm="cosine")(clients, params, start, ids, rnd))
    return found


def accuracy(method: Algorithm, feds: Mapping[int, Federation]) -> Numbers:
    """Test accuracy of all clients after the rounds, in every seed [S], in percent."""
    found = []
    for seed, fed in feds.items():
        model = mlp(fed.pool.shape, fed.pool.width, hidden=[])
        engine, state, served = make_engine("fused", model, fed.pool, None), None, None
        for rnd in islice(Static(participation=0.5).rounds(fed, seed), _ROUNDS):
            clients = SeedClients(engine, rnd)
            if state is None:
                state, _ = method.init(clients, rnd)
            state, _ = method.round(state, clients, rnd)
            served = method.serve(state, clients, rnd) if rnd.t == _ROUNDS - 1 else None
        assert served is not None
        tested = clients.evaluate(served)
        found.append(100 * float(tested.sums[:, 0].sum() / tested.count.sum()))
    return np.array(found)


def methods_of(k: int) -> Mapping[str, Algorithm]:
    """The methods with k clusters."""
    solver, metric = Solver(lr=0.1, batch_size=20, epochs=2), UpdateDistance(norm="cosine")
    warmup = Warmup(mode="federated", rounds=1, fresh=True)
    found = Agglomerative(num_clusters=k)
    return {
        "lcfl": LCFL(
            solver=solver,
            participation=None,
            aggregation="uniform",
            metric=metric,
            method=found,
            warmup=warmup,
        ),
        "ifca": IFCA(solver=solver, num_clusters=k, aggregation="uniform"),
    }


def costs(partition: Partition, true: int, seeds: list[int], dataset: Any) -> list[list[str]]:
    """What stands behind a federation's name, for every method."""
    feds = federate(dataset, partition, seeds, torch.device("cpu"))
    solver, rows = Solver(lr=0.1, batch_size=20, epochs=2), []
    one = accuracy(FedAvg(solver=solver, aggregation="uniform"), feds)
    groups = one if true == 1 else accuracy(Oracle(solver=solver, aggregation="uniform"), feds)
    for name in methods_of(1):
        right = accuracy(methods_of(true)[name], feds)
        row = [name, str(true), f"{right.mean():.1f}"]
        for k in (true - 1, true + 1, 2 * true):
            wrong = accuracy(methods_of(k)[name], feds) - right if k else None
            row.append("" if wrong is None else f"{wrong.mean():+.1f} ± {wrong.std(ddof=1):.1f}")
        rows.append([*row, f"{one.mean():.1f}", f"{groups.mean():.1f}"])
    return rows


def main() -> None:
    """Print the table of both clusterings, or of costs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--root", default="data")
    parser.add_argument("--costs", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    dataset, seeds = MNIST(root=given.root).load(), list(range(given.seeds))
    chosen = {
        name: one
        for name, one in FEDERATIONS.items()
        if not given.words or any(word in name for word in given.words)
    }
    if given.costs:
        columns = "method", "true k", "with k", "k - 1", "k + 1", "2 k", "FedAvg", "true groups"
        table = Table("federation", *columns, title="accuracy, %; differences in points")
        for name, (partition, true) in chosen.items():
            for row in costs(partition, true, seeds, dataset):
                table.add_row(name, *row)
        Console(width=120).print(table)
        return
    methods: Mapping[str, Any] = {
        "agglomerative": (Agglomerative, {}),
        "kmeans": (KMeans, {"starts": 2}),
    }
    tables = {name: Table("federation", "true k", *RULES, title=name) for name in methods}
    for name, (partition, true) in chosen.items():
        matrices = distances(partition, seeds, dataset)
        for kind, (make, more) in methods.items():
            row = [name, str(true)]
            for rule in RULES:
                method = make(num_clusters="auto", auto_by=rule, max_clusters=_MOST, **more)
                ks = [
                    int(method(one, Stream.of(seed, "clustering")).max()) + 1
                    for seed, one in zip(seeds, matrices, strict=True)
                ]
                row.append(f"{ks.count(true)} of {len(ks)}; {np.mean(ks):.1f}")
            tables[kind].add_row(*row)
    for table in tables.values():
        Console(width=120).print(table)


if __name__ == "__main__":
    main()
