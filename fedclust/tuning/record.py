"""What a search leaves: `trials.csv`, from which it also continues, and `best.yaml`."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import yaml

from fedclust.helpers.errors import RunFolderError
from fedclust.helpers.files import atomic_write, harmless
from fedclust.tuning.space import Dimension, Value, written

State = Literal["complete", "pruned", "failed"]
_SERVED = "served"  # which searches of older versions lack
_BEFORE = ("trial", "state", "value", _SERVED, "rounds", "gradient_steps")
_AFTER = ("curve", "error")


@dataclass(frozen=True)
class Trial:
    """One setting of the method, tried on all tuning seeds.

    Attributes:
        number: from 0; the first one is the default.
        values: by dotted key.
        state: complete, pruned (ended early, for others did better so far) or failed.
        value: mean over seeds of the metric in the last round; None unless complete.
        rounds: how many were computed.
        gradient_steps: of all seeds.
        curve: mean over seeds of the metric by round, from 0.
        error: why it failed, one line.
        served: the share of the clients that has a model at its end, the least over seeds; of a
            complete trial.
    """

    number: int
    values: Mapping[str, Value]
    state: State
    value: float | None
    rounds: int
    gradient_steps: int
    curve: Mapping[int, float]
    error: str = ""
    served: float = 1.0


def curve_of(folder: Path, metric: str) -> dict[int, float]:
    """Mean over seeds of a metric by round, of a job's folder, where no seed lacks it."""
    by_round: dict[int, list[float]] = {}
    for row in _rows(folder):
        if row["metric"] == metric:
            by_round.setdefault(int(row["round"]), []).append(float(row["value"]))
    most = max(map(len, by_round.values()), default=0)
    return {t: fmean(values) for t, values in sorted(by_round.items()) if len(values) == most}


def seeds_of(folder: Path, metric: str, last: int) -> dict[int, float]:
    """A metric in a round of a job's folder, by seed; empty where there is no such job."""
    rows = (row for row in _rows(folder) if row["metric"] == metric and row["round"] == str(last))
    return {int(row["seed"]): float(row["value"]) for row in rows}


def spent(folder: Path) -> tuple[int, int]:
    """Rounds that a job has computed, and its gradient steps."""
    steps = [(int(r["round"]), float(r["value"])) for r in _rows(folder) if r["metric"] == _STEPS]
    return max((t + 1 for t, _ in steps), default=0), round(sum(value for _, value in steps))


_STEPS = "gradient_steps"


def _rows(folder: Path) -> Iterable[dict[str, str]]:
    file = folder / "rounds.csv"
    return csv.DictReader(file.read_text(encoding="utf-8").splitlines()) if file.is_file() else ()


