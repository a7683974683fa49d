"""A report from the files of a job or a sweep, finished or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedclust.files import atomic_write
from fedclust.report.arms import Arm, arms
from fedclust.report.figures import draw
from fedclust.report.jobs import Job, read_jobs, without_results
from fedclust.report.page import Page, render
from fedclust.report.pooling import pool_seeds
from fedclust.report.scores import headline
from fedclust.report.spec import Spec
from fedclust.report.table import Table
from fedclust.report.tables import claims_table, cost_table, recovery_table, rounds_table, settings_table


@dataclass(frozen=True, kw_only=True)
class Contents:
    """All of a report but its figures.

    Attributes:
        spec: what the experiment asks for.
        arms: the jobs with results.
        banners: what a reader must know before reading a number.
        scaled: whether the runs are smaller than the paper's.
        tables: the headline table first, the settings last.
    """

    spec: Spec
    arms: Sequence[Arm]
    banners: Sequence[str]
    scaled: bool
    tables: Sequence[Table]


def contents(folder: Path) -> Contents:
    """What a report on the folder says.

    Raises:
        RunFolderError: when the folder holds no job with results.
        DataError: when a file cannot be read.
    """
    jobs = pool_seeds(read_jobs(folder))
    spec = Spec.of(jobs[0].config)
    found = arms(jobs, spec.order)
    scales = sorted({_scale(job) for job in jobs})
    scaled = scales != ["paper"]
    tables = [
        headline(spec, found, scaled),
        claims_table(spec, found, scaled),
        recovery_table(found) if any(arm.curve("purity") for arm in found) else None,
        cost_table(found),
        rounds_table(spec, found),
        settings_table(found),
    ]
    return Contents(
        spec=spec,
        arms=found,
        banners=_banners(folder, found, scales),
        scaled=scaled,
        tables=[table for table in tables if table is not None],
    )


def make_report(folder: Path) -> Path:
    """The page `report/report.html`, written with all tables and figures from the files of `folder` alone.

    Args:
        folder: one job's folder, or one that holds jobs at any depth.

    Raises:
        RunFolderError: when the folder holds no job with results.
        DataError: when a file cannot be read.
    """
    said = contents(folder)
    target = folder / "report"
    warning = "".join(f"> {banner}\n>\n" for banner in said.banners)
    for table in said.tables:
        atomic_write(
            target / f"{table.name}.md", f"{warning}\n{table.markdown()}" if warning else table.markdown()
        )
        atomic_write(target / f"{table.name}.csv", table.csv())
        comment = "".join(f"% {banner}\n" for banner in said.banners)
        atomic_write(target / f"{table.name}.tex", comment + table.latex())
    pictures = draw(target / "figures", said.spec, said.arms, said.scaled)
    page = Page(
        title=said.spec.title or folder.name,
        subtitle=_subtitle(said.arms),
        banners=said.banners,
        tables=said.tables,
        pictures=pictures,
    )
    atomic_write(target / "report.html", render(page))
    return target / "report.html"


def _scale(job: Job) -> str:
    return str((job.config.get("scale") or {}).get("name", "paper"))


def _subtitle(found: Sequence[Arm]) -> str:
    """What was run: data, partition and model where all arms share them, arms, seeds, rounds."""
    parts = []
    for group in ("dataset", "partition", "scenario", "model"):
        values = {arm.job.choices.get(group) for arm in found}
        value = values.pop() if len(values) == 1 else None
        if value and value != "static":
            parts.append(f"{group} {value}")
    seeds = sorted({len(arm.job.seeds) for arm in found})
    rounds = sorted({arm.job.rounds for arm in found})
    parts.append(f"{len(found)} {'arm' if len(found) == 1 else 'arms'}")
    parts.append(f"{_span(seeds)} {'seed' if seeds == [1] else 'seeds'}")
    parts.append(f"{_span(rounds)} rounds")
    return " · ".join(parts)


def _span(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]}"


def _banners(folder: Path, found: Sequence[Arm], scales: Sequence[str]) -> list[str]:
    banners = []
    smaller = [scale for scale in scales if scale != "paper"]
    if smaller:
        banners.append(f"scaled run ({', '.join(smaller)}): compare orderings, not values")
    for arm in found:
        state = arm.job.status.get("state", "unknown")
        planned = arm.job.status.get("rounds") or arm.job.config.get("rounds") or "?"
        if state == "failed":
            error = arm.job.status.get("error") or "no reason recorded"
            banners.append(f"{arm.label} failed after {arm.job.rounds} of {planned} rounds: {error}")
        elif state != "done":
            banners.append(f"{arm.label} is not finished ({state}, {arm.job.rounds} of {planned} rounds)")
        banners += [
            f"{arm.label}: seed {seed} failed: {error}" for seed, error in sorted(arm.job.failed.items())
        ]
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
        for switch in _compat(arm.job.config):
            switches.setdefault(switch, []).append(arm.name)
    for switch, users in switches.items():
        where = "" if len(users) == len(found) else f" ({', '.join(dict.fromkeys(users))})"
        banners.append(f"compatibility switch on: {switch}{where}")
    return banners


def _compat(node: Any, inside: bool = False) -> list[str]:
    """The names below a node called `compat`, at any depth, that are true."""
    if not isinstance(node, Mapping):
        return []
    found = [str(key) for key, value in node.items() if inside and value is True]
    for key, value in node.items():
        found += _compat(value, inside or key == "compat")
    return list(dict.fromkeys(found))
