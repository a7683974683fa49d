"""Statements about arms that a report checks: measured, claimed, holds or not.

One class per kind; `KINDS` lists them. Iterations are 1-based, as in the papers. A claim is stated on means
over seeds, and the number of seeds in which it holds is given beside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fedclust.errors import ConfigError
from fedclust.metrics import METRICS, meaning
from fedclust.report.arms import Arm
from fedclust.report.jobs import Curve
from fedclust.report.wording import in_percent, show


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Attributes:
        claimed: the claim in words.
        measured: what was measured, in words.
        holds: on means over seeds; None where the runs do not reach far enough to tell.
        seeds: in how many seeds it holds.
        of: among how many.
    """

    claimed: str
    measured: str
    holds: bool | None
    seeds: int
    of: int


class Claim(Protocol):
    """A statement about some arms."""

    @property
    def names(self) -> tuple[str, ...]:
        """The arms it speaks of."""
        ...

    def check(self, arms: Sequence[Arm]) -> Verdict:
        """What became of it; `arms` in the order of `names`."""
        ...


def _common(arms: Sequence[Arm], metric: str) -> tuple[NDArray[np.int64], list[NDArray[np.float64]]] | None:
    """Rounds [R] and, per arm, values [R, S] that all arms have, seeds matched; None where there are none."""
    curves = [arm.curve(metric) for arm in arms]
    if any(curve is None for curve in curves):
        return None
    present = [curve for curve in curves if curve is not None]
    seeds = [s for s in present[0].seeds if all(s in c.seeds for c in present)]
    rounds = np.array(sorted(set.intersection(*(set(c.rounds.tolist()) for c in present))), dtype=np.int64)
    if not seeds or not len(rounds):
        return None
    return rounds, [_take(curve, rounds, seeds) for curve in present]


def _take(curve: Curve, rounds: NDArray[np.int64], seeds: Sequence[int]) -> NDArray[np.float64]:
    return curve.values[np.isin(curve.rounds, rounds)][:, [curve.seeds.index(s) for s in seeds]]


def _unknown(claimed: str, why: str) -> Verdict:
    return Verdict(claimed, why, None, 0, 0)


def _verdict(
    claimed: str,
    measured: str,
    test: Callable[[list[NDArray[np.float64]]], bool],
    values: Sequence[NDArray[np.float64]],
) -> Verdict:
    """`test` on the means over seeds and on every seed alone; values per arm [R, S].

    A seed that stopped early in one of the arms is left out.
    """
    complete = ~np.isnan(np.stack(list(values))).any(axis=(0, 1))
    if not complete.any():
        return _unknown(claimed, "no seed got this far in every arm")
    alone = [test([v[:, s] for v in values]) for s in np.flatnonzero(complete)]
    means = [v[:, complete].mean(axis=1) for v in values]
    return Verdict(claimed, measured, test(means), sum(alone), len(alone))


@dataclass(frozen=True, kw_only=True)
class EqualUntil:
    """Two arms agree through an iteration, to `tolerance` in the metric's unit (0.0005: they print alike)."""

    kind: ClassVar[str] = "equal_until"
    left: str
    right: str
    iteration: int
    metric: str = "accuracy"
    tolerance: float = 5e-4
    text: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """See `Claim`."""
        return (self.left, self.right)

    def check(self, arms: Sequence[Arm]) -> Verdict:
        """See `Claim`."""
        claimed = self.text or f"{self.left} equals {self.right} through iteration {self.iteration}"
        common = _common(arms, self.metric)
        if common is None or common[0][-1] + 1 < self.iteration:
            return _unknown(claimed, f"not run to iteration {self.iteration}")
        values = [v[common[0] < self.iteration] for v in common[1]]
        gap = float(np.nanmax(np.abs(values[0] - values[1])))
        measured = f"largest difference {show(self.metric, gap)}"
        return _verdict(
            claimed, measured, lambda v: bool(np.abs(v[0] - v[1]).max() <= self.tolerance), values
        )


@dataclass(frozen=True, kw_only=True)
class OrderAtEnd:
    """The arms end in this order, best first."""

    kind: ClassVar[str] = "order_at_end"
    best_to_worst: tuple[str, ...]
    metric: str = "accuracy"
    text: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """See `Claim`."""
        return self.best_to_worst

    def check(self, arms: Sequence[Arm]) -> Verdict:
        """See `Claim`."""
        claimed = self.text or f"{' > '.join(self.best_to_worst)} at the end ({self.metric})"
        common = _common(arms, self.metric)
        if common is None:
            return _unknown(claimed, f"no common rounds with {self.metric}")
        values = [v[-1:] for v in common[1]]
        sign = -1.0 if METRICS[self.metric].better == "lower" else 1.0
        means = [float(np.nanmean(v)) for v in values]
        ranked = sorted(zip(self.names, means, strict=True), key=lambda pair: -sign * pair[1])
        measured = " > ".join(f"{name} {show(self.metric, value)}" for name, value in ranked)
        return _verdict(
            claimed, measured, lambda v: all(sign * a[0] > sign * b[0] for a, b in pairwise(v)), values
        )


