"""Clients with unequally many examples: quantity skew.

Sizes from a Dirichlet distribution; lognormal and capped as those of FedEM's synthetic data (arXiv
2108.10252); or normal, cut off at 0 and 1, as ANDA's unbalanced split.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedclust.core.types import Dataset, Pool, Split
from fedclust.core.verbs import Partition
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.ranges import AtLeastOne, Positive, Ranged
from fedclust.helpers.rng import Stream
from fedclust.helpers.rounding import rounded_up
from fedclust.partitions.concepts import base_pool, of_base
from fedclust.partitions.cut import Rows, consecutive, too_few
from fedclust.partitions.mixture import counts_of

_LEAST, _MOST = 50, 1000  # examples of the lognormal law


@dataclass(frozen=True, kw_only=True)
class Quantity(Ranged):
    """The clients of a base partition, with training examples in drawn proportions.

    Their groups and test examples stay.
    """

    base: Partition  # who owns which example, and of which group
    # of the proportions: `dirichlet`: Dirichlet(beta, …, beta); `lognormal`: exp of a normal
    # variable with mean 4 and standard deviation 2, plus 50, at most 1000; `truncated_normal`:
    # normal around 0.5 with the standard deviation `spread`, between 0 and 1
    law: Literal["dirichlet", "lognormal", "truncated_normal"] = "dirichlet"
    # of `dirichlet`; small: few clients have nearly all
    beta: Annotated[Positive, OnlyWith("law", "dirichlet")] = 0.5
    spread: Annotated[Positive, OnlyWith("law", "truncated_normal")] = 0.3  # of `truncated_normal`
    # `within_groups`: the clients of a group deal out all its training examples anew, those without
    # a group as one; for clients that draw from the same distribution. `cap`: a client keeps the
    # first part of its own, in proportion to the largest draw, rounded up.
    deal: Literal["within_groups", "cap"] = "within_groups"
    # training examples every client has at least; with `cap`, unless the base gives it fewer
    min_examples: AtLeastOne = 10

    def pool(self, dataset: Dataset) -> Pool:
        return base_pool(self.base, dataset)

    def split(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split, Tensor]:
        """Splits and group [M]; `DataError` if a group has too few examples for its clients."""
        with of_base():
            train, test, group = self.base.split(dataset, stream.fold(0))
        weight = self._drawn(len(train.count), stream.fold(1).numpy())
        if self.deal == "cap":
            return self._capped(train, weight), test, group
        rng = stream.fold(2).numpy()
        parts = list[tuple[np.int64, Rows]]()
        sizes = np.zeros(len(weight), dtype=np.int64)
        owner, index = train.owner_and_place()[0].numpy(), train.index.numpy()
        members_of = group.numpy()
        for g in np.unique(members_of):
            members = np.flatnonzero(members_of == g)
            rows = rng.permutation(index[members_of[owner] == g])
            free = len(rows) - self.min_examples * len(members)
            if free < 0:
                what = f"{len(rows)} for {len(members)} clients with {self.min_examples} each"
                raise too_few(dataset, what, "lower partition.min_examples")
            share = weight[members] / weight[members].sum()
            extra = counts_of(share[None], np.array([free])).numpy()[0]
            sizes[members] = self.min_examples + extra
            parts += zip(members, np.split(rows, sizes[members].cumsum()[:-1]), strict=True)
        ordered = np.concatenate([rows for _, rows in sorted(parts, key=lambda part: part[0])])
        return consecutive(ordered, sizes), test, group

    def _capped(self, train: Split, weight: npt.NDArray[np.float64]) -> Split:
        """Every client with the first part of its examples."""
        count: Rows = train.count.numpy()
        wanted = rounded_up(weight / weight.max(), count)
        size = np.minimum(count, np.maximum(wanted, self.min_examples))
        owner, place = (part.numpy() for part in train.owner_and_place())
        return consecutive(train.index.numpy()[place < size[owner]], size)

    def _drawn(self, num_clients: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
        """Proportions [M] above 0."""
        if self.law == "dirichlet":
            tiny = np.finfo(np.float64).tiny
            return rng.dirichlet(np.full(num_clients, self.beta)).clip(min=tiny)
        if self.law == "lognormal":
            lognormal: npt.NDArray[np.float64] = rng.lognormal(4, 2, num_clients)
            return np.minimum(lognormal + _LEAST, _MOST)
        drawn = np.full(num_clients, -1.0)
        while (outside := (drawn <= 0) | (drawn >= 1)).any():
            drawn[outside] = rng.normal(0.5, self.spread, int(outside.sum()))
        return drawn
