"""A method's archive: the files of its jobs in a frozen benchmark, and its code.

    archive.json       the benchmark and its digest, the method, whom to write to, versions
    jobs/NAME/…        of every federation: what the page reads of the job
    searches/NAME/…    of a tuned job: the search that found its settings
    code/…             of a method of one's own: the folder given with --config-dir

Reading an archive runs nothing. Its names are compared with this list before anything is read.
"""

from __future__ import annotations

import io
import json
import lzma
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fedclust.benchmark.frozen import (
    Frozen,
    case_of,
    choice_of,
    config_of,
    frozen,
    json_of,
    versions,
)
from fedclust.benchmark.results import kind_of
from fedclust.benchmark.sound import lacks_code, objection
from fedclust.helpers.errors import ConfigError, DataError, RunFolderError, did_you_mean, require
from fedclust.helpers.files import atomic_write
from fedclust.report.reading import job_folders
from fedclust.tuning.tuned import best_file

ENDING = ".tar.xz"
MOST = 3 * 2**20  # bytes of an archive
_MOST_INSIDE = 200 * 2**20
_MOST_OF_CONTACT = 200  # letters
_A_CONTACT = f"an address in one line of at most {_MOST_OF_CONTACT} letters, without < and >"
_HEAD = "archive.json"
# of a job, beside the numbers below
_WHOLE = ("config.yaml", "federation.json", "metrics.json", "status.json", "versions.json")
_METRICS = (  # the ARI follows from the groups and labels of the clients
    *("accuracy", "auroc", "bytes", "churn", "f1_macro", "gradient_steps"),
    *("mae", "mae_client_mean"),  # the second tells that the task is judged by the first
    *("num_clusters", "num_clusters_found", "purity", "seconds"),
)
_CLIENT = ("seed", "round", "client", "group", "label", "test_count", "correct")
_OF_A_SEARCH = ("search.yaml", "trials.csv", "best.yaml")
_NAMES = re.compile(
    rf"{_HEAD}"
    r"|jobs/[^/]+/(config\.yaml|(federation|metrics|status|versions)\.json)"
    r"|jobs/[^/]+/(rounds\.csv|clients\.parquet)"
    r"|searches/[^/]+/(search\.yaml|trials\.csv|best\.yaml)"
    r"|code/([^/]+/)*[^/]+\.(py|yaml|md)"
)


@dataclass(frozen=True)
class Archive:
    """What an archive holds.

    Attributes:
        head: archive.json.
        files: the contents by name.
    """

    head: Mapping[str, Any]
    files: Mapping[str, bytes]

    def into(self, folder: Path) -> None:
        """Write the files below a folder."""
        for name, content in self.files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


def pack(
    runs: Path,
    method: str,
    contact: str,
    own: Path | None,
    version: str = "v1",
    without: Sequence[str] = (),
) -> Path:
    """Write METHOD-VERSION.tar.xz, beside the folder of the jobs.

    Args:
        runs: the folder of the experiment's jobs.
        method: its choice of `algorithm`.
        contact: whom to write to about it.
        own: the folder given with --config-dir; None for a method of fedclust.
        version: of the benchmark.
        without: federations that the method cannot run in, so that it is not ranked.

    Raises:
        UserError: where a further federation has no finished job of the method, or a job is not
            as the benchmark has it; the first one is named.
    """
    bench = frozen(version)
    jobs = [job for job in job_folders(runs) if is_whole(job) and method_of(job) == method]
    require(
        set(without) <= set(bench.federations),
        "--without",
        " ".join(without),
        f"federations of {version}: {', '.join(bench.federations)}",
    )
    require(_is_contact(contact), "--contact", contact[:_MOST_OF_CONTACT], _A_CONTACT)
    if not jobs:
        some = {method_of(job) for job in job_folders(runs)} if runs.is_dir() else set()
        hint = did_you_mean(method, some) or f"fedclust run experiment=benchmark/{version} runs it"
        raise RunFolderError(f"{runs} has no finished job of algorithm={method}; {hint}")
    there = {case_of(job) for job in jobs}
    others = [one for one in versions() if there <= set(frozen(one).federations)]
    if others and version not in others:
        raise RunFolderError(f"{runs} has jobs of {others[0]}: --version {others[0]} packs them")
    if missing := sorted(set(bench.federations) - there - set(without)):
        raise RunFolderError(
            f"{runs} has no finished job of algorithm={method} in {', '.join(missing)}; the same "
            "command continues a run, and --without leaves out where a method cannot run, or where "
            "a seed fails"
        )
    files: dict[str, bytes] = {}
    _once_each(jobs)
    for job in jobs:
        if why := objection(bench, job):
            raise ConfigError(f"{job} is no job of {version}: {why}")
        files |= {f"jobs/{job.name}/{name}": content for name, content in read_by_a_page(job)}
    if lacks := lacks_code(jobs, method, own):
        raise ConfigError(f"{lacks}; --config-dir names its folder")
    for folder in _searches(jobs):
        files |= {f"searches/{folder.name}/{name}": text for name, text in of_a_search(folder)}
    if own is not None:
        files |= {f"code/{name}": content for name, content in _code(own)}
    head: dict[str, Any] = {"benchmark": version, "digest": bench.digest, "method": method}
    head |= {"contact": contact, "without": sorted(without)}
    files[_HEAD] = (json.dumps(head, indent=1) + "\n").encode()
    packed, archive = packed_files(files), runs.parent / f"{method}-{version}{ENDING}"
    if len(packed) > MOST:
        raise ConfigError(f"{archive} would be {len(packed):,} bytes, and may be {MOST:,}")
    atomic_write(archive, packed)
    return archive