@dataclass(frozen=True, kw_only=True)
class Overtakes:
    """`left` is behind `right` at the first iteration of `between` and ahead at the second."""

    kind: ClassVar[str] = "overtakes"
    left: str
    right: str
    between: tuple[int, int]
    metric: str = "accuracy"
    text: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """See `Claim`."""
        return (self.left, self.right)

    def check(self, arms: Sequence[Arm]) -> Verdict:
        """See `Claim`."""
        first, second = self.between
        claimed = self.text or f"{self.left} overtakes {self.right} between iterations {first} and {second}"
        common = _common(arms, self.metric)
        wanted = [first - 1, second - 1]
        if common is None or not np.isin(wanted, common[0]).all():
            return _unknown(claimed, f"iterations {first} and {second} not both evaluated")
        values = [v[np.isin(common[0], wanted)] for v in common[1]]
        lead = np.nanmean(values[0] - values[1], axis=1)
        unit = " points" if in_percent(self.metric) else ""
        factor = 100 if unit else 1
        measured = f"{self.left} leads by {factor * lead[0]:+.2f}{unit}, then {factor * lead[1]:+.2f}{unit}"
        return _verdict(claimed, measured, lambda v: bool(v[0][0] < v[1][0] and v[0][1] > v[1][1]), values)


@dataclass(frozen=True, kw_only=True)
class Reaches:
    """An arm reaches a value by an iteration; one later still holds, since figures are read by eye."""

    kind: ClassVar[str] = "reaches"
    arm: str
    value: float
    iteration: int
    metric: str = "accuracy"
    text: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """See `Claim`."""
        return (self.arm,)

    def check(self, arms: Sequence[Arm]) -> Verdict:
        """See `Claim`."""
        goal = show(self.metric, self.value)
        claimed = self.text or f"{self.arm} reaches {goal} {self.metric} at iteration {self.iteration}"
        common = _common(arms, self.metric)
        if common is None:
            return _unknown(claimed, f"{self.metric} not recorded")
        rounds, values = common
        reached = np.flatnonzero(np.nanmean(values[0], axis=1) >= self.value)
        if not len(reached) and rounds[-1] + 1 < self.iteration:
            return _unknown(claimed, f"not run to iteration {self.iteration}")
        measured = (
            f"iteration {rounds[reached[0]] + 1}" if len(reached) else f"not in {rounds[-1] + 1} iterations"
        )
        late = rounds <= self.iteration  # 0-based rounds: up to one iteration late
        return _verdict(claimed, measured, lambda v: bool((v[0][late] >= self.value).any()), values)


@dataclass(frozen=True, kw_only=True)
class AtLeast:
    """An arm ends with at least a value."""

    kind: ClassVar[str] = "at_least"
    arm: str
    value: float
    metric: str = "accuracy"
    text: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """See `Claim`."""
        return (self.arm,)

    def check(self, arms: Sequence[Arm]) -> Verdict:
        """See `Claim`."""
        claimed = (
            self.text or f"{self.arm} ends with {self.metric} of at least {show(self.metric, self.value)}"
        )
        common = _common(arms, self.metric)
        if common is None:
            return _unknown(claimed, f"{self.metric} not recorded")
        values = [v[-1:] for v in common[1]]
        measured = show(self.metric, float(np.nanmean(values[0])))
        return _verdict(claimed, measured, lambda v: bool(v[0][0] >= self.value), values)


KINDS: dict[str, type[Any]] = {c.kind: c for c in (EqualUntil, OrderAtEnd, Overtakes, Reaches, AtLeast)}


def claim(entry: Mapping[str, Any]) -> Claim:
    """The claim a config entry describes.

    Raises:
        ConfigError: for an unknown kind, key or metric, or a missing key.
    """
    given: dict[str, Any] = {
        str(key): tuple(v) if isinstance(v, list) else v for key, v in entry.items() if v is not None
    }
    kind = given.pop("kind", None)
    if kind not in KINDS:
        raise ConfigError(f"report.claims: kind={kind} is not allowed: one of {', '.join(KINDS)}")
    known = [field.name for field in fields(KINDS[kind])]
    for key in given:
        if key not in known:
            raise ConfigError(f"report.claims: {kind}.{key} is not allowed: one of {', '.join(known)}")
    meaning(given.get("metric", "accuracy"), "report.claims: metric")
    try:
        made: Claim = KINDS[kind](**given)
    except TypeError as error:
        raise ConfigError(
            f"report.claims: {kind} is incomplete ({error}); it takes {', '.join(known)}"
        ) from error
    return made


def check(claims: Sequence[Claim], arms: Sequence[Arm]) -> list[tuple[str, Verdict]]:
    """Verdicts, each with the setting it was checked in ("" where there is one only).

    A claim names algorithms or whole labels. Where an algorithm runs in several settings, the claim is
    checked in each; an algorithm that runs in one setting only stands for itself in all of them.
    """
    checked = []
    for entry in claims:
        pools = [[a for a in arms if name in (a.label, a.name)] for name in entry.names]
        settings = dict.fromkeys(arm.setting for pool in pools if len(pool) > 1 for arm in pool) or {"": None}
        for setting in settings:
            chosen = [
                next((a for a in p if a.setting == setting), p[0] if len(p) == 1 else None) for p in pools
            ]
            present = [arm for arm in chosen if arm is not None]
            if len(present) == len(pools):
                checked.append((setting, entry.check(present)))
    return checked
