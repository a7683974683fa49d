"""Files of a finished sweep, damaged or edited by hand before its report is made again."""

from __future__ import annotations

import json
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path

from faults.case import Case, Ended, called, forked
from faults.damages import HOWS, damage
from faults.jobs import SMALL
from fedclust.helpers.errors import UserError
from fedclust.papers.reports import all_contents

CLAIM = "{kind: at_least, metric: accuracy, arm: lcfl, value: 0.9}"
SWEEP = (
    "run",
    "-m",
    "algorithm=fedavg,lcfl",
    *SMALL,
    "rounds=7",
    f"report={{metric: accuracy, claims: [{CLAIM}]}}",
    "progress=false",
    "hydra.sweep.dir=swept",
)
JOB = "lcfl"  # the one that is tampered with; it has arrays too
_NOT_NUMBERS = ("made", "settings")  # what computed it, and the config


@cache
def swept() -> Path:
    """A finished sweep of two jobs, to copy."""
    folder = Path(tempfile.mkdtemp(prefix="fedclust-faults-"))
    done = called(SWEEP, folder)
    assert done.status == 0, done
    return folder / "swept"


def job_in(folder: Path, name: str = JOB) -> Path:
    """The folder of one of the jobs of a sweep."""
    return next(file.parent for file in folder.rglob("rounds.csv") if name in file.parent.name)


def reported(folder: Path) -> Ended:
    """What a report on a folder says: its tables as text, or why there is none; and its banners."""
    try:
        contents = all_contents(folder)
    except (UserError, OSError) as error:
        return Ended("refused", str(error))
    tables = {t.name: t.csv() for one in contents for t in one.tables if t.name not in _NOT_NUMBERS}
    return Ended("done", json.dumps(tables), tuple(b for one in contents for b in one.banners))


@cache
def whole() -> str:
    """The tables of the report on a sweep that nothing happened to."""
    ended = forked(partial(reported, swept()))
    assert ended.kind == "done", ended
    assert not ended.warned, ended
    return ended.said


def tampered(change: Callable[[Path], None], pages: bool, folder: Path) -> tuple[str, str]:
    """Change a finished job and report again.

    Args:
        change: called with the job's folder.
        pages: whether to call the command, which also draws, besides reading the tables.
        folder: an empty one.
    """
    shutil.copytree(swept(), folder / "swept")
    change(job_in(folder / "swept"))
    ended = forked(partial(reported, folder / "swept"))
    if pages:
        command = called(["report", "swept"], folder)
        if command.status not in (0, 2) or "Traceback" in command.err:
            return "crashed", command.end
    if ended.kind == "refused" and "\n" not in ended.said:
        return "refused", ended.said
    if ended.kind != "done":
        return "crashed", f"{ended.kind}: {ended.said[-500:]}"
    if ended.said == whole():
        return "survived", "; ".join(ended.warned)
    # another job of the sweep has no banner of its own
    return ("refused" if ended.warned else "wrong"), "; ".join(ended.warned)


def damaged(file: str, how: str, number: int, job: Path) -> None:
    """Damage a file of the job."""
    damage(job / file, how, random.Random(number))


def edited(file: str, pattern: str, new: str, job: Path) -> None:
    """Replace the last place that fits a pattern."""
    text = (job / file).read_text()
    places = list(re.finditer(pattern, text))
    assert places, (file, pattern)
    last = places[-1]
    (job / file).write_text(text[: last.start()] + last.expand(new) + text[last.end() :])


def of_the_other(file: str, job: Path) -> None:
    """Put the other job's file in its place."""
    shutil.copy(job_in(job.parent, "fedavg") / file, job / file)


