"""Kept results of runs that were never made, for tests of the page of all numbers."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path


def write_run(
    root: Path,
    experiment: str,
    algorithm: str,
    seeds: Mapping[str, Sequence[float | str]],
    /,
    **made: str,
) -> None:
    """One more line of an experiment's jobs.csv, with a file of its seeds."""
    folder = root / "runs" / experiment
    folder.mkdir(parents=True, exist_ok=True)
    number = len(list(folder.glob("job*.csv")))
    line = {
        "file": f"job-{number}.csv",
        "algorithm": algorithm,
        "case": "",
        "scenario": "static",
        "options": "",
        "dataset": "mnist",
        "stands_in_for": "",
        "model": "mclr",
        "rounds": "300",
        "hours": "0.5",
        "hash": f"{experiment} {number}",
        "seeds": " ".join(map(str, range(len(next(iter(seeds.values())))))),
        "scale": "paper",
        "commit": "abc1234",
        "version": "",
        "machine": "a machine",
        "date": "2026-01-02",
        "clients": "",
        "examples": "",
        "examples_of_groups": "",
        "parameters": "",
        "command": f"fedclust run experiment={experiment}",
        **made,
    }
    index = folder / "jobs.csv"
    lines = list(csv.DictReader(index.open())) if index.is_file() else []
    for file, rows in (
        (index, [*lines, line]),
        (
            folder / f"job-{number}.csv",
            [
                {"seed": s, **{name: values[s] for name, values in seeds.items()}}
                for s in range(len(next(iter(seeds.values()))))
            ],
        ),
    ):
        with file.open("w", newline="") as target:
            writer = csv.DictWriter(target, rows[0])
            writer.writeheader()
            writer.writerows(rows)
