"""`fedclust benchmark`: archives of a method's jobs, the page of all, held-out federations."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex

from fedclust.helpers.errors import ConfigError, DataError, counted, pasted, require

_NOTHING_RUN = "nothing of it was run; with --run two seeds of two federations are run again"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise ConfigError(f"fedclust benchmark: {message}")


def command(arguments: Sequence[str]) -> None:
    """Pack, verify, make the page or draw.

    Raises:
        UserError: for jobs or an archive that are not of the frozen benchmark, in one line.
    """
    asked = _parser().parse_args(list(arguments))
    if asked.what == "pack":
        _pack(asked)
    elif asked.what == "verify":
        _verify(asked.archive, asked.run)
    elif asked.what == "page":
        _page(asked.folders, asked.to, asked.version)
    else:
        _draw(asked.seed, asked.folder)


def _parser() -> _Parser:
    parser = _Parser(prog="fedclust benchmark", description="The benchmark's rows and pages.")
    parts = parser.add_subparsers(dest="what", required=True, metavar="pack, verify, page or draw")

    def part(name: str, about: str) -> argparse.ArgumentParser:
        return parts.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")

    packing = part("pack", "write METHOD-VERSION.tar.xz of a method's jobs, beside their folder")
    packing.add_argument("folder", type=Path, help="of the jobs: outputs/benchmark/v1")
    packing.add_argument("method", help="its choice of algorithm")
    packing.add_argument("--contact", required=True, help="whom to write to about it")
    packing.add_argument("--config-dir", type=Path, metavar="DIR", help="of a method of your own")
    packing.add_argument("--version", default="v1", help="of the benchmark; v1 unless given")
    without = "federations that the method cannot run in, so that it is not ranked"
    packing.add_argument("--without", nargs="+", default=[], metavar="CASE", help=without)
    verifying = part("verify", "hold an archive against the benchmark")
    verifying.add_argument("archive", type=Path)
    again = "run its code: two seeds of two federations, drawn at random"
    verifying.add_argument("--run", action="store_true", help=again)
    paging = part("page", "make the page of standings")
    paging.add_argument("folders", type=Path, nargs="+", help="of archives, or of jobs")
    beside = "the page; its data, scores and picture go to the folder FILE beside it"
    paging.add_argument("--to", type=Path, required=True, metavar="FILE.md", help=beside)
    paging.add_argument("--version", default="v1", help="of the benchmark; v1 unless given")
    drawing = part("draw", "write six federations that are drawn from a seed")
    drawing.add_argument("seed", help="any text")
    drawing.add_argument("folder", type=Path, help="to use with --config-dir")
    return parser


def _pack(asked: argparse.Namespace) -> None:
    from fedclust.benchmark.archive import pack  # pandas is slow to import

    if own := asked.config_dir:
        require(own.is_dir(), "--config-dir", own, "a folder")
    made = pack(asked.folder, asked.method, asked.contact, own, asked.version, asked.without)
    print(f"{made}: {made.stat().st_size:,} bytes")


def _verify(file: Path, again: bool) -> None:
    from fedclust.benchmark.archive import check, opened
    from fedclust.benchmark.verify import verify
    from fedclust.launch.command import launch
    from fedclust.launch.typed import Typed

    archive, bench = opened(file)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        archive.into(folder)
        jobs = check(archive, bench, folder)
        method = archive.head["method"]
        print(f"{file}: {method}, {counted(len(jobs), 'job')} of {bench.name} ({bench.digest})")
        if not again:
            print(_NOTHING_RUN)
            return
        name = f"verified/{method}-{token_hex(3)}"  # no earlier run is taken for this one
        print(f"two seeds of two federations are run again in outputs/{name}")
        run = lambda texts, own: launch(Typed(tuple(texts), own))  # noqa: E731
        compared = []
        for one in verify(bench, folder, name, run):
            seeds = ", ".join(map(str, one.seeds))
            print(f"  {one.case}, seeds {seeds}: {one.verdict}", flush=True)
            compared.append(one)
    if others := [one.apart for one in compared if not one.is_same]:
        raise DataError(f"{file} was not reproduced: {max(others):.2f} points apart")


def _page(folders: Sequence[Path], to: Path, version: str) -> None:
    from fedclust.benchmark.write_page import write_page

    for made in write_page(folders, to, version):
        print(made)


def _draw(seed: str, folder: Path) -> None:
    from fedclust.benchmark import held_out

    cases = held_out.write(seed, folder)
    print(f"{folder}: six federations of the seed with the digest {held_out.digest_of(seed)}")
    print(f"  fedclust run --config-dir {pasted(str(folder))} experiment=benchmark/v1 \\")
    print(f"    report.frozen=null name=held_out case={','.join(cases)}")
