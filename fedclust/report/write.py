"""A report from the files of a job or a sweep, finished or not."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import numpy as np

from fedclust.helpers.errors import RunFolderError, counted, require
from fedclust.helpers.files import atomic_write
from fedclust.report.arms import Arm, arms, in_order, settings_of
from fedclust.report.comparison import comparison_table, overall_table
from fedclust.report.equal_time import equal_time_table
from fedclust.report.fairness import fairness_table
from fedclust.report.federations import class_table, federation_table
from fedclust.report.figures import Picture, draw
from fedclust.report.headline import headline
from fedclust.report.outside import KEY, outside_arms
from fedclust.report.page import Page, render, render_index
from fedclust.report.pivot import pivot_tables
from fedclust.report.pooling import pool_seeds
from fedclust.report.reading import read_runs
from fedclust.report.reference import Reference
from fedclust.report.relative import relative_table
from fedclust.report.runs import Run
from fedclust.report.scores import scores_table
from fedclust.report.settings import made_table, settings_table
from fedclust.report.spec import Spec
from fedclust.report.table import Table, in_markdown, one_line
from fedclust.report.tables import (
    changes_table,
    claims_table,
    clusters_table,
    cost_table,
    recovery_table,
    rounds_table,
)
from fedclust.report.targets import target_table
from fedclust.report.together import together_tables
from fedclust.report.warnings import banners

# losses that explode are infinite in a mean; what NumPy has to say of it helps nobody
_overflowing = np.errstate(over="ignore", invalid="ignore")
_LONG = 24  # rows; a longer table is folded away
_SUMMED_UP = ("table", "claims", "made")  # what the page of several experiments shows of each
_OPEN = (*_SUMMED_UP, "comparison", "overall", "relative", "scores")  # never folded away


@dataclass(frozen=True, kw_only=True)
class Contents:
    """All of a report but its figures.

    Attributes:
        folder: where the runs are.
        banners: what a reader must know before reading a number.
        tables: the headline table first, the settings and what made it last.
    """

    folder: Path
    spec: Spec
    arms: Sequence[Arm]
    banners: Sequence[str]
    tables: Sequence[Table]

    @property
    def title(self) -> str:
        """The heading."""
        return self.spec.title or self.folder.resolve().name


def experiments(folder: Path) -> dict[Path, list[Run]]:
    """The runs of every experiment by its folder; all under `folder` where they share one.

    Raises:
        RunFolderError: when the folder holds no job with results.
        DataError: when `folder` is one job and a file of it cannot be read.
    """
    runs = read_runs(folder)
    by_name: dict[tuple[str, bool], list[Run]] = {}
    for run in runs:
        name = str(run.config.get("name"))
        # or a copy elsewhere
        at_home = run.folder.parent.parts[-len(Path(name).parts) :] == Path(name).parts
        by_name.setdefault((name, at_home), []).append(run)
    homes = [
        Path(os.path.commonpath([run.folder.parent for run in group])) for group in by_name.values()
    ]
    if len(homes) == 1 or len(set(homes)) < len(homes) or folder in homes:
        return {folder: runs}
    return dict(zip(homes, by_name.values(), strict=True))


def all_contents(
    folder: Path, reference: Reference, outside: str | Path | None = None
) -> list[Contents]:
    """What the reports of all experiments in a folder say.

    Args:
        outside: a CSV in place of that of `report.outside`, of a single experiment.

    Raises:
        ConfigError: where the CSV does not fit.
        RunFolderError, DataError: as `contents`.
    """
    known = experiments(folder)
    allowed = f"a file for one experiment; the folder has {len(known)}: report each by itself"
    require(outside is None or len(known) == 1, KEY, outside, allowed)
    return [_contents(one, runs, reference, outside) for one, runs in known.items()]


def contents(folder: Path, reference: Reference) -> Contents:
    """What a report says; RunFolderError without results, DataError for an unreadable file."""
    return _contents(folder, read_runs(folder), reference)


@_overflowing
def _contents(
    folder: Path, read: Sequence[Run], reference: Reference, outside: str | Path | None = None
) -> Contents:
    runs = pool_seeds(read)
    spec = Spec.of(runs[0].config, reference).judging(runs[0].curves)
    shown = arms(runs, spec.order, reference.changed)
    if file := outside or spec.outside:
        shown = in_order([*shown, *outside_arms(file, folder, spec.metric, shown)], spec.order)
    grouped = any(arm.curve("purity") for arm in shown)
    tables = [
        headline(spec, shown),
        recovery_table(shown) if grouped else None,
        *together_tables(shown),
        claims_table(spec, shown),
        *([] if len(settings_of(shown)) > 1 else pivot_tables(spec, shown)),
        comparison_table(spec, shown),
        overall_table(spec, shown),
        relative_table(spec, shown),
        target_table(spec, shown),
        equal_time_table(spec, shown),
        scores_table(shown),
        fairness_table(shown),
        None if grouped else clusters_table(shown),
        changes_table(shown),
        cost_table(shown),
        rounds_table(spec, shown),
        federation_table(spec, shown),
        class_table(shown),
        settings_table(shown),
        made_table(folder, shown),
    ]
    return Contents(
        folder=folder,
        spec=spec,
        arms=shown,
        banners=banners(folder, shown, reference),
        tables=[_folded(table) for table in tables if table is not None],
    )


def _folded(table: Table) -> Table:
    """The table, folded away where it is long and nobody looks for it first."""
    long = len(table.rows) > _LONG and table.name not in _OPEN
    return replace(table, folded=table.folded or long)


def make_report(folder: Path, reports: Sequence[Contents]) -> Path:
    """Write all tables and figures, and the page `report/report.html`, which is returned.

    A folder of several experiments gets a page that sums them up, each of them its own report.

    Raises:
        RunFolderError: when a report's folder is a link to elsewhere.
    """
    sections = []
    for one in reports:
        pictures = _write(one)
        page = (one.folder / "report" / "report.html").relative_to(folder)
        tables = [table for table in one.tables if table.name in _SUMMED_UP]
        link = quote(f"../{page.as_posix()}")
        summary = Page(one.title, _subtitle(one.arms), one.banners, tables, pictures[:1])
        sections.append((link, summary))
    made = folder / "report" / "report.html"
    if len(sections) > 1:
        atomic_write(made, render_index(folder.resolve().name, sections))
    return made


@_overflowing
def _write(report: Contents) -> list[Picture]:
    """Tables, figures and page of one experiment; returns the figures."""
    target = report.folder / "report"
    if target.is_symlink():  # whose files would be overwritten
        raise RunFolderError(
            f"{target} is a link to elsewhere; delete it, and a report is made there"
        )
    warning = "".join(f"> {in_markdown(banner)}\n>\n" for banner in report.banners)
    comment = "".join(f"% {one_line(banner)}\n" for banner in report.banners)
    for table in report.tables:
        file = target / table.name
        markdown = "\n".join(filter(None, (warning, table.markdown())))
        atomic_write(file.with_suffix(".md"), markdown)
        atomic_write(file.with_suffix(".csv"), table.csv())
        latex = table.latex(wide=report.spec.latex == "wide")
        atomic_write(file.with_suffix(".tex"), comment + latex)
    pictures = draw(target / "figures", report.spec, report.arms)
    page = Page(report.title, _subtitle(report.arms), report.banners, report.tables, pictures)
    atomic_write(target / "report.html", render(page))
    return pictures


def _subtitle(arms: Sequence[Arm]) -> str:
    """What was run: data, partition and model where all arms share them, arms, seeds, rounds."""
    shared = []
    for group in ("dataset", "partition", "scenario", "model"):
        values = {arm.run.choices.get(group) for arm in arms}
        value = values.pop() if len(values) == 1 else None
        if value and value != "static":
            shared.append(f"{group} {value}")
    if (settings := len(settings_of(arms))) > 1:
        shared.append(f"{settings} settings")
    seeds = _span({len(arm.run.seeds) for arm in arms}, "seed")
    rounds = _span({arm.run.rounds for arm in arms}, "round")
    return " · ".join([*shared, counted(len(arms), "arm"), seeds, rounds])


def _span(numbers: Collection[int], noun: str) -> str:
    low, high = min(numbers), max(numbers)
    return counted(low, noun) if low == high else f"{low}–{high} {noun}s"
