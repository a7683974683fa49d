"""The page of the benchmark as Markdown: seven answers first, then the tables behind them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np

from fedclust.benchmark.frozen import Frozen
from fedclust.benchmark.results import (
    ALONE,
    COSTS,
    KNOWING,
    ONE_FOR_ALL,
    TRACKS,
    Result,
    Track,
)
from fedclust.benchmark.standings import ALIKE, HELPS, Row, Standings, standings
from fedclust.helpers.errors import counted
from fedclust.helpers.prose import table
from fedclust.report.formats import signed

PICTURE = "at_a_glance.png"
_WIDTH = 100
SOLVED, OPEN = 95.0, 80.0  # percent of the oracle's gain
_POINT = 1.0
_NEAR_ORACLE = 0.95
_PERSONAL = "finetune"
_NAMED = 4  # methods in a sentence
_SHOWN = 7  # families of the first table; the data page has all


@dataclass(frozen=True)
class Block:
    """The standings of a block by track, those without any left out."""

    bench: Frozen
    results: Sequence[Result]
    by_track: dict[Track, Standings]

    @property
    def first(self) -> tuple[Track, Standings]:
        """The track that a reader meets."""
        return next(iter(self.by_track.items()))


def block(bench: Frozen, results: Sequence[Result]) -> Block:
    """The standings of a version's results."""
    made: dict[Track, Standings] = {}
    for track in TRACKS:
        own = [one for one in results if one.plays_in(track)]
        # a track is one of its own once a method that needs a number has run in it
        if any(one.told is not None for one in own) or track == TRACKS[-1]:
            found = standings(own, list(bench.federations))
            made |= {track: found} if found else {}
    return Block(bench, results, made)


def page(planted: Block, natural: Block | None, beside: str, changed: str = "") -> str:
    """The page.

    Args:
        planted: the block that is ranked.
        natural: the second one; None where nothing of it has run.
        beside: the folder of the picture and the data, beside the page.
        changed: what differs from an earlier page, written by hand; "" for nothing.
    """
    parts = [
        f"# {planted.bench.name.replace('v', 'fedclust-bench v', 1)}",
        *_head(planted, natural),
    ]
    if not planted.by_track:
        return _joined([*parts, "No federation has enough methods for a table yet."])
    parts += ["## In short", _items(_answers(planted, natural))]
    track, found = planted.first
    parts += ["## Standings", _standings(planted, track, _SHOWN)]
    parts.append(_told_alone(planted, track) + _legend(found, beside))
    parts += ["## Every kind of shift", f"![at a glance]({beside}/{PICTURE})"]
    parts += _shifts(found)
    if natural and natural.by_track:
        parts += ["## Natural federations", *_natural(natural.first[1])]
    if changed:
        parts += ["## What changed", changed.strip()]
    parts += ["## How to run it", *_how()]
    return _joined(parts)


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(_wrapped(part) for part in parts) + "\n"


def _wrapped(part: str) -> str:
    lines = part.split("\n")
    if part.startswith(("#", "|", "!", "`")):
        return part
    return "\n".join(
        textwrap.fill(
            line,
            _WIDTH,
            subsequent_indent="   " if line[:2].rstrip(".").isdigit() else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in lines
    )


def _items(lines: Sequence[str]) -> str:
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))


def _head(planted: Block, natural: Block | None) -> list[str]:
    both = [one for one in (planted, natural) if one and one.results]
    every = [one for of in both for one in of.results]
    hours = sum(one.seconds for one in every) / 3600
    versions = " and ".join(f"{one.bench.name} `{one.bench.digest}` ({_made(one)})" for one in both)
    lines = [
        f"Made by `fedclust benchmark page` from the files of {len(every):,} jobs. The benchmark "
        "is frozen: settings, data, partitions, seeds and what a round computes have the digests "
        f"{versions}. The jobs took {hours:.1f} hours of computing, searches not counted; "
        f"{_minutes(planted)}. `docs/benchmark/rules.md` says what a method may use, and how to "
        "submit one.",
    ]
    gaps = list[str]()
    missing = [
        f"{one.name} ({one.about})"
        for one in TRACKS
        if planted.by_track and one not in planted.by_track
    ]
    if missing:
        gaps.append(f"Not run yet: {'; '.join(missing)}.")
    for of in (planted, natural):
        if of and of.by_track:
            track, found = of.first
            gaps += [_unranked(found)] if found.left_out else []
            there = {one.case for one in found.federations}
            if lacking := [case for case in of.bench.federations if case not in there]:
                gaps.append(f"Too few methods have run ({track.name}) in: {', '.join(lacking)}.")
    return [*lines, " ".join(gaps)] if gaps else lines


