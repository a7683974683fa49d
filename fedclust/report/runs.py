"""A run: one job as its files tell it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedclust.helpers.errors import DataError
from fedclust.helpers.files import harmless, regular
from fedclust.metrics import headline_of

if TYPE_CHECKING:  # a run whose config has a report reads this file, and no client's row
    import pandas as pd

_CLIENT = ["seed", "round", "client", "group", "label"]
_SAID = ["seed", "client", "row", "target"]
_TESTED = ["test_count", "correct"]


@dataclass(frozen=True)
class Curve:
    """One metric of one run.

    Attributes:
        rounds: [R] int64 0-based rounds at which any seed has a value, ascending.
        seeds: [S] seeds.
        values: [R, S] float64, NaN where a seed has no value.
    """

    rounds: NDArray[np.int64]
    seeds: tuple[int, ...]
    values: NDArray[np.float64]

    def at(self, t: int) -> NDArray[np.float64]:
        """[S] values of round t, NaN where there are none."""
        where = np.flatnonzero(self.rounds == t)
        return self.values[where[0]] if len(where) else np.full(len(self.seeds), np.nan)

    def without(self, seeds: Collection[int]) -> Curve:
        """The curve without some seeds; with all of them where nothing else would be left."""
        kept = [column for column, seed in enumerate(self.seeds) if seed not in seeds]
        if not kept or len(kept) == len(self.seeds):
            return self
        return Curve(self.rounds, tuple(self.seeds[c] for c in kept), self.values[:, kept])

    def last(self) -> NDArray[np.float64]:
        """[S] the newest value of every seed."""
        row = np.where(np.isnan(self.values), -1, np.arange(len(self.values))[:, None]).max(0)
        newest: NDArray[np.float64] = self.values[row, np.arange(len(self.seeds))]
        return newest

    def mean(self) -> NDArray[np.float64]:
        """[R] mean over the seeds that have a value."""
        mean: NDArray[np.float64] = np.nanmean(self.values, axis=1)
        return mean


@dataclass(frozen=True)
class Run:
    """One job's folder, read lazily.

    Attributes:
        config: its resolved config.
        status: what status.json says; state unknown where there is none.
        curves: every recorded metric.
        parts: the runs it was joined from, see `fedclust.report.pooling`; none for a single folder.
        place: its number in the sweep that computed it, from 0; 0 for all where none is known.
        is_job: whether a job of this program has computed it.
    """

    is_job: ClassVar[bool] = True

    folder: Path
    config: Mapping[str, Any]
    status: Mapping[str, Any]
    curves: Mapping[str, Curve]
    parts: tuple[Run, ...] = ()
    place: int = 0

    @property
    def choices(self) -> dict[str, str]:
        """The config group choices of the job, by group."""
        return {str(k): str(v) for k, v in (self.config.get("choices") or {}).items()}

    @property
    def asked(self) -> Mapping[str, Any]:
        """What the job's config asks of a report, as written; see `fedclust.report.spec`."""
        return self.config.get("report") or {}

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that have recorded anything."""
        return tuple(sorted({seed for curve in self.curves.values() for seed in curve.seeds}))

    @property
    def rounds(self) -> int:
        """The rounds recorded so far."""
        return 1 + max((int(c.rounds[-1]) for c in self.curves.values()), default=-1)

    @property
    def failed(self) -> dict[int, str]:
        """The error of every seed that failed."""
        seeds = self.status.get("seeds") or {}
        return {int(seed): str(what) for seed, what in seeds.items() if what not in ("ok", None)}

    @property
    def scale(self) -> str:
        """Its size: paper, or the name of a smaller one."""
        return str((self.config.get("scale") or {}).get("name", "paper"))

    @cached_property
    def versions(self) -> Mapping[str, Any]:
        """What computed it, see `fedclust.runtime.versions`; empty where that is not known."""
        content = read_object(self.folder / "versions.json")
        return content if isinstance(content, dict) else {}

    @cached_property
    def final_clients(self) -> pd.DataFrame:
        """The client rows of every seed's last evaluation; empty where none were written yet."""
        if self.parts:
            return _joined(part.of_own_seeds(part.final_clients) for part in self.parts)
        last = self.curves["num_clusters"].rounds[-1] if "num_clusters" in self.curves else -1
        return self._client_rows([("round", "==", int(last))])

    def client_rows(self, seed: int, rounds: Sequence[int]) -> pd.DataFrame:
        """Client rows: seed, round, client, test_count, correct, group and label (cluster)."""
        if self.parts:
            return self._part(seed).client_rows(seed, rounds)
        return self._client_rows([("seed", "==", seed), ("round", "in", list(rounds))])

    @cached_property
    def federation(self) -> Mapping[str, Any]:
        """What the run wrote about its federation, see `core.federation.summary`; may be empty."""
        path = self.folder / "federation.json"
        if not path.is_file():
            return {}
        try:
            content: dict[str, Any] = json.loads(harmless(path).read_text(encoding="utf-8"))
            _check_federation(content)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise unreadable(path, error, "delete it and report again") from error
        return content

    def array(self, seed: int, name: str) -> NDArray[Any] | None:
        """An array the run kept, or None."""
        if self.parts:
            return self._part(seed).array(seed, name)
        path = self.folder / "arrays" / f"seed={seed}" / f"{name}.npy"
        if not path.is_file():
            return None
        try:
            loaded: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise unreadable(path, error, "delete it and report again") from error
        return loaded

    def verify(self) -> None:
        """Reads every file that a report needs; DataError names one that cannot be read."""
        assert self.federation is not None
        for folder in sorted((self.folder / "arrays").glob("seed=*")):
            for file in sorted(folder.glob("*.npy")):
                self.array(int(folder.name.removeprefix("seed=")), file.stem)
        self._client_rows(None)

    def _part(self, seed: int) -> Run:
        return next(part for part in self.parts if seed in part.seeds)

    def of_own_seeds(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Those of some client rows that are of its seeds; a part may have fewer than its files."""
        return rows[rows["seed"].isin(self.seeds)]

    def all_clients(self) -> pd.DataFrame:
        """Every client row with all columns, those of an unfinished run too."""
        if self.parts:
            return _joined(part.of_own_seeds(part.all_clients()) for part in self.parts)
        return self._client_rows(None, whole=True)

    def predictions(self) -> pd.DataFrame:
        """What the job has kept of its predictions, a row per test example; empty without any."""
        import pandas as pd

        if self.parts:
            return _joined(part.of_own_seeds(part.predictions()) for part in self.parts)
        frames = [pd.DataFrame({name: np.empty(0, np.int64) for name in _SAID})]
        for file in sorted((self.folder / "predictions").glob("seed=*.parquet")):
            try:
                with regular(file).open("rb") as opened:  # no text, and large
                    frames.append(pd.read_parquet(opened))
            except (OSError, ValueError) as error:
                raise unreadable(file, error, "run the job again after deleting it") from error
        return _joined(frames[1:] or frames)

    def _client_rows(self, filters: list[Any] | None, *, whole: bool = False) -> pd.DataFrame:
        """Columns `_CLIENT` and `_TESTED`, 0 where there are none; with `whole` all columns."""
        import pandas as pd
        import pyarrow.parquet

        joined = self.folder / "clients.parquet"
        parts = sorted((self.folder / "clients").glob("part-*.parquet"))
        frames = []
        for file in [joined] if joined.is_file() else parts:
            try:
                with file.open("rb") as opened:  # a name need not be UTF-8
                    written = pyarrow.parquet.read_schema(opened).names
                    own = [name for name in (headline_of(self.curves),) if name in written]
                    wanted = written if whole else [*_CLIENT, *_TESTED, *own]
                    columns = [name for name in wanted if name in {*_CLIENT, *written}]
                    opened.seek(0)
                    rows = pd.read_parquet(opened, columns=columns, filters=filters)
                frames.append(rows.reindex(columns=wanted, fill_value=0))
            except (OSError, ValueError, KeyError, pyarrow.ArrowException) as error:
                raise unreadable(
                    file, error, "run the job again, a finished one after deleting its folder"
                ) from error
        empty = pd.DataFrame({name: np.empty(0, dtype=np.int64) for name in (*_CLIENT, *_TESTED)})
        return _joined(frames) if frames else empty


def _joined(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    return pd.concat(frames, ignore_index=True)


def _check_federation(content: Mapping[str, Any]) -> None:
    """Raise unless a report can be made of what a run wrote about its federation."""
    int(content["parameters"])
    for seed in content["seeds"].values():
        {int(group): sum(counts) for group, counts in seed["examples"].items()}
        float(seed["clients"] + seed["groups"])
        for split in ("train", "test"):
            sum(float(seed[split][name]) for name in ("total", "mean", "std", "min", "max"))
        if "classes" in seed:
            sum(float(seed["classes"][name]) for name in ("mean", "min", "max"))
        sum(float(seed.get(name, 0)) for name in ("repeated", "trained_and_tested"))
        sum(map(float, seed.get("trivial", {}).values()))
        if "label_skew" in seed:
            float(seed["label_skew"])
            [sum(map(float, seed[split]["quartiles"])) for split in ("train", "test")]


def read_object(path: Path) -> Any:
    """What a JSON file of a job says; None where there is none or it cannot be read."""
    try:
        return json.loads(harmless(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def unreadable(path: Path, why: object, remedy: str) -> DataError:
    """The error for a file that cannot be read, in one line."""
    first = (f"no {why}" if isinstance(why, KeyError) else str(why)).strip().partition("\n")[0]
    return DataError(f"{path} cannot be read ({first}); {remedy}")
