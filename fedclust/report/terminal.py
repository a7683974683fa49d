"""What a person sees in the terminal at the end of a run or a sweep."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from fedclust.helpers.prose import say
from fedclust.report.against_best import rule
from fedclust.report.formats import decimals, factor, in_percent, plus_minus
from fedclust.report.group_recovery import words
from fedclust.report.headline import (
    cell,
    one_or_range,
    printed_for,
    privacy_spent,
    recovered,
    score_column,
    standing,
    written,
)
from fedclust.report.reference import Printed
from fedclust.report.scores import names_of
from fedclust.report.table import Table
from fedclust.report.trivial import below, guesses
from fedclust.report.write import Contents

_MOST_LINES = 24  # on the recovery of the groups
_MOST_CLAIMS = 12


def print_summary(reports: Sequence[Contents], console: Console) -> None:
    """Prints score, purity and ARI of every arm, and what became of the groups in plain words.

    Args:
        reports: of a folder, as `all_contents` gives them.
        console: where to.
    """
    for one in reports:
        _print(one, console)


def print_table(table: Table, console: Console) -> None:
    """Print a table with its notes.

    Args:
        table: what is printed.
        console: where to.
    """
    grid = Grid(
        title=Text(table.title, style="bold"), title_justify="left", box=None, pad_edge=False
    )
    for place, column in enumerate(table.columns):
        grid.add_column(Text(column), justify="right" if place else "left", overflow="fold")
    for row in table.rows:
        words = (" ".join(filter(None, (cell.text, cell.detail, cell.mark))) for cell in row)
        grid.add_row(*map(Text, words))
    console.print(grid)
    for note in table.notes:
        say(console, note, style="dim")


def _print(report: Contents, console: Console) -> None:
    metric = report.spec.metric
    unit = " %" if in_percent(metric) else ""
    grid = Grid(
        title=Text(report.title, style="bold"),
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    grid.add_column("arm")
    best = {"max": "best ", "validation": "validated "}.get(report.spec.score, "")
    beside = recovered(metric, report.arms)
    spent = privacy_spent(metric, report.arms)
    for head in (f"{best}{metric}{unit}", *beside.values(), *spent.values()):
        grid.add_column(head, justify="right")
    column = score_column(report.spec, report.arms)
    printed = {arm.label: printed_for(report.spec, arm, column) for arm in report.arms}
    papers = list(dict.fromkeys(one[0] for one in printed.values() if one))
    for head in (*papers, "seeds"):
        grid.add_column(head, justify="right")
    places = standing(report.arms, column, metric)
    for arm in report.arms:
        score = factor(metric) * np.array(list(arm.by_seed(metric, report.spec.score).values()))
        others = [plus_minus(arm.last(name)) for name in beside]
        others += [one_or_range(arm.last(name)) for name in spent]
        leads = arm.label in places and places[arm.label].leads
        mark = "* " if leads and not console.is_terminal else ""  # a file has no bold
        text = Text(
            mark + plus_minus(score, decimals(metric, score)), style="bold" if leads else ""
        )
        numbers = dict(filter(None, [printed[arm.label]]))
        paper = (_paper(score, numbers.get(head), arm.comparable) for head in papers)
        cells = [text, *map(Text, others), *paper, Text(str(len(score)))]
        grid.add_row(Text(arm.label), *cells)
    for guess in guesses(report.arms, [metric], by_setting=False):
        score = factor(metric) * guess.values[metric]
        text = Text(plus_minus(score, decimals(metric, score)), style="dim")
        dashes = [Text("–")] * len([*beside, *spent, *papers])
        grid.add_row(Text(guess.label, style="dim"), text, *dashes, Text(str(len(score))))
    console.print(grid)
    say(console, "mean ± std over seeds", style="dim")
    for line in (*rule(list(places.values()), metric), *below(report.spec, report.arms)):
        marked = line if console.is_terminal else line.replace("Bold:", "*:", 1)
        say(console, marked, style="dim")
    if names := list(dict.fromkeys(name for arm in report.arms for name in names_of(arm))):
        told = f"scores of predictions ({', '.join(names)}): a table of the report, and scores.md"
        say(console, told, style="dim")
    _print_claims(report, console)
    lines = list(filter(None, map(words, report.arms)))
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
    beside = cell(score, number, judged=True)
    return Text(f"{beside.detail.removeprefix('paper ')} {beside.mark}".rstrip())


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
