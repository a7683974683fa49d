"""Arms measured elsewhere: accuracies of another program on the federation of a job, from a CSV.

A row says how many test examples of a client were right: columns `arm`, `seed`, `round` (from 0),
`client`, `correct` and `count`. Clients and test examples are those of the jobs beside it; cohorts,
initial weights and batches are the other program's. Costs and clusters are not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from fedclust.config.schema import is_setting
from fedclust.helpers.errors import ConfigError, counted, require, some_of
from fedclust.metrics import headline_of
from fedclust.report.arms import Arm, settings_of
from fedclust.report.runs import Curve, Run

KEY = "report.outside"
METRICS = ("accuracy", "accuracy_client_mean")  # that follow from what a file holds
_CLIENT = ["seed", "round", "client"]
_PLACE = ["arm", *_CLIENT]
_COLUMNS = [*_PLACE, "correct", "count"]
_MOST = 8  # names in a line
_LONG = 80  # characters of an arm's name
_FIRST = 2  # line of the file that holds the first row
_ALSO = ("name", "report", "choices", "rounds", "scale")  # of a config, besides the setting


@dataclass(frozen=True)
class Measured(Run):
    """What another program measured, as if it were a job; `rows` has the columns `_COLUMNS`."""

    is_job: ClassVar[bool] = False

    rows: pd.DataFrame = field(default_factory=pd.DataFrame)

    @cached_property
    def final_clients(self) -> pd.DataFrame:
        """The rows of the last round."""
        return self.rows.loc[self.rows["round"].eq(self.rows["round"].max())]

    def client_rows(self, seed: int, rounds: Sequence[int]) -> pd.DataFrame:
        """The rows of one seed at some rounds."""
        return self.rows.loc[(self.rows["seed"] == seed) & self.rows["round"].isin(rounds)]

    def all_clients(self) -> pd.DataFrame:
        """All rows."""
        return self.rows.copy()


def outside_arms(given: str | Path, folder: Path, metric: str, arms: Sequence[Arm]) -> list[Arm]:
    """The arms of a file, each named as there and marked "(outside)".

    Args:
        given: the CSV, as seen from here or from the folder.

    Raises:
        ConfigError: one line on what the file lacks or the federation does not have.
    """
    file = Path(given) if Path(given).is_file() else folder / given
    table = read_measured(file if file.is_file() else Path(given))
    settings = settings_of(arms)
    one = f"a file for one federation; the folder has {counted(len(settings), 'setting')}"
    require(len(settings) == 1, KEY, file, f"{one}: report each by itself")
    heads = sorted({headline_of(arm.run.curves) for arm in arms})
    own = f"accuracies alone can be brought in, and jobs here are judged by {', '.join(heads)}"
    require(heads == ["accuracy"], KEY, file, own)
    require(metric in METRICS, "report.metric", metric, f"{' or '.join(METRICS)} with {KEY}")
    _check_evaluated(file, table, arms)
    rows = _beside(file, table, _known(arms, table))
    return [
        Arm(_measured(file, str(name), own, [arm.run for arm in arms]), marked(name), settings[0])
        for name, own in rows.groupby("arm", sort=False)
    ]


def marked(name: object) -> str:
    """The name of an arm in all tables and figures."""
    return f"{name} (outside)"


def measured_elsewhere(arms: Sequence[Arm]) -> list[str]:
    """A line on the arms that were measured elsewhere; nothing without any."""
    names = [arm.name for arm in arms if arm.outside]
    if not names:
        return []
    (file,) = {str(arm.run.folder) for arm in arms if arm.outside}
    return [
        f"measured by another program ({file}): {', '.join(names)}; on the same clients and test "
        "examples, but with cohorts, initial weights and batches of its own; what it sends and how "
        "it clusters is not known"
    ]


def read_measured(file: Path) -> pd.DataFrame:
    """The rows of a file, columns `_COLUMNS`, and `line` where each stands.

    Raises:
        ConfigError: where it cannot be read, lacks a column, has another one or more fields than
            columns, holds what is no whole number, more right than there are, or the same twice.
    """
    require(file.is_file(), KEY, file, "there is no such file")
    try:
        text = pd.read_csv(file, dtype=str, keep_default_na=False, skip_blank_lines=False)
    except (OSError, ValueError) as error:  # pandas' errors of parsing are ValueErrors
        why = " ".join(str(error).split())
        raise ConfigError(f"{KEY}={file} cannot be read as CSV: {why}") from error
    missing = [name for name in _COLUMNS if name not in text]
    allowed = f"it needs the columns {', '.join(_COLUMNS)}, and {', '.join(missing)} is missing"
    require(not missing, KEY, file, allowed)
    others = [str(name) for name in text if name not in _COLUMNS]
    allowed = f"accuracies alone can be brought in; nothing reads the column {', '.join(others)}"
    require(not others, KEY, file, allowed)
    require(len(text) > 0, KEY, file, "it holds no row")
    fields = "rows with one field for every column; a name with a comma stands in quotes"
    require(isinstance(text.index, pd.RangeIndex), KEY, file, fields)  # else pandas' index of them
    refuse = partial(_refuse, file)
    table = pd.DataFrame({"arm": text["arm"].str.strip()})
    for name in _COLUMNS[1:]:
        whole = text[name].str.fullmatch(r"\s*\d{1,18}\s*").fillna(value=False).astype(bool)
        refuse(text, ~whole, lambda row, name=name: f"{name}={row[name]!r} is no whole number")
        table[name] = text[name].astype(np.int64)
    table["line"] = np.arange(len(table)) + _FIRST
    printable = table["arm"].map(lambda name: bool(name) and name.isprintable())
    refuse(table, ~printable, lambda row: f"arm={row['arm']!r} is no name")
    long = table["arm"].str.len() > _LONG
    refuse(table, long, lambda row: f"arm={row['arm'][:20]}… has over {_LONG} characters")
    more = table["correct"] > table["count"]
    refuse(table, more, lambda row: f"correct={row['correct']} of count={row['count']}")
    place = " ".join(f"{name} {{{name}}}," for name in _PLACE).rstrip(",")
    refuse(table, table.duplicated(_PLACE), lambda row: f"{place.format(**row)} occurs twice")
    return table


def _refuse(file: Path, table: pd.DataFrame, wrong: pd.Series[bool], words: Any) -> None:
    """Refuse the first row that is wrong, in the words that are made of it."""
    if wrong.any():
        number = int(np.flatnonzero(wrong.to_numpy())[0])
        line = f"line {number + _FIRST}"
        raise ConfigError(f"{KEY}={file} is not allowed: {line}: {words(table.iloc[number])}")


def _named(numbers: Iterable[int]) -> str:
    return some_of([str(number) for number in sorted(numbers)], _MOST)


def _strange(table: pd.DataFrame, columns: list[str], known: Any) -> pd.Series[bool]:
    """The rows whose entries of some columns are not among the known ones."""
    return ~pd.Series(pd.MultiIndex.from_frame(table[columns]).isin(known))


def _check_evaluated(file: Path, table: pd.DataFrame, arms: Sequence[Arm]) -> None:
    """Refuse a seed or a round that no job has, and seeds of an arm that have other rounds."""
    evaluated: dict[int, set[int]] = {}
    for arm in arms:
        rounds = arm.run.curves["accuracy"].rounds.tolist()
        for seed in arm.run.seeds:
            evaluated.setdefault(int(seed), set()).update(rounds)
    refuse = partial(_refuse, file, table)
    no_seed, no_round = "no job has this seed", "no job was evaluated in this round"
    strange = ~table["seed"].isin(evaluated)
    refuse(strange, lambda row: f"seed={row['seed']}, and {no_seed}: {_named(evaluated)}")
    pairs = [(seed, t) for seed, rounds in evaluated.items() for t in rounds]
    refuse(
        _strange(table, ["seed", "round"], pairs),
        lambda row: f"round={row['round']}, and {no_round}: {_named(evaluated[row['seed']])}",
    )
    for name, own in table.groupby("arm", sort=False):
        of_seeds = {int(str(seed)): set(rows["round"]) for seed, rows in own.groupby("seed")}
        first = min(of_seeds)
        for seed, rounds in of_seeds.items():
            also = _named(rounds ^ of_seeds[first])
            allowed = f"the same rounds of every seed; arm {name!s}, seeds {first} and {seed}"
            require(not also, KEY, file, f"{allowed} differ in {also}")


def _known(arms: Sequence[Arm], table: pd.DataFrame) -> pd.DataFrame:
    """What the jobs tested: seed, round, client, group and count, for the rounds of the table."""
    rounds, seeds = sorted(set(table["round"])), set(table["seed"])
    tested = [
        arm.run.client_rows(int(seed), rounds)
        for arm in arms
        for seed in sorted(seeds & set(arm.run.seeds))
    ]
    empty = pd.DataFrame(columns=[*_CLIENT, "group", "test_count"], dtype=np.int64)
    rows = pd.concat(tested or [empty], ignore_index=True)
    by = rows.groupby(_CLIENT, as_index=False)
    return by.agg({"group": "first", "test_count": "max"})


def _beside(file: Path, table: pd.DataFrame, known: pd.DataFrame) -> pd.DataFrame:
    """The rows of the table with their group, once all fit what the jobs tested.

    Raises:
        ConfigError: for clients or numbers of test examples that do not fit.
    """

    def no_client(row: Mapping[str, Any]) -> str:
        same = known[(known["seed"] == row["seed"]) & (known["round"] == row["round"])]
        clients = _named(set(same["client"]))
        return f"client={row['client']}, and no job has this client: {clients}"

    there = pd.MultiIndex.from_frame(known[_CLIENT])
    _refuse(file, table, _strange(table, _CLIENT, there), no_client)
    rows = table.merge(known, on=_CLIENT, how="left", validate="many_to_one")
    of = "and the client has {} test examples"
    other = rows["count"] != rows["test_count"]
    _refuse(file, rows, other, lambda row: f"count={row['count']}, {of.format(row['test_count'])}")
    tested = known[known["test_count"] > 0]
    for (arm, seed, t), own in rows.groupby(["arm", "seed", "round"], sort=False):
        meant = tested[(tested["seed"] == seed) & (tested["round"] == t)]["client"]
        lacks = _named(set(meant) - set(own["client"]))
        allowed = f"every client that is tested; arm {arm}, seed {seed}, round {t} lacks {lacks}"
        require(not lacks, KEY, file, allowed)
    return rows


def _measured(file: Path, name: str, rows: pd.DataFrame, jobs: Sequence[Run]) -> Measured:
    """The rows of one arm, from a file, as a run that comes after the jobs beside it."""
    last = max(job.rounds for job in jobs)
    tested = rows[rows["count"] > 0].assign(own=lambda one: one["correct"] / one["count"])
    by = tested.groupby(["round", "seed"])
    sums = by[["correct", "count"]].sum()
    of_metric = (sums["correct"] / sums["count"], by["own"].mean())
    curves = {
        metric: _curve(values.unstack("seed"))
        for metric, values in zip(METRICS, of_metric, strict=True)
    }
    done = last <= 1 + int(rows["round"].max())
    config = {k: v for k, v in jobs[0].config.items() if is_setting(k) or k in _ALSO}
    config["choices"] = {k: v for k, v in jobs[0].choices.items() if is_setting(k)}
    config["choices"]["algorithm"] = marked(name)
    kept = rows.assign(label=-1)[[*_CLIENT, "group", "label", "test_count", "correct"]]
    rounds = 1 + int(rows["round"].max()) if done else last
    status = {"state": "done" if done else "measured elsewhere", "rounds": rounds}
    place = 1 + max(job.place for job in jobs)
    return Measured(file, config, status, curves, place=place, rows=kept)


def _curve(values: pd.DataFrame) -> Curve:
    """A metric [R, S] by round and seed."""
    seeds = tuple(int(seed) for seed in values.columns)
    return Curve(values.index.to_numpy(np.int64), seeds, values.to_numpy(np.float64))
