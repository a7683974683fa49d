"""Copies results into docs/results, small enough for a repository.

    python scripts/papers/collect_results.py outputs/lcfl/table2

writes docs/results/runs/lcfl/table2/: `jobs.csv` with what made every finished job, a CSV per job
with a line per seed, `claims.csv`, and the figure that the paper prints with the jobs that it draws
in `drawn.txt`. `make results` turns them into docs/results/README.md.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedclust.helpers.errors import UserError, require
from fedclust.helpers.files import atomic_write
from fedclust.launch.typed import job_folder
from fedclust.papers.published import table
from fedclust.papers.reports import make_report, spec_of
from fedclust.report.arms import Arm, arms
from fedclust.report.pooling import pool_seeds
from fedclust.report.reading import read_runs
from fedclust.report.runs import Run
from fedclust.report.spec import Spec

MOST_WIDTH = 1100  # pixels
TESTED = ("accuracy", "accuracy_client_mean", "accuracy_last_local")
ITERATIONS = (5, 10, 15, 30, 60)  # columns of LCFL's tables
# percent
REACHED = {
    "accuracy": (80, 85, 90, 95),
    "accuracy_last_local": (80, 85, 90, 95),
    "accuracy_client_mean": (80,),
    "purity": (90, 100),
}
NEVER = "never"
DRAWN = "drawn.txt"
_BASE = "algorithm@algorithm.base"
# columns of `jobs.csv`: what is one computation for every seed, and what adds up over seeds
_SAME = (
    "case",
    "scenario",
    "algorithm",
    "options",
    "dataset",
    "model",
    "rounds",
    "clients",
    "parameters",
    "scale",
)
_SEEDS = ("seeds", "failed_seeds")
_MADE_BY = ("hash", "commit")
# overrides that say how or how long, or that have a column of their own
_NOT_AN_OPTION = (
    "algorithm",
    "case",
    "checkpoint_seconds",
    "data",
    "dataset",
    "device",
    "engine",
    "eval_every",
    "experiment",
    "name",
    "progress",
    "rounds",
    "scale",
    "scenario",
    "seeds",
    "threads",
    "tracker",
)


def collect_runs(folder: Path, to: Path, scale: str) -> Path | None:
    """Copy the finished jobs of one experiment's folder; returns where to, None without any.

    Files of jobs that are not in `folder` stay as they are, and so do seeds of a job that are not
    in `folder`: a paper's table may be run seed by seed, on more than one machine.

    Raises:
        UserError: when the folder holds no job, or one that code which nobody committed has run.
    """
    runs = [
        run for run in read_runs(folder) if run.status.get("state") == "done" and run.scale == scale
    ]
    if not runs:
        return None
    target = to / "runs" / str(runs[0].config["name"])
    index = {row["file"]: row for row in _read(target / "jobs.csv")}
    before, now, kept = {row["case"] for row in index.values()}, set[str](), set(index)
    described = [(describe(arm), seed_rows(arm)) for arm in arms(pool_seeds(runs))]
    for row, _ in described:
        made = row["commit"]
        require("-dirty" not in made, f"{folder}: {row['file']}", made, "a run of committed code")
    for row, lines in described:
        known = index.get(row["file"])
        if known is not None and all(known[name] == row[name] for name in _SAME):
            of = {int(line["seed"]): line for line in [*_read(target / row["file"]), *lines]}
            row, lines = _added(known, row), [of[seed] for seed in sorted(of)]
        _write(target / row["file"], lines)
        index[row["file"]] = row
        now.add(row["case"])
    _write(target / "jobs.csv", [index[name] for name in sorted(index)])
    report = make_report(folder).parent
    if (report / "claims.csv").is_file():
        old, new = _read(target / "claims.csv"), _read(report / "claims.csv")
        if claims := _joined(old, before, new, now):
            _write(target / "claims.csv", claims)
    drawn = _main_figure(report / "figures", spec_of(runs[0].config))
    # the page of the paper draws its tables, with all runs that are kept and the printed numbers;
    # curves of ways to run one, or of many seeds of its data, say nothing more
    if drawn is not None and not re.match(r"table\d|synthetic_seeds", target.name):
        now_drawn, there = {row["file"] for row, _ in described}, drawn_jobs(target)
        if not (kept if there is None else there) - now_drawn:  # one of fewer jobs says less
            atomic_write(target / "figure.png", small(drawn))
            atomic_write(target / DRAWN, "".join(f"{name}\n" for name in sorted(now_drawn)))
    return target


def drawn_jobs(folder: Path) -> set[str] | None:
    """The files of the jobs that the figure of kept runs draws; None where nobody wrote it down."""
    file = folder / DRAWN
    return set(file.read_text(encoding="utf-8").splitlines()) if file.is_file() else None


def _added(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """A line of `jobs.csv` for the seeds of both, those of `new` in place of their own."""
    seeds = {name: _numbers(old[name]) - _numbers(new["seeds"]) for name in _SEEDS}
    kept = len(seeds["seeds"]) / max(len(_numbers(old["seeds"])), 1)
    if not kept:
        return dict(new)
    if all(set(new[name].split()) <= set(old[name].split()) for name in _MADE_BY):
        return dict(old)  # the same runs once more
    both = {
        name: " ".join(dict.fromkeys([*old[name].split(), *new[name].split()])) for name in _MADE_BY
    }
    both |= {
        name: " ".join(map(str, sorted(some | _numbers(new[name])))) for name, some in seeds.items()
    }
    return dict(new) | both | {"hours": f"{kept * float(old['hours']) + float(new['hours']):.4f}"}


def _numbers(text: str) -> set[int]:
    return {int(word) for word in text.split()}


def _joined(
    old: Sequence[dict[str, str]], before: set[str], new: Sequence[dict[str, str]], now: set[str]
) -> list[dict[str, str]]:
    """The statements of cases collected before, and those of now in place of their own.

    A report names the case behind a statement where it has several; where only all collections
    together have several, it is named here.

    Args:
        old, new: lines of `claims.csv`.
        before, now: titles of the cases they were judged on.
    """
    if len(before | now) < 2:
        return list(new)
    new = _with_case(new, now)
    ends, again = tuple(f" [{case}]" for case in now), {row["claim"] for row in new}
    kept = [row for row in _with_case(old, before) if not row["claim"].endswith(ends)]
    return [*(row for row in kept if row["claim"] not in again), *new]


def _with_case(rows: Sequence[dict[str, str]], cases: set[str]) -> list[dict[str, str]]:
    """Statements with their case behind them, where there is one case."""
    if len(cases) != 1:
        return list(rows)
    end = f" [{next(iter(cases))}]"
    return [row | {"claim": row["claim"].removesuffix(end) + end} for row in rows]


def describe(arm: Arm) -> dict[str, str]:
    """What made an arm: a line of `jobs.csv`."""
    run, config = arm.run, arm.run.config
    parts = run.parts or (run,)
    versions = _json(parts[-1].folder / "versions.json")
    made = [_json(part.folder / "campaign.json") for part in parts]
    ended = max((part.folder / "status.json").stat().st_mtime for part in parts)
    federation: Mapping[str, Any] = next(iter((run.federation.get("seeds") or {}).values()), {})
    groups = {g: sum(counts) for g, counts in (federation.get("examples") or {}).items()}
    # a sweep writes booleans as Python does, whatever was typed
    given = [
        re.sub(r"=(True|False)$", lambda found: found[0].lower(), str(text).lstrip("+~"))
        for text in config.get("overrides") or ()
    ]
    kept = [text for text in given if text.partition("=")[0] not in ("progress", "seeds")]
    # this wrapper trains as its base does, and tests it in a second way
    base = run.choices.get(_BASE) if arm.algorithm == "last_local" else None
    options = sorted(text for text in kept if not _is_known(text, _BASE if base else ""))
    return {
        "file": f"{job_folder(kept, arm.algorithm)}.csv",
        "case": str(run.asked.get("case") or ""),
        "scenario": run.choices.get("scenario", ""),
        "algorithm": base or arm.algorithm,
        "options": " ".join(options),
        "dataset": run.choices.get("dataset", ""),
        "stands_in_for": arm.stand_in,
        "model": run.choices.get("model", ""),
        "rounds": str(config["rounds"]),
        "seeds": " ".join(map(str, arm.run.seeds)),
        "failed_seeds": " ".join(map(str, sorted(run.failed))),
        "clients": str(federation.get("clients", "")),
        "examples": str(sum(federation[s]["total"] for s in ("train", "test") if s in federation)),
        "examples_of_groups": " ".join(str(groups[g]) for g in sorted(groups)),
        "parameters": str(run.federation.get("parameters", "")),
        "hours": f"{_computed(run) / 3600:.4f}",
        "scale": str((config.get("scale") or {}).get("name", "paper")),
        "hash": " ".join(str(part.config.get("hash", "")) for part in parts),
        "version": str((versions.get("packages") or {}).get("fedclust") or ""),
        "commit": next((m["commit"] for m in made if m), str(versions.get("commit") or "")),
        "machine": str(versions.get("device", "")),
        "date": f"{datetime.fromtimestamp(ended, UTC):%Y-%m-%d}",
        "command": next((m["command"] for m in made if m), _command(kept)),
    }


def _command(overrides: Sequence[str]) -> str:
    """What made a run, wherever its data lay."""
    kept = [text for text in overrides if not text.startswith("data.root=")]
    return " ".join(["fedclust run", *kept])


def _is_known(override: str, base: str) -> bool:
    key = override.partition("=")[0]
    return key in _NOT_AN_OPTION or key in ("dataset.path", "dataset.root", "data.root", base)


def _computed(run: Run) -> float:
    curve = run.curves.get("seconds")
    return float(np.nansum(curve.values)) if curve else 0.0


def seed_rows(arm: Arm) -> list[dict[str, str]]:
    """A line per seed with everything a published number may be compared with.

    Accuracies are in percent; iterations count from 1.
    """
    columns: dict[str, dict[int, float]] = {}

    def add(name: str, seeds: Sequence[int], values: NDArray[np.float64]) -> None:
        columns[name] = dict(zip(seeds, values.tolist(), strict=True))

    for metric in TESTED:
        curve, counted = arm.curve(metric), arm.counted(metric)
        if curve is None or counted is None:
            continue
        add(f"{metric} last", curve.seeds, 100 * curve.last())
        add(f"{metric} max", curve.seeds, 100 * np.fmax.reduce(counted.values, axis=0))
        add(f"{metric} median", curve.seeds, 100 * np.nanmedian(curve.values, axis=0))
        for i in _iterations(arm):
            if i - 1 in curve.rounds:
                add(f"{metric} at {i}", curve.seeds, 100 * curve.at(i - 1))
    for metric, thresholds in REACHED.items():
        if (curve := arm.curve(metric)) is not None:
            for percent in thresholds:
                reached = curve.values >= percent / 100 - 1e-9
                first = curve.rounds[reached.argmax(axis=0)] + 1.0
                add(
                    f"{metric} first {percent}",
                    curve.seeds,
                    np.where(reached.any(axis=0), first, np.inf),
                )
    for metric, unit in (("purity", 100), ("train_loss", 1)):
        if (curve := arm.curve(metric)) is not None:
            add(f"{metric} last", curve.seeds, unit * curve.last())
    if (curve := arm.curve("discrepancy")) is not None:
        add("discrepancy mean", curve.seeds, np.nanmean(curve.values, axis=0))
        add("discrepancy variance", curve.seeds, np.nanvar(curve.values, axis=0))
    if (curve := arm.curve("models")) is not None:
        add("models total", curve.seeds, np.nansum(curve.values, axis=0))
    seeds = sorted({seed for column in columns.values() for seed in column})
    return [
        {"seed": str(seed)}
        | {name: _number(column.get(seed, np.nan)) for name, column in columns.items()}
        for seed in seeds
    ]


def _iterations(arm: Arm) -> list[int]:
    """Those at which some paper's tables print numbers, and those of the arm's own table."""
    name = spec_of(arm.run.config).published
    own = {int(row["round"]) for row in (table(name) if name else ()) if row["round"].isdigit()}
    return sorted(own.union(ITERATIONS))


def _number(value: float) -> str:
    if np.isnan(value):
        return ""
    return NEVER if np.isinf(value) else f"{value:.6g}"


def _main_figure(figures: Path, spec: Spec) -> Path | None:
    """The picture that shows what the paper's figure shows."""
    rows = "_".join(spec.figure.rows or (spec.metric,))
    drawn = spec.figure.x
    names = [rows] if drawn == "round" else [f"{rows}_{drawn}", rows]
    return next((file for name in names if (file := figures / f"{name}.png").is_file()), None)


