"""The rules by which a printed number is judged: one list, of which the first that holds decides.

More noise never makes a number reproduced: this asks for the whole 90 % interval of our mean to lie
within a margin of the printed one. An interval for one more run, which grows with the noise, tells
at most that nothing speaks against it, and where it is wide that nothing can be told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fedclust.papers.published import (
    FEWEST,
    WIDEST,
    interval,
    margin,
    mean_interval,
    rounding,
)

Row = Mapping[str, str]
REPRODUCED, CONSISTENT, SHOWN = "reproduced", "consistent", "cause shown"
ALONE, CANNOT_TELL = "one seed, within a point", "cannot tell"
CONJECTURE, OUTSIDE = "conjecture", "outside"
OTHER_DATA, NOT_RUN = "other data", "not yet run"
DERIVED = "derived"  # follows from other cells, or says one again: counted apart
SETTING, NOT_PRINTED = "setting", "nothing printed"  # no results: put in as printed, left out
STATES = (
    *(REPRODUCED, CONSISTENT, ALONE, SHOWN, CANNOT_TELL, CONJECTURE, OUTSIDE),
    *(OTHER_DATA, NOT_RUN, DERIVED, SETTING, NOT_PRINTED),
)
_EXACT = ("devices", "parameters")
# what a config states, and what the size of a data set and the rule of its division state
INPUTS = (
    "participation_rate",
    "initial_lr",
    "batch_size",
    "local_epochs",
    "global_iterations",
    "lr_decay_per_round",
    "num_devices",
    "num_parameters",
    "num_samples",
)
_SETTINGS = INPUTS[:6]  # met exactly


@dataclass(frozen=True)
class Measured:
    """What we have for a printed number.

    Attributes:
        value: in the printed unit; NaN where the runs never get there.
        std: over seeds, or None.
        seeds: by name; none for what no seed changes.
        end: the value of the last round, where the printed one is a maximum over rounds.
        note: how it was measured, where that is not plain.
        stands_in: which data were used in place of others, in words; else "".
        purity: how pure the clusters are at the end, where they mix true ones that another method
            tells apart.
        ordered: the values of all seeds from low to high, where `value` is their median.
        sources: which runs gave it; two with equal curves are one.
        over_data: whether the seeds are those of made-up data, with one run of each.
    """

    value: float
    std: float | None = None
    seeds: tuple[str, ...] = ()
    end: float | None = None
    note: str = ""
    stands_in: str = ""
    purity: float | None = None
    ordered: tuple[float, ...] = ()
    sources: frozenset[str] = frozenset()
    over_data: bool = False

    @property
    def n(self) -> int:
        """Seeds; 0 for what no seed changes."""
        return len(self.seeds)


@dataclass(frozen=True)
class Facts:
    """What a rule may look at.

    Attributes:
        row: what is printed.
        measured: ours, or None.
        has_cause: whether a cause is named.
        shown: what the run of the cause gives, or None.
    """

    row: Row
    measured: Measured | None
    has_cause: bool = False
    shown: Measured | None = None


@dataclass(frozen=True)
class Rule:
    """A state, and when it is the one."""

    state: str
    holds: Callable[[Facts], bool]


def decide(facts: Facts) -> str:
    """The state of a printed number: of the first rule that holds."""
    return next(rule.state for rule in RULES if rule.holds(facts))


def is_equivalent(row: Row, measured: Measured) -> bool:
    """Whether the 90 % interval of our mean, or median, lies within the margin of the printed
    number, with three seeds or more.
    """
    if measured.n < FEWEST:
        return False
    ends = median_interval(measured.ordered) if measured.ordered else _mean_ends(measured)
    return ends is not None and all(abs(_gap(row, end)) <= margin(row) + 1e-9 for end in ends)


def is_consistent(row: Row, measured: Measured) -> bool:
    """Whether the printed number lies within the 95 % interval of one more run, and this reaches
    no further than two margins.
    """
    half = _half(row, measured)
    return is_within(row, measured) and half is not None and half <= WIDEST * margin(row)


def is_within(row: Row, measured: Measured) -> bool:
    """Whether the printed number lies within the 95 % interval of one more run, however wide; of a
    median, between the lowest and the highest seed.
    """
    if len(measured.ordered) > 1:
        low, high = (_gap(row, end) for end in (measured.ordered[0], measured.ordered[-1]))
        return low <= 0 <= high
    half = _half(row, measured)
    return half is not None and abs(_gap(row, measured.value)) <= half + 1e-9


def agrees(row: Row, measured: Measured) -> bool:
    """Whether a measured number is reproduced or consistent."""
    return is_equivalent(row, measured) or is_consistent(row, measured)


def median_interval(ordered: Sequence[float]) -> tuple[float, float] | None:
    """The 90 % interval of a median from ordered values; None of less than five.

    The narrowest of k-th lowest and k-th highest value between which the median lies with a
    probability of 1 - 2 P(less than k of n coins fall on one side), at least 0.9.
    """
    n, best, tail = len(ordered), None, 0.0
    for k in range(n // 2):
        tail += math.comb(n, k) * 0.5**n
        if 1 - 2 * tail < 0.9:
            break
        best = ordered[k], ordered[n - 1 - k]
    return best


def follows(row: Row) -> bool:
    """Whether a number follows from others that are printed, or is a second reading of one."""
    difference = any(part in row["metric"] for part in ("gain", "gap", "variance_reduction"))
    return difference or row["variant"].startswith("order reversed")


def _printed(row: Row) -> float:
    return float(row["mean"])


def _gap(row: Row, value: float) -> float:
    """How far a value lies from the printed one; a printed lower bound, and a saving, are met by
    more.
    """
    gap = value - _printed(row)
    bound = row["variant"] == "lower bound" or row["metric"].startswith("iteration_reduction")
    return min(gap, 0.0) if bound else gap


def _mean_ends(measured: Measured) -> tuple[float, float] | None:
    half = mean_interval(measured.std, measured.n)
    return None if half is None else (measured.value - half, measured.value + half)


def _half(row: Row, measured: Measured) -> float | None:
    """Half the width of the interval of one more run; a median has none."""
    if measured.ordered:
        return None
    half = interval(measured.std, measured.n, float(row["std"]) if row["std"] else None)
    return None if half is None else max(half, rounding(row["mean"]))


def _is_put_in(facts: Facts) -> bool:
    """Whether a number is an input of our run, and is the printed one."""
    row, measured = facts.row, facts.measured
    if measured is None or not row["metric"].startswith(INPUTS):
        return False
    if row["unit"] in _EXACT or row["metric"].startswith(_SETTINGS):
        return math.isclose(measured.value, _printed(row), rel_tol=1e-9)
    return abs(_gap(row, measured.value)) <= margin(row) + 1e-9


def _is_near(facts: Facts) -> bool:
    row, ours = facts.row, facts.measured
    return ours is not None and ours.n == 1 and abs(_gap(row, ours.value)) <= margin(row) + 1e-9


def _of_ours(test: Callable[[Row, Measured], bool]) -> Callable[[Facts], bool]:
    return lambda facts: facts.measured is not None and test(facts.row, facts.measured)


def _is_shown(facts: Facts) -> bool:
    ours, shown = facts.measured, facts.shown
    same = ours is not None and shown is not None and ours.seeds == shown.seeds
    return same and shown is not None and agrees(facts.row, shown)


RULES = (
    Rule(NOT_PRINTED, lambda facts: not facts.row["mean"]),
    Rule(DERIVED, lambda facts: follows(facts.row)),
    Rule(NOT_RUN, lambda facts: facts.measured is None),
    Rule(OTHER_DATA, lambda facts: facts.measured is not None and facts.measured.stands_in != ""),
    Rule(SETTING, _is_put_in),
    Rule(REPRODUCED, _of_ours(is_equivalent)),
    Rule(CONSISTENT, _of_ours(is_consistent)),
    Rule(ALONE, _is_near),
    Rule(CANNOT_TELL, _of_ours(is_within)),
    Rule(SHOWN, _is_shown),
    Rule(CONJECTURE, lambda facts: facts.has_cause),
    Rule(OUTSIDE, lambda _: True),
)
