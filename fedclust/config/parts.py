"""Every kind of part that a config puts together, once.

A new kind is an entry here, a key in `fedclust.config.schema` and a folder of files below `conf/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Part:
    """A kind of part, which is a group of Hydra's and a key of the config.

    Attributes:
        package: the module of fedclust that holds the classes, or the package.
        verbs: what each of them has.
        asked_by: the protocol, or class, by which an argument of another part asks for one.
        null: the node that is as if there were no such part, so that folders from before the
            group still fit; None where every job has one.
        shared: whether it is read only where other parts refer to it, as in `${solver}`.
    """

    package: str
    verbs: tuple[str, ...]
    asked_by: str = ""
    null: Mapping[str, Any] | None = None
    shared: bool = False


PARTS: Mapping[str, Part] = {
    "dataset": Part(package="fedclust.datasets", verbs=("load",)),
    "partition": Part(package="fedclust.partitions", verbs=("pool", "split"), asked_by="Partition"),
    "scenario": Part(package="fedclust.scenarios", verbs=("rounds",), asked_by="Scenario"),
    "model": Part(package="fedclust.models", verbs=()),
    "task": Part(
        package="fedclust.tasks",
        verbs=("loss", "predict", "sums", "scores"),
        asked_by="Task",
        null={
            "_target_": "fedclust.tasks.Classification",
            "class_weight": None,
            "label_smoothing": 0.0,
        },
    ),
    "algorithm": Part(
        package="fedclust.algorithms", verbs=("init", "round", "serve"), asked_by="Algorithm"
    ),
    "cluster_metric": Part(
        package="fedclust.cluster_metrics",
        verbs=("__call__", "transfers"),
        asked_by="ClusterMetric",
        shared=True,
    ),
    "cluster_method": Part(
        package="fedclust.cluster_methods",
        verbs=("__call__",),
        asked_by="ClusterMethod",
        shared=True,
    ),
    "solver": Part(package="fedclust.solver", verbs=("rate",), asked_by="Solver", shared=True),
    "attack": Part(
        package="fedclust.updates.attacks",
        verbs=("forges", "hostile", "targets", "updates"),
        null={"_target_": "fedclust.updates.attacks.NoAttack"},
    ),
    "privacy": Part(
        package="fedclust.updates.privacy",
        verbs=("assigned", "noised", "epsilon"),
        null={"_target_": "fedclust.updates.privacy.NoPrivacy"},
    ),
    "aggregation": Part(
        package="fedclust.updates.aggregations",
        verbs=("check", "__call__"),
        null={"_target_": "fedclust.updates.aggregations.Mean"},
    ),
    "server": Part(
        package="fedclust.updates.servers",
        verbs=("first", "__call__"),
        asked_by="ServerStep",
        null={"_target_": "fedclust.updates.servers.Mean"},
    ),
    "compression": Part(
        package="fedclust.updates.compressions",
        verbs=("feedback", "sent_bits", "__call__"),
        null={"_target_": "fedclust.updates.compressions.NoCompression"},
    ),
    "clock": Part(
        package="fedclust.clocks",
        verbs=("devices",),
        null={"_target_": "fedclust.clocks.waiting.NoClock"},
    ),
    "tracker": Part(package="fedclust.trackers", verbs=("begin", "log", "end", "close")),
}
SHARED = tuple(group for group, part in PARTS.items() if part.shared)
# addresses that finished folders name, and where the class stands now
MOVED: Mapping[str, str] = {
    "fedclust.algorithms.inter_group.InterGroup": "fedclust.algorithms.flexcfl.InterGroup",
    "fedclust.algorithms.shift.ShiftTest": "fedclust.algorithms.cold_start.ShiftTest",
    **{
        f"fedclust.algorithms.wrappers.{layer}": f"fedclust.algorithms.layers.{layer}"
        for layer in (
            "finetune.FineTune",
            "last_local.LastLocal",
            "newcomers.Newcomers",
            "with_server.WithServer",
        )
    },
    **{
        f"fedclust.datasets.{module}.{name}": f"fedclust.datasets.images.{name}"
        for module, name in (
            ("mnist", "MNIST"),
            ("fashion_mnist", "FashionMNIST"),
            ("emnist", "EMNIST"),
            ("cifar10", "CIFAR10"),
            ("cifar100", "CIFAR100"),
        )
    },
}
FIRST_ADDRESS: Mapping[str, str] = {now: first for first, now in MOVED.items()}


def is_null(config: Mapping[str, Any], group: str) -> bool:
    """Whether a resolved config, possibly from before the group, has no active part of a group."""
    null = PARTS[group].null
    return null is not None and config.get(group, null) == null