def opened(file: Path) -> tuple[Archive, Frozen]:
    """An archive's files and its benchmark; nothing of it is run.

    Raises:
        UserError: for what is no archive, for a name that it may not have, and for a benchmark
            that is not the one here.
    """
    if not file.is_file():
        raise DataError(f"there is no file {file}")
    try:
        files = unpacked(file)
        head = json.loads(files.get(_HEAD, b"null"))
    except (OSError, EOFError, ValueError, lzma.LZMAError, tarfile.TarError) as error:
        raise DataError(f"{file} is no archive of fedclust benchmark: {error}") from error
    fields = ("benchmark", "digest", "method", "contact")
    if not isinstance(head, Mapping) or any(not isinstance(head.get(n), str) for n in fields):
        raise DataError(f"{file} is no archive of fedclust benchmark: {_HEAD} is not as it must be")
    if not _is_contact(head["contact"]):
        raise DataError(f"{file} has a contact that is not {_A_CONTACT}")
    bench = frozen(str(head["benchmark"]))
    if head["digest"] != bench.digest:
        raise DataError(
            f"{file} is of {bench.name} with the digest {head['digest']}, and here it has "
            f"{bench.digest}"
        )
    return Archive(head, files), bench


def check(archive: Archive, bench: Frozen, folder: Path) -> list[Path]:
    """The jobs of an archive that was written into a folder; every one is of its federation.

    Raises:
        UserError: for a job of another federation, rounds or method, and for a missing one.
    """
    jobs = sorted((folder / "jobs").iterdir()) if (folder / "jobs").is_dir() else []
    for job in jobs:
        if method_of(job) != archive.head["method"]:
            raise DataError(f"{job.name} is of {method_of(job)}, not of {archive.head['method']}")
        if not is_whole(job):
            raise DataError(f"{job.name} is not done, or one of its seeds has failed")
        if why := objection(bench, job):
            raise DataError(f"{job.name} is no job of {bench.name}: {why}")
    _once_each(jobs)
    without = archive.head.get("without")
    told = set(without) if isinstance(without, list) else set()
    if missing := sorted(set(bench.federations) - {case_of(job) for job in jobs} - told):
        raise DataError(f"the archive has no job in {', '.join(missing)}")
    code = folder / "code"
    if lacks := lacks_code(jobs, archive.head["method"], code if code.is_dir() else None):
        raise DataError(lacks)
    return jobs


def _is_contact(text: str) -> bool:
    return len(text) <= _MOST_OF_CONTACT and text.isprintable() and not {*"<>"} & {*text}


def _once_each(jobs: Sequence[Path]) -> None:
    """Refuse two jobs of a method that would be one row: nobody may take the better one."""
    seen: dict[tuple[str, bool, bool], Path] = {}
    for job in jobs:
        other = seen.setdefault((case_of(job), *kind_of(config_of(job))), job)
        if other != job:
            raise RunFolderError(
                f"{other.name} and {job.name} are of one federation and track; a method has one "
                "job there"
            )


def method_of(job: Path) -> str:
    """The choice of `algorithm` of a job."""
    return choice_of(job, "algorithm")


