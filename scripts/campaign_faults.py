"""Faults on purpose: what a job does when it is killed, its files are damaged or its machine fails.

python scripts/campaign_faults.py [--quick] [--only PART …] [--seconds N] [--folder outputs/faults]

Every case runs jobs in forked processes, which share one import and one set of data. A case ends in
one of these ways:

    survived   the job ends with the bits of one that nothing happened to
    refused    one line, and nothing of the folder is overwritten
    untidy     the process ended in another way than it should, but no number is wrong
    wrong      the job ends with other numbers and no error

What was tried is kept in a file, and a campaign that is started again goes on behind it. Prints a
table, and exits with status 1 if any case ended wrong.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import io
import json
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from fedclust.config import schema
from fedclust.config.build import build
from fedclust.config.job import Job
from fedclust.config.tree import CONF
from fedclust.errors import Interrupted, UserError
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.progress import Silent
from fedclust.runtime.run import run

ENDS = ("survived", "refused", "untidy", "wrong")
PATIENCE = 120  # seconds for one process
SMALL = (
    "partition=class_subsets",
    "partition.num_clients=8",
    "partition.examples_per_client=24",
    "participation=0.5",
    "model=linear",
    "solver.epochs=1",
    "seeds=2",
    "rounds=4",
    "threads=1",
    "device=cpu",
    "checkpoint_seconds=0",
)
JOBS = {
    "static": ("algorithm=ifca",),
    "clustered once": ("algorithm=lcfl", "rounds=7"),  # after five
    "shifting": ("algorithm=ifca", "scenario=swap_all", "scenario.probability=0.5"),
    "arriving": ("algorithm=flexcfl", "num_clusters=3", "scenario=newcomers"),
}
CHEAP = ("static", "shifting")
ODD = ("null", "-1", "0", "1e300", ".inf", ".nan", "1000000000000000000000000000000", "abc", "[]")


@dataclass(frozen=True)
class Case:
    """One fault.

    Attributes:
        part: what kind of fault it is; a row of the table.
        name: unique in its part.
        work: makes the fault in an empty folder and says how it ended, with a line about it.
    """

    part: str
    name: str
    work: Callable[[Path], tuple[str, str]]


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    Attributes:
        kind: done, refused, interrupted, crashed or killed.
        said: what it said.
        warned: its warnings.
    """

    kind: str
    said: str = ""
    warned: tuple[str, ...] = ()


class Listening(Silent):
    """Remembers warnings, and does something when a round is complete."""

    def __init__(self, after: Callable[[int], None] | None = None) -> None:
        self.warnings: list[str] = []
        self._after = after

    def round(self, t: int, values: Mapping[str, float]) -> None:  # noqa: ARG002
        """See `Progress.round`."""
        if self._after is not None:
            self._after(t)

    def warn(self, message: str) -> None:
        """See `Progress.warn`."""
        self.warnings.append(message)


@cache
def config_of(name: str) -> Mapping[str, Any]:
    """The resolved config of one of `JOBS`."""
    schema.register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        composed = compose("config", overrides=[*SMALL, *JOBS[name]])
    config = schema.resolve(composed, {})
    return {**config, "seeds": schema.seed_list(config["seeds"])}


@cache
def job_of(name: str) -> Job:
    """The job, built once; forked processes share it."""
    return build(config_of(name))


def forked(work: Callable[[], Ended]) -> Ended:
    """How `work` ends in a process of its own."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 0
        try:
            os.close(reading)
            faulthandler.disable()
            signal.alarm(PATIENCE)
            try:
                ended = work()
            except BaseException:
                ended = Ended("crashed", traceback.format_exc())
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump(ended, pipe)
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    os.waitpid(pid, 0)
    return pickle.loads(told) if told else Ended("killed")


def play(name: str, folder: Path, after: Callable[[int], None] | None = None) -> Ended:
    """Start a job, or continue it, in this process."""
    progress = Listening(after)
    try:
        run(job_of(name), RunFolder(folder, config_of(name)), progress)
    except (UserError, OSError) as error:
        return Ended("refused", str(error), tuple(progress.warnings))
    except Interrupted as error:
        return Ended("interrupted", str(error), tuple(progress.warnings))
    return Ended("done", "", tuple(progress.warnings))


def signature(folder: Path, *, states: bool = True) -> str:
    """Digest of every number that a job leaves, the seconds apart; of its results alone without
    `states`.
    """
    sha = hashlib.sha256()
    lines = (folder / "rounds.csv").read_bytes().splitlines()
    sha.update(b"\n".join(line for line in lines if b",seconds," not in line))
    sha.update((folder / "clients.parquet").read_bytes())
    lines = (folder / "summary.csv").read_bytes().splitlines()
    sha.update(b"\n".join(line for line in lines if not line.startswith(b"seconds,")))
    if not states:
        return sha.hexdigest()
    root = folder / "checkpoints"
    newest = json.loads((root / "latest.json").read_text())["round"]
    for file in sorted((root / f"round={newest}").glob("*.pt")):
        content = torch.load(file, weights_only=True)
        for key, value in sorted(content["state"].items()):
            sha.update(key.encode())
            sha.update(value.numpy().tobytes() if isinstance(value, torch.Tensor) else b"-")
    return sha.hexdigest()


@cache
def expected(name: str) -> str:
    """The signature of a job that nothing happens to."""
    with tempfile.TemporaryDirectory() as folder:
        ended = forked(partial(play, name, Path(folder, "whole")))
        assert ended.kind == "done", ended
        return signature(Path(folder, "whole"))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file that a refusal must leave as it is."""
    return {
        str(path): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("versions.json", ".lock")
    }


