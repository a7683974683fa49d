"""The runs of a folder, read from their files alone."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.csv

from fedclust.config.read import read_config
from fedclust.helpers.errors import DataError, RunFolderError, counted, printable, some_of
from fedclust.metrics.meanings import read_meanings
from fedclust.report.changed_files import broken
from fedclust.report.pooling import identity
from fedclust.report.runs import Curve, Run, read_object, unreadable
from fedclust.report.sweep import UNNAMED, Sweep, read_sweep

_COLUMNS = {
    "seed": pyarrow.int64(),
    "round": pyarrow.int64(),
    "metric": pyarrow.string(),
    "value": pyarrow.float64(),
}
# no job of a report lies in these; `trials` are those of a search
_BELOW = (".hydra", "arrays", "checkpoints", "clients", "report", "trials")
_NAMED = 4  # jobs of other sweeps
# what a report looks into of a config
_MAPPINGS = ("choices", "scale", "report", "tags", "partition")
_LISTS = ("overrides", "scores")


def read_runs(folder: Path) -> list[Run]:
    """The runs in `folder`: itself, or every subfolder at any depth that holds one; sorted by path.

    A folder that cannot be read, or of another unnamed sweep, is left out, see `left_out`.

    Raises:
        RunFolderError: when there is no folder, or no run in it.
        DataError: when `folder` is one job and a file of it cannot be read.
    """
    if not folder.is_dir():
        raise RunFolderError(
            f"{folder} is not a folder; give the folder of a job or of a sweep, e.g. outputs/<name>"
        )
    folders = job_folders(folder)
    runs, reasons = [], []
    for one in folders:
        try:
            run = read_run(one)
        except DataError as error:
            if one == folder:
                raise
            reasons.append(str(error))
        else:
            if run.curves:
                runs.append(run)
            else:
                reasons.append(f"{one.name} {_state(run)}")
    alone = folders == [folder]  # one job asked for by its own folder is of no other sweep
    runs = runs if alone else [run for run in _placed(runs) if run.place >= 0]
    if not runs:
        why = " (config.yaml and rounds.csv); run an experiment first"
        why = f": {'; '.join(reasons)}" if reasons else why
        raise RunFolderError(f"{folder} holds no job with results{why}")
    return runs


def job_folders(folder: Path) -> list[Path]:
    """The folders at or below `folder` that hold files of a job, sorted."""
    folders = []
    for where, below, files in os.walk(folder):
        below[:] = [name for name in below if name not in _BELOW]
        if {"config.yaml", "rounds.csv", "status.json"} & set(files):
            folders.append(Path(where))
    return sorted(folders)


def left_out(folder: Path, known: Mapping[Path, Run]) -> list[str]:
    """Why jobs of a folder are in no table, and what its newest sweep lacks, by line."""
    lines, others = [], []
    alike = {identity(run) for run in known.values()}
    for one in job_folders(folder):
        if one in known:
            continue
        name = one.relative_to(folder).as_posix()
        try:
            run = read_run(one)
        except DataError as error:
            lines.append(f"{name} is left out: {error}")
            continue
        if run.curves and identity(run) not in alike:
            others.append(name)
        elif not run.curves:
            lines.append(f"{name} {_state(run)}")
        elif changed := broken(run):  # its config may have become that of another job
            lines.append(f"{name} is left out: {', '.join(changed)} damaged or changed")
    if others:
        number, verb = counted(len(others), "job"), "is" if len(others) == 1 else "are"
        lines.append(
            f"{number} of other sweeps in this folder {verb} left out: {', '.join(others)}; "
            "name=… gives a sweep a folder of its own"
        )
    if sweep := read_sweep(folder):
        lines += _joined(sweep, known)
        lines += [
            f"{where.name} is missing{f': {error}' if error else ''}"
            for where, error in sweep.jobs.items()
            if not where.is_dir()
        ]
    return lines


def _joined(sweep: Sweep, known: Mapping[Path, Run]) -> list[str]:
    """A line on the runs of the tables that another sweep of the same name has computed."""
    own = {identity(run) for where, run in known.items() if where in sweep.jobs}
    others = [
        where.name
        for where, run in known.items()
        if where.parent == sweep.folder and identity(run) not in own
    ]
    if not own or not others:
        return []
    jobs, verb = counted(len(others), "job"), "is" if len(others) == 1 else "are"
    return [f"{jobs} of other sweeps of this name {verb} shown too: {some_of(others, _NAMED)}"]


def read_run(folder: Path) -> Run:
    """One job's folder; DataError names a file that cannot be read."""
    path = folder / "config.yaml"
    try:
        config = read_config(path)
    except Exception as error:  # YAML and the disk raise unrelated types for a broken file
        raise unreadable(path, error, "run the job again") from error
    if not isinstance(config, dict):
        raise unreadable(path, "not a mapping", "run the job again")
    for keys, kind, what in ((_MAPPINGS, dict, "mapping"), (_LISTS, list, "list")):
        for key in keys:
            if not isinstance(config.get(key) or kind(), kind):
                raise unreadable(path, f"{key} is no {what}", "run the job again")
    read_meanings(folder)
    run = Run(
        folder,
        {str(k): v for k, v in _printable(config).items()},
        _read_status(folder),
        _read_curves(folder / "rounds.csv") if (folder / "rounds.csv").is_file() else {},
    )
    if run.curves and "choices" not in config:
        raise unreadable(path, "choices is missing", "run the job again")
    run.verify()
    return run


def _placed(runs: Sequence[Run]) -> list[Run]:
    """The runs with their numbers in their sweep; -1 for one of another unnamed sweep."""
    sweeps = {folder: read_sweep(folder) for folder in {run.folder.parent for run in runs}}
    order = {where: i for one in sweeps.values() if one for i, where in enumerate(one.jobs)}
    alike = {
        (run.folder.parent, identity(run)): order[run.folder] for run in runs if run.folder in order
    }
    placed = []
    for run in runs:
        sweep, place = sweeps[run.folder.parent], 0
        if sweep is not None:
            stranger = -1 if run.config.get("name") == UNNAMED else len(sweep.jobs)
            place = alike.get((run.folder.parent, identity(run)), stranger)
        placed.append(replace(run, place=place))
    return placed


def _state(run: Run) -> str:
    """Why a job has no results, in words."""
    if run.status.get("state") == "failed":
        return f"failed: {run.status.get('error')}"
    if run.status.get("rounds_done") or "rounds.csv" in broken(run):
        return "has lost its results: rounds.csv is damaged or gone; delete the folder, run again"
    return "has no results yet"


def _read_status(folder: Path) -> Mapping[str, Any]:
    if not (folder / "status.json").is_file():
        return {"state": "unknown"}
    status = read_object(folder / "status.json")
    if isinstance(status, dict):
        seeds, remarks = status.get("seeds") or {}, status.get("remarks") or []
        sound = isinstance(seeds, dict) and isinstance(remarks, list)
        if sound and all(str(seed).isdecimal() for seed in seeds):
            return dict(_printable(status))
    return {"state": "unknown: status.json cannot be read"}


def _printable(node: Any) -> Any:
    """A config or status, its texts without what would control a terminal."""
    if isinstance(node, str):
        return printable(node)
    if isinstance(node, dict):
        return {_printable(key): _printable(value) for key, value in node.items()}
    return [_printable(one) for one in node] if isinstance(node, list) else node


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
        raise unreadable(path, error, "run the job again") from error
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
