"""How long all rounds take, from the first."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

WHOLE = 60


def projected(rounds: Mapping[int, float]) -> float | None:
    """Seconds of all rounds of an arm from those that were measured, by number from 1.

    The first carries what is done once, and a clustering is a round of its own; the rest are like
    the median of those between.
    """
    if len(rounds) < 2:
        return None
    usual = median(seconds for t, seconds in rounds.items() if t > 1)
    return sum(rounds.values()) + (WHOLE - len(rounds)) * usual
