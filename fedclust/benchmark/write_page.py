"""Writes the page of the benchmark from folders of archives and of jobs."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedclust.benchmark import page
from fedclust.benchmark.archive import ENDING, check, is_whole, opened
from fedclust.benchmark.frozen import Frozen, case_of, frozen, versions
from fedclust.benchmark.results import Result, results
from fedclust.benchmark.sound import objection
from fedclust.benchmark.standings import Block, block
from fedclust.helpers.errors import ConfigError, RunFolderError, UserError
from fedclust.helpers.files import atomic_write
from fedclust.report.reading import job_folders

CHANGED = "changed.txt"  # beside the page's data: what differs from an earlier one, by hand


def write_page(folders: Sequence[Path], to: Path, version: str) -> list[Path]:
    """Write the page, its data, scores and picture.

    Args:
        folders: of archives, or of jobs of an experiment.
        to: the page; the others go to a folder beside it, of its name.
        version: of the benchmark; its natural block is VERSION_natural.

    Returns:
        The files written.

    Raises:
        UserError: for a folder without either, and for a job or an archive that is not of the
            benchmark; nothing is written then.
    """
    if version in versions() and f"{version}_natural" not in versions():
        raise ConfigError(f"--version {version} has no page: nothing is ranked in it")
    benches = [frozen(version), frozen(f"{version}_natural")]
    for folder in folders:
        if not folder.is_dir():
            raise RunFolderError(f"{folder} is no folder of archives or jobs")
    found: dict[str, list[Result]] = {bench.name: [] for bench in benches}
    with tempfile.TemporaryDirectory() as made:
        for number, folder in enumerate(folders):
            some = [one for one in _jobs(folder, benches, Path(made) / str(number)) if one[1]]
            if not some:
                raise RunFolderError(f"{folder}: no finished job of {' or '.join(found)}")
            for bench, jobs in some:
                found[bench.name] += results(jobs, bench)
    planted, natural = (block(bench, found[bench.name]) for bench in benches)
    beside = to.with_suffix("")
    by_hand = beside / CHANGED
    changed = by_hand.read_text(encoding="utf-8") if by_hand.is_file() else ""
    text = page.page(planted, natural, beside.name, changed)
    files = {beside / "data.md": page.data(planted, natural)}
    files[beside / "scores.csv"] = page.scores([planted, natural])
    beside.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        atomic_write(file, content)
    if planted.by_track:
        atomic_write(beside / page.PICTURE, _picture(planted))
        files[beside / page.PICTURE] = ""
    atomic_write(to, text)
    return [to, *files]


def _jobs(
    folder: Path, benches: Sequence[Frozen], made: Path
) -> Iterable[tuple[Frozen, list[Path]]]:
    """The jobs of a folder by version; those of archives are unpacked below `made`."""
    archives = sorted(folder.rglob(f"*{ENDING}"))
    for file in archives:
        archive, bench = opened(file)
        if bench not in benches:
            names = " or ".join(one.name for one in benches)
            raise ConfigError(f"{file} is of {bench.name}, and the page is of {names}")
        place = made / f"{file.parent.name}-{file.name.removesuffix(ENDING)}"
        archive.into(place)
        try:
            jobs = check(archive, bench, place)
        except UserError as error:  # which names what was unpacked
            raise type(error)(f"{file}: {error}") from error
        yield bench, jobs
    if archives:
        return
    jobs = [job for job in job_folders(folder) if is_whole(job)]
    if not jobs:
        raise RunFolderError(f"{folder} has no archives and no finished jobs")
    own: dict[str, list[Path]] = {bench.name: [] for bench in benches}
    for job in jobs:
        for bench in [one for one in benches if case_of(job) in one.federations]:
            if why := objection(bench, job):
                raise ConfigError(f"{job} is no job of {bench.name}: {why}")
            own[bench.name].append(job)
    yield from ((bench, own[bench.name]) for bench in benches)


def _picture(planted: Block) -> bytes:
    from fedclust.benchmark.picture import at_a_glance

    drawn = io.BytesIO()
    _, found = planted.widest
    at_a_glance(found).savefig(drawn, format="png", metadata={"Software": None})
    return drawn.getvalue()