def judged(name: str, folder: Path, *, may_refuse: bool) -> tuple[str, str]:
    """What becomes of a job that is started again."""
    before = contents(folder)
    ended = forked(partial(play, name, folder))
    if ended.kind == "done":
        same = signature(folder) == expected(name)
        return ("survived" if same else "wrong"), "; ".join(ended.warned)
    if ended.kind == "refused" and may_refuse and "\n" not in ended.said:
        kept = all(contents(folder).get(path) == content for path, content in before.items())
        return ("refused" if kept else "untidy"), ended.said
    return "untidy", f"{ended.kind}: {ended.said[-500:]}"


# kills


def counting(folder: Path, limit: int | None) -> Callable[[], int]:
    """Watch the file operations below a folder in this process.

    Args:
        folder: the folder.
        limit: the operation before which the process is killed; None to count only.

    Returns:
        A function that says how many there were.
    """
    seen = [0]
    inside = str(folder)

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        named = event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")
        writes = event == "open" and bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if (named or writes) and inside in str(arguments[0]):
            step()

    def step() -> None:
        seen[0] += 1
        if seen[0] == limit:
            os.kill(os.getpid(), signal.SIGKILL)

    force = os.fsync

    def fsync(descriptor: int) -> None:
        step()
        force(descriptor)

    sys.addaudithook(watch)
    os.fsync = fsync
    return lambda: seen[0]


def watched(name: str, folder: Path, limit: int | None) -> Ended:
    """Play a job under `counting`."""
    count = counting(folder, limit)
    ended = play(name, folder)
    return Ended(ended.kind, str(count()))


@cache
def operations(name: str) -> int:
    """File operations of a whole job."""
    with tempfile.TemporaryDirectory() as folder:
        return int(forked(partial(watched, name, Path(folder, "job"), None)).said)


def kill_before(name: str, number: int, folder: Path) -> tuple[str, str]:
    """Kill a job before a file operation, then start it again."""
    ended = forked(partial(watched, name, folder / "job", number))
    if ended.kind != "killed":
        return "untidy", "the process was not killed"
    return judged(name, folder / "job", may_refuse=False)


def kill_at_random(name: str, number: int, folder: Path) -> tuple[str, str]:
    """Kill a job at up to five random moments, then let it end."""
    rng = random.Random(number)

    def die() -> Ended:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.005, 0.6))
        return play(name, folder / "job")

    for _ in range(rng.randint(1, 5)):
        rng.random()
        forked(die)
    return judged(name, folder / "job", may_refuse=False)


def kills(quick: bool) -> Iterator[Case]:
    """Before every file operation, and at random moments."""
    for name in CHEAP if quick else JOBS:
        count = operations(name)
        for number in range(1, count + 1, 7 if quick else 1):
            yield Case(
                "kill before an operation", f"{name} {number}", partial(kill_before, name, number)
            )
        for number in range(5 if quick else 100):
            yield Case("kill at random", f"{name} {number}", partial(kill_at_random, name, number))


# damage


@cache
def crashed(name: str) -> Path:
    """A job that was killed in its last round, to copy."""
    folder = Path(tempfile.mkdtemp(prefix="fedclust-faults-")) / "job"

    def die(t: int) -> None:
        if t == config_of(name)["rounds"] - 1:
            os.kill(os.getpid(), signal.SIGKILL)

    forked(partial(play, name, folder, die))
    return folder


@cache
def finished(name: str) -> Path:
    """A finished job, to copy."""
    folder = Path(tempfile.mkdtemp(prefix="fedclust-faults-")) / "job"
    forked(partial(play, name, folder))
    return folder


