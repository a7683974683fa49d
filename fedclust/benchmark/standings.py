"""Who stands where: scores over federations, near copies, ranks and how sure they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import ceil, floor

import numpy as np

from fedclust.benchmark.frozen import Frozen
from fedclust.benchmark.results import (
    ALONE,
    KNOWING,
    ONE_FOR_ALL,
    TRACKS,
    Floats,
    Result,
    Track,
)
from fedclust.report.fairness import hurt_clients
from fedclust.report.statistics.fairness import worst_decile
from fedclust.report.statistics.paired import ALPHA, Paired, holm, paired
from fedclust.report.statistics.ranks import ranks

ALIKE = 0.5  # points between near copies
HELPS = 1.0  # points by which the oracle leads one model for all where groups help
_DRAWS = 2000  # of the bootstrap
# of the methods may lack a federation that is in the tables, such as those that need more layers
# than its model has: they are in no ranking
_MOST_LACK = 0.15
# of the federations of the track that has most: with fewer, a track has no table of its own yet
_ENOUGH = 0.5


@dataclass(frozen=True)
class Federation:
    """One federation of a track.

    Attributes:
        results: by method.
    """

    case: str
    results: Mapping[str, Result]

    @property
    def title(self) -> str:
        """What reports call it."""
        return next(iter(self.results.values())).title

    @property
    def gap(self) -> float:
        """What knowing the groups is worth, in points above one model for all; NaN without it."""
        if KNOWING not in self.results:
            return np.nan
        return float(self.gain(KNOWING).mean())

    @property
    def groups_help(self) -> bool:
        """Whether that is more than `HELPS`."""
        return self.gap > HELPS

    def gain(self, method: str, over: str = ONE_FOR_ALL) -> Floats:
        """[S] the score above that of another method in the same seed."""
        own, other = self.results[method], self.results[over]
        seeds = [seed for seed in own.seeds if seed in other.seeds]
        return own.by_seed(seeds) - other.by_seed(seeds)

    def share(self, method: str) -> float:
        """Percent of the way from one model for all to knowing the groups; NaN where none helps."""
        return 100 * float(self.gain(method).mean()) / self.gap if self.groups_help else np.nan

    def compared(self, method: str, over: str) -> Paired:
        """That gain with its interval; the wider one where every seed splits the rows anew."""
        return paired(self.gain(method, over), self.results[method].redrawn)

    @property
    def alternative(self) -> str:
        """What a user would do otherwise: the better of one model for all and one for each."""
        both = [name for name in (ONE_FOR_ALL, ALONE) if name in self.results]
        return max(both, key=lambda name: float(self.results[name].score.mean()))

    @property
    def others(self) -> list[str]:
        """The methods that have run here, but for the oracle and what a user would do otherwise."""
        return [name for name in self.results if name not in (KNOWING, ONE_FOR_ALL, ALONE)]

    @cached_property
    def better(self) -> list[str]:
        """Those whose gain over that alternative is above 0, by Student's t and Holm's correction:
        of forty methods that are as good as it, one would have a 95 % interval above 0.
        """
        gains = {name: self.compared(name, self.alternative) for name in self.others}
        p = holm([one.student() for one in gains.values()])
        sure = dict(zip(gains, p < ALPHA, strict=True))
        return [name for name, gain in gains.items() if gain.mean > 0 and sure[name]]


@dataclass(frozen=True)
class Row:
    """A family of near copies in the standings; its numbers are those of the first.

    Attributes:
        family: methods.
        rank: mean rank over federations, 1 the best.
        first, last: the places between which it lies in 95 % of the draws.
        shares: by federation in which groups help, percent of the oracle's gain.
        elsewhere: by other federation, points above one model for all.
        wins: federations in which no family is better.
    """

    family: tuple[str, ...]
    rank: float
    first: int
    last: int
    shares: Mapping[str, float]
    elsewhere: Mapping[str, float]
    wins: int

    @property
    def name(self) -> str:
        """The first of the family."""
        return self.family[0]

    @property
    def median(self) -> float:
        """Median share where groups help; NaN without."""
        return float(np.median(list(self.shares.values()))) if self.shares else np.nan

    @property
    def worst(self) -> float:
        """The lowest share where groups help; NaN without."""
        return min(self.shares.values(), default=np.nan)


@dataclass(frozen=True)
class Standings:
    """The standings of one track.

    Attributes:
        federations: in which nearly every method has run.
        methods: that have run in all of them, but for the oracle.
        left_out: methods that have not, and the federations that they lack.
    """

    federations: tuple[Federation, ...]
    methods: tuple[str, ...]
    left_out: Mapping[str, tuple[str, ...]]

    @cached_property
    def helped(self) -> list[Federation]:
        """The federations in which groups help."""
        return [one for one in self.federations if one.groups_help]

    @cached_property
    def families(self) -> list[tuple[str, ...]]:
        """Methods linked by pairs that are less than `ALIKE` points apart in the same seed, in the
        mean over seeds and then over federations. FedAvg is the first of its family.
        """
        kin = {name: {name} for name in self.methods}
        for left, right in combinations(self.methods, 2):
            gaps = [float(np.abs(one.gain(left, right)).mean()) for one in self.federations]
            if np.mean(gaps) < ALIKE:
                joined = kin[left] | kin[right]
                kin |= dict.fromkeys(joined, joined)
        order = sorted(self.methods, key=lambda name: name != ONE_FOR_ALL)
        families = {frozenset(kin[n]): tuple(m for m in order if m in kin[n]) for n in order}
        return list(families.values())

    @cached_property
    def rows(self) -> list[Row]:
        """A row for every family, the best mean rank first."""
        names = [family[0] for family in self.families]
        scores = [self._scores(one, names) for one in self.federations]
        every = ranks(np.array([one.mean(axis=1) for one in scores]))
        places = _places(scores)
        low, high = np.quantile(places, (0.025, 0.975), axis=0, method="closest_observation")
        made = [
            Row(
                family=family,
                rank=float(every[:, i].mean()),
                first=floor(low[i]),
                last=ceil(high[i]),
                shares={one.case: one.share(family[0]) for one in self.helped},
                elsewhere={
                    one.case: float(one.gain(family[0]).mean())
                    for one in self.federations
                    if not one.groups_help
                },
                wins=int((every[:, i] == every.min(axis=1)).sum()),
            )
            for i, family in enumerate(self.families)
        ]
        return sorted(made, key=lambda row: row.rank)

    def _scores(self, one: Federation, names: Sequence[str]) -> Floats:
        """[k, S] the scores of a federation, in the seeds that all have."""
        seeds = [
            seed
            for seed in one.results[names[0]].seeds
            if all(seed in one.results[name].seeds for name in names)
        ]
        return np.array([one.results[name].by_seed(seeds) for name in names])

    def worst_tenth(self, name: str) -> float:
        """Accuracy of the worst-served tenth of the clients, in points above FedAvg's; the mean."""

        def worst(one: Federation, name: str) -> float:
            clients = one.results[name].clients.values()
            return float(np.mean([own.factor * worst_decile(own.accuracy) for own in clients]))

        gaps = [worst(one, name) - worst(one, ONE_FOR_ALL) for one in self.federations]
        return float(np.mean(gaps))

    def hurt(self, name: str) -> float:
        """Percent of the clients that are worse off than alone, mean; NaN without that method."""
        found = [
            hurt_clients(own, one.results[ALONE].clients.get(seed))
            for one in self.federations
            if ALONE in one.results
            for seed, own in one.results[name].clients.items()
        ]
        return float(np.mean(found)) if found else np.nan

    def cost(self, name: str, cost: str) -> float:
        """What a run costs over FedAvg's, geometric mean over federations; 0 where it is free."""
        ends = [
            [one.results[n].spent[cost][-1] for n in (name, ONE_FOR_ALL)]
            for one in self.federations
        ]
        ratios = [own / base for own, base in ends if base > 0]
        return float(np.exp(np.mean(np.log(ratios)))) if min(ratios, default=0) > 0 else 0.0

    def at_equal(self, name: str, cost: str) -> float:
        """Median share when as much is spent as FedAvg's whole run needs; NaN where none helps."""
        shares = []
        for one in self.helped:
            most = float(one.results[ONE_FOR_ALL].spent[cost][-1])
            base = float(one.results[ONE_FOR_ALL].curve[-1])
            shares.append(100 * (one.results[name].when(cost, most) - base) / one.gap)
        return float(np.median(shares)) if shares else np.nan

    def until(self, name: str, cost: str, part: float) -> float:
        """Median cost until a part of the oracle's score, over FedAvg's whole run; inf: never."""
        needed = []
        for one in self.helped:
            goal = part * float(one.results[KNOWING].curve[-1])
            most = float(one.results[ONE_FOR_ALL].spent[cost][-1])
            needed.append(one.results[name].until(cost, goal) / most)
        return float(np.median(needed)) if needed else np.nan


