"""Whether the numbers of an archive come out again: some jobs are run anew and compared."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fedclust.benchmark.frozen import Frozen, case_of, config_of
from fedclust.config.schema import part_of
from fedclust.helpers.errors import DataError

ROUNDING = 0.5  # points of accuracy that two kinds of processor may be apart in one seed
_NOT_ASKED = ("case", "experiment", "name", "seeds", "threads", "tuned", "progress", "device")


@dataclass(frozen=True)
class Compared:
    """One federation, run again.

    Attributes:
        case: its choice.
        seeds: which ones.
        apart: the largest difference of accuracy in any round and seed, in points.
    """

    case: str
    seeds: Sequence[int]
    apart: float

    @property
    def verdict(self) -> str:
        """In words."""
        if self.apart == 0:
            return "equal to the digit"
        near = self.apart <= ROUNDING
        return f"{self.apart:.3f} points apart, {'rounding' if near else 'not the same'}"


def verify(
    bench: Frozen,
    folder: Path,
    name: str,
    run: Callable[[Sequence[str], Path | None], Path],
    *,
    federations: int = 2,
    seeds: int = 2,
) -> Iterator[Compared]:
    """Run some federations of an archive again, drawn at random, and compare.

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
                *(f"seeds={some}", "hydra.mode=RUN", *_asked(config, folder)),
            ],
            code if code.is_dir() else None,
        )
        yield Compared(case, some, _apart(job, again, some))


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


def _apart(before: Path, again: Path, seeds: Sequence[int]) -> float:
    """The largest difference of accuracy, in points."""
    old, new = (_accuracy(job, seeds) for job in (before, again))
    if old.empty or not old.index.equals(new.index):
        raise DataError(f"{before.name} has {len(old)} tested rounds, and run again {len(new)}")
    apart = (old - new).abs().fillna(math.inf).where(old.notna() | new.notna(), 0.0)
    return float(100 * apart.max())


def _accuracy(job: Path, seeds: Sequence[int]) -> pd.Series[float]:
    try:
        rows = pd.read_csv(job / "rounds.csv")
        some = rows[(rows["metric"] == "accuracy") & rows["seed"].isin(list(seeds))]
        return pd.to_numeric(some.set_index(["seed", "round"])["value"]).sort_index()
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"{job.name}/rounds.csv cannot be read: {error}") from error
