"""Sweeps: killed, interrupted, with a job that cannot run, under launchers, and jobs on two
ranks.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path

import psutil

from faults.case import Case, Command, called
from faults.jobs import SMALL, signature

SWEEP = ("run", "-m", "algorithm=fedavg,ifca", *SMALL, "progress=false")
RANKED = ("run", *SMALL, "algorithm=ifca", "engine=loop", "progress=false", "hydra.run.dir=job")
LAUNCHERS = {
    "joblib": ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2"),
    "joblib, forked": (
        "hydra/launcher=joblib",
        "hydra.launcher.n_jobs=2",
        "hydra.launcher.backend=multiprocessing",
    ),
    "submitit": ("hydra/launcher=submitit_local",),
}
_TABLES = ("table.csv", "recovery.csv", "over_rounds.csv")


def results(folder: Path) -> str:
    """Digest of what a sweep leaves: the results of every job and the report's tables."""
    sha = hashlib.sha256()
    for file in sorted((folder / "outputs").rglob("summary.csv")):
        sha.update(str(file.relative_to(folder)).encode())
        sha.update(signature(file.parent, states=False).encode())
    for name in _TABLES:
        sha.update((folder / "outputs" / "default" / "report" / name).read_bytes())
    return sha.hexdigest()


@cache
def whole() -> tuple[str, float]:
    """The results of a sweep that nothing happens to, and its seconds."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        done = called(SWEEP, Path(folder))
        assert done.status == 0, done
        return results(Path(folder)), time.monotonic() - began


def ended_as_whole(folder: Path, *more: str) -> tuple[str, str]:
    """What becomes of a sweep that is started again."""
    again = called([*SWEEP, *more], folder)
    if again.status != 0 or "Traceback" in again.err:
        return "crashed", again.end
    return ("survived" if results(folder) == whole()[0] else "wrong"), again.err[-200:]


def signalled(signum: int, number: int, folder: Path) -> tuple[str, str]:
    """Kill a sweep at a random moment, or send it a signal, then start it again."""
    moment = random.Random(number).uniform(0.02, 1.1) * whole()[1]
    command = Command(SWEEP, folder)
    time.sleep(moment)
    os.kill(command.pid, signum)
    first = command.wait()
    # Python ignores an exception in a callback of its own, and with it a signal that comes then
    told = "Traceback" in first.err and "Exception ignored in" not in first.err
    if signum != signal.SIGKILL and (first.status not in (0, 128 + signum) or told):
        return "crashed", first.end
    return ended_as_whole(folder)


def with_a_bad_job(bad: str, number: int, folder: Path) -> tuple[str, str]:
    """Add jobs that cannot run: they are told, the others end as alone, and so does the status."""
    values = ["8", bad] if number else [bad, "8"]
    swept = [text for text in SWEEP if not text.startswith("partition.num_clients")]
    first = called([*swept, f"partition.num_clients={','.join(values)}"], folder)
    if first.status != 2 or "Traceback" in first.err or bad not in first.err:
        return "crashed", first.end
    return ("refused" if signatures(folder) == alone() else "wrong"), first.err[-300:]


def with_an_option(typed: str, folder: Path) -> tuple[str, str]:
    """A sweep over two methods that both have the option that is typed: both run."""
    swept = [text for text in SWEEP if not text.startswith("algorithm=")]
    done = called([*swept, "algorithm=ifca,cfl_mgd", typed], folder)
    if done.status != 0 or "Traceback" in done.err:
        return "crashed", done.end
    jobs = list((folder / "outputs").rglob("summary.csv"))
    return ("survived" if len(jobs) == 2 else "wrong"), done.end


@cache
def alone() -> list[str]:
    """The results of the sweep's jobs, sorted."""
    with tempfile.TemporaryDirectory() as folder:
        assert called(SWEEP, Path(folder)).status == 0
        return signatures(Path(folder))


def signatures(folder: Path) -> list[str]:
    """The results of all jobs of a sweep, sorted."""
    jobs = (file.parent for file in (folder / "outputs").rglob("summary.csv"))
    return sorted(signature(job, states=False) for job in jobs)


def undisturbed(launcher: str, folder: Path) -> tuple[str, str]:
    """The sweep under a launcher."""
    return ended_as_whole(folder, *LAUNCHERS[launcher])