def damage(file: Path, how: str, rng: random.Random) -> None:
    """Flip a bit of a file, cut it, empty it, delete it, or put another in its place."""
    content = bytearray(file.read_bytes())
    if how == "deleted":
        file.unlink()
        return
    if how == "swapped":
        others = sorted(p for p in file.parent.iterdir() if p.suffix == file.suffix and p != file)
        content = bytearray(rng.choice(others).read_bytes()) if others else content[:-1]
    elif how == "cut":
        del content[rng.randrange(max(1, len(content))) :]
    elif how == "emptied":
        content.clear()
    elif content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)


def damage_half_done(name: str, file: str, how: str, number: int, folder: Path) -> tuple[str, str]:
    """Damage a file of a job that was killed, then continue it."""
    shutil.copytree(crashed(name), folder / "job")
    damage(folder / "job" / file, how, random.Random(number))
    return judged(name, folder / "job", may_refuse=True)


def damage_finished(name: str, file: str, how: str, number: int, folder: Path) -> tuple[str, str]:
    """Damage a file of a finished job, then ask for it again."""
    shutil.copytree(finished(name), folder / "job")
    damage(folder / "job" / file, how, random.Random(number))
    again = RunFolder(folder / "job", config_of(name))

    def ask() -> Ended:
        try:
            again.check()
            done = again.is_done()
        except UserError as error:
            return Ended("refused", str(error))
        return Ended("done" if done else "open", "", tuple(again.remarks))

    ended = forked(ask)
    if ended.kind == "refused":
        return "refused", ended.said
    if ended.kind == "open":
        return judged(name, folder / "job", may_refuse=True)
    if ended.kind != "done":
        return "untidy", ended.said
    same = signature(folder / "job", states=False) == signature(finished(name), states=False)
    return ("survived" if same else "wrong"), "; ".join(ended.warned)


def damages(quick: bool) -> Iterator[Case]:
    """Of every file of a job that is half done, and of one that is done."""
    for name in CHEAP[:1] if quick else CHEAP:
        for part, source, work in (
            ("damage to a half-done job", crashed(name), damage_half_done),
            ("damage to a finished job", finished(name), damage_finished),
        ):
            files = sorted(str(p.relative_to(source)) for p in source.rglob("*") if p.is_file())
            for file in files:
                # the lock holds nothing; a finished job is not read from its checkpoints
                if file == ".lock" or (source == finished(name) and "round=" in file):
                    continue
                hows = [("flipped", i) for i in range(1 if quick else 12)]
                hows += [(how, 0) for how in ("cut", "emptied", "deleted", "swapped")]
                for how, number in hows:
                    case = partial(work, name, file, how, number)
                    yield Case(part, f"{name} {file} {how} {number}", case)


# the machine


def with_limit(name: str, kind: int, limit: int, folder: Path) -> tuple[str, str]:
    """Run a job under a limit of the system, then again without."""

    def limited() -> Ended:
        most = limit
        if kind == resource.RLIMIT_AS:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            most += pages * resource.getpagesize()
        else:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))
        return play(name, folder / "job")

    ended = forked(limited)
    if ended.kind in ("crashed", "killed") or "\n" in ended.said:
        return "untidy", ended.said[-500:]
    return judged(name, folder / "job", may_refuse=False)


def with_signal(name: str, signum: int, number: int, folder: Path) -> tuple[str, str]:
    """Send a job a signal at a random moment, then continue it."""
    rng = random.Random(number)

    def hit() -> Ended:
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signum))
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.01, 0.5))
        try:
            return play(name, folder / "job")
        except KeyboardInterrupt:
            return Ended("interrupted")

    ended = forked(hit)
    if ended.kind not in ("interrupted", "done", "killed"):
        return "untidy", f"{ended.kind}: {ended.said[-500:]}"
    return judged(name, folder / "job", may_refuse=False)


def machine(quick: bool) -> Iterator[Case]:
    """Full disks, little memory, signals."""
    for name in CHEAP[:1] if quick else CHEAP:
        for size in range(0, 12_000, 3000 if quick else 250):
            case = partial(with_limit, name, resource.RLIMIT_FSIZE, size)
            yield Case("full disk", f"{name} {size} bytes a file", case)
        for mib in range(0, 64, 16 if quick else 1):
            case = partial(with_limit, name, resource.RLIMIT_AS, mib << 20)
            yield Case("little memory", f"{name} {mib} MiB", case)
        for signum in (signal.SIGINT, signal.SIGTERM):
            for number in range(2 if quick else 25):
                case = partial(with_signal, name, signum, number)
                yield Case("signal", f"{name} {signum.name} {number}", case)


# bad values