@dataclass(frozen=True)
class Block:
    """The standings of a block by track; those without any, or with too few federations beside
    another track's, are left out.
    """

    bench: Frozen
    results: Sequence[Result]
    by_track: dict[Track, Standings]

    @property
    def first(self) -> tuple[Track, Standings]:
        """The track that a reader meets."""
        return next(iter(self.by_track.items()))

    @property
    def not_told(self) -> list[tuple[Track, Standings]]:
        """Those in which nobody is told the number of groups; the first one where there is none."""
        return [one for one in self.by_track.items() if not one[0].told] or [self.first]

    @property
    def widest(self) -> tuple[Track, Standings]:
        """Of these the one with most federations."""
        return max(self.not_told, key=lambda one: len(one[1].federations))


def block(bench: Frozen, results: Sequence[Result]) -> Block:
    """The standings of a version's results."""
    made: dict[Track, Standings] = {}
    for track in TRACKS:
        own = [one for one in results if one.plays_in(track)]
        # a track is one of its own once a method that needs a number has run in it
        if any(one.told is not None for one in own) or track == TRACKS[-1]:
            found = standings(own, list(bench.federations))
            made |= {track: found} if found else {}
    least = _ENOUGH * max((len(found.federations) for found in made.values()), default=0)
    enough = {track: one for track, one in made.items() if len(one.federations) >= least}
    return Block(bench, results, enough)