def launched_and_hit(launcher: str, signum: int, number: int, folder: Path) -> tuple[str, str]:
    """Send a sweep under a launcher a signal while its jobs run, then go on without launcher.

    SIGKILL goes to one of the processes that compute, SIGINT to all as a terminal does.
    """
    command = Command([*SWEEP, *LAUNCHERS[launcher]], folder, first=os.setpgrp)
    parent = psutil.Process(command.pid)
    until = time.monotonic() + 120
    while time.monotonic() < until and not any(folder.rglob("latest.json")):
        time.sleep(0.02)
    time.sleep(random.Random(number).uniform(0, 0.5))
    workers = parent.children(recursive=True)
    if signum == signal.SIGINT:
        os.killpg(command.pid, signum)
    elif workers:
        random.Random(number).choice(workers).kill()
    ended = command.wait()
    for worker in workers:
        if worker.is_running():
            worker.kill()
    fine = (0, 130) if signum == signal.SIGINT else (0, 1, 2)
    if ended.status not in fine or "Traceback" in ended.err:
        return "crashed", ended.end
    return ended_as_whole(folder)


def ranks(arguments: Sequence[str], folder: Path, size: int) -> list[Command]:
    """The command on some ranks, as torchrun starts them."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    common = {
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
        "FEDCLUST_RANKS_TIMEOUT": "60",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    return [
        Command(arguments, folder, {**common, "RANK": str(i), "LOCAL_RANK": str(i)})
        for i in range(size)
    ]


@cache
def whole_ranked() -> str:
    """The results of one process."""
    with tempfile.TemporaryDirectory() as folder:
        done = called(RANKED, Path(folder))
        assert done.status == 0, done
        return signature(Path(folder, "job"))


def on_two_ranks(hit: int, signum: int, number: int, folder: Path) -> tuple[str, str]:
    """Kill or interrupt one of two ranks, or none; go on with one, two or three."""
    commands = ranks(RANKED, folder, 2)
    rng = random.Random(number)
    if signum:
        until = time.monotonic() + 60
        wanted = folder / "job" / "checkpoints" / "latest.json"
        while time.monotonic() < until and not wanted.is_file():
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.3))
        os.kill(commands[hit].pid, signum)
    told = [command.wait() for command in commands]
    if any("Traceback" in one.err or (one.status and not signum) for one in told):
        return "crashed", " | ".join(one.end for one in told)
    size = rng.randint(1, 3)
    started = ranks(RANKED, folder, size) if size > 1 else [Command(RANKED, folder)]
    again = [command.wait() for command in started]
    if any(one.status for one in again):
        return "crashed", " | ".join(one.end for one in again)
    same = signature(folder / "job") == whole_ranked()
    return ("survived" if same else "wrong"), told[hit].err[-200:]


def cases(quick: bool) -> Iterator[Case]:
    """Sweeps, launchers and ranks."""
    whole()
    for signum, few, all_of in (
        (signal.SIGKILL, 2, 60),
        (signal.SIGINT, 1, 15),
        (signal.SIGTERM, 1, 15),
    ):
        for number in range(few if quick else all_of):
            yield Case("sweep", f"{signum.name} {number}", partial(signalled, signum, number))
    for bad in ("0", "abc", "1000000000000") if not quick else ("0",):
        for number in range(2):
            work = partial(with_a_bad_job, bad, number)
            yield Case("sweep", f"a bad job, {bad} {number}", work)
    for typed in ("algorithm.restart_fraction=0.1", "+algorithm.restart_fraction=0.1"):
        yield Case("sweep", f"both methods, {typed}", partial(with_an_option, typed))
    for number in range(2 if quick else 20):
        for hit in (0, 1):
            for signum in (signal.SIGKILL, signal.SIGTERM):
                work = partial(on_two_ranks, hit, signum, number)
                yield Case("two ranks", f"{signum.name} rank {hit} {number}", work)
    yield Case("two ranks", "undisturbed", partial(on_two_ranks, 0, 0, 0))
    for launcher in LAUNCHERS if not quick else ("joblib, forked",):
        yield Case("launcher", f"{launcher}, undisturbed", partial(undisturbed, launcher))
    for launcher in () if quick else ("joblib", "submitit"):
        for signum in (signal.SIGINT, signal.SIGKILL):
            for number in range(2):
                work = partial(launched_and_hit, launcher, signum, number)
                yield Case("launcher", f"{launcher} {signum.name} {number}", work)