def _unranked(found: Standings) -> str:
    """The methods that lack a federation of a table, in words."""
    lacks: dict[str, list[str]] = {}
    for name, where in found.left_out.items():
        titles = ", ".join(one.title for one in found.federations if one.case in where)
        lacks.setdefault(titles, []).append(name)
    some = "; ".join(f"{', '.join(names)} ({titles})" for titles, names in lacks.items())
    return f"Without a result in a federation, so not ranked: {some}."


def _made(of: Block) -> str:
    """The commits of its jobs, in words."""
    commits = sorted({one.commit[:8] for one in of.results})
    return f"{'commit' if len(commits) == 1 else 'commits'} {', '.join(commits)}"


def _minutes(planted: Block) -> str:
    """What a method costs, in words."""
    if not planted.by_track:
        return "no method has run in all federations yet"
    _, found = planted.first
    every = found.federations
    minutes = [sum(one.results[name].seconds for one in every) / 60 for name in found.methods]
    return (
        f"a method needs {np.median(minutes):.0f} minutes of one core for the "
        f"{counted(len(every), 'planted federation')} (the methods' median, beside other work)"
    )


def _answers(planted: Block, natural: Block | None) -> list[str]:
    track, found = planted.first
    answers = [
        f"**Which method would I pick knowing nothing?** {_pick(track, found)}",
        f"**What does not knowing the number of groups cost?** {_between(planted, 1, 2)}",
        f"**Which kinds of shift are solved, which are open?** {_solved(found)}",
        f"**When should I not cluster?** {_alternatives(found)}",
        f"**What does tuning change?** {_between(planted, 0, 1)}",
        f"**What do bytes and local steps buy?** {_bought(found)}",
    ]
    said = _holds(natural.first[1]) if natural and natural.by_track else "Not run yet."
    return [*answers, f"**Does it hold on natural data?** {said}"]


def _pick(track: Track, found: Standings) -> str:
    best = found.rows[0]
    near = [row.name for row in found.rows[1:] if row.first <= best.last]
    beside = f" {_named(near)} cannot be told from it." if near else ""
    where = f"where groups help, a median of {best.median:.0f} %" if best.shares else ""
    return (
        f"{_family(best)}: mean rank {best.rank:.1f} of {len(found.rows)}, place {_range(best)}; "
        f"{where} of what knowing the groups gives, at worst {_percent(best.worst)} %.{beside} "
        f"({track.name[0].upper()}{track.name[1:]}: {track.about}.) "
        f"`fedclust run experiment=benchmark/v1 algorithm={best.name}`"
    )


def _named(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    shown = [*names[:_NAMED], *([f"{more} more"] if more > 0 else [])]
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]


def _between(planted: Block, less: int, more: int) -> str:
    """What the methods of two tracks gain from one to the other."""
    one, other = TRACKS[less], TRACKS[more]
    if not {one, other} <= planted.by_track.keys():
        absent = next(track.name for track in (one, other) if track not in planted.by_track)
        return f"Not measured yet: there are no jobs of “{absent}”."
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
        return "Not measured yet: no method has both from one commit and machine."
    low, high = (pick(means, key=means.__getitem__) for pick in (min, max))
    return (
        f"In the median of {counted(len(means), 'method')}, “{one.name}” is "
        f"{signed(float(np.median(list(means.values()))), 1)} points beside “{other.name}”; "
        f"from {signed(means[low], 1)} ({low}) to {signed(means[high], 1)} ({high})."
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
        said.append(f"groups are worth nothing, or there are none: {', '.join(none)}")
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
        f"In {len(enough)} of {total} federations {', '.join(plain)} or one of them is within a "
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
        f"{', '.join(some) or 'none'}. The best mean rank there has {_family(top)} (place "
        f"{_range(top)})."
    )


def _family(row: Row) -> str:
    return ", ".join(row.family)


def _range(row: Row) -> str:
    return f"{row.first}" if row.first == row.last else f"{row.first} to {row.last}"


def _percent(value: float) -> str:
    return f"{value:.0f}".replace("-", "−") if isfinite(value) else "–"


