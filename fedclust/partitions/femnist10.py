"""FEMNIST-10 of FedProx (Li et al., MLSys 2020) as in LCFL (arXiv 2407.09360) and FlexCFL (arXiv
2108.09749).

Differs from the released generator: it has no seed, so sizes are drawn anew and scaled to the
published total; and its read pointer jumps back for every client, so that clients share the first
images of each class and about 96 % of the test images are training images of somebody else
(`sharing=prefix`). By default nobody shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as changed
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedclust.core.types import Dataset, Pool, Split
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastOne, AtLeastZero, Clients, Ranged
from fedclust.helpers.rng import Stream
from fedclust.partitions.cut import (
    Rows,
    deal,
    hold_out,
    labels,
    plain_pool,
    shuffled_classes,
    too_few,
)

_CLASSES, _OWNED = 10, 3
# of EMNIST byclass, whose classes are the ten digits, A to Z, then a to z, and of EMNIST letters,
# where the cases of a letter are one class; the published file holds a to j
_LETTERS_FROM = {62: 36, 26: 0, _CLASSES: 0}


@dataclass(frozen=True, kw_only=True)
class Femnist10(Ranged):
    """Client u owns equally many images of the classes u, u + 1, u + 2 modulo 10, 90 % of them for
    training.

    Only the dataset's training images are used. Group of a client: u modulo 10.
    """

    needs_classes: ClassVar[bool] = True

    num_clients: Clients  # M
    # examples of all clients, met within 1 %; None leaves the sizes as drawn
    total: AtLeastOne | None = 18_345
    sharing: Literal["disjoint", "prefix"] = "disjoint"  # disjoint, or prefix as published
    # the dataset's class that becomes class 0; `auto` is the letter a, 36 of the 62 classes of
    # EMNIST byclass and 0 of the 26 of letters, and 0 of ten classes
    first_class: AtLeastZero | Literal["auto"] = "auto"
    max_per_class: AtLeastOne = 4000  # images of a class that are used at all

    def __post_init__(self) -> None:
        super().__post_init__()
        least = 2 * _OWNED * self.num_clients
        fits = self.total is None or self.total >= least
        each = f"at least {least}, six for each of partition.num_clients"
        require(fits, "partition.total", self.total, f"{each}, or null for the sizes as drawn")

    def pool(self, dataset: Dataset) -> Pool:
        """The training images of the ten classes, relabelled 0 to 9. Raises `ConfigError` if the
        dataset has no ten classes from `first_class` on.
        """
        y = self._relabelled(dataset)
        x, y = dataset.x_train[y >= 0], y[y >= 0]
        ten = changed(dataset, x_train=x, y_train=y, num_classes=_CLASSES, owner=None)
        return plain_pool(changed(ten, x_test=x[:0], y_test=y[:0]))

    def split(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split, Tensor]:
        y = self._relabelled(dataset)
        classes = shuffled_classes(
            labels(y[y >= 0]), _CLASSES, stream.fold(0).numpy(), self.max_per_class
        )
        each = self._each(stream.fold(1).numpy())
        client = np.arange(self.num_clients)
        owned = (client[:, None] + np.arange(_OWNED)) % _CLASSES  # [M, 3]
        counts = np.zeros((self.num_clients, _CLASSES), dtype=np.int64)
        np.put_along_axis(counts, owned, each[:, None], axis=1)
        supply = np.array([len(rows) for rows in classes])
        if self.sharing == "prefix":
            counts = np.minimum(counts, supply)
            parts = [classes[c][: counts[u, c]] for u in client for c in owned[u]]
            rows, sizes = np.concatenate(parts), counts.sum(1)
        else:
            rows, sizes = deal(self._affordable(dataset, counts, supply), classes)
        if (sizes < 2).any():
            what, cure = "a client would get fewer than 2", "choose another partition.first_class"
            raise too_few(dataset, what, cure)
        train, test = hold_out(rows, sizes, 0.9, stream.fold(2).numpy())
        return train, test, torch.from_numpy(client % _CLASSES)

    def _first(self, dataset: Dataset) -> int:
        """The dataset's class that becomes class 0."""
        first, classes = self.first_class, f"dataset={dataset.name} has {dataset.num_classes}"
        if first == "auto":
            known = " or ".join(map(str, sorted(_LETTERS_FROM)))
            allowed = f"a class, because {classes} classes, not {known}"
            require(dataset.num_classes in _LETTERS_FROM, "partition.first_class", first, allowed)
            return _LETTERS_FROM[dataset.num_classes]
        allowed = f"ten classes from there on are needed, but {classes}"
        fits = first <= dataset.num_classes - _CLASSES
        require(fits, "partition.first_class", first, allowed)
        return first

    def _relabelled(self, dataset: Dataset) -> Tensor:
        """Labels 0 to 9 of the training images, -1 for those of other classes, [N_train]."""
        y = dataset.y_train - self._first(dataset)
        return y.masked_fill((y < 0) | (y >= _CLASSES), -1)

    def _each(self, rng: np.random.Generator) -> Rows:
        """Images of each owned class, [M]: max(2, int(q / 3)), q lognormal(4, 1) + 5 scaled."""
        drawn = (rng.lognormal(4, 1, self.num_clients) + 5) / _OWNED
        low, high = 0.0, 1.0
        if self.total is not None:
            high = 2 * self.total / drawn.sum()
            for _ in range(50):  # bisection: the total grows with the factor
                middle = (low + high) / 2
                too_many = _OWNED * _at_least_two(middle * drawn).sum() > self.total
                low, high = (low, middle) if too_many else (middle, high)
        return _at_least_two(high * drawn)

    def _affordable(self, dataset: Dataset, counts: Rows, supply: Rows) -> Rows:
        """Counts [M, 10] of classes; those with too few images are shared out in proportion."""
        demand = counts.sum(0)
        share = np.minimum(1.0, supply / np.maximum(demand, 1))
        fits: Rows = (counts * share).astype(np.int64)
        if ((fits == 0) & (counts > 0)).any():
            short = int((supply - demand).argmin())
            lacking = short + self._first(dataset)
            what = f"{int(supply[short])} of class {lacking}, asked for {int(demand[short])}"
            raise too_few(dataset, what, "lower partition.total or partition.num_clients")
        return fits


def _at_least_two(sizes: npt.NDArray[np.float64]) -> Rows:
    return np.maximum(2, sizes.astype(np.int64))
