"""Data come period after period, such as month after month, as an input of every example says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fedclust.core.types import Federation, Round, Split
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastOne, AtLeastZero
from fedclust.scenarios.sampling import Sampling, split_of


@dataclass(frozen=True, kw_only=True)
class Periods(Sampling):
    """In period p, `every` rounds long, a client has its examples of that period alone.

    Periods are the distinct values of one input, in ascending order. After the last one nothing
    changes any more. A client without examples in a period is not sampled in it.

    Attributes:
        column: place of that input among the features, from 0, as the data are before they are
            scaled.
        every: rounds of a period.
        train: a client trains on its examples of the period (`now`), or of all so far (`all`).
        test: it is tested on those of the period (`now`), or of the next one (`next`), so that the
            last one is for testing only. Validation examples are of the period.
    """

    column: AtLeastZero = 0
    every: AtLeastOne = 5
    train: Literal["now", "all"] = "now"
    test: Literal["now", "next"] = "now"

    def remark(self, rounds: int) -> str:
        """Says so where a run ends with the first period."""
        if self.every < rounds:
            return ""
        return f"the run ends in the first period: raise rounds above scenario.every={self.every}"

    def rounds(self, fed: Federation, seed: int) -> Iterator[Round]:
        """Rounds without end; `ConfigError` if there is no such input, or too few periods."""
        x = fed.pool.x.flatten(1)
        wide = x.shape[1]
        allowed = f"0 to {wide - 1}, since an example has {wide} numbers"
        require(self.column < wide, "scenario.column", self.column, allowed)
        values = x[:, self.column]
        rows = {name: values[fed.pool.images(one.index.long())] for name, one in fed.splits.items()}
        periods = torch.unique(rows["train"])  # sorted
        ahead = int(self.test == "next")
        allowed = "an input with several values, a period each, among the training examples"
        require(len(periods) > 1, "scenario.column", self.column, allowed)
        last = len(periods) - 1 - ahead

        def come(rnd: Round, seen: Tensor) -> Round:  # noqa: ARG001
            if rnd.t % self.every or rnd.t // self.every > last:
                return replace(rnd, is_change=False)
            step = rnd.t // self.every
            now = {name: of == periods[step] for name, of in rows.items()}
            if self.train == "all":
                now["train"] = rows["train"] <= periods[step]
            if ahead:
                now["test"] = rows["test"] == periods[step + 1]
            parts = {name: _only(fed.splits[name], kept) for name, kept in now.items()}
            held_out = parts.get("validation")
            changed = replace(
                rnd.fed, train=parts["train"], test=parts["test"], validation=held_out
            )
            shifted = (changed.train.count > 0) & (rnd.t > 0)
            return replace(rnd, fed=changed, shifted=shifted, is_change=rnd.t > 0)

        return self.play(fed, seed, come)


def _only(split: Split, kept: Tensor) -> Split:
    """The split with those of its rows [total] bool."""
    owner, _ = split.owner_and_place()
    count = torch.bincount(owner[kept], minlength=len(split.count))
    return split_of(split.index[kept], count)
