"""The headline table: arms by rounds, measured beside published."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isinf
from operator import methodcaller
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedclust.helpers.errors import counted
from fedclust.metrics import METRICS
from fedclust.report.against_best import Standing, leading, rule, standings
from fedclust.report.arms import Arm, seeds_with_values, settings_of
from fedclust.report.columns import TableColumn, mean_and_std, mean_of
from fedclust.report.formats import (
    decimals,
    factor,
    heading,
    lower_is_better,
    mean_std,
    meant,
    plus_minus,
    signed,
)
from fedclust.report.reference import Printed
from fedclust.report.same_data import redrawn
from fedclust.report.spec import Spec
from fedclust.report.table import Cell, Table
from fedclust.report.trivial import Guess, below, guessed, guesses
from fedclust.report.unmatched import unmatched
from fedclust.report.unserved import leaving_out

# of the scores but the last round's
_TITLES = {"max": "best over rounds", "validation": "at best validation"}
_ASIDE = "paper, full size"
_FEW = 5  # methods that fit beside each other in any table
# metrics the papers' tables print; the last one belongs to the method inside `last_local`
_PRINTED = ("accuracy", "accuracy_client_mean", "accuracy_last_local")

Counted = tuple[Cell, int]  # and how many seeds it counts; 0 where that says nothing


@dataclass(frozen=True)
class HeadlineColumn:
    """One column of scores of the headline table.

    Attributes:
        title: its head.
        values: of one arm, by seed.
        round: 1-based round whose values these are; None where the whole run is scored.
        compared: whether a published number belongs beside it.
    """

    title: str
    values: Callable[[Arm], Mapping[int, float]]
    round: int | None = None
    compared: bool = True


def score_column(spec: Spec, arms: Sequence[Arm], score: str = "") -> HeadlineColumn:
    """The column that scores a whole run; only the report's own score has published numbers."""
    score = score or spec.score
    rounds = {arm.run.rounds for arm in arms}.union(*(_ends(spec.metric, arm) for arm in arms))
    last = f"last (round {rounds.pop()})" if len(rounds) == 1 else "last"
    return HeadlineColumn(
        _TITLES.get(score, last),
        lambda arm: arm.by_seed(spec.metric, score),
        compared=score == spec.score,
    )


def _ends(metric: str, arm: Arm) -> set[int]:
    """The 1-based rounds of the last tests of single seeds, where a budget ended them apart."""
    curve = arm.curve(metric)
    if curve is None:
        return set()
    known = ~np.isnan(curve.values)
    last = {int(curve.rounds[np.flatnonzero(one)[-1]]) + 1 for one in known.T if one.any()}
    return last if len(last) > 1 else set()


def columns(spec: Spec, arms: Sequence[Arm]) -> list[HeadlineColumn]:
    """The columns a report has: the rounds that were reached, or the score of the whole run."""
    score = score_column(spec, arms)
    if spec.score != "last":
        # over settings one number per arm; the last ones are in the table over rounds
        return [score] if in_panels(arms) else [score, score_column(spec, arms, "last")]
    wanted = spec.rounds or ()
    reached = [i for i in wanted if any(_at(spec.metric, i, arm) for arm in arms)]
    shown = [HeadlineColumn(f"round {i}", partial(_at, spec.metric, i), i) for i in reached]
    if not reached or len(reached) < len(wanted):
        shown.append(score)
    if not in_panels(arms) and any(arm.curve(arm.validated) for arm in arms):
        shown.append(score_column(spec, arms, "validation"))
    return shown


