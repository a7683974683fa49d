"""What has come out of a job, and where: the line with which it ends."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedclust.helpers.errors import counted
from fedclust.helpers.files import harmless
from fedclust.metrics import headline_of, worse
from fedclust.report.formats import in_percent, inside, mean_std, title

_LEAST = 4  # rounds from which on a training loss shows whether it falls
_FALLS = 0.99  # of the training loss at three quarters of the rounds


def outcome(
    folder: Path, last: Mapping[str, NDArray[np.float64]], config: Mapping[str, Any], how: str
) -> str:
    """The line on a finished job, which says so where clients have no model, and where it is worse
    than a guess without inputs.

    Args:
        folder: the job's.
        last: of every metric the last values of the seeds that have not failed.
        config: the job's.
        how: the word for what became of it, such as "is done".
    """
    own = headline_of(last)
    scores = [
        f"{inside(title(name))} {_number(name, last[name])}"
        for name in (own, "purity", "ari")
        if name in last
    ]
    num, asked = max(map(len, last.values()), default=0), len(config["seeds"])
    seeds = counted(asked, "seed") if num == asked else f"{num} of {counted(asked, 'seed')}"
    wanted = config["rounds"]
    done, rounds = _kept(folder, "status.json").get("rounds_done", wanted), counted(wanted, "round")
    if done != wanted:
        by_budget = any((config.get("stop") or {}).values())
        rounds = f"{done} of {rounds}" + ", as stop.… says" * by_budget
    line = f"{folder} {how}: {', '.join(scores)} ({seeds}, {rounds})"
    if "served" in last and (share := float(last["served"].min())) < 1:
        line += f"; {100 * share:.3g} % of the clients have a model, and only these are tested"
    guess = _guess(folder, own)
    if own in last and worse(own, last[own], guess):
        line += f"; worse than a guess without inputs, {_number(own, guess)}{_why(folder)}"
    return line


def _kept(folder: Path, name: str) -> dict[str, Any]:
    """A JSON file of the job; empty where it is gone or damaged."""
    try:
        content = json.loads(harmless(folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _why(folder: Path) -> str:
    """What the training losses say of why a job is no better than a guess; "" for nothing."""
    by_round: dict[int, list[float]] = {}
    try:
        with (folder / "rounds.csv").open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["metric"] == "train_loss":
                    by_round.setdefault(int(row["round"]), []).append(float(row["value"]))
    except (OSError, ValueError, KeyError, TypeError):  # gone or damaged
        return ""
    losses = [float(np.mean(by_round[t])) for t in sorted(by_round)]
    if len(losses) < _LEAST or not np.isfinite(losses).all():
        return ""
    if losses[-1] < _FALLS * losses[3 * len(losses) // 4 - 1]:
        return ": the training loss still falls, so more rounds or a larger solver.lr may help"
    return ": the training loss falls no more, so the inputs may say little of other examples"


def _guess(folder: Path, metric: str) -> NDArray[np.float64]:
    """[S] what a guess without inputs reaches in every seed; none where that is not known."""
    try:
        kept = [one["trivial"] for one in _kept(folder, "federation.json")["seeds"].values()]
        return np.array([float(one[metric]) for one in kept if metric in one])
    except (ValueError, TypeError, KeyError, AttributeError):  # damaged
        return np.array([])


def _number(metric: str, values: NDArray[np.float64]) -> str:
    return mean_std(metric, values) + (" %" if in_percent(metric) else "")
