"""Finished jobs of the benchmark in docs/benchmark/v1, and searches in docs/benchmark/v1-searches,
one archive per federation.

    python -m scripts.papers.kept_runs keep outputs/benchmark/v1           pack what is done there
    python -m scripts.papers.kept_runs keep outputs/benchmark/v1-tuning    pack searches
    python -m scripts.papers.kept_runs restore outputs/kept           unpack all, as jobs of a sweep

The benchmark takes hours of computing, on more than one machine and day. The archives hold what its
page reads of a job, a tenth of its size: some metrics of every round, and of clients and distances
the last round and the first seed. The same jobs give the same bytes. A campaign does not compute
them again:

    scripts/papers/campaign.py run --list scripts/papers/benchmark_v1.yaml --also outputs/kept

Of a search its trials and the best one are kept, done or not: `restore outputs/kept` puts them in
outputs/kept-tuning, where `tuned=outputs/kept-tuning` finds them. In a folder of the search's own
name `fedclust tune` goes on with them.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fedclust.benchmark.archive import (
    ENDING,
    is_done,
    of_a_search,
    packed_files,
    read_by_a_page,
)
from fedclust.helpers.errors import DataError, RunFolderError, UserError
from fedclust.helpers.files import atomic_write
from fedclust.report.reading import job_folders

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmark"
KEPT, SEARCHES = _PAGE / "v1", _PAGE / "v1-searches"
_CASE = "case="


def keep(folder: Path, kept: Path = KEPT) -> list[Path]:
    """Pack the finished jobs of a folder, with those of the archives that it does not have.

    Returns:
        The archives that were written.

    Raises:
        UserError: for a folder without finished jobs of the benchmark.
    """
    jobs = job_folders(folder) if folder.is_dir() else ()
    return _kept(folder, {job.name: _with_distances(job) for job in jobs if is_done(job)}, kept)


def keep_searches(folder: Path, kept: Path = SEARCHES) -> list[Path]:
    """Pack the searches of a folder, as `keep` packs jobs."""
    of = {file.parent.name: of_a_search(file.parent) for file in folder.glob("*/search.yaml")}
    return _kept(folder, of, kept)


def _kept(folder: Path, found: Mapping[str, Iterable[tuple[str, bytes]]], kept: Path) -> list[Path]:
    """Pack the files of jobs or searches by their names, see `keep`."""
    of: dict[str, list[str]] = {}
    for name in found:
        if case := name.partition(_CASE)[2].partition(",")[0]:
            of.setdefault(case, []).append(name)
    if not of:
        raise RunFolderError(f"{folder} has no finished job of the benchmark, and no search")
    written = []
    for case, names in sorted(of.items()):
        archive = kept / f"{case}{ENDING}"
        files = {
            name: data
            for name, data in (_read(archive) if archive.exists() else {}).items()
            if name.partition("/")[0] not in names
        }
        for name in names:
            files |= {f"{name}/{inside}": data for inside, data in found[name]}
        packed = packed_files(files)
        if not archive.exists() or archive.read_bytes() != packed:
            archive.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(archive, packed)
            written.append(archive)
    return written


def restore(folder: Path, kept: Path = KEPT) -> int:
    """Unpack all archives into a folder, without replacing a job there; returns how many jobs."""
    made = set()
    for archive in sorted(kept.glob(f"*{ENDING}")):
        files = _read(archive)
        jobs = {name.partition("/")[0] for name in files}
        made |= {job for job in jobs if not (folder / job).exists()}
        for name, data in files.items():
            if name.partition("/")[0] in made:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(data)
    return len(made)


def _with_distances(job: Path) -> Iterator[tuple[str, bytes]]:
    """The files of a job that a page reads, with the first seed's distances."""
    yield from read_by_a_page(job)
    arrays = sorted((job / "arrays").glob("seed=*/distance.npy"), key=lambda one: _seed(one.parent))
    for file in arrays[:1]:
        yield file.relative_to(job).as_posix(), file.read_bytes()


def _seed(folder: Path) -> int:
    return int(folder.name.removeprefix("seed="))


def _read(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as opened:
        members = [member for member in opened if member.isfile()]
        named = [Path(member.name).parts for member in members]
        if not all(len(parts) > 1 and not {"..", "/"} & set(parts) for parts in named):
            raise DataError(f"{archive} holds files outside of a job's folder")
        found = {member.name: opened.extractfile(member) for member in members}
        return {name: file.read() for name, file in found.items() if file is not None}


def main(given: Sequence[str]) -> int:
    """Pack or unpack; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("keep", "restore"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kept", type=Path, default=KEPT)
    asked = parser.parse_args(list(given))
    try:
        if asked.what == "keep":
            searches = any(asked.folder.glob("*/search.yaml"))
            packed = keep_searches(asked.folder) if searches else keep(asked.folder, asked.kept)
            for archive in packed:
                print(archive)
        else:
            print(f"{restore(asked.folder, asked.kept)} jobs in {asked.folder}")
            tuning = asked.folder.with_name(f"{asked.folder.name}-tuning")
            print(f"{restore(tuning, SEARCHES)} searches in {tuning}")
    except UserError as error:
        print(f"kept_runs: {error}", file=sys.stderr)
        return UserError.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
