"""Options that follow a paper or its code where those are unsound: a report's header says which
are on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Switch:
    """An option whose value `published` does as a paper or its code does, where the default is
    sounder.

    Attributes:
        option: dotted key of a config; a part of the group, such as a method in a method, may hold
            it too.
        published: the value that follows paper or code.
        means: what it does, in one plain sentence.
    """

    option: str
    published: object
    means: str


SWITCHES = (
    Switch(
        "algorithm.cluster_choice",
        "test_loss",
        "clients choose their model by its loss on their test data",
    ),
    Switch(
        "algorithm.start",
        "shared",
        "all cluster models start as copies of one, told apart by rounding only",
    ),
    Switch(
        "algorithm.aggregation",
        "first_client",
        "a cluster takes over the model of one participant instead of the mean",
    ),
    Switch(
        "algorithm.shift.distance",
        "released",
        "shifts are measured without regard to which label is which, against the data at the start",
    ),
    Switch(
        "algorithm.metric.gradient",
        "last_batch",
        "clients are clustered by the gradient of a single mini-batch, which is close to noise",
    ),
    Switch(
        "algorithm.divisor",
        "planned",
        "a cluster's updates are divided by a planned number of participants, not by the actual "
        "one",
    ),
    Switch(
        "cluster_metric.data",
        "train_and_test",
        "clients are clustered by losses on their test data too",
    ),
    Switch(
        "cluster_method.variant",
        "alternate",
        "k-medoids begins at the most central clients, which can merge true clusters",
    ),
    Switch(
        "algorithm.sign",
        "literal",
        "clients prefer the cluster whose last step opposes their gradient",
    ),
    Switch(
        "algorithm.loss_reduction",
        "sum",
        "losses are summed over the mini-batch and outweigh similarities",
    ),
    Switch(
        "algorithm.gradients",
        "own",
        "clients are clustered by gradients at different models, which keeps clusters apart that "
        "belong together",
    ),
    Switch(
        "algorithm.accumulation",
        "released",
        "at first clients are clustered by their last gradient, not by the mean of all",
    ),
    Switch(
        "algorithm.inter_group.normalize",
        False,
        "the exchange between groups adds up and can diverge",
    ),
    Switch(
        "algorithm.warmup.cover_all",
        False,
        "clients that missed the warm-up are clustered by a model they never trained",
    ),
    Switch(
        "scenario.shrink_current",
        True,
        "every release keeps a part of the current data, so that they shrink",
    ),
    Switch("scenario.abort_round", True, "a pair with nothing to swap ends the swaps of its round"),
    Switch("scenario.single_pair", True, "at most one pair of clients swaps its data in a round"),
    Switch(
        "partition.sharing", "prefix", "clients share images, also between training and test data"
    ),
)


def switched_on(config: Mapping[str, Any]) -> list[str]:
    """Of a job's config, the options that are as published, each as `option=value: what it
    does`.
    """
    found = []
    for switch in SWITCHES:
        group, *path = switch.option.split(".")
        for key, value in _values(config.get(group), path, group):
            if value == switch.published and type(value) is type(switch.published):
                found.append(f"{key}={str(value).lower()}: {switch.means}")
    return found


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
