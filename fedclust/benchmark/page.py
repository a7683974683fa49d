"""The page of the benchmark as Markdown: seven answers first, then the tables behind them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from math import isfinite

import numpy as np

from fedclust.benchmark.answers import answers, family, percent, places
from fedclust.benchmark.results import (
    ALONE,
    COSTS,
    KNOWING,
    ONE_FOR_ALL,
    TRACKS,
    Track,
)
from fedclust.benchmark.standings import ALIKE, HELPS, Block, Standings
from fedclust.helpers.errors import counted
from fedclust.helpers.prose import table
from fedclust.report.formats import signed

PICTURE = "at_a_glance.png"
_WIDTH = 100
_NEAR_ORACLE = 0.95
_SHOWN = 5  # families of a table; the data page has all


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
    parts += ["## In short", _items(answers(planted, natural))]
    parts.append("## Standings")
    parts += [_standings(planted, track, _SHOWN) for track, _ in planted.not_told]
    parts.append(_told_alone(planted) + _legend(planted, beside))
    parts += ["## Every kind of shift", f"![at a glance]({beside}/{PICTURE})"]
    parts += _shifts(planted.widest[1])
    if natural and natural.by_track:
        parts += ["## Natural federations", *_natural(natural.first[1])]
    if changed:
        parts += ["## What changed", changed.strip()]
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
        gaps.append(f"Not run yet, or in too few federations: {'; '.join(missing)}.")
    for track, found in planted.not_told if planted.by_track else ():
        there = {one.case for one in found.federations}
        lacking = [case for case in planted.bench.federations if case not in there]
        names = ", ".join(name.rpartition("/")[2] for name in lacking)
        said = [f"Too few methods have run in: {names}."] if lacking else []
        said += [_unranked(found)] if found.left_out else []
        gaps += [f"{track.name[0].upper()}{track.name[1:]}: {' '.join(said)}"] if said else []
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
    _, found = planted.widest
    every = found.federations
    minutes = [sum(one.results[name].seconds for one in every) / 60 for name in found.methods]
    return (
        f"a method needs {np.median(minutes):.0f} minutes of one core for the "
        f"{counted(len(every), 'planted federation')} (the methods' median, beside other work)"
    )


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
            beside.append(percent(float(np.median(shares))) if shares else "–")
        elsewhere = float(np.mean(list(row.elsewhere.values()))) if row.elsewhere else np.nan
        rows.append(
            [
                family(row),
                f"{row.rank:.1f}",
                places(row),
                percent(row.median),
                *beside,
                percent(row.worst),
                signed(elsewhere, 1) if isfinite(elsewhere) else "–",
                row.wins,
                signed(found.worst_tenth(row.name), 1),
                percent(found.hurt(row.name)),
            ]
        )
    head = [f"{track.name}, {counted(len(found.federations), 'federation')}"]
    head += ["mean rank", "place", f"share, {track.name}"]
    head += [f"share, {one.name}" for one in others]
    head += ["worst share", "elsewhere", "wins", "worst tenth", "hurt"]
    return table(head, rows, 1)


def _told_alone(of: Block) -> str:
    """The methods that are in no track without the number, in words; "" for none."""
    own = {name for _, found in of.not_told for name in (*found.methods, *found.left_out)}
    for other, found in of.by_track.items():
        if names := sorted({*found.methods} - own):
            return f"In “{other.name}” alone: {', '.join(names)}. "
    return ""


def _legend(of: Block, beside: str) -> str:
    every = [found for _, found in of.not_told]
    most = max(len(found.rows) for found in every)
    said = f" [The data]({beside}/data.md) have all {most} rows." if most > _SHOWN else ""
    helped = " and ".join(dict.fromkeys(str(len(found.helped)) for found in every))
    return (
        "*Share*: percent of the way from FedAvg (0) to the oracle (100), median over the "
        f"{helped} federations in which knowing the groups is worth more than {HELPS:g} point; "
        "*worst share*: the lowest of them. *Elsewhere*: points above FedAvg in the others. "
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
                percent(one.share(best.name)),
                f"{below} of {len(ranked) - 1}",
            ]
        )
    head = ["shift", "oracle", "FedAvg", "Local", "no inputs", "best", "method", "share"]
    note = (
        "Accuracy in percent in the last round, mean over seeds. *No inputs*: a constant guess for "
        "each client, its most frequent class; ▾ where FedAvg is below it, so that a gain over "
        "FedAvg says little. *Below FedAvg*: how many methods are, near copies counted once."
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
                percent(found.at_equal(row.name, cost)),
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
