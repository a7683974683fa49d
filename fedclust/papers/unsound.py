"""Options that follow a paper or its code where unsound: a report's header says which are on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# options by dotted key, which a part of the group may hold too, such as a method in a method: the
# value that follows the paper or its code, and what it does
SWITCHES: Mapping[str, tuple[object, str]] = {
    "algorithm.cluster_choice": (
        "test_loss",
        "clients choose their model by its loss on their test data",
    ),
    "algorithm.start": (
        "shared",
        "all cluster models start as copies of one, told apart by rounding only",
    ),
    "algorithm.aggregation": (
        "first_client",
        "a cluster takes over the model of one participant instead of the mean",
    ),
    "algorithm.shift.distance": (
        "released",
        "shifts are measured without regard to which label is which, against the data at the start",
    ),
    "algorithm.metric.gradient": (
        "last_batch",
        "clients are clustered by the gradient of a single mini-batch, which is close to noise",
    ),
    "algorithm.divisor": (
        "planned",
        "a cluster's updates are divided by a planned number of participants, not by the actual "
        "one",
    ),
    "cluster_metric.data": (
        "train_and_test",
        "clients are clustered by losses on their test data too",
    ),
    "cluster_method.variant": (
        "alternate",
        "k-medoids begins at the most central clients, which can merge true clusters",
    ),
    "algorithm.sign": (
        "literal",
        "clients prefer the cluster whose last step opposes their gradient",
    ),
    "algorithm.loss_reduction": (
        "sum",
        "losses are summed over the mini-batch and outweigh similarities",
    ),
    "algorithm.gradients": (
        "own",
        "clients are clustered by gradients at different models, which keeps clusters apart that "
        "belong together",
    ),
    "algorithm.accumulation": (
        "released",
        "at first clients are clustered by their last gradient, not by the mean of all",
    ),
    "algorithm.inter_group.normalize": (
        False,
        "the exchange between groups adds up and can diverge",
    ),
    "algorithm.warmup.cover_all": (
        False,
        "clients that missed the warm-up are clustered by a model they never trained",
    ),
    "scenario.shrink_current": (
        True,
        "every release keeps a part of the current data, so that they shrink",
    ),
    "scenario.abort_round": (True, "a pair with nothing to swap ends the swaps of its round"),
    "scenario.single_pair": (True, "at most one pair of clients swaps its data in a round"),
    "partition.sharing": ("prefix", "clients share images, also between training and test data"),
}


def switched_on(config: Mapping[str, Any]) -> list[str]:
    """The options of a job that are as published, each as `option=value: what it does`."""
    on = []
    for option, (published, means) in SWITCHES.items():
        group, *path = option.split(".")
        for key, value in _values(config.get(group), path, group):
            if value == published and type(value) is type(published):
                on.append(f"{key}={str(value).lower()}: {means}")
    return on


def _values(node: Any, path: list[str], where: str) -> list[tuple[str, Any]]:
    """The values at `path` below a node and below its parts, such as a method inside a method."""
    if not isinstance(node, Mapping):
        return []
    here: Any = node
    for key in path:
        here = here.get(key, ...) if isinstance(here, Mapping) else ...
    found = [] if here is ... else [(".".join([where, *path]), here)]
    for key, part in node.items():
        found += _values(part, path, f"{where}.{key}")
    return found
