"""What stands in for what: the data that ran in place of those that a paper names.

Every page that takes numbers from jobs asks here, none reads the column `stands_in_for` itself.
"""

from __future__ import annotations

from collections.abc import Mapping

# which data were meant and which were used, the nearest first
_WORDS = {
    ("emnist", "emnist_letters"): "letters of both cases for EMNIST's small ones",
    ("emnist", "mnist"): "digits for EMNIST's letters",
    ("emnist_bymerge", "mnist"): "digits for EMNIST's letters",
    ("cifar10", "npz"): "JPEG copies of CIFAR-10",
}
_NEAREST = [used for _, used in _WORDS]


def stand_in(made: Mapping[str, str]) -> str:
    """Which data a line of `jobs.csv` used in place of those that were meant, in words; else ""."""
    meant, used = made["stands_in_for"], made["dataset"]
    return meant and _WORDS.get((meant, used), f"{used} for {meant}")


def distance(made: Mapping[str, str]) -> int:
    """How far the data of a line are from those that were meant, 0 for these."""
    if not stand_in(made):
        return 0
    used = made["dataset"]
    return 1 + (_NEAREST.index(used) if used in _NEAREST else len(_NEAREST))
