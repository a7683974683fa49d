"""Few classes, lognormal sizes: FedProx's MNIST (Li et al., MLSys 2020) as in FlexCFL (arXiv
2108.09749).

Differs from the released generator: which images of a class a client gets is drawn by the seed as
well (there: file order); the sizes follow the same distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedclust.core.types import Dataset, Split
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastOne, Clients, Range
from fedclust.helpers.rng import Stream
from fedclust.partitions.cut import (
    OfExamples,
    Rows,
    deal,
    even,
    hold_out,
    labels,
    shuffled_classes,
    too_few,
)

_FIRST = 10  # images every client has, spread evenly over its classes


@dataclass(frozen=True, kw_only=True)
class PowerLaw(OfExamples):
    """Client u owns the classes u, u + 1, … modulo their number; nobody shares, 90 % are for
    training.

    Training and test images of the dataset are pooled. Group of a client: u modulo the number of
    classes.
    """

    needs_classes: ClassVar[bool] = True

    num_clients: Clients  # M
    # classes of every client; 2 as published, 1, 3, 5 in FlexCFL's Table I
    classes_per_client: Annotated[int, Range(1, _FIRST)] = 2
    # standard deviation of the logarithm of a client's share of a class; 2 as published, 0 for
    # equal shares (but for the last of a class, which is left out if it uses it up)
    spread: Annotated[float, Range(0, 10)] = 2.0
    max_per_class: AtLeastOne | None = None  # images of a class that are used at all, None for all

    def split(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split, Tensor]:
        """Train split, test split and group [M]. Raises `DataError` if a class has too few images
        for the first ten of every client.
        """
        y = labels(torch.cat([dataset.y_train, dataset.y_test]))
        rng = stream.fold(0).numpy()
        classes = shuffled_classes(y, dataset.num_classes, rng, self.max_per_class)
        supply = np.array([len(rows) for rows in classes])
        owned, rng = self.classes_per_client, stream.fold(1).numpy()
        counts = class_counts(dataset, supply, self.num_clients, owned, rng, self.spread)
        rows, sizes = deal(counts, classes)
        train, test = hold_out(rows, sizes, 0.9, stream.fold(2).numpy())
        return train, test, torch.arange(self.num_clients) % dataset.num_classes


def class_counts(
    dataset: Dataset,
    supply: Rows,
    num_clients: int,
    classes_per_client: int,
    rng: np.random.Generator,
    spread: float = 2.0,
) -> Rows:
    """Images of each class for each client, [M, Y], of `supply` [Y] images of each class; `spread`
    is of the logarithm of a share. Errors name the dataset.
    """
    num_classes = len(supply)
    allowed = f"at most the {num_classes} classes of dataset={dataset.name}"
    fits = classes_per_client <= num_classes
    require(fits, "partition.classes_per_client", classes_per_client, allowed)
    client = np.arange(num_clients)
    owned = (client[:, None] + np.arange(classes_per_client)) % num_classes  # [M, c]
    counts = np.zeros((num_clients, num_classes), dtype=np.int64)
    np.put_along_axis(counts, owned, even(_FIRST, classes_per_client)[None], axis=1)
    used = counts.sum(0)
    if (used > supply).any():
        short = int((supply - used).argmin())
        needed = int(used[short])
        what = f"{int(supply[short])} of class {short}, {needed} are needed for ten per client"
        raise too_few(dataset, what, "lower partition.num_clients")
    shape = num_classes, -(-num_clients // num_classes), classes_per_client
    shares = rng.lognormal(0, spread, shape)
    left = (supply - used)[:, None, None]
    extra = (left * shares / shares.sum((1, 2), keepdims=True)).astype(np.int64)
    for u in client:
        for j, c in enumerate(owned[u]):
            more = extra[c, u // num_classes, j]
            # as published: a client whose share does not fit any more gets none
            if used[c] + more < supply[c]:
                counts[u, c] += more
                used[c] += more
    return counts
