"""Groups whose training labels are partly wrong, each at its own rate: label noise as a shift
between clients (as `add_noise` of FedDrift's released code does to every client, arXiv 2206.00799).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedclust.core.types import Dataset, Pool, Split
from fedclust.core.verbs import Partition
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import Probability, Ranged, Seed
from fedclust.helpers.rng import Stream
from fedclust.partitions.concepts import Assignment, base_pool, dealt, with_concepts


@dataclass(frozen=True, kw_only=True)
class LabelNoise(Ranged):
    """With the probability of its client's rate a training example has another class, each of the
    others as likely; test labels stay right.

    An example that is wrong at one rate is wrong, in the same way, at every higher one. The images
    are stored once. Group of a client: its rate. Rates are no concepts to move between, since test
    examples have none.
    """

    needs_classes: ClassVar[bool] = True

    base: Partition  # who owns which example; its own groups are not kept
    rates: Sequence[Probability] = (0.0, 0.2, 0.4)  # of every group, in [0, 1]
    data_seed: Seed = 0  # which examples are wrong, and how; the same for every seed of the run
    assignment: Assignment = "balanced"  # of rates, see `fedclust.partitions.concepts.dealt`

    def __post_init__(self) -> None:
        super().__post_init__()
        rates = list(self.rates)
        fits = len(set(rates)) == len(rates) >= 2 and all(0 <= rate <= 1 for rate in rates)
        require(fits, "partition.rates", rates, "two different rates or more, each in [0, 1]")

    def pool(self, dataset: Dataset) -> Pool:
        """Every example with its right label, then with that of each rate."""
        pool = base_pool(self.base, dataset)
        num_classes = dataset.num_classes
        require(num_classes >= 2, "partition", "label_noise", "a dataset of two classes or more")
        rng = Stream.of(self.data_seed, "label_noise").numpy()
        chance = torch.from_numpy(rng.random(len(pool.y)))
        other = torch.from_numpy(rng.integers(1, num_classes, len(pool.y)))
        wrong = ((pool.y + other) % num_classes).to(pool.y.dtype)
        labels = [pool.y, *(wrong.where(chance < rate, pool.y) for rate in self.rates)]
        return replace(with_concepts(pool, y=torch.stack(labels, 1)), concepts=1)

    def split(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split, Tensor]:
        count = len(self.rates)
        train, test, group = dealt(self.base, count, self.assignment, dataset, stream)
        # from row r * count + g to the g-th rate, or to the right label, of r * (count + 1)
        noisy = train.index // count * (count + 1) + 1 + train.index % count
        right = test.index // count * (count + 1)
        return Split(noisy, train.start), Split(right, test.start), group
