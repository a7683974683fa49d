"""The headline table: arms by rounds, measured beside published."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isinf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedclust.helpers.errors import counted
from fedclust.metrics import METRICS
from fedclust.report.against_best import Standing, rule, standings
from fedclust.report.arms import Arm, seeds_with_values, settings_of
from fedclust.report.formats import decimals, factor, meant, plus_minus, title
from fedclust.report.reference import Printed
from fedclust.report.same_data import redrawn
from fedclust.report.spec import Spec
from fedclust.report.table import Cell, Table
from fedclust.report.trivial import Guess, below, guessed, guesses
from fedclust.report.unmatched import unmatched

# of the scores but the last round's
_TITLES = {"max": "best over rounds", "validation": "at best validation"}
_ASIDE = "paper, full size"
_FEW = 5  # methods that fit beside each other in any table
# metrics the papers' tables print; the last one belongs to the method inside `last_local`
_PRINTED = ("accuracy", "accuracy_client_mean", "accuracy_last_local")


@dataclass(frozen=True)
class HeadlineColumn:
    """One column of the headline table.

    Attributes:
        title: its head.
        values: of one arm, by seed.
        iteration: 1-based round of an arm's value.
        whole: whether it scores the whole run.
        compared: whether a published number belongs beside it.
    """

    title: str
    values: Callable[[Arm], Mapping[int, float]]
    iteration: Callable[[Arm], int]
    whole: bool
    compared: bool = True


def score_column(spec: Spec, arms: Sequence[Arm]) -> HeadlineColumn:
    """The column that scores an arm as a whole: its last round, the best over rounds, or the
    round of best validation accuracy.
    """
    return HeadlineColumn(
        _TITLES.get(spec.score) or _last_title(arms),
        lambda arm: arm.by_seed(spec.metric, spec.score),
        lambda arm: arm.run.rounds,
        whole=True,
    )


def _best_by(arm: Arm) -> str:
    """What is best in a round chosen by validation examples."""
    name, how = arm.validated.removeprefix("validation_"), "highest"
    if arm.validated in METRICS and METRICS[arm.validated].better == "lower":
        how = "lowest"
    return f"{name.replace('_', ' ')} on validation examples is {how}"


def columns(spec: Spec, arms: Sequence[Arm]) -> list[HeadlineColumn]:
    """The columns a report has: the rounds that were reached, or the score of the whole run."""
    metric = spec.metric
    score = score_column(spec, arms)
    if in_panels(arms) and spec.score != "last":
        # one number per arm and setting; the last ones are in the table over rounds
        return [score]
    if spec.score != "last":
        last = score_column(replace(spec, score="last"), arms)
        return [score, replace(last, compared=False)]
    wanted = spec.rounds or ()
    reached = [i for i in wanted if any(_at(arm, metric, i) for arm in arms)]
    evaluated = [_iteration(metric, i) for i in reached]
    shown = evaluated if reached and len(reached) == len(wanted) else [*evaluated, score]
    if in_panels(arms) or not any(arm.curve(arm.validated) for arm in arms):
        return shown
    early = score_column(replace(spec, score="validation"), arms)
    return [*shown, replace(early, compared=False)]


def headline(spec: Spec, arms: Sequence[Arm]) -> Table:
    """Mean ± std over seeds of every arm and column, with the published number and the difference.

    Where an arm is smaller than the paper's or of other data, the published number stands in a
    column of its own, without a difference.
    """
    shown = columns(spec, arms)
    scale = factor(spec.metric)
    cells: dict[tuple[str, str], Cell] = {}
    records = []
    standings = {column.title: standing(arms, column, spec.metric) for column in shown}
    aside: dict[str, None] = {}  # heads of printed numbers that nothing here may be held against
    for arm in arms:
        for head, number in _aside(spec, arm, shown):
            aside[head] = None
            cells[arm.label, head] = printed_alone(number)
        for column in shown:
            values = scale * np.array(list(column.values(arm).values()))
            printed = _published(spec, arm, column)
            place = standings[column.title].get(arm.label)
            bold = place is not None and place.leads
            digits = decimals(spec.metric, values)
            shown_of = printed if arm.comparable else None
            made = cell(values, shown_of, judged=True, best=bold, digits=digits)
            if column.whole and not arm.finished and len(values):
                early = f"after {counted(arm.run.rounds, 'round')}"
                made = replace(made, detail="; ".join(filter(None, (early, made.detail))))
            cells[arm.label, column.title] = made
            records.append(_record(arm, column, spec.metric, values, printed))
    titles = [column.title for column in shown]
    found = {} if in_panels(arms) else recovered(spec.metric, arms)
    for name, head in found.items():
        for arm in arms:
            values = arm.last(name)
            cells[arm.label, head] = Cell(text=plus_minus(values))
            about = {"arm": arm.label, "column": head, "metric": name, "n": len(values)}
            known = {"mean": values.mean(), "std": values.std()} if len(values) else {}
            records.append(about | {key: float(value) for key, value in known.items()})
    spent = privacy_spent(spec.metric, arms)
    for head in spent.values():
        for arm in (one for one in arms if one.curve("epsilon")):
            values = arm.last("epsilon")
            cells[arm.label, head] = Cell(text=one_or_range(values))
            about = {"arm": arm.label, "column": head, "metric": "epsilon", "n": len(values)}
            records.append(about | {"mean": float(values.mean())} if len(values) else about)
    seeds = {(str(record["arm"]), str(record["column"])): int(record["n"]) for record in records}
    beside = guesses(arms, [spec.metric], by_setting=in_panels(arms))
    for one in beside:
        values = scale * one.values[spec.metric]
        text = plus_minus(values, decimals(spec.metric, values))
        for head in titles:  # it learns nothing, so every round has the same
            cells[one.label, head] = Cell(text=text, pale=True)
            seeds[one.label, head] = len(values)
    heads, rows = layout(
        arms, titles, cells, seeds, [*found.values(), *spent.values(), *aside], beside
    )
    unit = " (%)" if scale == 100.0 else ""
    notes = _notes(spec, arms, [one for one in records if one["metric"] == spec.metric])
    if found:
        notes.append(
            f"{', '.join(found.values())}: agreement of clusters and true groups at the end."
        )
    if spent:
        notes.append("epsilon: of differential privacy in the last round, for one seed.")
    guess_notes = below(spec, arms)
    rules = rule([place for one in standings.values() for place in one.values()], spec.metric)
    return Table(
        name="table",
        title=f"{title(spec.metric)}{unit}",
        columns=heads,
        rows=rows,
        records=tuple(records),
        notes=(*notes, *unmatched(spec, arms), *rules, *guess_notes),
        printed=(notes[1], *rules, *notes[2:], *guess_notes),  # what the caption does not say
    )


def recovered(metric: str, arms: Sequence[Arm]) -> dict[str, str]:
    """The columns beside the score in a main table of arms with true groups: how well these are
    recovered at the end, by metric.
    """
    shown = {"purity": "purity", "ari": "ARI"}
    return {
        name: head
        for name, head in shown.items()
        if name != metric and any(arm.curve(name) for arm in arms)
    }


def privacy_spent(metric: str, arms: Sequence[Arm]) -> dict[str, str]:
    """The column of epsilon in a main table of arms of which some are private, by metric."""
    private = metric != "epsilon" and any(arm.curve("epsilon") for arm in arms)
    return {"epsilon": "epsilon"} if private else {}


def one_or_range(values: NDArray[np.float64]) -> str:
    """Values [S] of seeds that are mostly the same, maybe infinite: the one, or the range."""
    if not len(values):
        return "–"
    low, high = f"{values.min():.2f}", f"{values.max():.2f}"
    return low if low == high else f"{low} to {high}"


def standing(arms: Sequence[Arm], column: HeadlineColumn, metric: str) -> dict[str, Standing]:
    """Where every arm stands against the best one of its setting, by label.

    A score of whole runs is compared among the arms that have ended.
    """
    ended = [arm for arm in arms if arm.finished or not column.whole]
    places: dict[str, Standing] = {}
    ratios = redrawn(arms)
    for setting in settings_of(ended):
        scores = {a.label: column.values(a) for a in ended if a.setting == setting}
        ratio = ratios.get(setting, 0.0)
        # with the same test examples in all seeds, what is told is told of these
        places |= standings(scores, metric, 0.0 if isinf(ratio) else ratio)
    return places


def layout(
    arms: Sequence[Arm],
    titles: Sequence[str],
    cells: Mapping[tuple[str, str], Cell],
    seeds: Mapping[tuple[str, str], int],
    aside: Sequence[str] = (),
    beside: Sequence[Guess] = (),
) -> tuple[tuple[str, ...], tuple[tuple[Cell, ...], ...]]:
    """Heads and rows: arms by columns, or settings and algorithms where a setting holds several.

    Args:
        arms: in order.
        titles: heads of the columns, of which every arm has a cell.
        cells: by label and head.
        seeds: how many a cell of these columns has, by label and head.
        aside: further heads, of which some arms have a cell.
        beside: lines that stand below the arms, or a column where settings are rows.
    """
    nothing = Cell(text="–", pale=True)
    lines: list[Arm | Guess] = [*arms, *beside]
    if not in_panels(arms):
        rows = [
            (
                Cell(text=line.label),
                *(cells.get((line.label, head), nothing) for head in (*titles, *aside)),
                Cell(text=_counted([seeds[line.label, head] for head in titles])),
            )
            for line in lines
        ]
        return ("arm", *titles, *aside, "seeds"), tuple(rows)
    names = tuple(dict.fromkeys(line.name for line in lines))
    labels = {(line.setting, line.name): line.label for line in lines}
    alike = len({seeds[arm.label, head] for arm in arms for head in titles} - {0}) <= 1

    def one(setting: str, name: str, head: str) -> Cell:
        """The cell of an arm, with its number of seeds where not all have the same."""
        label = labels.get((setting, name))
        if label is None:
            return Cell(text="")
        own = cells.get((label, head), nothing)
        seen = seeds.get((label, head), 0)  # 0 where a cell compares nothing
        number = "" if alike or not seen else f"{_counted([seen])} seeds"
        return replace(own, detail="; ".join(filter(None, (own.detail, number))))

    filled = {(arm.setting, head) for arm in arms for head in aside if (arm.label, head) in cells}
    places = [
        (setting, setting if [head] == titles else f"{setting or 'otherwise'}, {head}", head)
        for setting in settings_of(arms)
        for head in (*titles, *aside)
        if head in titles or (setting, head) in filled
    ]
    table = [[one(setting, name, head) for name in names] for setting, _, head in places]
    sides = [Cell(text=side or "otherwise") for _, side, _ in places]
    if len(dict.fromkeys(arm.name for arm in arms)) <= max(_FEW, len(places)):
        return ("setting", *names), tuple(
            (side, *row) for side, row in zip(sides, table, strict=True)
        )
    heads = tuple(side.text for side in sides)  # many methods read better below each other
    return ("arm", *heads), tuple(
        (Cell(text=name), *(row[i] for row in table)) for i, name in enumerate(names)
    )


def _counted(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _at(arm: Arm, metric: str, iteration: int) -> dict[int, float]:
    curve = arm.curve(metric)
    return seeds_with_values(curve.seeds, curve.at(iteration - 1)) if curve else {}


def _iteration(metric: str, iteration: int) -> HeadlineColumn:
    return HeadlineColumn(
        f"round {iteration}",
        lambda arm: _at(arm, metric, iteration),
        lambda arm: iteration,  # noqa: ARG005 - the same for every arm
        whole=False,
    )


def _last_title(arms: Sequence[Arm]) -> str:
    rounds = {arm.run.rounds for arm in arms}
    return f"last (round {rounds.pop()})" if len(rounds) == 1 else "last"


def printed_for(spec: Spec, arm: Arm, column: HeadlineColumn) -> tuple[str, Printed] | None:
    """The printed number that stands beside an arm's in a table of one column, with its head; where
    the run is of another size, the last one that is printed.
    """
    if arm.comparable:
        number = _published(spec, arm, column)
        return ("paper", number) if number else None
    return next(reversed(_aside(spec, arm, [column])), None)


def _published(spec: Spec, arm: Arm, column: HeadlineColumn) -> Printed | None:
    if spec.published is None or not column.compared or spec.metric not in _PRINTED:
        return None
    return _looked_up(spec, arm, column.iteration(arm), whole=column.whole)


def _looked_up(spec: Spec, arm: Arm, iteration: int, *, whole: bool) -> Printed | None:
    """The number of the table for an arm; of a score over rounds the printed maximum, too."""
    method = arm.base if spec.metric == "accuracy_last_local" else arm.algorithm
    number = spec.printed(method, arm.cell, iteration, whole=whole)
    if number is None and whole and spec.score == "max":
        name = "test_acc_max"
        return spec.printed(method, arm.cell, iteration, whole=whole, metric=name)
    return number


def _aside(spec: Spec, arm: Arm, shown: Sequence[HeadlineColumn]) -> list[tuple[str, Printed]]:
    """The printed numbers of an arm that is not comparable, with the heads they stand below; those
    of rounds that a smaller run does not reach, too.
    """
    if arm.comparable or spec.published is None or spec.metric not in _PRINTED:
        return []
    numbers = {c.title: _published(spec, arm, c) for c in shown}
    for i in spec.rounds or ():
        numbers[f"round {i}"] = _looked_up(spec, arm, i, whole=False)
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
    judged: bool,
    best: bool = False,
    digits: int = 2,
) -> Cell:
    """Mean ± std of the seeds with the printed number and the difference.

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
    mean = float(values.mean())
    good = printed.agrees(values) if judged else None
    return Cell(
        text=text,
        detail=f"paper {paper}, {mean - printed.mean:+.{digits}f}".replace("-", "−"),
        good=good,
        strong=best,
    )


