"""Training data are released step by step: "incremental" of Duan et al., FlexCFL, TPDS 2022.

https://arxiv.org/abs/2108.09749, section 5.3. Differs from the code (morningD/FlexCFL): there, a
step takes its fraction of the current data, not of all, so that clients hold 25, 12.5, 9.4 and 9.4
% of them. `shrink_current` does what the code does; the paper's Table IV fits it. And there,
clients are built, and form FlexCFL's groups, with all their data, of which the first step then
takes most away. `complete_start` does that, but for round 0, which then trains with all data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import Tensor

from fedclust.core.types import Federation, Round, Split
from fedclust.helpers.ranges import AtLeastOne, Fraction
from fedclust.helpers.rng import Stream
from fedclust.helpers.rounding import rounded_up
from fedclust.scenarios.sampling import Sampling, shuffled, split_of


@dataclass(frozen=True, kw_only=True)
class Incremental(Sampling):
    """A client has the first part of its shuffled training data, a larger one every so many rounds.

    Test data are complete from the start. Parts are rounded up to whole examples.

    Attributes:
        fraction: of a client's training data, what is released at once.
        every: rounds between two releases; the first is in round 0, the second in round `every`.
        shrink_current: a release of the part p leaves p of what the client has, instead of p of
            all.
        complete_start: everything is there in round 0, and the first release is in round 1.
    """

    fraction: Fraction = 0.25
    every: AtLeastOne = 50
    shrink_current: bool = False
    complete_start: bool = False

    def rounds(self, fed: Federation, seed: int) -> Iterator[Round]:
        """Rounds without end; what is there in round 0 is not a shift."""
        everything = shuffled(fed.train, Stream.of(seed, "release"))

        def release(rnd: Round, seen: Tensor) -> Round:  # noqa: ARG001
            first = int(self.complete_start)
            if rnd.t < first or (rnd.t % self.every and rnd.t != first):
                return rnd
            before = rnd.fed.train.count
            part = min(1.0, self.fraction * (1 + rnd.t // self.every))
            whole = before if self.shrink_current else everything.count
            count = rounded_up(part, whole)
            changed = replace(rnd.fed, train=_first(everything, count))
            return replace(rnd, fed=changed, shifted=(count != before) & (rnd.t > 0))

        return self.play(fed, seed, release)


def _first(split: Split, count: Tensor) -> Split:
    """The first `count` [M] rows of every client."""
    owner, within = split.owner_and_place()
    return split_of(split.index[within < count[owner]], count)
