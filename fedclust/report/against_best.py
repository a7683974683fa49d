"""Where every arm stands against the best one, seed by seed; and what is therefore bold."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np

from fedclust.helpers.errors import counted
from fedclust.metrics import METRICS
from fedclust.report.formats import factor, in_percent, lower_is_better, sign
from fedclust.report.statistics.paired import ALPHA, Paired, holm, least_p, paired, seeds_needed

MARGIN = 0.5  # points of accuracy; a smaller difference is called none
_TOO = "and the t test for seeds that split the same rows anew, "

Key = TypeVar("Key", bound=Hashable)
Verdict = Literal["best", "below", "level", "untold", "fewer"]


@dataclass(frozen=True)
class Standing:
    """One arm against the best of those it is compared with.

    Attributes:
        verdict: best: the best mean, which several may share. below: significantly below it, and by
            no less than `MARGIN`. level: neither. untold: with so few common seeds no difference
            could be significant. fewer: not compared, as it serves fewer clients than others.
        rivals: how many arms were compared with the best one.
        lacks: whether it lacks seeds that another has, and so may not be the best.
        against: the arm minus the best one in their common seeds, as shown; None for the best one
            itself and without common seeds.
        p: after Holm's correction; None where `against` is.
        redrawn: whether seeds split the same rows anew, which makes intervals and p larger.
    """

    verdict: Verdict
    rivals: int
    lacks: bool = False
    against: Paired | None = None
    p: float | None = None
    redrawn: bool = False

    @property
    def leads(self) -> bool:
        """Whether tables show it in bold."""
        return self.verdict in ("best", "level")


def standings(
    scores: Mapping[Key, Mapping[int, float]], metric: str, redrawn: float = 0.0
) -> dict[Key, Standing]:
    """Every arm with a score against the best mean; empty for fewer than two, or no direction.

    Where seeds of an arm are missing, because they failed or were not run, it is compared in those
    it has and is never the best: the mean of those that survive says too much.
    """
    means = {
        key: sign(metric) * float(np.mean(list(one.values()))) for key, one in scores.items() if one
    }
    if len(means) < 2 or METRICS[metric].better == "neither":
        return {}
    most = max(map(len, scores.values()))
    whole = [key for key in means if len(scores[key]) == most]
    best = max(whole, key=lambda key: means[key])
    rivals = [key for key in means if means[key] < means[best] or key not in whole]
    places = {key: Standing("best", len(rivals)) for key in means}
    compared: dict[Key, Paired] = {}
    for key in rivals:
        lacks = key not in whole
        places[key] = Standing("untold", len(rivals), lacks=lacks, redrawn=redrawn > 0)
        common = [seed for seed in scores[key] if seed in scores[best]]
        gaps = np.array([scores[key][seed] - scores[best][seed] for seed in common])
        gaps = gaps[np.isfinite(gaps)]  # a loss that explodes is infinite
        if len(gaps):
            compared[key] = paired(factor(metric) * gaps, redrawn)
    adjusted = holm([one.p for one in compared.values()])
    for (key, one), p in zip(compared.items(), adjusted.tolist(), strict=True):
        ahead = sign(metric) * one.mean > 0  # with fewer seeds than the best
        verdict = "untold" if ahead else _verdict(one, p, len(compared), metric)
        places[key] = replace(places[key], verdict=verdict, against=one, p=p)
    return places


def _verdict(one: Paired, p: float, comparisons: int, metric: str) -> Verdict:
    if comparisons * least_p(one.n) > ALPHA:
        return "untold"
    small = in_percent(metric) and abs(one.mean) < MARGIN
    return "below" if p < ALPHA and not small else "level"


def leading(places: Mapping[Key, Standing]) -> set[Key]:
    """Those that tables show in bold."""
    return {key for key, one in places.items() if one.leads}


def rule(places: Sequence[Standing], metric: str) -> list[str]:
    """What bold means below a table, in one line; no line where nothing is bold."""
    decided = [one for one in places if one.verdict in ("below", "level")]
    untold = [one for one in places if one.verdict == "untold"]
    fewer = sum(one.verdict == "fewer" for one in places)
    among = " of those that have all seeds" if any(one.lacks for one in places) else ""
    lines = []
    if decided:
        side = "worse than" if lower_is_better(metric) else "below"
        margin = f"less than {MARGIN} points {side} it or " if in_percent(metric) else ""
        lines.append(
            f"Bold: the best mean{among}, and all that are {margin}not significantly {side} it "
            "(exact sign-flip test on the differences in common seeds, "
            f"{_TOO if any(one.redrawn for one in decided) else ''}Holm's correction, "
            f"p < {ALPHA})."
        )
    elif untold:
        lines.append(f"Bold: the best mean{among}.")
    if untold:
        lines.append(silence(untold))
    if fewer:
        serve, are = ("serves", "is") if fewer == 1 else ("serve", "are")
        lines.append(
            f"{counted(fewer, 'arm')} {serve} fewer clients than others, and {are} not compared."
        )
    return [" ".join(lines)] if lines else []


def silence(untold: Sequence[Standing]) -> str:
    """Why some arms cannot be told from the best one."""
    pairs = {one.against.n for one in untold if one.against is not None}
    if not pairs:
        return "Whether the others are worse cannot be told: they share no seed with it."
    most, rivals = max(pairs), max(one.rivals for one in untold)
    seeds = "1 seed" if most == 1 else f"{most} seeds"
    needed = seeds_needed(rivals)
    if most >= needed:
        return (
            "What lacks seeds of the best one and is ahead of it in the others cannot be told from "
            "it."
        )
    compared = "one comparison" if rivals == 1 else f"{rivals} comparisons"
    return (
        f"Whether {'the others are' if rivals > 1 else 'the other is'} worse cannot be told: the "
        f"smallest p value that {seeds} can give is {least_p(most):.15g}, and significance in "
        f"{compared} takes {needed} seeds."
    )