def _record(
    arm: Arm,
    column: HeadlineColumn,
    metric: str,
    values: NDArray[np.float64],
    printed: Printed | None,
) -> Mapping[str, Any]:
    record: dict[str, Any] = {
        "arm": arm.label,
        "column": column.title,
        "metric": metric,
        "n": len(values),
    }
    if len(values):
        record |= {"mean": float(values.mean()), "std": float(values.std())}
    if len(guess := factor(metric) * guessed(arm, metric)):
        record["no_inputs"] = float(guess.mean())
    if printed is not None:
        record |= {
            "published": printed.mean,
            "published_std": "" if printed.std is None else printed.std,
        }
        if len(values) and arm.comparable:
            mean = float(values.mean())
            record |= {"difference": mean - printed.mean, "agrees": printed.agrees(values)}
    return record


def _why_empty(spec: Spec, arms: Sequence[Arm], records: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line on the arms without any value in the table, by the reason."""
    filled = {record["arm"] for record in records if record["n"]}
    reasons: dict[str, list[str]] = {}
    for arm in arms:
        if arm.label in filled:
            continue
        if arm.curve(spec.metric) is not None:
            why = f"has no value of {spec.metric} in the rounds shown"
        elif arm.finished:
            why = f"did not record {spec.metric}"
        else:
            why = f"has not recorded {spec.metric} yet"
        reasons.setdefault(why, []).append(arm.label)
    return [f"No seeds are counted of what {why}: {', '.join(a)}." for why, a in reasons.items()]


def _notes(spec: Spec, arms: Sequence[Arm], records: Sequence[Mapping[str, Any]]) -> list[str]:
    counts = {record["n"] for record in records if record["n"]}
    over = (
        f"over {max(counts)} seed{'s' if max(counts) > 1 else ''}"
        if len(counts) == 1
        else "over the seeds that each row or cell counts"
    )
    known = METRICS[spec.metric]
    less = "; less is better" if known.title and known.better == "lower" else ""
    notes = [
        f"{meant(spec.metric)}{less}.",
        f"Mean ± standard deviation (population form) {over}.",
        *_why_empty(spec, arms, records),
    ]
    if spec.published and any("published" in record for record in records):
        paper, _, table = spec.published.partition("/")
        if any(arm.comparable for arm in arms):
            notes.append(
                f"“paper”: the number printed in {paper}, {table}, then measured minus printed. ✓: "
                "in the 95 % interval of one more run, or of the difference of two means where the "
                "paper prints a spread, at most 2 points; of a single seed within 1 point; and "
                "what rounds to the printed number."
            )
        if not all(arm.comparable for arm in arms):
            notes.append(
                f"“{_ASIDE}”: the number printed in {paper}, {table}; runs of another size, of "
                "other data or with another protocol are not held against it."
            )
    if spec.score == "max":
        notes.append(
            "Best over rounds is chosen on test data and therefore optimistic; it is the "
            "published score. "
            "Rounds before every client was served once do not count."
        )
    if any(record["column"] == _TITLES["validation"] for record in records):
        notes.append(
            "At best validation: in the round, of every seed its own, in which the "
            f"{_best_by(arms[0])}. The test data take no part in the choice."
            + (
                ""
                if all(arm.curve(arm.validated) for arm in arms)
                else " –: the run set no validation examples aside; validation=0.2 takes a fifth "
                "of every client's training examples."
            )
        )
    return notes
