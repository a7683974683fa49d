"""How often each rule of `num_clusters=auto` finds the true number of groups.

    python -m benchmarks.finding_k [WORD …] [--seeds 10] [--root data]

Every client of ten federations of MNIST, 40 clients with 100 examples, trains a softmax regression
once from a common start, two passes in batches of 20 at a rate of 0.1. What is clustered are the
cosine distances of these updates (`cluster_metric=update_distance cluster_metric.norm=cosine`).
Shown are, of the seeds, those in which a rule found the true number, and the mean number it found.
With words, only federations whose name has one of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from fedclust.cluster_methods.agglomerative import Agglomerative
from fedclust.cluster_methods.kmeans import KMeans
from fedclust.cluster_metrics.update_distance import UpdateDistance
from fedclust.config.build import federate
from fedclust.core.verbs import Partition
from fedclust.datasets.mnist import MNIST
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

RULES = ("silhouette", "gap", "eigengap", "stability")
_CLIENTS, _EXAMPLES, _MOST = 40, 100, 12
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
        params = clients.train(start, torch.zeros_like(ids), ids, solver).params
        found.append(UpdateDistance(norm="cosine")(clients, params, start, ids, rnd))
    return found


def main() -> None:
    """Print the table of both clusterings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--root", default="data")
    given = parser.parse_args()
    torch.set_num_threads(1)
    dataset, seeds = MNIST(root=given.root).load(), list(range(given.seeds))
    methods: Mapping[str, Any] = {
        "agglomerative": (Agglomerative, {}),
        "kmeans": (KMeans, {"starts": 2}),
    }
    tables = {name: Table("federation", "true k", *RULES, title=name) for name in methods}
    for name, (partition, true) in FEDERATIONS.items():
        if given.words and not any(word in name for word in given.words):
            continue
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
