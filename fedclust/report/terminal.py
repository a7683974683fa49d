"""What a person sees in the terminal at the end of a run or a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from fedclust.report.recovery import words
from fedclust.report.wording import factor, in_percent, plus_minus
from fedclust.report.write import Contents, all_contents

_MOST_LINES = 24  # on the recovery of the groups
_MOST_CLAIMS = 12


def print_summary(folder: Path, console: Console, said: Sequence[Contents] | None = None) -> None:
    """Prints score, purity and ARI of every arm, and what became of the groups in plain words.

    Args:
        folder: as for `make_report`.
        console: where to.
        said: what `all_contents` returned for it, where that is known already.

    Raises:
        RunFolderError: when the folder holds no job with results.
        DataError: when a file cannot be read.
    """
    for one in said if said is not None else all_contents(folder):
        _print(one, console)


def _print(said: Contents, console: Console) -> None:
    metric = said.spec.metric
    unit = " %" if in_percent(metric) else ""
    grid = Grid(
        title=said.title,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
    )
    grid.add_column("arm")
    best = "best " if said.spec.score == "max" else ""
    beside = [name for name in ("purity", "ari") if name != metric and said.arms[0].curve("purity")]
    for head in (f"{best}{metric}{unit}", *beside):
        grid.add_column("ARI" if head == "ari" else head, justify="right")
    for arm in said.arms:
        score = factor(metric) * (
            arm.best(metric) if said.spec.score == "max" else arm.last(metric)
        )
        cells = [arm.label, plus_minus(score), *(plus_minus(arm.last(name)) for name in beside)]
        grid.add_row(*(Text(cell) for cell in cells))
    console.print(grid)
    seeds = sorted({len(arm.job.seeds) for arm in said.arms})
    console.print(
        Text(f"mean ± std over {seeds[-1]} seed{'' if seeds[-1] == 1 else 's'}", style="dim")
    )
    _print_claims(said, console)
    lines = list(filter(None, map(words, said.arms)))
    for line in lines[:_MOST_LINES]:
        console.print(Text(line), soft_wrap=True)
    if len(lines) > _MOST_LINES:
        console.print(Text(f"… and {len(lines) - _MOST_LINES} more in the report"), soft_wrap=True)
    for banner in said.banners:
        console.print(Text(banner, style="yellow"), soft_wrap=True)


def _print_claims(said: Contents, console: Console) -> None:
    """Every claim with its verdict, or of many only how many hold."""
    claims = [row for table in said.tables if table.name == "claims" for row in table.rows]
    if len(claims) > _MOST_CLAIMS:
        holding = sum(bool(verdict.good) for _, _, verdict, _ in claims)
        console.print(
            Text(f"{holding} of {len(claims)} claims hold; the report lists them"), soft_wrap=True
        )
        return
    for claim, measured, verdict, seeds in claims:
        style = {True: "green", False: "red", None: "yellow"}[verdict.good]
        what = f"{verdict.text} ({measured.text}; {seeds.text} seeds)"
        line = f"{verdict.mark or '?'} {claim.text}: {what}"
        console.print(Text(line, style=style), soft_wrap=True)
