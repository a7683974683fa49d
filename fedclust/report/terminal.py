"""What a person sees in the terminal at the end of a run or a sweep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from fedclust.helpers.prose import say
from fedclust.report.against_best import leading, rule
from fedclust.report.formats import factor, in_percent, mean_std
from fedclust.report.group_recovery import words
from fedclust.report.headline import beside, cell, printed_for, score_column, standing, written
from fedclust.report.reference import Printed
from fedclust.report.scores import names_of
from fedclust.report.table import Table
from fedclust.report.trivial import below, guesses
from fedclust.report.write import Contents

_MOST_LINES = 24  # on the recovery of the groups
_MOST_CLAIMS = 12


def print_summary(reports: Sequence[Contents], console: Console) -> None:
    """Print the score of every arm, what stands beside it, and what became of the groups."""
    for one in reports:
        _print(one, console)


def print_table(table: Table, console: Console) -> None:
    """Print a table with its notes."""
    grid = _grid(table.title, table.columns)
    for row in table.rows:
        words = (" ".join(filter(None, (cell.text, cell.detail, cell.mark))) for cell in row)
        grid.add_row(*map(Text, words))
    console.print(grid)
    for note in table.notes:
        say(console, note, style="dim")


def _grid(title: str, heads: Iterable[str]) -> Grid:
    bold = Text(title, style="bold")
    grid = Grid(title=bold, title_justify="left", box=None, pad_edge=False)
    for place, head in enumerate(heads):
        grid.add_column(Text(head), justify="right" if place else "left", overflow="fold")
    return grid


def _print(report: Contents, console: Console) -> None:
    spec, arms = report.spec, report.arms
    column = score_column(spec, arms)
    others = beside(spec.metric, arms)
    printed = {arm.label: printed_for(spec, arm, column) for arm in arms}
    papers = list(dict.fromkeys(one[0] for one in printed.values() if one))
    places = standing(arms, column, spec.metric)
    best = {"max": "best ", "validation": "validated "}.get(spec.score, "")
    score_head = f"{best}{spec.metric}{' %' if in_percent(spec.metric) else ''}"
    grid = _grid(report.title, ["arm", score_head, *others, *papers, "seeds"])
    for arm in arms:
        score = np.array(list(column.values(arm).values()))
        leads = arm.label in leading(places)
        mark = "* " if leads and not console.is_terminal else ""  # a file has no bold
        text = Text(mark + mean_std(spec.metric, score), style="bold" if leads else "")
        numbers = dict(filter(None, [printed[arm.label]]))
        shown = factor(spec.metric) * score
        grid.add_row(
            Text(arm.label),
            text,
            *(Text(other.cell(other.read(arm)).text) for other in others.values()),
            *(_paper(shown, numbers.get(head), arm.comparable) for head in papers),
            Text(str(len(score))),
        )
    for guess in guesses(arms, [spec.metric], by_setting=False):
        score = guess.last(spec.metric)
        pale = (Text(part, style="dim") for part in (guess.label, mean_std(spec.metric, score)))
        grid.add_row(*pale, *["–"] * len([*others, *papers]), str(len(score)))
    console.print(grid)
    say(console, "mean ± std over seeds", style="dim")
    for line in (*rule(list(places.values()), spec.metric), *below(spec, arms)):
        marked = line if console.is_terminal else line.replace("Bold:", "*:", 1)
        say(console, marked, style="dim")
    if names := list(dict.fromkeys(name for arm in arms for name in names_of(arm))):
        where = f"scores of predictions ({', '.join(names)}): a table of the report, and scores.md"
        say(console, where, style="dim")
    _print_claims(report, console)
    lines = list(filter(None, map(words, arms)))
    for line in lines[:_MOST_LINES]:
        say(console, line)
    if len(lines) > _MOST_LINES:
        say(console, f"… and {len(lines) - _MOST_LINES} more in the report")
    for banner in report.banners:
        say(console, banner, style="yellow")


def _paper(score: NDArray[np.float64], number: Printed | None, comparable: bool) -> Text:
    """A printed number: with the difference, or pale where none can be told."""
    if number is None:
        return Text("–")
    if not comparable:
        return Text(written(number), style="dim")
    against = cell(score, number)
    return Text(f"{against.detail.removeprefix('paper ')} {against.mark}".rstrip())


def _print_claims(report: Contents, console: Console) -> None:
    """Every claim with its verdict, or of many only how many hold."""
    claims = [row for table in report.tables if table.name == "claims" for row in table.rows]
    if len(claims) > _MOST_CLAIMS:
        holding = sum(bool(verdict.good) for _, _, verdict, _ in claims)
        say(console, f"{holding} of {len(claims)} claims hold; the report lists them")
        return
    for claim, measured, verdict, seeds in claims:
        style = {True: "green", False: "red", None: "yellow"}[verdict.good]
        noun = "seed" if seeds.text.endswith(" of 1") else "seeds"
        where = "" if seeds.text == "–" else f"; {seeds.text} {noun}"
        line = f"{verdict.mark or '?'} {claim.text}: {verdict.text} ({measured.text}{where})"
        say(console, line, style=style)
