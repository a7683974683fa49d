"""The jobs of a folder, read from their files alone."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.csv
from numpy.typing import NDArray
from omegaconf import OmegaConf

from fedclust.errors import DataError, RunFolderError

_COLUMNS = {
    "seed": pyarrow.int64(),
    "round": pyarrow.int64(),
    "metric": pyarrow.string(),
    "value": pyarrow.float64(),
}


@dataclass(frozen=True)
class Curve:
    """One metric of one job.

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
        values: NDArray[np.float64] = pd.DataFrame(self.values).ffill().to_numpy()[-1]
        return values

    def mean(self) -> NDArray[np.float64]:
        """[R] mean over the seeds that have a value."""
        mean: NDArray[np.float64] = np.nanmean(self.values, axis=1)
        return mean


@dataclass(frozen=True)
class Job:
    """One job's folder, read lazily.

    Attributes:
        folder: where its files are.
        config: its resolved config.
        status: what status.json says; state unknown where there is none.
        curves: every recorded metric.
        parts: the jobs it was joined from, see `fedclust.report.pooling`; none for a single folder.
    """

    folder: Path
    config: Mapping[str, Any]
    status: Mapping[str, Any]
    curves: Mapping[str, Curve]
    parts: tuple[Job, ...] = ()

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

    @cached_property
    def final_clients(self) -> pd.DataFrame:
        """The client rows of every seed's last evaluation; empty where none were written yet."""
        if self.parts:
            return pd.concat([part.final_clients for part in self.parts], ignore_index=True)
        path = self.folder / "clients.parquet"
        files = (
            [path] if path.is_file() else sorted((self.folder / "clients").glob("part-*.parquet"))
        )
        if not files:
            return pd.DataFrame(
                {name: [] for name in ("seed", "round", "client", "group", "label")}
            )
        last = self.curves["num_clusters"].rounds[-1] if "num_clusters" in self.curves else -1
        frames = [self._client_rows(file, [("round", "==", int(last))]) for file in files]
        return pd.concat(frames, ignore_index=True)

    def flow(self, seed: int, rounds: list[int]) -> pd.DataFrame:
        """The client rows of one seed at some rounds: columns seed, round, client, group, label."""
        if self.parts:
            return self._part(seed).flow(seed, rounds)
        path = self.folder / "clients.parquet"
        files = (
            [path] if path.is_file() else sorted((self.folder / "clients").glob("part-*.parquet"))
        )
        filters = [("seed", "==", seed), ("round", "in", rounds)]
        frames = [self._client_rows(file, filters) for file in files]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    @cached_property
    def federation(self) -> Mapping[str, Any]:
        """What the run wrote about its federation, see `fedclust.federation.summary`; may be
        empty.
        """
        path = self.folder / "federation.json"
        if not path.is_file():
            return {}
        try:
            content = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise DataError(
                f"{path} cannot be read ({error}); delete it and report again"
            ) from error
        return content if isinstance(content, dict) else {}

    def array(self, seed: int, name: str) -> NDArray[Any] | None:
        """An array the run kept, or None."""
        if self.parts:
            return self._part(seed).array(seed, name)
        path = self.folder / "arrays" / f"seed={seed}" / f"{name}.npy"
        if not path.is_file():
            return None
        try:
            loaded: NDArray[Any] = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise DataError(
                f"{path} cannot be read ({error}); delete it and report again"
            ) from error
        return loaded

    def _part(self, seed: int) -> Job:
        return next(part for part in self.parts if seed in part.seeds)

    def _client_rows(self, file: Path, filters: list[Any]) -> pd.DataFrame:
        try:
            return pd.read_parquet(
                file, columns=["seed", "round", "client", "group", "label"], filters=filters
            )
        except (OSError, ValueError) as error:
            raise DataError(
                f"{file} cannot be read ({error}); delete it and report again"
            ) from error


def read_jobs(folder: Path) -> list[Job]:
    """The jobs in `folder`: itself, or every subfolder at any depth that holds a job; sorted by
    path.

    Raises:
        RunFolderError: when there is no folder or no job in it.
        DataError: when a file of a job cannot be read.
    """
    if not folder.is_dir():
        raise RunFolderError(
            f"{folder} is not a folder; give the folder of a job or of a sweep, e.g. outputs/<name>"
        )
    configs = sorted(
        path for path in folder.rglob("config.yaml") if path.with_name("rounds.csv").is_file()
    )
    jobs = [_read_job(path.parent) for path in configs if ".hydra" not in path.parts]
    jobs = [job for job in jobs if job.curves]
    if not jobs and configs:
        reasons = "; ".join(
            f"{path.parent.name} {without_results(path.parent)}" for path in configs
        )
        raise RunFolderError(f"{folder} holds no job with results: {reasons}")
    if not jobs:
        raise RunFolderError(
            f"{folder} holds no job with results (config.yaml and rounds.csv); run an experiment "
            "first"
        )
    return jobs


def without_results(job: Path) -> str:
    """Why a job's folder holds no results, in words."""
    try:
        status = json.loads((job / "status.json").read_text())
    except (OSError, ValueError):
        return "has no results yet"
    return (
        f"failed: {status.get('error')}"
        if status.get("state") == "failed"
        else "has no results yet"
    )


def _read_job(folder: Path) -> Job:
    try:
        config = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"), resolve=False)
    except Exception as error:  # OmegaConf and YAML raise unrelated types for a broken file
        first = str(error).partition("\n")[0]
        raise DataError(
            f"{folder / 'config.yaml'} cannot be read ({first}); run the job again"
        ) from error
    if not isinstance(config, dict):
        raise DataError(
            f"{folder / 'config.yaml'} cannot be read (not a mapping); run the job again"
        )
    status: Mapping[str, Any] = {"state": "unknown"}
    if (folder / "status.json").is_file():
        try:
            status = json.loads((folder / "status.json").read_text())
        except ValueError:
            status = {"state": "unknown: status.json cannot be read"}
    return Job(
        folder, {str(k): v for k, v in config.items()}, status, _read_curves(folder / "rounds.csv")
    )


def _read_curves(path: Path) -> dict[str, Curve]:
    """Every metric of `rounds.csv`; a last line that is still being written is left out."""
    text = path.read_bytes()
    text = text[: text.rfind(b"\n") + 1]
    if not text:
        return {}
    try:
        # arrow rounds correctly, so the bits the run wrote come back; pandas' own parser may not
        table = pyarrow.csv.read_csv(
            pyarrow.BufferReader(text),
            convert_options=pyarrow.csv.ConvertOptions(column_types=_COLUMNS),
        )
        seed, t, value = (table[name].to_numpy() for name in ("seed", "round", "value"))
        metric = table["metric"].combine_chunks().dictionary_encode()
    except (pyarrow.ArrowException, ValueError, KeyError) as error:
        first = str(error).partition("\n")[0]
        raise DataError(f"{path} cannot be read ({first}); run the job again") from error
    kind = metric.indices.to_numpy()
    names = metric.dictionary.to_pylist()
    curves = {}
    for name in sorted(names):
        rows = np.flatnonzero(kind == names.index(name))
        rounds, row = np.unique(t[rows], return_inverse=True)
        seeds, column = np.unique(seed[rows], return_inverse=True)
        grid = np.full((len(rounds), len(seeds)), np.nan)
        grid[row, column] = value[rows]
        curves[name] = Curve(rounds, tuple(seeds.tolist()), grid)
    return curves