# edits by hand: a file, a pattern, what stands there instead
EDITS: Mapping[str, tuple[str, str, str]] = {
    "a better accuracy": ("rounds.csv", r"(?m)^0,6,accuracy,.*$", "0,6,accuracy,0.99"),
    "an accuracy above 1": ("rounds.csv", r"(?m)^0,6,accuracy,.*$", "0,6,accuracy,17"),
    "an accuracy of NaN": ("rounds.csv", r"(?m)^0,6,accuracy,.*$", "0,6,accuracy,nan"),
    "a text": ("rounds.csv", r"(?m)^0,6,accuracy,.*$", "0,6,accuracy,high"),
    "a line less": ("rounds.csv", r"(?m)^0,6,accuracy,.*\n", ""),
    "a line twice": ("rounds.csv", r"(?m)^(0,6,accuracy,.*\n)", r"\1\1"),
    "another round": ("rounds.csv", r"(?m)^0,6,accuracy,", "0,9,accuracy,"),
    "another seed": ("rounds.csv", r"(?m)^1,6,accuracy,", "7,6,accuracy,"),
    "another metric": ("rounds.csv", r"(?m)^0,6,accuracy,", "0,6,purity,"),
    "a metric that nobody knows": ("rounds.csv", r"(?m)^0,6,accuracy,", "0,6,nonsense,"),
    "less purity": ("rounds.csv", r"(?m)^0,6,purity,.*$", "0,6,purity,0.1"),
    "fewer bytes": ("rounds.csv", r"(?m)^0,0,bytes,.*$", "0,0,bytes,1"),
    "a lower claim": ("config.yaml", r"value: 0\.9", "value: 0.0"),
    "a claim of text": ("config.yaml", r"value: 0\.9", "value: abc"),
    "a claim of another kind": ("config.yaml", r"kind: at_least", "kind: nonsense"),
    "another metric of the report": ("config.yaml", r"metric: accuracy", "metric: purity"),
    "no metric of the report": ("config.yaml", r"metric: accuracy", "metric: nonsense"),
    "another rate": ("config.yaml", r"lr: [\d.]+", "lr: 0.7"),
    "another algorithm": ("config.yaml", r"algorithm: lcfl", "algorithm: ifca"),
    "an override less": ("config.yaml", r"- algorithm=lcfl\n", ""),
    "another scale": ("config.yaml", r"name: paper", "name: laptop"),
    "more rounds": ("config.yaml", r"(?m)^rounds: 7", "rounds: 70"),
    "another hash": ("config.yaml", r"(?m)^hash: .*$", "hash: 0123456789abcdef"),
    "a failed seed": ("status.json", r'"0": "ok"', '"0": "diverged"'),
    "a failed job": ("status.json", r'"state": "done"', '"state": "failed"'),
    "fewer rounds done": ("status.json", r'"rounds_done": 7', '"rounds_done": 3'),
    "a status of another kind": ("status.json", r"(?s)^.*$", "[]"),
    "more parameters": ("federation.json", r'"parameters": \d+', '"parameters": 7'),
    "more examples": ("federation.json", r'"total": \d+', '"total": 7'),
    "another version": ("versions.json", r'"fedclust": "[^"]*"', '"fedclust": "9"'),
    "a summary of its own": ("summary.csv", r"(?m)^accuracy,last,mean,.*$", "accuracy,last,mean,1"),
}


def cases(quick: bool) -> Iterator[Case]:
    """Edits by hand, and damage to every file."""
    whole()
    for i, (what, (file, pattern, new)) in enumerate(EDITS.items()):
        if not quick or i % 6 == 0:
            work = partial(tampered, partial(edited, file, pattern, new), i % 6 == 0)
            yield Case("a report of edited files", f"{what} in {file}", work)
    job = job_in(swept())
    files = sorted(
        str(p.relative_to(job))
        for p in job.rglob("*")
        if p.is_file() and "round=" not in str(p) and p.name != ".lock"
    )
    for file in files if not quick else files[::4]:
        if (job_in(swept(), "fedavg") / file).is_file():
            work = partial(tampered, partial(of_the_other, file), False)
            yield Case("a report of edited files", f"the other job's {file}", work)
        hows = [("flipped", i) for i in range(1 if quick else 15)]
        for how, number in [*hows, *((how, 0) for how in HOWS)]:
            work = partial(
                tampered, partial(damaged, file, how, number), how == "cut" or number == 1
            )
            yield Case("a report of damaged files", f"{file} {how} {number}", work)
