"""The seven answers at the top of the benchmark's page, each with its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import numpy as np

from fedclust.benchmark.results import ALONE, COSTS, ONE_FOR_ALL, TRACKS, Track
from fedclust.benchmark.standings import Block, Row, Standings
from fedclust.helpers.errors import counted
from fedclust.report.formats import signed

SOLVED, OPEN = 95.0, 80.0  # percent of the oracle's gain
_POINT = 1.0
_PERSONAL = "finetune"
_NAMED = 4  # methods in a sentence


def answers(planted: Block, natural: Block | None) -> list[str]:
    """A sentence or two for each question; `planted` has at least one track."""
    found = planted.widest[1]
    best = " ".join(_pick(*one) for one in planted.not_told)
    said = [
        f"**Which method would I pick knowing nothing?** {best}",
        f"**What does not knowing the number of groups cost?** {_between(planted, 1, 2)}",
        f"**Which kinds of shift are solved, which are open?** {_solved(found)}",
        f"**When should I not cluster?** {_alternatives(found)}",
        f"**What does tuning change?** {_between(planted, 0, 1, 2)}{_searched(planted)}",
        f"**What do bytes and local steps buy?** {_bought(found)}",
    ]
    nature = _holds(natural.first[1]) if natural and natural.by_track else "Not run yet."
    return [*said, f"**Does it hold on natural data?** {nature}"]


def _pick(track: Track, found: Standings) -> str:
    best = found.rows[0]
    near = [row.name for row in found.rows[1:] if row.first <= best.last]
    beside = f" {_named(near)} cannot be told from it." if near else ""
    where = (
        f"; where groups help, a median of {best.median:.0f} % of what knowing them gives, at "
        f"worst {percent(best.worst)} %"
        if best.shares
        else ""
    )
    return (
        f"With {track.about}: {family(best)}, mean rank {best.rank:.1f} of {len(found.rows)}, "
        f"place {places(best)}{where}.{beside} `{_command(best.name, track, found)}`"
    )


def _command(method: str, track: Track, found: Standings) -> str:
    """What runs a method as the jobs of a track were run."""
    command = f"fedclust run experiment=benchmark/v1 algorithm={method}"
    needs_number = any(one.results[method].told is not None for one in found.federations)
    return f"{command} {track.typed}".rstrip() if track.tuned or needs_number else command


def _named(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    shown = [*names[:_NAMED], f"{more} more"] if more > 1 else names
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]


def _between(planted: Block, track: int, *others: int) -> str:
    """What methods gain in a track beside others, in a sentence for each."""
    one = TRACKS[track]
    if one not in planted.by_track:
        return f"Not measured yet: too few federations have jobs of “{one.name}”."
    return " ".join(_beside(planted, one, TRACKS[other]) for other in others)


def _beside(planted: Block, one: Track, other: Track) -> str:
    if other not in planted.by_track:
        return f"Nothing to compare with yet: too few federations have jobs of “{other.name}”."
    own, base = planted.by_track[one], planted.by_track[other]
    before = {federation.case: federation for federation in base.federations}
    gains: dict[str, list[float]] = {}
    for federation in own.federations:
        if federation.case not in before:
            continue
        for name in own.methods:
            beside = before[federation.case].results.get(name)
            mine = federation.results[name]
            # the same job in both tracks tells nothing
            if beside is None or beside is mine or not mine.is_made_like(beside):
                continue
            gains.setdefault(name, []).append(float(mine.score.mean() - beside.score.mean()))
    means = {name: float(np.mean(values)) for name, values in gains.items()}
    if not means:
        return f"No method has “{one.name}” and “{other.name}” from one commit and machine."
    low, high = (pick(means, key=means.__getitem__) for pick in (min, max))
    return (
        f"In the median of {counted(len(means), 'method')}, “{one.name}” is "
        f"{signed(float(np.median(list(means.values()))), 1)} points beside “{other.name}”; "
        f"from {signed(means[low], 1)} ({low}) to {signed(means[high], 1)} ({high})."
    )


def _searched(planted: Block) -> str:
    """What the searches cost and knew, in words."""
    costs = {one.search for one in planted.results if one.search}
    if TRACKS[0] not in planted.by_track or not costs:
        return ""
    return (
        f" A search costs {max(costs):.2g} runs of its method; its first trial has the default "
        "options and the number that is told otherwise."
    )


def _solved(found: Standings) -> str:
    solved, between, left = list[str](), list[str](), list[str]()
    for one in found.helped:
        share, name = max((row.shares[one.case], row.name) for row in found.rows)
        place = solved if share >= SOLVED else left if share < OPEN else between
        place.append(f"{one.title} ({name} {share:.0f} %)")
    said = [
        f"Solved, {SOLVED:g} % of the oracle's gain or more: {', '.join(solved) or 'none'}",
        f"open, less than {OPEN:g} %: {', '.join(left) or 'none'}",
    ]
    if between:
        said.append(f"between: {', '.join(between)}")
    none = [one.title for one in found.federations if not one.groups_help]
    if none:
        said.append(f"knowing the groups is worth a point or less: {', '.join(none)}")
    return "; ".join(said) + "."


def _alternatives(found: Standings) -> str:
    plain = [name for name in (ONE_FOR_ALL, ALONE, _PERSONAL) if name in found.methods]
    enough: list[str] = []
    for one in found.federations:
        means = {name: float(one.results[name].score.mean()) for name in found.methods}
        best = max(means.values())
        if near := [name for name in plain if best - means[name] <= _POINT]:
            enough.append(f"{one.title} ({near[0]})")
    total = len(found.federations)
    return (
        f"In {len(enough)} of {total} federations {' or '.join(plain)} is within a "
        f"point of the best method: {', '.join(enough) or 'none'}."
    )


def _bought(found: Standings) -> str:
    rows = [row for row in found.rows if row.shares and row.name != ONE_FOR_ALL]
    if not rows:
        return "Groups help in no federation here."
    said = []
    for cost, words in zip(COSTS, ("bytes", "local steps"), strict=True):
        best = max(rows, key=lambda row: found.at_equal(row.name, cost))
        said.append(
            f"at FedAvg's {words} {best.name} is best, with a median of "
            f"{found.at_equal(best.name, cost):.0f} % of the oracle's gain"
        )
    top = found.rows[0]
    costs = " and ".join(
        f"{found.cost(top.name, cost):.2g} times FedAvg's {words}"
        for cost, words in zip(COSTS, ("bytes", "local steps"), strict=True)
    )
    return f"{said[0][0].upper()}{said[0][1:]}; {said[1]}. A whole run of {top.name} needs {costs}."


def _holds(found: Standings) -> str:
    some = [
        f"{one.title} ({counted(len(one.better), 'method')})"
        for one in found.federations
        if one.better
    ]
    clustered = [one.title for one in found.federations]
    top = found.rows[0]
    return (
        f"In {len(some)} of {len(clustered)} natural federations some method is better than both "
        "one model for all and one for each, beyond chance: "
        f"{', '.join(some) or 'none'}. The best mean rank there has {family(top)} (place "
        f"{places(top)})."
    )


def family(row: Row) -> str:
    """The near copies of a row, in words."""
    return ", ".join(row.family)


def places(row: Row) -> str:
    """Its places in 95 % of the draws, in words."""
    return f"{row.first}" if row.first == row.last else f"{row.first} to {row.last}"


def percent(value: float) -> str:
    """A share as the tables have it; a dash for none."""
    return f"{value:.0f}".replace("-", "−") if isfinite(value) else "–"
