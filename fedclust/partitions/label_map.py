"""Groups that call the same images by other labels: P(Y | X) differs.

The tables `fedrc`, `feddrift4` and `clove` are those of the released code of FedRC (arXiv
2301.12379), FedDrift (arXiv 2206.00799, MNIST-4) and CLoVE (arXiv 2506.22427, concept shift). Other
works call this concept shift or, with labels exchanged within a pool of classes, feature condition
skew (ANDA).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedclust.core.types import Dataset, Pool, Split
from fedclust.core.verbs import Partition
from fedclust.helpers.effects import OnlyIf, OnlyWith
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastTwo, AtLeastZero, Range, Ranged, Seed
from fedclust.helpers.rng import Stream
from fedclust.partitions.concepts import Assignment, base_pool, dealt, with_concepts

Maps = Literal["fedrc", "feddrift4", "clove", "random", "pool"]
Concepts = Annotated[int, Range(2, 1000)]

# pairs of classes that exchange their labels, concept by concept
_SWAPS = {
    "feddrift4": ((), ((1, 2),), ((3, 4),), ((5, 6),)),
    "clove": (((0, 3), (8, 9)), ((1, 4), (6, 9)), ((1, 2), (3, 6)), ((3, 5), (4, 7))),
}
_MOST_POOLED = 5  # classes, whose 120 orders are as many concepts
_TRIES = 10_000
_OF_DRAWN = OnlyIf(
    lambda given: given["maps"] in ("random", "pool"),
    "it is read with partition.maps=random or pool",
)


@dataclass(frozen=True, kw_only=True)
class LabelMap(Ranged):
    """A client's labels are permuted by the table of its concept, for training and test alike.

    The images are stored once for all concepts. Group of a client: its concept.
    """

    needs_classes: ClassVar[bool] = True

    base: Partition  # who owns which example; its own groups are not kept
    # `fedrc`: y, Y - 1 - y and y + 1 modulo the number of classes Y; `feddrift4`: y, and three
    # concepts that exchange 1 and 2, 3 and 4, 5 and 6; `clove`: four concepts that exchange two
    # pairs each; `random`: y and `num_concepts` - 1 other random permutations; `pool`: all orders
    # of `moved` random classes; or a table, a list of new labels per concept
    maps: Maps | Sequence[Sequence[AtLeastZero]] = "fedrc"
    num_concepts: Annotated[Concepts, OnlyWith("maps", "random")] = 4  # G of `random`
    # classes that a concept of `random` relabels, none of them to itself, or None to draw from all
    # permutations; classes that `pool` permutes
    moved: Annotated[AtLeastTwo | None, _OF_DRAWN] = None
    # of `random` and `pool`; the tables are the same for every seed of the run
    data_seed: Annotated[Seed, _OF_DRAWN] = 0
    assignment: Assignment = "balanced"  # see `fedclust.partitions.concepts.dealt`

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.maps == "pool":
            fits = self.moved is not None and self.moved <= _MOST_POOLED
            require(fits, "partition.moved", self.moved, f"2 to {_MOST_POOLED} with maps=pool")
        if not isinstance(self.maps, str):
            several = len(self.maps) >= 2
            require(several, "partition.maps", list(self.maps), "a table of two concepts or more")

    def pool(self, dataset: Dataset) -> Pool:
        """Every example with its label under each concept; the images are those of the base."""
        pool = base_pool(self.base, dataset)
        return with_concepts(pool, y=self.table(dataset).T[pool.y])

    def split(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split, Tensor]:
        return dealt(self.base, self.concepts(dataset), self.assignment, dataset, stream)

    def concepts(self, dataset: Dataset) -> int:
        return len(self.table(dataset))

    def table(self, dataset: Dataset) -> Tensor:
        """New label of every class under every concept, [G, Y] int64. Raises `ConfigError` if the
        table does not fit the classes of the dataset.
        """
        num_classes = dataset.num_classes
        rows = [list(row) for row in self._rows(num_classes)]
        for g, row in enumerate(rows):
            named = isinstance(self.maps, str)
            key, given = ("", self.maps) if named else (f"[{g}]", row)
            allowed = (
                f"permutations of the classes 0 to {num_classes - 1} of dataset={dataset.name}"
            )
            fits = sorted(row) == list(range(num_classes))
            require(fits, f"partition.maps{key}", given, allowed)
        return torch.tensor(rows)

    def _rows(self, num_classes: int) -> Iterator[Sequence[int]]:
        """The new labels of every concept."""
        classes = range(num_classes)
        if not isinstance(self.maps, str):
            yield from self.maps
        elif self.maps == "fedrc":
            yield from (classes, classes[::-1], [*classes[1:], 0])
        elif self.maps == "random":
            yield from self._random(num_classes)
        elif self.maps == "pool":
            yield from self._pooled(num_classes)
        else:
            for swaps in _SWAPS[self.maps]:
                new = {old: new for a, b in swaps for old, new in ((a, b), (b, a))}
                # a class that the dataset lacks makes a row that is too long, which is refused
                yield [new.get(y, y) for y in range(max([num_classes - 1, *new]) + 1)]

    def _random(self, num_classes: int) -> Iterator[Sequence[int]]:
        """The identity, and permutations that differ from all before."""
        rng, moved = self._stream.numpy(), self.moved
        known = {tuple(range(num_classes))}
        yield range(num_classes)
        for _ in range(_TRIES):
            if len(known) == self.num_concepts:
                return
            new = np.arange(num_classes)
            chosen = np.sort(rng.permutation(num_classes)[:moved])
            new[chosen] = rng.permutation(chosen)
            stays = moved is not None and bool((new[chosen] == chosen).any())
            if stays or tuple(new.tolist()) in known:
                continue
            known.add(tuple(new.tolist()))
            yield new.tolist()
        several = f"there are not so many permutations of {num_classes} classes"
        allowed = f"{several} with partition.moved={moved}"
        fits = len(known) == self.num_concepts
        require(fits, "partition.num_concepts", self.num_concepts, allowed)

    def _pooled(self, num_classes: int) -> Iterator[Sequence[int]]:
        """All orders of some random classes, the identity first."""
        assert self.moved is not None
        require(self.moved <= num_classes, "partition.moved", self.moved, f"at most {num_classes}")
        chosen = np.sort(self._stream.numpy().permutation(num_classes)[: self.moved])
        for order in permutations(chosen):
            new = np.arange(num_classes)
            new[chosen] = order
            yield new.tolist()

    @property
    def _stream(self) -> Stream:
        return Stream.of(self.data_seed, "label_map")
