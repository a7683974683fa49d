"""Whether the numbers of an archive come out again: some jobs are run anew and compared."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fedclust.benchmark.frozen import Frozen, case_of, config_of, json_of
from fedclust.config.schema import part_of
from fedclust.helpers.errors import DataError

# points of accuracy that two kinds of processor may be apart in a seed and round, at least and at
# most; two threads instead of one make 1.3 in corruption, and nothing in rotation
_ROUNDING = 0.5, 2.0
_THREADS = re.compile(r", (\d+) threads$")  # ends a processor's name
_NOT_ASKED = ("case", "experiment", "name", "seeds", "threads", "tuned", "progress", "device")


@dataclass(frozen=True)
class Compared:
    """One federation, run again.

    Attributes:
        case: its choice.
        seeds: which ones.
        apart: the largest difference of accuracy in any round and seed, in points.
        is_same: whether rounding can make each of them.
    """

    case: str
    seeds: Sequence[int]
    apart: float
    is_same: bool

    @property
    def verdict(self) -> str:
        """In words."""
        if self.apart == 0:
            return "equal to the digit"
        return f"{self.apart:.3f} points apart, {'rounding' if self.is_same else 'not the same'}"


def verify(
    bench: Frozen,
    folder: Path,
    name: str,
    run: Callable[[Sequence[str], Path | None], Path],
    *,
    federations: int = 2,
    seeds: int = 2,
) -> Iterator[Compared]:
    """Run some federations of an archive again, drawn at random, on as many threads, and compare.

    Args:
        bench: of the archive.
        folder: where the archive's files were written.
        name: of the new jobs, as in `name=`.
        run: runs a job from what is typed and the folder of own code; returns its folder.
        federations, seeds: how many are drawn.

    Raises:
        DataError: for a job that was asked for with keys that no submission may set.
    """
    draw = random.SystemRandom()
    jobs: dict[str, list[Path]] = {}  # with and without a search
    for job in sorted((folder / "jobs").iterdir()):
        jobs.setdefault(case_of(job), []).append(job)
    for case in draw.sample(sorted(jobs), min(federations, len(jobs))):
        job = draw.choice(jobs[case])
        config = config_of(job)
        some = sorted(draw.sample(list(config["seeds"]), min(seeds, len(config["seeds"]))))
        code = folder / "code"
        again = run(
            [
                *(f"experiment=benchmark/{bench.name}", f"case={case}", f"name={name}"),
                *(f"seeds={some}", "hydra.mode=RUN", *_threads(job), *_asked(config, folder)),
            ],
            code if code.is_dir() else None,
        )
        yield Compared(case, some, *_apart(job, again, some))


def _threads(job: Path) -> Iterator[str]:
    """The threads of the processor that computed a job."""
    if found := _THREADS.search(str(json_of(job / "versions.json").get("device"))):
        yield f"threads={found[1]}"


def _asked(config: Mapping[str, object], folder: Path) -> Iterator[str]:
    """What was typed for the method.

    Raises:
        DataError: for a key that is not the method's.
    """
    overrides = config.get("overrides")
    for text in map(str, overrides if isinstance(overrides, list) else ()):
        key = text.partition("=")[0].lstrip("+")
        if key in _NOT_ASKED:
            continue
        if part_of(key) != "method":
            raise DataError(f"{text} is not an option of the method, so it is not run")
        yield text
    if config.get("tuned"):
        yield f"tuned={folder / 'searches'}"


def _apart(before: Path, again: Path, seeds: Sequence[int]) -> tuple[float, bool]:
    """The largest difference of accuracy, in points, and whether all of them can be rounding: they
    are no more than those of the job's own seeds in the round, within `_ROUNDING`.
    """
    every, new = (_accuracy(job) for job in (before, again))
    old = every[every.index.isin(seeds, level="seed")]
    if old.empty or not old.index.equals(new.index):
        raise DataError(f"{before.name} has {len(old)} tested rounds, and run again {len(new)}")
    apart = 100 * (old - new).abs().fillna(math.inf).where(old.notna() | new.notna(), 0.0)
    of_round = every.groupby("round")
    most = (100 * (of_round.max() - of_round.min())).fillna(0.0).clip(*_ROUNDING)
    allowed = most.loc[apart.index.get_level_values("round")].to_numpy()
    return float(apart.max()), bool((apart <= allowed).all())


def _accuracy(job: Path) -> pd.Series[float]:
    try:
        rows = pd.read_csv(job / "rounds.csv")
        some = rows[rows["metric"] == "accuracy"]
        return pd.to_numeric(some.set_index(["seed", "round"])["value"]).sort_index()
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"{job.name}/rounds.csv cannot be read: {error}") from error