def write_trials(folder: Path, trials: Sequence[Trial], keys: Sequence[str]) -> None:
    """Write `trials.csv`, a row per trial; the same trials give the same bytes."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow([*_BEFORE, *keys, *_AFTER])
    for one in trials:
        curve = " ".join(f"{t}:{value!r}" for t, value in one.curve.items())
        value = "" if one.value is None else repr(one.value)
        served = "" if one.value is None else one.served
        before = (one.number, one.state, value, served, one.rounds, one.gradient_steps)
        table.writerow([*before, *(written(one.values[key]) for key in keys), curve, one.error])
    atomic_write(folder / "trials.csv", out.getvalue())


def read_trials(
    folder: Path, space: Mapping[str, Dimension], default: Mapping[str, Value] | None = None
) -> list[Trial]:
    """The trials of `trials.csv`, none without; RunFolderError if damaged or of another search."""
    file = folder / "trials.csv"
    known = {(key, written(value)): value for key, value in (default or {}).items()}

    def value(key: str, text: str) -> Value:
        return known[key, text] if (key, text) in known else space[key].read(text)

    rows = _table(file, [*_BEFORE, *space, *_AFTER])
    try:
        return [_trial(row, {key: value(key, row[key]) for key in space}) for row in rows]
    except ValueError:
        raise _damaged(file) from None


def read_texts(file: Path) -> list[Trial]:
    """The trials of a `trials.csv` for a report, their values as text."""
    rows = _table(file, None)
    return [_trial(r, {k: r[k] for k in r if k not in (*_BEFORE, *_AFTER)}) for r in rows]


def _table(file: Path, heads: Sequence[str] | None) -> list[dict[str, str]]:
    if not file.is_file():
        return []
    try:
        table = csv.DictReader(file.read_text(encoding="utf-8").splitlines(), strict=True)
        rows = list(table)
        wanted = {*(heads or (*_BEFORE, *_AFTER))} - {_SERVED}
        whole = all(wanted <= set(row) and None not in row.values() for row in rows)
        if whole and [int(row["trial"]) for row in rows] == list(range(len(rows))):
            return rows
    except (csv.Error, ValueError, KeyError):
        pass
    raise _damaged(file)


def _damaged(file: Path) -> RunFolderError:
    return RunFolderError(
        f"{file} is damaged or of another search; delete its folder and tune again"
    )


def _trial(row: Mapping[str, str], values: Mapping[str, Value]) -> Trial:
    pairs = (one.split(":") for one in row["curve"].split())
    return Trial(
        number=int(row["trial"]),
        values=values,
        state=row["state"],  # type: ignore[arg-type]
        value=float(row["value"]) if row["value"] else None,
        rounds=int(row["rounds"]),
        gradient_steps=int(row["gradient_steps"]),
        curve={int(t): float(value) for t, value in pairs},
        error=row["error"],
        served=float(row.get(_SERVED) or 1.0),
    )


def comparable(trials: Sequence[Trial]) -> list[Trial]:
    """The complete trials that serve the most clients: others are judged by fewer of them."""
    ended = [one for one in trials if one.value is not None]
    most = max((one.served for one in ended), default=1.0)
    return [one for one in ended if one.served == most]


def best_of(trials: Sequence[Trial], *, higher: bool) -> Trial | None:
    """The comparable trial of the best value, then of the fewest clusters, then the first."""
    ended = [(one.value, one) for one in comparable(trials) if one.value is not None]
    sign = -1 if higher else 1
    ranked = [(sign * value, _num_clusters(one), one.number, one) for value, one in ended]
    return min(ranked)[-1] if ranked else None


def _num_clusters(one: Trial) -> int:
    """How many clusters a trial was given; 0 where they are not searched, or it found them."""
    given = [str(v) for key, v in one.values.items() if key.rpartition(".")[2] == "num_clusters"]
    return next((int(text) for text in given if text.isdigit()), 0)


def write_best(folder: Path, best: Trial, about: Mapping[str, Any]) -> None:
    """Write `best.yaml`, which `fedclust run tuned=…` reads."""
    content = {**about, "trial": best.number, "value": best.value, "values": dict(best.values)}
    head = (
        "# the best trial by validation examples; `fedclust run … tuned=THIS` applies the values\n"
    )
    atomic_write(folder / "best.yaml", head + yaml.safe_dump(content, sort_keys=False))


def same_search(folder: Path, about: Mapping[str, Any]) -> None:
    """Keep what a search is in `search.yaml`; RunFolderError says what differs there."""
    file = folder / "search.yaml"
    if file.is_file():
        try:
            there = yaml.safe_load(harmless(file).read_text(encoding="utf-8"))
        except (ValueError, yaml.YAMLError):
            there = None
        if not isinstance(there, dict):
            raise RunFolderError(f"{file} is damaged; delete its folder and tune again")
        other = [key for key in about if there.get(key) != about[key]]
        if other:
            raise RunFolderError(
                f"{folder} is of another search: with {other[0]} {there.get(other[0])}, and now "
                f"with {about[other[0]]}; delete it, or choose another name=…"
            )
        return
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(file, yaml.safe_dump(dict(about), sort_keys=False))


def drop_files(folder: Path) -> None:
    """Delete what only the continuation of a trial needs; its numbers stay."""
    for name in ("checkpoints", "partition", "arrays", "clients"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "clients.parquet").unlink(missing_ok=True)