def standings(results: Sequence[Result], cases: Sequence[str]) -> Standings | None:
    """The standings of one track's results; None where no federation has enough of them, or where
    there are none beside FedAvg's and Local's.

    Args:
        cases: the federations of the block, in its order.
    """
    of = {case: {one.method: one for one in results if one.case == case} for case in cases}
    methods = {name for one in of.values() for name in one} - {KNOWING}
    enough = (1 - _MOST_LACK) * len(methods)
    # nothing is compared without one model for all
    kept = {
        case: one
        for case, one in of.items()
        if ONE_FOR_ALL in one and len(one.keys() - {KNOWING}) >= enough
    }
    if not kept or not methods - {ONE_FOR_ALL, ALONE}:
        return None
    lacks = {n: tuple(case for case, one in kept.items() if n not in one) for n in sorted(methods)}
    order = dict.fromkeys(name for one in kept.values() for name in one)
    return Standings(
        federations=tuple(Federation(case, one) for case, one in kept.items()),
        methods=tuple(name for name in order if name != KNOWING and not lacks[name]),
        left_out={name: where for name, where in lacks.items() if where},
    )


def _places(scores: Sequence[Floats]) -> Floats:
    """[draws, k] the place of every method when seeds are drawn anew in each federation, and one
    federation after the other is left out.

    Args:
        scores: by federation [k, S].
    """
    rng = np.random.default_rng(0)
    drawn = []
    for one in scores:
        picked = rng.integers(0, one.shape[1], (_DRAWS, one.shape[1]))
        drawn.append(ranks(one[:, picked].mean(axis=2).T))  # [draws, k]
    every = np.array(drawn)  # [F, draws, k]
    left = np.arange(_DRAWS) % len(scores)
    total = every.sum(axis=0)
    if len(scores) > 1:
        total -= every[left, np.arange(_DRAWS)]
    return ranks(-total)