def _standings(of: Block, track: Track, most: int | None = None) -> str:
    """The table of a track, of so many families and FedAvg's and Local's."""
    found = of.by_track[track]
    others = [one for one in of.by_track if one != track]
    rows = []
    for place, row in enumerate(found.rows):
        if most is not None and place >= most and not {ONE_FOR_ALL, ALONE} & {*row.family}:
            continue
        beside = []
        for one in others:
            shares = [f.share(row.name) for f in of.by_track[one].helped if row.name in f.results]
            beside.append(_percent(float(np.median(shares))) if shares else "–")
        elsewhere = float(np.mean(list(row.elsewhere.values()))) if row.elsewhere else np.nan
        rows.append(
            [
                _family(row),
                f"{row.rank:.1f}",
                _range(row),
                _percent(row.median),
                *beside,
                _percent(row.worst),
                signed(elsewhere, 1) if isfinite(elsewhere) else "–",
                row.wins,
                signed(found.worst_tenth(row.name), 1),
                _percent(found.hurt(row.name)),
            ]
        )
    head = ["method", "mean rank", "place", f"share, {track.name}"]
    head += [f"share, {one.name}" for one in others]
    head += ["worst share", "elsewhere", "wins", "worst tenth", "hurt"]
    return table(head, rows, 1)


def _told_alone(of: Block, track: Track) -> str:
    """The methods that are in a later track alone, in words; "" for none."""
    own = {*of.by_track[track].methods, *of.by_track[track].left_out}
    for other, found in of.by_track.items():
        names = sorted({*found.methods} - own)
        if other != track and names:
            return f"In “{other.name}” alone, not in this table: {', '.join(names)}. "
    return ""


def _legend(found: Standings, beside: str) -> str:
    more = len(found.rows) - _SHOWN
    said = f" [The data]({beside}/data.md) have all {len(found.rows)} rows." if more > 0 else ""
    return (
        "*Share*: percent of the way from FedAvg (0) to the oracle (100), median over the "
        f"{len(found.helped)} federations in which knowing the groups is worth more than {HELPS:g} "
        "point; *worst share*: the lowest of them. *Elsewhere*: points above FedAvg in the others. "
        "*Mean rank*: over all federations. *Place*: the places in 95 % of the draws, when seeds "
        "are drawn anew and one federation after the other is left out; methods whose places "
        "overlap cannot be told apart. *Worst tenth*: accuracy of the worst-served tenth of the "
        "clients, in points above FedAvg's. *Hurt*: percent of the clients that are more than two "
        "points worse than alone. Methods in one row are near copies: less than "
        f"{ALIKE:g} points apart in the same seed, in the mean over federations.{said}"
    )


def _shifts(found: Standings) -> list[str]:
    rows = []
    for one in found.federations:
        means = {name: float(result.score.mean()) for name, result in one.results.items()}
        ranked = sorted((row for row in found.rows), key=lambda row: -means[row.name])
        best = ranked[0]
        below = sum(means[row.name] < means[ONE_FOR_ALL] for row in ranked)
        guess = max((r.guess for r in one.results.values() if r.guess == r.guess), default=np.nan)
        low = " ▾" if guess > means[ONE_FOR_ALL] else ""
        rows.append(
            [
                one.title,
                f"{means[KNOWING]:.1f}" if KNOWING in means else "–",
                f"{means[ONE_FOR_ALL]:.1f}",
                f"{means[ALONE]:.1f}" if ALONE in means else "–",
                f"{guess:.1f}{low}" if isfinite(guess) else "–",
                f"{means[best.name]:.1f}",
                best.name,
                _percent(one.share(best.name)),
                f"{below} of {len(ranked) - 1}",
            ]
        )
    head = ["shift", "oracle", "FedAvg", "Local", "no inputs", "best", "method", "share"]
    note = (
        "Accuracy in percent in the last round, mean over seeds. *No inputs*: a constant guess for "
        "each client, its most frequent class; ▾ where FedAvg is below it, so that a gain over "
        "FedAvg says little. The last column: how many families are below FedAvg."
    )
    return [table([*head, "below FedAvg"], rows, 1), note]


