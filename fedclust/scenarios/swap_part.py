"""Clients exchange the examples of one class each: "swap part" of Duan et al., FlexCFL, TPDS 2022.

https://arxiv.org/abs/2108.09749, section 5.3. Differs from the code (morningD/FlexCFL):
- There, a chosen pair without classes to exchange ends the swaps of the round; here, it is passed
  over. `abort_round` does what the code does.
- There, only clients that an algorithm has put into a group swap, all of them under FedAvg; here,
  those that have been in a cohort, so that every algorithm sees the same swaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedclust.core.types import Federation, Round
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import Probability
from fedclust.scenarios.sampling import Sampling
from fedclust.scenarios.swaps import chosen, draw_labels, exchanged_labels, is_swappable, matched


@dataclass(frozen=True, kw_only=True)
class SwapPart(Sampling):
    """Pairs of clients that were sampled before give each other one class, training and test
    examples.

    A client gives a class that it has in both splits and the other has not. Groups stay as they
    are.
    """

    needs_classes: ClassVar[bool] = True

    probability: Probability = 0.05  # of each pair of a random matching, in each round
    # a chosen pair without such classes also ends the swaps of the pairs after it
    abort_round: bool = False

    def rounds(self, fed: Federation, seed: int) -> Iterator[Round]:
        """Rounds without end, no swap in round 0; `ConfigError` if nobody can swap a class."""
        needed = "two clients must each own, in training and test data, a class the other lacks; "
        cure = "choose a partition that splits by label"
        require(is_swappable(fed), "scenario", "swap_part", needed + cure)
        return self.play(fed, seed, self._swap)

    def _swap(self, rnd: Round, seen: Tensor) -> Round:
        pairs = chosen(rnd, matched(rnd, seen.nonzero().squeeze(1)), self.probability)
        label = draw_labels(rnd, pairs)
        possible = (label >= 0).all(1)
        if self.abort_round:
            possible = possible.cumprod(0).to(torch.bool)
        pairs, label = pairs[possible], label[possible]
        if not len(pairs):
            return rnd
        shifted = rnd.shifted.index_fill(0, pairs.flatten(), True)
        return replace(rnd, fed=exchanged_labels(rnd.fed, pairs, label), shifted=shifted)
