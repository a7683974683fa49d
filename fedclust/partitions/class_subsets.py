"""Clusters that own overlapping sets of classes: JGL (Lin et al., arXiv 2311.13665), section on
experiments.

The paper prints two of the four class sets of MNIST; the other two are chosen so that every class
is owned by three or four clusters, which gives equally large clusters on balanced data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedclust.core.types import Dataset, Split
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastOne, AtLeastZero, Clients, Positive
from fedclust.helpers.rng import Stream
from fedclust.helpers.rounding import rounded_down
from fedclust.partitions.cut import OfExamples, Rows, check_test, labels, spread, too_few
from fedclust.partitions.shares import equal_shares, solved_shares


@dataclass(frozen=True, kw_only=True)
class ClassSubsets(OfExamples):
    """Every cluster owns a set of classes; its examples are spread over its clients equally and at
    random.

    Nobody shares an example. The test images of a class are divided in the proportions of its
    training images. Group of a client: its cluster.

    Attributes:
        num_clients: M, a multiple of the number of clusters.
        subsets: classes of every cluster, or "random": drawn by the seed until every class has an
            owner.
        num_clusters, classes_per_cluster: what "random" draws; below 1, the part of all classes
            that a cluster owns, rounded down.
        cluster_sizes: "equal" divides a class equally among its owners; a list gives the training
            examples of every cluster, for which class shares as close as possible to those of the
            classes are solved.
        examples_per_client: at most this many training examples per client, None for all.
    """

    needs_classes: ClassVar[bool] = True

    num_clients: Clients
    subsets: str | Sequence[Sequence[AtLeastZero]]
    num_clusters: Annotated[AtLeastOne, OnlyWith("subsets", "random")] = 4
    classes_per_cluster: Annotated[Positive, OnlyWith("subsets", "random")] = 8
    cluster_sizes: str | Sequence[AtLeastOne] = "equal"
    examples_per_client: AtLeastOne | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        subsets, allowed = self.subsets, "random, or a list of classes per cluster"
        is_list = not isinstance(subsets, str) and len(subsets) > 0 and all(map(len, subsets))
        require(subsets == "random" or is_list, "partition.subsets", subsets, allowed)
        allowed = f"a multiple of the {self.clusters} clusters of partition.subsets"
        fits = self.num_clients % self.clusters == 0
        require(fits, "partition.num_clients", self.num_clients, allowed)
        each, allowed = self.classes_per_cluster, "a number of classes, or a part of them below 1"
        whole = each < 1 or each == int(each)
        require(whole, "partition.classes_per_cluster", each, allowed)
        sizes = self.cluster_sizes
        known = sizes == "equal" or (
            not isinstance(sizes, str) and len(sizes) == self.clusters and min(sizes) >= 1
        )
        allowed = f"equal, or {self.clusters} numbers of training examples"
        require(known, "partition.cluster_sizes", sizes, allowed)

    @property
    def clusters(self) -> int:
        """Number of clusters."""
        return self.num_clusters if isinstance(self.subsets, str) else len(self.subsets)

    def split(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split, Tensor]:
        check_test(dataset)
        owns = self._owns(dataset, stream.fold(0).numpy())
        y_train, y_test = labels(dataset.y_train), labels(dataset.y_test)
        supply = np.bincount(y_train, minlength=dataset.num_classes)
        shares = self.divided(owns, supply, stream.fold(3))
        train = spread(
            y_train, 0, shares, self.num_clients, stream.fold(1), self.examples_per_client
        )
        if int(train.count.min()) < 1:
            raise too_few(dataset, "a client would get none", "lower partition.num_clients")
        tests = np.bincount(y_test, minlength=dataset.num_classes)
        proportional = equal_shares(shares / np.maximum(supply, 1), tests)
        test = spread(y_test, len(y_train), proportional, self.num_clients, stream.fold(2), None)
        return train, test, torch.arange(self.num_clients) // (self.num_clients // self.clusters)

    def divided(self, owns: npt.NDArray[np.float64], supply: Rows, stream: Stream) -> Rows:
        """Training examples of every class for every cluster, [G, Y], of `supply` [Y]; `owns`
        [G, Y] is 1 where a cluster owns a class, else 0.
        """
        if isinstance(self.cluster_sizes, str):
            return equal_shares(owns, supply)
        return solved_shares(owns, supply, np.array([int(size) for size in self.cluster_sizes]))

    def _owns(self, dataset: Dataset, rng: np.random.Generator) -> npt.NDArray[np.float64]:
        """1 where cluster g owns class c, else 0, [G, Y]."""
        num_classes = dataset.num_classes
        owns = np.zeros((self.clusters, num_classes))
        if isinstance(self.subsets, str):
            each = self.classes_per_cluster
            owned = int(each) if each >= 1 else rounded_down(each, num_classes)
            fits = 1 <= owned <= num_classes <= owned * self.clusters
            allowed = (
                f"enough that {self.clusters} clusters own all {num_classes} classes of "
                f"dataset={dataset.name}, and at most {num_classes}"
            )
            require(fits, "partition.classes_per_cluster", each, allowed)
            while not owns.any(0).all():
                chosen = rng.random(owns.shape).argsort(1)[:, :owned]
                owns[:] = 0
                np.put_along_axis(owns, chosen, 1.0, axis=1)
            return owns
        for g, subset in enumerate(self.subsets):
            known = all(0 <= c < num_classes for c in subset)
            of = f"classes 0 to {num_classes - 1} of dataset={dataset.name}"
            require(known, "partition.subsets", list(subset), f"{of}; random fits any number")
            owns[g, list(subset)] = 1
        return owns
