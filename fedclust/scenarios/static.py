"""Nothing changes: everyone is there from the start and keeps their data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from fedclust.core.types import Federation, Round
from fedclust.scenarios.sampling import Sampling


@dataclass(frozen=True, kw_only=True)
class Static(Sampling):
    """Every round samples its cohort from all clients with training data; see `Sampling` for the
    options.
    """

    shifts: ClassVar[bool] = False

    def rounds(self, fed: Federation, seed: int) -> Iterator[Round]:
        return self.play(fed, seed, lambda rnd, _: rnd)
