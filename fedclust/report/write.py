"""A report from the files of a job or a sweep, finished or not."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedclust.files import atomic_write
from fedclust.report.arms import Arm, arms, settings_of
from fedclust.report.compat import switched_on
from fedclust.report.federations import class_table, federation_table
from fedclust.report.figures import Picture, draw
from fedclust.report.jobs import Job, read_jobs, without_results
from fedclust.report.page import Page, Section, render, render_index
from fedclust.report.pooling import pool_seeds
from fedclust.report.scores import headline
from fedclust.report.spec import Spec
from fedclust.report.table import Table
from fedclust.report.tables import (
    claims_table,
    cost_table,
    recovery_table,
    rounds_table,
    settings_table,
)

# losses that explode are infinite in a mean; what NumPy has to say of it helps nobody
_overflowing = np.errstate(over="ignore", invalid="ignore")
_EXPLODED = 100  # nats per example; guessing among 62 classes costs 4
_LONG = 24  # rows; a longer table is folded away
_SUMMED_UP = ("table", "claims")  # what the page of several experiments shows of each


@dataclass(frozen=True, kw_only=True)
class Contents:
    """All of a report but its figures.

    Attributes:
        folder: where the jobs are.
        spec: what the experiment asks for.
        arms: the jobs with results.
        banners: what a reader must know before reading a number.
        scaled: whether the runs are smaller than the paper's.
        tables: the headline table first, the settings last.
    """

    folder: Path
    spec: Spec
    arms: Sequence[Arm]
    banners: Sequence[str]
    scaled: bool
    tables: Sequence[Table]

    @property
    def title(self) -> str:
        """The heading."""
        return self.spec.title or self.folder.resolve().name


def experiments(folder: Path) -> dict[Path, list[Job]]:
    """The jobs of every experiment by the folder it has; all under `folder` where experiments share
    one.

    Raises:
        RunFolderError: when the folder holds no job with results.
        DataError: when a file cannot be read.
    """
    jobs = read_jobs(folder)
    by_name: dict[tuple[str, bool], list[Job]] = {}
    for job in jobs:
        name = str(job.config.get("name"))
        at_home = (
            job.folder.parent.parts[-len(Path(name).parts) :] == Path(name).parts
        )  # or a copy elsewhere
        by_name.setdefault((name, at_home), []).append(job)
    homes = [
        Path(os.path.commonpath([job.folder.parent for job in group])) for group in by_name.values()
    ]
    if len(homes) == 1 or len(set(homes)) < len(homes) or folder in homes:
        return {folder: jobs}
    return dict(zip(homes, by_name.values(), strict=True))


def all_contents(folder: Path) -> list[Contents]:
    """What the reports of all experiments in a folder say; raises as `contents`."""
    return [_contents(one, jobs) for one, jobs in experiments(folder).items()]


def contents(folder: Path) -> Contents:
    """What a report on the jobs of a folder says.

    Raises:
        RunFolderError: when the folder holds no job with results.
        DataError: when a file cannot be read.
    """
    return _contents(folder, read_jobs(folder))


@_overflowing
def _contents(folder: Path, read: Sequence[Job]) -> Contents:
    jobs = pool_seeds(read)
    spec = Spec.of(jobs[0].config)
    found = arms(jobs, spec.order)
    scales = sorted({_scale(job) for job in jobs})
    scaled = scales != ["paper"]
    tables = [
        headline(spec, found, scaled),
        claims_table(spec, found, scaled),
        recovery_table(found) if any(arm.curve("purity") for arm in found) else None,
        cost_table(found),
        rounds_table(spec, found, scaled),
        federation_table(spec, found, scaled),
        class_table(found),
        settings_table(found),
    ]
    return Contents(
        folder=folder,
        spec=spec,
        arms=found,
        banners=_banners(folder, found, scales),
        scaled=scaled,
        tables=[
            replace(
                table,
                folded=table.folded or (len(table.rows) > _LONG and table.name not in _SUMMED_UP),
            )
            for table in tables
            if table is not None
        ],
    )


def make_report(folder: Path, said: Sequence[Contents] | None = None) -> Path:
    """The page `report/report.html`, written with all tables and figures from the files of `folder`
    alone.

    A folder that holds several experiments, each in a folder of its own, gets a page that sums them
    up, and each of them its own report.

    Args:
        folder: one job's folder, or one that holds jobs at any depth.
        said: what `all_contents` returned for it, where that is known already.

    Raises:
        RunFolderError: when the folder holds no job with results.
        DataError: when a file cannot be read.
    """
    sections = []
    for one in said if said is not None else all_contents(folder):
        pictures = _write(one)
        page = (one.folder / "report" / "report.html").relative_to(folder)
        sections.append(
            Section(
                title=one.title,
                link=f"../{page.as_posix()}",
                subtitle=_subtitle(one.arms),
                banners=one.banners,
                tables=[table for table in one.tables if table.name in _SUMMED_UP],
                pictures=pictures[:1],
            )
        )
    made = folder / "report" / "report.html"
    if len(sections) > 1:
        atomic_write(made, render_index(folder.resolve().name, sections))
    return made


@_overflowing
def _write(said: Contents) -> list[Picture]:
    """Tables, figures and page of one experiment; returns the figures."""
    target = said.folder / "report"
    warning = "".join(f"> {banner}\n>\n" for banner in said.banners)
    for table in said.tables:
        atomic_write(
            target / f"{table.name}.md",
            f"{warning}\n{table.markdown()}" if warning else table.markdown(),
        )
        atomic_write(target / f"{table.name}.csv", table.csv())
        comment = "".join(f"% {banner}\n" for banner in said.banners)
        atomic_write(target / f"{table.name}.tex", comment + table.latex())
    pictures = draw(target / "figures", said.spec, said.arms, said.scaled)
    page = Page(
        title=said.title,
        subtitle=_subtitle(said.arms),
        banners=said.banners,
        tables=said.tables,
        pictures=pictures,
    )
    atomic_write(target / "report.html", render(page))
    return pictures


def _scale(job: Job) -> str:
    return str((job.config.get("scale") or {}).get("name", "paper"))


def _subtitle(found: Sequence[Arm]) -> str:
    """What was run: data, partition and model where all arms share them, arms, seeds, rounds."""
    parts = []
    settings = len(settings_of(found))
    for group in ("dataset", "partition", "scenario", "model"):
        values = {arm.job.choices.get(group) for arm in found}
        value = values.pop() if len(values) == 1 else None
        if value and value != "static":
            parts.append(f"{group} {value}")
    seeds = sorted({len(arm.job.seeds) for arm in found})
    rounds = sorted({arm.job.rounds for arm in found})
    if settings > 1:
        parts.append(f"{settings} settings")
    parts.append(f"{len(found)} {'arm' if len(found) == 1 else 'arms'}")
    parts.append(f"{_span(seeds)} {'seed' if seeds == [1] else 'seeds'}")
    parts.append(f"{_span(rounds)} rounds")
    return " · ".join(parts)


def _span(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]}"


def _banners(folder: Path, found: Sequence[Arm], scales: Sequence[str]) -> list[str]:
    banners = []
    for used, meant in dict.fromkeys(
        (arm.job.choices.get("dataset"), arm.stand_in) for arm in found
    ):
        if meant:
            banners.append(
                f"{used} stands in for {meant} (fetch it with scripts/fetch_data.py {meant}): not "
                "comparable "
                "with the published numbers"
            )
    smaller = [scale for scale in scales if scale != "paper"]
    if smaller:
        banners.append(f"scaled run ({', '.join(smaller)}): compare orderings, not values")
    for arm in found:
        state = arm.job.status.get("state", "unknown")
        planned = arm.job.status.get("rounds") or arm.job.config.get("rounds") or "?"
        if state == "failed":
            error = arm.job.status.get("error") or "no reason recorded"
            banners.append(
                f"{arm.label} failed after {arm.job.rounds} of {planned} rounds: {error}"
            )
        elif state == "done" and isinstance(planned, int) and arm.job.rounds < planned:
            banners.append(
                f"{arm.label} is done, but its rounds.csv ends after {arm.job.rounds} of "
                f"{planned} rounds: "
                "delete the folder and run it again"
            )
        elif state != "done":
            banners.append(
                f"{arm.label} is not finished ({state}, {arm.job.rounds} of {planned} rounds)"
            )
        banners += [
            f"{arm.label}: seed {seed} failed and is left out of all numbers: {error}"
            for seed, error in sorted(arm.job.failed.items())
        ]
        if arm.curve("train_loss") and (loss := float(arm.last("train_loss").max())) > _EXPLODED:
            banners.append(
                f"{arm.label}: the training loss ends at {loss:.2g}; a smaller solver.lr may help"
            )
    known = {job.folder for arm in found for job in arm.job.parts or (arm.job,)}
    for config in sorted(folder.rglob("config.yaml")):
        if ".hydra" not in config.parts and config.parent not in known:
            banners.append(f"{config.parent.relative_to(folder)} {without_results(config.parent)}")
    names = {str(arm.job.config.get("name")) for arm in found}
    if len(names) > 1:
        banners.append(
            f"{len(names)} runs are mixed here ({', '.join(sorted(names))}): report each by itself"
        )
    switches: dict[str, list[str]] = {}
    for arm in found:
        for switch in switched_on(arm.job.config):
            switches.setdefault(switch, []).append(arm.name)
    for switch, users in switches.items():
        where = "" if len(users) == len(found) else f" ({', '.join(dict.fromkeys(users))})"
        banners.append(f"as published, not as is sound: {switch}{where}")
    return banners