def _costs(found: Standings) -> list[str]:
    rows = []
    for row in [row for row in found.rows if row.name != ONE_FOR_ALL]:
        cells = []
        for cost in COSTS:
            until = found.until(row.name, cost, _NEAR_ORACLE)
            cells += [
                f"{found.cost(row.name, cost):.2g}",
                _percent(found.at_equal(row.name, cost)),
                f"{until:.2g}" if isfinite(until) else "never",
            ]
        rows.append([row.name, *cells])
    head = ["method", "bytes", "share at equal bytes", "bytes to 95 %"]
    head += ["steps", "share at equal steps", "steps to 95 %"]
    return [
        table(head, rows, 1),
        "*Bytes*, *steps*: a whole run's, both over FedAvg's. *At equal*: the median share when as "
        "much is spent as FedAvg needs. *To 95 %*: what is spent until the score stays at 95 % of "
        "the oracle's, over FedAvg's whole run; never: in half of the federations or more.",
    ]


def _natural(found: Standings) -> list[str]:
    rows = []
    for one in found.federations:
        means = {name: float(result.score.mean()) for name, result in one.results.items()}
        other = one.alternative
        best = max(one.others, key=means.__getitem__)
        gain = one.compared(best, other)
        digits = 1 if abs(means[other]) > 2 else 3
        rows.append(
            [
                one.title,
                one.results[ONE_FOR_ALL].metric.replace("_", " "),
                f"{abs(means[ONE_FOR_ALL]):.{digits}f}",
                f"{abs(means[ALONE]):.{digits}f}" if ALONE in means else "–",
                f"{abs(means[best]):.{digits}f}",
                best,
                f"{signed(gain.low, digits)} to {signed(gain.high, digits)}",
                f"{len(one.better)} of {len(one.others)}",
            ]
        )
    head = ["federation", "metric", "FedAvg", "Local", "best", "method", "95 % interval", "better"]
    return [
        table(head, rows, 2),
        "Nobody has made these groups, so a method is held against the better of FedAvg and Local. "
        "The interval is that of the best method's gain, on ten seeds; choosing the best of many "
        "makes it look larger than it is. *Better*: methods whose gain is above 0 at 5 % (Holm).",
    ]


def _how() -> list[str]:
    return [
        "```\n"
        "fedclust run experiment=benchmark/v1 algorithm=mine --config-dir DIR      # your method\n"
        "fedclust run experiment=benchmark/v1_natural algorithm=mine --config-dir DIR\n"
        "fedclust benchmark pack outputs/benchmark/v1 mine --config-dir DIR --contact YOU\n"
        "fedclust benchmark verify outputs/benchmark/mine-v1.tar.xz --run\n"
        "fedclust benchmark page ARCHIVES outputs/benchmark/v1 --to page.md  # with your rows\n"
        "```",
    ]


def scores(blocks: Iterable[Block]) -> str:
    """Every seed's score as CSV."""
    lines = ["block,track,federation,method,seed,metric,score"]
    for of in blocks:
        for track in TRACKS:
            for one in of.results:
                if one.plays_in(track):
                    lines += [
                        f"{of.bench.name},{track.name},{one.case},{one.method},{seed},"
                        f"{one.metric},{value:.6f}"
                        for seed, value in zip(one.seeds, one.score, strict=True)
                    ]
    return "\n".join(lines) + "\n"


def data(planted: Block, natural: Block | None) -> str:
    """The second page: every method in every federation."""
    parts = [
        "# The benchmark's data",
        "Made together with [the benchmark's page](../benchmark.md), which says what the columns "
        "are; `scores.csv` in the same folder has every seed. A dash: not run, or refused there.",
    ]
    for of in (planted, natural) if natural else (planted,):
        for track, found in of.by_track.items():
            names = [row.name for row in found.rows]
            every = [*found.methods, *found.left_out]
            order = [KNOWING, *sorted(every, key=lambda n: (n not in names, n))]
            rows = [
                [
                    name,
                    *(
                        f"{abs(float(one.results[name].score.mean())):.4g}"
                        if name in one.results
                        else "–"
                        for one in found.federations
                    ),
                ]
                for name in order
            ]
            parts += [
                f"## {of.bench.name}: {track.name}",
                f"{track.about[0].upper()}{track.about[1:]}. In the last round, mean over seeds. "
                + (_unranked(found) if found.left_out else ""),
                table(["method", *(one.title for one in found.federations)], rows, 1),
                _standings(of, track),
            ]
            if found.helped:
                parts += ["What bytes and local steps buy:", *_costs(found)]
    return _joined(parts)