def _read(file: Path) -> list[dict[str, str]]:
    if not file.is_file():
        return []
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def _write(file: Path, rows: Sequence[Mapping[str, str]]) -> None:
    out = io.StringIO()
    names = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.DictWriter(out, names, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)
    atomic_write(file, out.getvalue())


def _json(file: Path) -> dict[str, Any]:
    content = json.loads(file.read_text()) if file.is_file() else {}
    return content if isinstance(content, dict) else {}


def small(file: Path) -> bytes:
    """A picture at half size, or less, with few colours."""
    picture = Image.open(file).convert("RGB")
    factor = min(0.5, MOST_WIDTH / picture.width)
    size = (round(picture.width * factor), round(picture.height * factor))
    packed = io.BytesIO()
    # by other means pale bands take the colour of another method
    few = picture.resize(size, Image.Resampling.LANCZOS).quantize(
        256, Image.Quantize.MEDIANCUT, kmeans=4
    )
    few.save(packed, format="png", optimize=True)
    return packed.getvalue()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="of an experiment, such as outputs/lcfl/table2")
    parser.add_argument("--to", type=Path, default=Path("docs", "results"))
    parser.add_argument("--scale", default="paper", help="of the runs to copy")
    asked = parser.parse_args()
    try:
        print(collect_runs(asked.folder, asked.to, asked.scale) or "no finished job")
    except UserError as error:
        print(f"collect_results: {error}", file=sys.stderr)
        sys.exit(UserError.exit_status)