def headline(spec: Spec, arms: Sequence[Arm]) -> Table:
    """Mean ± std over seeds of every arm and column, with the published number and the difference.

    Where an arm is smaller than the paper's or of other data, the published number stands in a
    column of its own, without a difference.
    """
    metric, scale = spec.metric, factor(spec.metric)
    shown = columns(spec, arms)
    cells: dict[tuple[str, str], Counted] = {}
    records = []
    standings = {column.title: standing(arms, column, metric) for column in shown}
    aside: dict[str, None] = {}  # heads of printed numbers that nothing here may be held against
    for arm in arms:
        for head, number in _aside(spec, arm, shown):
            aside[head] = None
            cells[arm.label, head] = printed_alone(number), 0
        for column in shown:
            values = scale * np.array(list(column.values(arm).values()))
            printed = _published(spec, arm, column)
            best = arm.label in leading(standings[column.title])
            against = printed if arm.comparable else None
            made = cell(values, against, best=best, digits=decimals(metric, values))
            if column.round is None and not arm.finished and len(values):
                early = f"after {counted(arm.run.rounds, 'round')}"
                made = made.noted(early, made.detail)
            cells[arm.label, column.title] = made, len(values)
            records.append(_record(arm, column, metric, values, printed))
    own, panels = list(records), in_panels(arms)
    others = beside(metric, arms, recovery=not panels)
    for head, other in others.items():
        for arm in arms:
            values = other.read(arm)
            if len(values) or head != "epsilon":  # which only private arms have
                cells[arm.label, head] = other.cell(values), len(values)
                records.append({"arm": arm.label, "column": head, **other.numbers(values)})
    titles = [column.title for column in shown]
    unlearned = guesses(arms, [metric], by_setting=panels)
    for guess in unlearned:
        values = guess.last(metric)
        for head in titles:  # it learns nothing, so every round has the same
            cells[guess.label, head] = Cell(text=mean_std(metric, values), pale=True), len(values)
    heads, rows = layout(arms, titles, cells, [*others, *aside], unlearned)
    meaning, *notes = _notes(spec, arms, own)
    if agreement := [head for head in others if head != "epsilon"]:
        notes.append(f"{', '.join(agreement)}: agreement of clusters and true groups at the end.")
    if "epsilon" in others:
        notes.append("epsilon: of differential privacy in the last round, for one seed.")
    guess_notes = below(spec, arms)
    rules = rule([place for one in standings.values() for place in one.values()], metric)
    over, *further = notes
    return Table(
        name="table",
        title=heading(metric),
        columns=heads,
        rows=rows,
        records=tuple(records),
        notes=(meaning, *notes, *unmatched(spec, arms), *rules, *guess_notes),
        printed=(over, *rules, *further, *guess_notes),  # what the caption does not say
    )


def one_or_range(values: NDArray[np.float64]) -> str:
    """Values [S] of seeds that are mostly the same, maybe infinite: the one, or the range."""
    if not len(values):
        return "–"
    low, high = f"{values.min():.2f}", f"{values.max():.2f}"
    return low if low == high else f"{low} to {high}"


def _at_end(metric: str, head: str, write: Callable[[NDArray[np.float64]], str]) -> TableColumn:
    record = mean_of("mean") if metric == "epsilon" else mean_and_std("mean", "std")
    return TableColumn(
        head,
        methodcaller("last", metric),
        write,
        lambda values: {"metric": metric, "n": len(values), **record(values)},
    )


# how well true groups are recovered at the end, and what privacy is left
_BESIDE = {
    "purity": _at_end("purity", "purity", plus_minus),
    "ari": _at_end("ari", "ARI", plus_minus),
    "epsilon": _at_end("epsilon", "epsilon", one_or_range),
}


def beside(metric: str, arms: Sequence[Arm], *, recovery: bool = True) -> dict[str, TableColumn]:
    """The columns beside the score of a main table, by head."""
    return {
        str(column.head): column
        for name, column in _BESIDE.items()
        if name != metric and any(arm.curve(name) for arm in arms)
        if recovery or name == "epsilon"
    }


def final_scores(spec: Spec, arms: Sequence[Arm]) -> dict[tuple[str, str], dict[int, float]]:
    """The score of every seed of the arms that have ended and serve all clients that others do, by
    setting and name.
    """
    ended = [arm for arm in arms if arm.finished]
    left = leaving_out(ended)
    return {
        (arm.setting, arm.name): arm.by_seed(spec.metric, spec.score)
        for arm in ended
        if arm.label not in left
    }


def standing(arms: Sequence[Arm], column: HeadlineColumn, metric: str) -> dict[str, Standing]:
    """Where every arm stands in its setting, by label; scores of runs compare ended arms only."""
    ended = [arm for arm in arms if arm.finished or column.round is not None]
    places: dict[str, Standing] = {}
    ratios = redrawn(arms)
    left = leaving_out(ended, column.round)
    for setting in settings_of(ended):
        own = [arm.label for arm in ended if arm.setting == setting]
        places |= {label: Standing("fewer", 0) for label in own if label in left}
        scores = {
            a.label: column.values(a) for a in ended if a.setting == setting and a.label not in left
        }
        ratio = ratios.get(setting, 0.0)
        # with the same test examples in all seeds, what is told is told of these
        places |= standings(scores, metric, 0.0 if isinf(ratio) else ratio)
    return places


