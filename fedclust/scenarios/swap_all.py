"""Clients exchange all their data: "swap all" of Duan et al., FlexCFL, TPDS 2022.

https://arxiv.org/abs/2108.09749, section 5.3. Differs from the paper: it swaps two random clients
per round, its code every pair of a random matching, which is what its costs fit; `single_pair`
follows the text. Differs from the code (morningD/FlexCFL): there, only clients that an algorithm
has put into a group swap, all of them under FedAvg; here, those that have been in a cohort, so that
every algorithm sees the same swaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from fedclust.core.types import Federation, Round
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import Probability
from fedclust.scenarios.sampling import Sampling
from fedclust.scenarios.swaps import chosen, exchanged, matched


@dataclass(frozen=True, kw_only=True)
class SwapAll(Sampling):
    """Pairs of clients that were sampled before exchange their training and test data; groups
    follow.
    """

    needs_classes: ClassVar[bool] = True

    # of each pair and round; it is also the fraction of the clients that swap in a round
    probability: Probability = 0.05
    single_pair: bool = False  # at most one pair per round

    def rounds(self, fed: Federation, seed: int) -> Iterator[Round]:
        """Rounds without end, no swap in round 0; `ConfigError` if there is nobody to swap with."""
        number = fed.num_clients
        require(number >= 2, "partition.num_clients", number, "2 or more, to swap data")
        return self.play(fed, seed, self._swap)

    def _swap(self, rnd: Round, seen: Tensor) -> Round:
        pairs = matched(rnd, seen.nonzero().squeeze(1))
        pairs = chosen(rnd, pairs[:1] if self.single_pair else pairs, self.probability)
        if not len(pairs):
            return rnd
        shifted = rnd.shifted.index_fill(0, pairs.flatten(), True)
        return replace(rnd, fed=exchanged(rnd.fed, pairs), shifted=shifted)