def leaves(node: Any, path: str = "") -> Iterator[str]:
    """The keys of all plain values below a node."""
    for key, value in node.items() if isinstance(node, Mapping) else ():
        here = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping):
            yield from leaves(value, here)
        elif key != "_target_":
            yield here


def bad_value(arguments: Sequence[str], folder: Path) -> tuple[str, str]:
    """Call the command line with a value that nobody means."""

    def call() -> Ended:
        from fedclust.__main__ import main

        os.chdir(folder)
        limit = 12 << 30
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
        told = io.StringIO()
        status: Any = 0
        with redirect_stderr(told), redirect_stdout(io.StringIO()):
            try:
                main(["run", *arguments])
            except SystemExit as end:
                status = end.code
        return Ended(str(status or 0), told.getvalue())

    ended = forked(call)
    lines = [line for line in ended.said.splitlines() if line.startswith("fedclust: ")]
    left = [path.name for path in folder.iterdir()]
    if ended.kind == "2" and len(ended.said.splitlines()) == len(lines) == 1 and not left:
        return "refused", lines[0]
    if ended.kind in ("0", "1") and "Traceback" not in ended.said:
        return "survived", "accepted"
    return "untidy", f"{ended.kind}: {ended.said[-500:]} left {left}"


def values(quick: bool) -> Iterator[Case]:
    """Odd values of every key of every choice."""
    schema.register()
    small = ["progress=false", "rounds=1", "partition.num_clients=8", "threads=1"]
    groups = ("algorithm", "partition", "scenario", "solver", "cluster_method", "cluster_metric")
    with initialize_config_dir(str(CONF), version_base="1.3"):
        keys = {("", key) for key in leaves(OmegaConf.to_container(compose("config")))}
        for group in groups:
            for file in sorted((CONF / group).glob("*.yaml")):
                node = OmegaConf.to_container(OmegaConf.load(file))
                assert isinstance(node, dict)
                keys |= {
                    (f"{group}={file.stem}", f"{group}.{key}")
                    for key in leaves({k: v for k, v in node.items() if k != "defaults"})
                }
    chosen = sorted(keys)
    if quick:
        chosen = random.Random(0).sample(chosen, 6)
    for choice, key in chosen:
        for value in ODD[:: 3 if quick else 1]:
            given = [*small, *([choice] if choice else []), f"{key}={value}"]
            yield Case("odd value", f"{choice} {key}={value}", partial(bad_value, given))


PARTS: Mapping[str, Callable[[bool], Iterator[Case]]] = {
    "kills": kills,
    "damages": damages,
    "machine": machine,
    "values": values,
}


def try_all(cases: Iterator[Case], kept: Path, until: float) -> list[dict[str, str]]:
    """Try every case that was not tried before, and keep how it ended."""
    tried = [json.loads(line) for line in kept.read_text().splitlines()] if kept.is_file() else []
    known = {(row["part"], row["name"]) for row in tried}
    with kept.open("a") as file:
        for case in cases:
            if time.monotonic() > until:
                print("out of time; the same command goes on")
                break
            if (case.part, case.name) in known:
                continue
            with tempfile.TemporaryDirectory() as folder:
                end, said = case.work(Path(folder))
            row = {"part": case.part, "name": case.name, "end": end, "said": said}
            tried.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
            if end in ("wrong", "untidy"):
                print(f"{end}: {case.part}: {case.name}: {said}")
    return tried


def table(tried: Sequence[Mapping[str, str]]) -> str:
    """How the cases of every part ended, as Markdown."""
    lines = ["| fault | tried | " + " | ".join(ENDS) + " |", "|" + " ---: |" * (len(ENDS) + 2)]
    for part in dict.fromkeys(row["part"] for row in tried):
        ends = Counter(row["end"] for row in tried if row["part"] == part)
        counts = " | ".join(str(ends[end]) for end in ENDS)
        lines.append(f"| {part} | {sum(ends.values())} | {counts} |")
    return "\n".join(lines).replace("| ---: |", "| --- |", 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a part of all cases, ten minutes")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--folder", type=Path, default=Path("outputs/faults"))
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)  # a forked process has no threads
    for name in CHEAP if given.quick else JOBS:
        job_of(name)  # before anything forks
    given.folder.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + given.seconds
    tried: list[dict[str, str]] = []
    for part in given.only:
        kept = given.folder / f"{part}{'-quick' if given.quick else ''}.jsonl"
        tried += try_all(PARTS[part](given.quick), kept, until)
    (given.folder / "table.md").write_text(table(tried) + "\n")
    print(table(tried))
    return 1 if any(row["end"] == "wrong" for row in tried) else 0


if __name__ == "__main__":
    sys.exit(main())