def layout(
    arms: Sequence[Arm],
    titles: Sequence[str],
    cells: Mapping[tuple[str, str], Counted],
    aside: Sequence[str] = (),
    beside: Sequence[Guess] = (),
) -> tuple[tuple[str, ...], tuple[tuple[Cell, ...], ...]]:
    """Heads and rows: arms by columns, or settings and algorithms where a setting holds several.

    Args:
        aside: further heads, of which some arms have a cell.
        beside: lines that stand below the arms, or a column where settings are rows.
    """
    nothing: Counted = Cell(text="–", pale=True), 0
    lines: list[Arm | Guess] = [*arms, *beside]
    heads = [*titles, *aside]
    if not in_panels(arms):
        rows = [
            (
                Cell(text=line.label),
                *(cells.get((line.label, head), nothing)[0] for head in heads),
                Cell(text=_span([cells[line.label, head][1] for head in titles])),
            )
            for line in lines
        ]
        return ("arm", *heads, "seeds"), tuple(rows)
    names = tuple(dict.fromkeys(line.name for line in lines))
    labels = {(line.setting, line.name): line.label for line in lines}
    alike = len({cells[arm.label, head][1] for arm in arms for head in titles} - {0}) <= 1

    def one(setting: str, name: str, head: str) -> Cell:
        """The cell of an arm, with its number of seeds where not all have the same."""
        label = labels.get((setting, name))
        if label is None:
            return Cell(text="")
        own, seen = cells.get((label, head), nothing)
        number = "" if alike or not seen else f"{seen} seeds"
        return own.noted(own.detail, number)

    places = [
        (setting, head)
        for setting in settings_of(arms)
        for head in heads
        if head in titles or any((a.label, head) in cells for a in arms if a.setting == setting)
    ]
    sides = [
        Cell(text=", ".join([setting or "otherwise", *([] if [head] == titles else [head])]))
        for setting, head in places
    ]
    grid = [[one(setting, name, head) for name in names] for setting, head in places]
    if len({arm.name for arm in arms}) <= max(_FEW, len(places)):
        return ("setting", *names), tuple((s, *row) for s, row in zip(sides, grid, strict=True))
    # many methods read better below each other
    return ("arm", *(side.text for side in sides)), tuple(
        (Cell(text=name), *row) for name, *row in zip(names, *grid, strict=True)
    )


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _at(metric: str, iteration: int, arm: Arm) -> dict[int, float]:
    curve = arm.curve(metric)
    return seeds_with_values(curve.seeds, curve.at(iteration - 1)) if curve else {}


def printed_for(spec: Spec, arm: Arm, column: HeadlineColumn) -> tuple[str, Printed] | None:
    """The number printed for an arm in a table of one column, with its head."""
    if arm.comparable:
        number = _published(spec, arm, column)
        return ("paper", number) if number else None
    return next(reversed(_aside(spec, arm, [column])), None)


def _published(spec: Spec, arm: Arm, column: HeadlineColumn) -> Printed | None:
    if spec.published is None or not column.compared or spec.metric not in _PRINTED:
        return None
    return _looked_up(spec, arm, column.round)


def _looked_up(spec: Spec, arm: Arm, iteration: int | None) -> Printed | None:
    """The number printed for a round of an arm or, of a whole run, for its last or best round."""
    method = arm.base if spec.metric == "accuracy_last_local" else arm.algorithm
    whole = iteration is None
    look_up = partial(spec.printed, method, arm.cell, iteration or arm.run.rounds, whole=whole)
    over_rounds = whole and spec.score == "max"
    return look_up() or (look_up(metric="test_acc_max") if over_rounds else None)


def _aside(spec: Spec, arm: Arm, shown: Sequence[HeadlineColumn]) -> list[tuple[str, Printed]]:
    """The printed numbers of an arm that is not comparable, with the heads they stand below."""
    if arm.comparable or spec.published is None or spec.metric not in _PRINTED:
        return []
    numbers = {c.title: _published(spec, arm, c) for c in shown}
    for i in spec.rounds or ():
        numbers[f"round {i}"] = _looked_up(spec, arm, i)
    known = {head: number for head, number in numbers.items() if number}
    alone = len(shown) == 1 and list(known) == [shown[0].title]
    return [(_ASIDE if alone else f"{_ASIDE}, {h}", number) for h, number in known.items()]


def printed_alone(number: Printed) -> Cell:
    """A published number that no measured one may be held against."""
    return Cell(text=written(number), pale=True)


def written(number: Printed) -> str:
    """A published number as its table prints it."""
    return f"{number.mean:g}" if number.std is None else f"{number.mean:.2f} ± {number.std:.2f}"


def in_panels(arms: Sequence[Arm]) -> bool:
    """Whether settings are experiments of their own: some setting holds more than one algorithm."""
    return any(
        len({a.name for a in arms if a.setting == s}) > 1 for s in {a.setting for a in arms} - {""}
    )


