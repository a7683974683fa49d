"""The tables of settings, and of the versions and machines that computed the numbers."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from fedclust.config.read import read_config
from fedclust.config.schema import is_shown
from fedclust.helpers.errors import some_of
from fedclust.helpers.names import USER_FILES
from fedclust.report.arms import Arm
from fedclust.report.columns import TableColumn, tabulate
from fedclust.report.runs import Run
from fedclust.report.same_data import of_seeds
from fedclust.report.sweep import read_sweep
from fedclust.report.table import Table

_MOST_NAMES = 8  # of the arms that share a value


def settings_table(arms: Sequence[Arm]) -> Table | None:
    """Every setting of jobs: one value where all share it, else the value of every arm."""
    arms = [arm for arm in arms if not arm.outside]
    flat = [_flatten({k: v for k, v in arm.run.config.items() if is_shown(k)}) for arm in arms]
    rows = []
    for key in dict.fromkeys(key for one in flat for key in one):
        given = [(arm, one[key]) for arm, one in zip(arms, flat, strict=True) if key in one]
        rows.append((key, _shared(given, len(arms))))
    return _pairs("settings", "Settings", "key", rows, folded=True)


def _pairs(
    name: str, title: str, head: str, rows: Iterable[tuple[str, str]], *, folded: bool = False
) -> Table | None:
    """A table of names and what is said of them."""
    columns = [
        TableColumn(one, itemgetter(place), record=one) for place, one in enumerate((head, "value"))
    ]
    return tabulate(name, title, columns, rows, folded=folded)


def _shared(given: Sequence[tuple[Arm, str]], of: int = 0) -> str:
    """The values of some arms: one where all have the same, else by name, by setting or by arm."""
    values = dict.fromkeys(value for _, value in given)
    if len(values) == 1 and len(given) >= of:
        return next(iter(values))
    ways = [[str(getattr(arm, part)) for arm, _ in given] for part in ("name", "setting", "label")]
    pairs = [list(zip(way, (value for _, value in given), strict=True)) for way in ways]
    tells = (pair for pair, way in zip(pairs, ways, strict=True) if len(set(pair)) == len(set(way)))
    # arms of one label, such as a run and its copy, cannot be told apart
    clear = next(tells, pairs[-1])
    names = {value: dict.fromkeys(name for name, v in clear if v == value) for value in values}
    return "; ".join(f"{some_of(own, _MOST_NAMES)}: {value}" for value, own in names.items())


def made_table(folder: Path, arms: Sequence[Arm]) -> Table | None:
    """What made the numbers of jobs: command, version, commit, machine, date and seconds."""
    arms = [arm for arm in arms if not arm.outside]
    lines: dict[str, str] = {"command": _command(folder, arms), **_tags(arms)}
    for what in ("fedclust", "commit", "python", "packages", "device", "engine"):
        lines["machine" if what == "device" else what] = _shared(_versions(arms, what))
    dates = sorted({_date(run) for arm in arms for run in arm.jobs})
    lines["computed on"] = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    seconds = sum(float(arm.total("seconds").sum()) for arm in arms)
    lines["computing time"] = f"{seconds:,.1f} seconds of all jobs and seeds"
    return _pairs("made", "What made this", "what", lines.items())


def _versions(arms: Sequence[Arm], what: str) -> list[tuple[Arm, str]]:
    """The version of every job."""
    return [(arm, _version(run, what)) for arm in arms for run in arm.jobs]


def _tags(arms: Sequence[Arm]) -> dict[str, str]:
    """What users have noted with `+tags.NAME=VALUE`, by name."""
    noted = [(arm, run.config.get("tags") or {}) for arm in arms for run in arm.jobs]
    return {
        f"tag {name}": _shared(
            [(arm, str(tags[name])) for arm, tags in noted if name in tags], len(noted)
        )
        for name in dict.fromkeys(name for _, tags in noted for name in tags)
    }


def mixed_versions(arms: Sequence[Arm]) -> list[str]:
    """What a reader must know where not one version computed everything, one line each."""
    lines = []
    for what in ("fedclust", "commit"):
        given = _versions(arms, what)
        if len({value for _, value in given}) > 1:
            lines.append(f"computed by different versions ({what}): {_shared(given)}")
    files: dict[str, dict[str, dict[str, None]]] = {}  # by name and digest, which jobs used it
    for whose, run in ((of_seeds(arm, run), run) for arm in arms for run in arm.jobs):
        used = run.versions.get(USER_FILES)
        for name, digest in used.items() if isinstance(used, Mapping) else ():
            files.setdefault(str(name), {}).setdefault(str(digest), {})[whose] = None
    lines += [
        f"{name} was changed between these jobs: "
        f"{' | '.join(some_of(jobs, _MOST_NAMES) for jobs in by.values())}; they ran different code"
        for name, by in files.items()
        if len(by) > 1
    ]
    continued = [arm.label for arm in arms if any(run.versions.get("before") for run in arm.jobs)]
    if continued:
        lines.append(f"continued by another version than begun: {', '.join(continued)}")
    return lines


def _command(folder: Path, arms: Sequence[Arm]) -> str:
    """What a user typed: of the folder's newest sweep and what is older, or of the only job."""
    older = []
    try:
        hydra = OmegaConf.create(read_config(folder / "multirun.yaml"))
        task = OmegaConf.select(hydra, "hydra.overrides.task")
        given = [str(text) for text in task] if OmegaConf.is_list(task) else []
        many = ["-m"] if "experiment=" not in " ".join(given) else []
        sweep = read_sweep(folder)
        newest = {job.resolve() for job in sweep.jobs} if sweep else set()
        if newest:
            of_newest = [{r.folder.resolve() for r in arm.jobs} <= newest for arm in arms]
            older = [arm.label for arm, own in zip(arms, of_newest, strict=True) if not own]
    except (OSError, OmegaConfBaseException, YAMLError):
        if len(arms) > 1:
            return "not known (several runs)"
        given, many = [str(text) for text in arms[0].run.config.get("overrides") or ()], []
    typed = shlex.join(["fedclust", "run", *many, *given])
    return f"{typed}; by a command before it: {some_of(older, _MOST_NAMES)}" if older else typed


def _version(run: Run, what: str) -> str:
    packages = run.versions.get("packages")
    packages = packages if isinstance(packages, Mapping) else {}
    if what == "packages":
        others = [f"{name} {value}" for name, value in packages.items() if name != "fedclust"]
        return ", ".join(others) or "not known"
    if what == "fedclust":
        return str(packages.get("fedclust", "not known"))
    return str(run.versions.get(what) or "not known")


def _date(run: Run) -> str:
    """The day and time, UTC, at which the run wrote its last numbers."""
    written = (run.folder / "rounds.csv").stat().st_mtime
    return datetime.fromtimestamp(written, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _flatten(node: Any, prefix: str = "") -> dict[str, str]:
    if isinstance(node, Mapping) and node:
        flat: dict[str, str] = {}
        for key, value in node.items():
            flat |= _flatten(value, f"{prefix}.{key}" if prefix else str(key))
        return flat
    if isinstance(node, list) and any(isinstance(entry, (Mapping, list)) for entry in node):
        return {prefix: f"{len(node)} entries"}
    return {prefix: "null" if node is None else str(node)}
