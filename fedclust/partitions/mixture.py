"""Clients whose examples mix several concepts: FedSoft (arXiv 2112.06053), FedEM (2108.10252)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedclust.core.types import Dataset, Pool, Split
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import Positive, Probability, Ranged
from fedclust.helpers.rng import Stream
from fedclust.helpers.rounding import rounded_down
from fedclust.partitions.concepts import ConceptPartition, base_pool, of_base

_EXACT = 1e-6  # what shares may miss 1 by


@dataclass(frozen=True, kw_only=True)
class Mixture(Ranged):
    """Of a client's n examples, round(n pi_g) are under concept g, by largest remainders; training
    and test alike.

    An example occurs once, under one concept. `federation.concept_shares` gives the shares
    of a federation. Group of a client: its largest share, the first of equal ones; purity then
    speaks of that share only, `share_error` of all.
    """

    base: ConceptPartition  # a partition with concepts; which one its clients have is not kept
    # `dirichlet`: drawn for every client from Dirichlet(alpha, …, alpha); `linear`: of two
    # concepts, client i has the share (i + 1/2) / M of the first; or a list of shares of every
    # concept, given to equally many clients each, in random order
    shares: Literal["dirichlet", "linear"] | Sequence[Sequence[Probability]] = "dirichlet"
    # of `dirichlet`; 1 is uniform on the simplex
    alpha: Annotated[Positive, OnlyWith("shares", "dirichlet")] = 0.4

    def __post_init__(self) -> None:
        super().__post_init__()
        given, mixes = type(self.base).__name__, isinstance(self.base, ConceptPartition)
        allowed = "a partition with concepts to mix: label_map, transform or class_transform"
        require(mixes, "partition.base", given, allowed)
        if not isinstance(self.shares, str):
            sums = [abs(sum(row) - 1) < _EXACT and min(row) >= 0 for row in self.shares if row]
            fits = len(sums) == len(self.shares) >= 1 and all(sums)
            allowed = "dirichlet, linear, or a list of shares of every concept, each adding up to 1"
            require(fits, "partition.shares", [list(row) for row in self.shares], allowed)

    def pool(self, dataset: Dataset) -> Pool:
        return base_pool(self.base, dataset)

    def split(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split, Tensor]:
        concepts = self.base.concepts(dataset)
        with of_base():
            train, test, _ = self.base.split(dataset, stream.fold(0))
        shares = self._shares(len(train.count), concepts, stream.fold(1).numpy())
        train = _mixed(train, shares, stream.fold(2).numpy())
        test = _mixed(test, shares, stream.fold(3).numpy())
        return train, test, torch.from_numpy(shares.argmax(1))

    def _shares(
        self, num_clients: int, concepts: int, rng: np.random.Generator
    ) -> npt.NDArray[np.float64]:
        """Share of every concept for every client, [M, G]."""
        if self.shares == "dirichlet":
            return rng.dirichlet(np.full(concepts, self.alpha), num_clients)
        if self.shares == "linear":
            allowed = f"of two concepts only, and partition.base has {concepts}"
            require(concepts == 2, "partition.shares", "linear", allowed)
            first = (np.arange(num_clients) + 0.5) / num_clients
            return np.stack([first, 1 - first], 1)
        rows = [list(row) for row in self.shares]
        allowed = f"one per concept, and partition.base has {concepts}"
        require({len(row) for row in rows} == {concepts}, "partition.shares", rows, allowed)
        chosen = np.arange(num_clients) * len(rows) // num_clients
        picked: npt.NDArray[np.float64] = np.array(rows)[rng.permutation(chosen)]
        return picked


def counts_of(shares: npt.NDArray[np.float64], sizes: npt.NDArray[np.int64]) -> Tensor:
    """Whole numbers [M, G] next to sizes[i] * shares[i], each row with the sum sizes[i].

    What is left after rounding down goes to the largest remainders, the first of equal ones.
    """
    exact = shares * sizes[:, None]
    counts = rounded_down(shares, sizes[:, None])
    left = sizes - counts.sum(1)
    rank = (counts - exact).argsort(1, kind="stable").argsort(1, kind="stable")
    return torch.from_numpy(counts + (rank < left[:, None]))


def _mixed(split: Split, shares: npt.NDArray[np.float64], rng: np.random.Generator) -> Split:
    """The split with every client's examples under concepts in its shares, in random order."""
    concepts = shares.shape[1]
    counts = counts_of(shares, split.count.numpy())
    concept = torch.arange(concepts).repeat(len(counts)).repeat_interleave(counts.flatten())
    owner, _ = split.owner_and_place()
    order = torch.from_numpy(np.lexsort((rng.random(len(owner)), owner.numpy())))
    index = split.index.long() // concepts * concepts + concept[order]
    return Split(index.to(torch.int32), split.start)