def cell(
    values: NDArray[np.float64],
    printed: Printed | None,
    *,
    judged: bool = True,
    best: bool = False,
    digits: int = 2,
) -> Cell:
    """Mean ± std of the seeds, `judged` against the printed number.

    Args:
        values: [S] per seed, in the printed unit.
        printed: the paper's number, or None.
        judged: whether it is marked as agreeing or not.
        best: whether to set it in bold.
        digits: decimals.
    """
    text = plus_minus(values, digits)
    if printed is None:
        return Cell(text=text, strong=best)
    paper = written(printed)
    if not len(values):
        return Cell(text=text, detail=f"paper {paper}")
    gap = signed(float(values.mean()) - printed.mean, digits)
    good = printed.agrees(values) if judged else None
    return Cell(text=text, detail=f"paper {paper}, {gap}", good=good, strong=best)


def _record(
    arm: Arm,
    column: HeadlineColumn,
    metric: str,
    values: NDArray[np.float64],
    printed: Printed | None,
) -> Mapping[str, Any]:
    record: dict[str, Any] = {"arm": arm.label, "column": column.title, "metric": metric}
    record["n"] = len(values)
    if len(values):
        record |= {"mean": float(values.mean()), "std": float(values.std())}
    if len(guess := factor(metric) * guessed(arm, metric)):
        record["no_inputs"] = float(guess.mean())
    if printed is not None:
        std = "" if printed.std is None else printed.std
        record |= {"published": printed.mean, "published_std": std}
        if len(values) and arm.comparable:
            gap = float(values.mean()) - printed.mean
            good = printed.agrees(values)
            record |= {"difference": gap, "agrees": "" if good is None else good}
    return record


def _why_empty(spec: Spec, arms: Sequence[Arm], records: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line on the arms without any value in the table, by the reason."""
    filled = {record["arm"] for record in records if record["n"]}
    reasons: dict[str, list[str]] = {}
    for arm in (one for one in arms if one.label not in filled):
        if arm.curve(spec.metric) is not None:
            why = f"has no value of {spec.metric} in the rounds shown"
        else:
            missing = "did not record {}" if arm.finished else "has not recorded {} yet"
            why = missing.format(spec.metric)
        reasons.setdefault(why, []).append(arm.label)
    return [f"No seeds are counted of what {why}: {', '.join(a)}." for why, a in reasons.items()]


def _notes(spec: Spec, arms: Sequence[Arm], records: Sequence[Mapping[str, Any]]) -> list[str]:
    counts = {record["n"] for record in records if record["n"]}
    each = "the seeds that each row or cell counts"
    over = counted(max(counts), "seed") if len(counts) == 1 else each
    own_title = METRICS[spec.metric].title
    less = "; less is better" if own_title and lower_is_better(spec.metric) else ""
    notes = [
        f"{meant(spec.metric)}{less}.",
        f"Mean ± standard deviation (population form) over {over}.",
        *_why_empty(spec, arms, records),
    ]
    if spec.published and any("published" in record for record in records):
        paper, _, table = spec.published.partition("/")
        if any(arm.comparable for arm in arms):
            notes.append(
                f"“paper”: the number printed in {paper}, {table}, then measured minus printed. ✓: "
                "the 90 % interval of the mean of three seeds or more lies within a point of it, "
                "or it lies in the 95 % interval of one more run (of the difference of two means "
                "where the paper prints a spread), which reaches two points at most. Without a "
                "mark: the seeds differ too much to tell, or are one. Quantities other than "
                "accuracies: 5 % for a point, one round for rounds."
            )
        if not all(arm.comparable for arm in arms):
            notes.append(
                f"“{_ASIDE}”: the number printed in {paper}, {table}; runs of another size, of "
                "other data or with another protocol are not held against it."
            )
    if spec.score == "max":
        notes.append(
            "Best over rounds is chosen on test data and therefore optimistic; it is the "
            "published score. Rounds before every client was served once do not count."
        )
    if any(record["column"] == _TITLES["validation"] for record in records):
        notes.append(
            "At best validation: in the round, of every seed its own, in which the "
            f"{arms[0].validated.removeprefix('validation_').replace('_', ' ')} on validation "
            f"examples is {'lowest' if lower_is_better(arms[0].validated) else 'highest'}. The "
            "test data take no part in the choice."
            + (
                ""
                if all(arm.curve(arm.validated) for arm in arms)
                else " –: the run set no validation examples aside; validation=0.2 takes a fifth "
                "of every client's training examples."
            )
        )
    return notes
