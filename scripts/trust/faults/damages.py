"""Damage to every file of a job, half done or done."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from faults.case import Case, Ended, forked
from faults.jobs import config_of, finished, judged, killed, signature
from fedclust.helpers.errors import UserError
from fedclust.runtime.folder import RunFolder

HOWS = ("cut", "emptied", "deleted", "swapped")


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


def half_done(name: str, file: str, how: str, number: int, folder: Path) -> tuple[str, str]:
    """Damage a file of a job that was killed, then continue it."""
    shutil.copytree(killed(name), folder / "job")
    damage(folder / "job" / file, how, random.Random(number))
    return judged(name, folder / "job", may_refuse=True)


def done(name: str, file: str, how: str, number: int, folder: Path) -> tuple[str, str]:
    """Damage a file of a finished job, then ask for it again."""
    shutil.copytree(finished(name), folder / "job")
    damage(folder / "job" / file, how, random.Random(number))
    again = RunFolder(folder / "job", config_of(name))

    def ask() -> Ended:
        try:
            again.check()
            is_done = again.is_done()
        except UserError as error:
            return Ended("refused", str(error))
        return Ended("done" if is_done else "open", "", tuple(again.remarks))

    ended = forked(ask)
    if ended.kind == "refused":
        return "refused", ended.said
    if ended.kind == "open":
        return judged(name, folder / "job", may_refuse=True)
    if ended.kind != "done":
        return "crashed", ended.said
    same = signature(folder / "job", states=False) == signature(finished(name), states=False)
    told = any(Path(file).name in line for line in ended.warned)
    return ("survived" if same else "refused" if told else "wrong"), "; ".join(ended.warned)


def cases(quick: bool) -> Iterator[Case]:
    """Of every file of a job that is half done, and of one that is done."""
    for name in ("static",) if quick else ("static", "shifting", "clustered once"):
        for part, source, work in (
            ("damage to a half-done job", killed(name), half_done),
            ("damage to a finished job", finished(name), done),
        ):
            files = sorted(str(p.relative_to(source)) for p in source.rglob("*") if p.is_file())
            for file in files:
                # the lock holds nothing; a finished job is not read from its checkpoints
                if file == ".lock" or (source == finished(name) and "round=" in file):
                    continue
                # an array is sealed when its job ends
                if source == killed(name) and file.startswith("arrays/"):
                    continue
                hows = [("flipped", i) for i in range(1 if quick else 12)]
                for how, number in [*hows, *((how, 0) for how in HOWS)]:
                    case = partial(work, name, file, how, number)
                    yield Case(part, f"{name} {file} {how} {number}", case)