def read_by_a_page(job: Path) -> Iterator[tuple[str, bytes]]:
    """The files of a job, with as much of each as a page reads: a tenth of its size."""
    for name in _WHOLE:
        if (job / name).is_file():
            data = (job / name).read_bytes()
            if name == "config.yaml":  # where the data lay says nothing elsewhere
                data = re.sub(rb"(?m)^( *root): .*$", rb"\1: data", data)
            yield name, data
    head, *rows = (job / "rounds.csv").read_text().splitlines()
    lines = [head, *map(_short, (row for row in rows if row.split(",")[2] in _METRICS))]
    yield "rounds.csv", "".join(f"{line}\n" for line in lines).encode()
    if (job / "clients.parquet").is_file():
        clients = pd.read_parquet(job / "clients.parquet")
        last, first = clients["round"].max(), clients["seed"].min()
        some = clients[(clients["round"] == last) | (clients["seed"] == first)]
        columns = [name for name in _CLIENT if name in clients]
        # the archive compresses better, across the jobs
        yield "clients.parquet", some[columns].to_parquet(index=False, compression=None)


def of_a_search(folder: Path) -> Iterator[tuple[str, bytes]]:
    """What a search goes on with, and what it has found."""
    for name in _OF_A_SEARCH:
        if (folder / name).is_file():
            yield name, (folder / name).read_bytes()


def packed_files(files: Mapping[str, bytes]) -> bytes:
    """An archive whose bytes depend on the files' names and contents alone.

    Raises:
        ConfigError: for a name of more than 255 letters, or with a part of more than 100.
    """
    return lzma.compress(_tar(files), preset=9)


def _tar(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(files):
            head = tarfile.TarInfo(name)
            head.size = len(files[name])
            try:
                archive.addfile(head, io.BytesIO(files[name]))
            except ValueError as error:
                raise ConfigError(f"{name} cannot be packed: {error}") from error
    return made.getvalue()


def unpacked(file: Path) -> dict[str, bytes]:
    """The files of an archive by name.

    Raises:
        DataError: for a name that an archive may not have, or one that is too large.
        OSError, lzma.LZMAError, tarfile.TarError: where it cannot be read.
    """
    if file.stat().st_size > MOST:
        raise DataError(f"{file} has {file.stat().st_size:,} bytes, and may have {MOST:,}")
    content = _decompressed(file)
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            plain = member.isfile() and ".." not in member.name.split("/")
            if not (plain and _NAMES.fullmatch(member.name)):
                raise DataError(f"{file} holds {member.name!r}, which no archive may hold")
            opened = archive.extractfile(member)
            files[member.name] = opened.read() if opened else b""
    if _tar(files) != content:
        raise DataError(f"{file} holds more than its files, or one of them twice")
    return files


def _decompressed(file: Path) -> bytes:
    """The tar in an archive, read no further than it may be large."""
    xz = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    content = xz.decompress(file.read_bytes(), max_length=_MOST_INSIDE + 1)
    if len(content) > _MOST_INSIDE:
        raise DataError(f"{file} holds more than {_MOST_INSIDE:,} bytes")
    if not xz.eof:
        raise EOFError("it ends too early")
    if xz.unused_data:
        raise DataError(f"{file} has {len(xz.unused_data):,} bytes behind its end")
    return content


def is_done(job: Path) -> bool:
    """Whether a job has ended; one that is just starting has no status yet."""
    status = job / "status.json"
    return status.is_file() and json_of(status).get("state") == "done"


def is_whole(job: Path) -> bool:
    """Whether a job has ended with all its seeds: of one that diverged nothing is compared."""
    if not is_done(job):
        return False
    seeds = json_of(job / "status.json").get("seeds")
    return isinstance(seeds, Mapping) and all(became == "ok" for became in seeds.values())


def _searches(jobs: Sequence[Path]) -> Iterator[Path]:
    """The folders of the searches that tuned some jobs."""
    for job in jobs:
        config = config_of(job)
        if tuned := config.get("tuned"):
            yield best_file(Path(str(tuned)), config["choices"]).parent


def _code(own: Path) -> Iterator[tuple[str, bytes]]:
    """The configs and modules of a folder of one's own."""
    for file in sorted(own.rglob("*")):
        name = file.relative_to(own)
        hidden = any(part.startswith((".", "__pycache__")) for part in name.parts)
        if file.is_file() and not hidden and file.suffix in (".py", ".yaml", ".md"):
            yield name.as_posix(), file.read_bytes()


def _short(row: str) -> str:
    """A row of rounds.csv; of seconds, which no two runs have alike, to a thousandth."""
    before, _, value = row.rpartition(",")
    return f"{before},{float(value):.3f}" if before.endswith("seconds") else row
