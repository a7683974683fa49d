"""What was measured for a number that a paper prints, and what became of it.

Reads docs/results/runs, as `scripts/papers/collect_results.py` writes it. Accuracies are in
percent, iterations count from 1. One function per kind of number; `measure` finds the right one.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from statistics import fmean, median, pstdev

import yaml

from fedclust.helpers.errors import ConfigError, require
from scripts.papers.rules import (
    NOT_PRINTED,
    NOT_RUN,
    OTHER_DATA,
    REPRODUCED,
    SETTING,
    Facts,
    Measured,
    Row,
    decide,
    follows,
)
from scripts.papers.stand_ins import distance, stand_in

# whose notes name no cause
_WITHOUT_CAUSE = (NOT_PRINTED, NOT_RUN, OTHER_DATA, SETTING, REPRODUCED)

_EXPERIMENTS = {
    ("LCFL", "Table II"): "lcfl/table2",
    ("LCFL", "Table III"): "lcfl/table3",
    ("LCFL", "Fig. 2"): "lcfl/fig2",
    ("LCFL", "Fig. 3"): "lcfl/fig3",
    ("CFL-MGD", "Table 2"): "cfl_mgd/table2",
    ("CFL-MGD", "Conclusion"): "cfl_mgd/table2",
    ("FlexCFL", "Table I"): "flexcfl/table1",
    ("FlexCFL", "Section 3.1"): "flexcfl/table1",
    ("FlexCFL", "Table III"): "flexcfl/table3",
    ("FlexCFL", "Table IV"): "flexcfl/table4",
    ("FlexCFL", "Fig. 6(a)"): "flexcfl/fig6a",
    ("FlexCFL", "Fig. 6(b)"): "flexcfl/fig6b",
    ("CFL-GP", "Released notebook"): "cfl_gp/rot8",
    ("CLoVE", "Label skew"): "clove/label_skew",
    ("CLoVE", "Feature skew"): "clove/feature_skew",
    ("CLoVE", "Concept shift"): "clove/concept_shift",
}
_ALGORITHMS = {  # where it is not the title in small letters
    "Gradcos": "gradcos_batch",  # the published one compares gradients of single mini-batches
    "CFL-MGD (MCFL)": "cfl_mgd",
    "CLoVE": "clove_random",
    "CFL-S": "sattler_cfl",
}
_IFCA = {"FlexCFL": "ifca_flex", "CLoVE": "ifca_random"}  # as these papers run it
_DATASETS = {  # how the titles of the cases begin
    "Synthetic(1,1)": "Synthetic",
    "Rotated MNIST": "MNIST",
    "Rotated CIFAR-10": "CIFAR-10",
    "CIFAR10": "CIFAR-10",
    "EMNIST (47 classes)": "EMNIST",
}
_MODELS = {"FashionMNIST": ("CNN",), "Synthetic": ("MCLR",)}
_ALL_MODELS = ("MCLR", "MLP", "CNN")
_SETTINGS = {  # hyper-parameters: config file, and where in it
    "FEMNIST (10 classes a-j)": "lcfl/fig4",
    "Rotated MNIST": "lcfl/table2",
    "Rotated CIFAR10": "lcfl/fig5",
}
_KEYS: Mapping[str, tuple[str, float]] = {
    "participation_rate": ("participation", 100),
    "initial_lr": ("solver.lr", 1),
    "batch_size": ("solver.batch_size", 1),
    "local_epochs": ("solver.epochs", 1),
    "global_iterations": ("rounds", 1),
    "lr_decay_per_round": ("solver.decay", 1),
}
_PURITY, _PURE = "purity last", 95.0  # percent
_NO_CLUSTERS = ("fedavg", "fedprox", "fedbcd", "local")
_WEIGHT = "algorithm.gradient_weight="  # of the joint score
# made-up data that one seed draws: what a table is measured on is every seed of them, one run each
_DATA_SEED = "dataset.data_seed"
_OVER_DATA = {  # experiment: where these runs are, and how one of their options begins
    "flexcfl/table3_one_client": ("flexcfl/synthetic_seeds", "algorithm.aggregation="),
    "flexcfl/fesem_start": ("flexcfl/synthetic_seeds", "algorithm.first_assignment="),
    "flexcfl/table3": ("flexcfl/synthetic_seeds", ""),
    "flexcfl/table4_one_client": ("flexcfl/synthetic_seeds_shift", "algorithm.aggregation="),
    "flexcfl/table4_released": ("flexcfl/synthetic_seeds_shift", "algorithm.shift."),
    "flexcfl/table4": ("flexcfl/synthetic_seeds_shift", ""),
}
_MADE_UP = "synthetic"


@dataclass(frozen=True)
class Run:
    """A line of `jobs.csv` with the numbers of its seeds.

    Attributes:
        experiment: the folder below runs/.
        made: the line.
        seeds: per column the values of the seeds that have one; never reached is infinite.
        names: per column which seeds these are; all of the line where it does not say.
        over_data: whether they are seeds of made-up data, with one run of each.
    """

    experiment: str
    made: Row
    seeds: Mapping[str, tuple[float, ...]]
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    over_data: bool = False

    def named(self, column: str) -> tuple[str, ...]:
        """The seeds that have a value in a column."""
        known = self.names.get(column) or tuple(self.made["seeds"].split())
        return known[: len(self.seeds[column])]

    def of_seeds(self, wanted: Collection[str]) -> Run:
        """The same run of these seeds alone."""
        kept: dict[str, tuple[float, ...]] = {}
        names: dict[str, tuple[str, ...]] = {}
        for column, values in self.seeds.items():
            both = [
                (name, value)
                for name, value in zip(self.named(column), values, strict=False)
                if name in wanted
            ]
            if both:
                names[column], kept[column] = (tuple(some) for some in zip(*both, strict=True))
        seeds = " ".join(seed for seed in self.made["seeds"].split() if seed in wanted)
        return replace(self, made={**self.made, "seeds": seeds}, seeds=kept, names=names)

    @property
    def curve(self) -> str:
        """What tells its curves from others: two runs with equal accuracies are one."""
        told = {name: values for name, values in self.seeds.items() if name.startswith("accuracy")}
        return repr(sorted(told.items())) if told else f"{self.experiment}/{self.made['file']}"


@dataclass(frozen=True)
class Cause:
    """A tested reason why some numbers differ; it has a run or words, never both.

    Attributes:
        rows: equalities on the columns of published.csv.
        cause: the reason.
        tested: what was run, and what came out, in words, where no run can decide: a conjecture.
        run: columns of `jobs.csv` of a run that differs from ours in the cause alone: its
            experiment and options. Where it does not agree with the printed number, the cause is a
            conjecture. What it gave is read from it.
    """

    rows: Mapping[str, str]
    cause: str
    tested: str = ""
    run: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Cell:
    """A printed number and what became of it."""

    row: Row
    state: str
    measured: Measured | None = None
    cause: Cause | None = None
    shown: Measured | None = None  # by the run of the cause, whether it agrees or not
    command: str = ""  # of that run
    more: Measured | None = None  # with the seeds that not all methods beside it have

    @property
    def difference(self) -> float:
        """Measured minus printed; NaN where either is missing."""
        if self.measured is None or not self.row["mean"]:
            return math.nan
        return self.measured.value - float(self.row["mean"])


@dataclass(frozen=True)
class Runs:
    """All collected runs of the paper's scale.

    Attributes:
        runs: as they were made.
        conf: the config tree.
        only: the seeds to look at, by name; None for all.
    """

    runs: Sequence[Run]
    conf: Path
    only: frozenset[str] | None = None
    _by_experiment: dict[str, list[Run]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self._by_experiment:
            return
        for run in self.runs:
            fixed = run.experiment in _OVER_DATA and run.made["dataset"] == _MADE_UP
            if run.over_data or not fixed:
                self._by_experiment.setdefault(run.experiment, []).append(run)
        taken: set[str] = set()
        for experiment, (source, begins) in _OVER_DATA.items():
            drawn = [
                run
                for run in self.made_for(source)
                if run.made["file"] not in taken and f" {begins}" in f" {run.made['options']}"
            ]
            taken |= {run.made["file"] for run in drawn}
            self._by_experiment.setdefault(experiment, []).extend(_pooled(drawn, experiment))

    def made_for(self, experiment: str) -> list[Run]:
        """The runs of an experiment as they were made."""
        return [run for run in self.runs if run.experiment == experiment]

    def of(self, experiment: str) -> list[Run]:
        """The runs of an experiment; on made-up data one for all seeds of the data."""
        runs = self._by_experiment.get(experiment, [])
        return runs if self.only is None else [run.of_seeds(self.only) for run in runs]

    def find(self, experiment: str, algorithm: str, **wanted: str) -> list[Run]:
        """The runs of an algorithm with these entries in `jobs.csv`; by default without options.

        Of data that stand in for the same others, those that are nearest to them.
        """
        wanted.setdefault("options", "")
        matching = [
            run
            for run in self.of(experiment)
            if run.made["algorithm"] == algorithm
            and all(run.made[key] == value for key, value in wanted.items())
        ]
        nearest = min((distance(run.made) for run in matching), default=0)
        return [run for run in matching if distance(run.made) == nearest]


def _pooled(runs: Sequence[Run], experiment: str) -> list[Run]:
    """Runs that differ in the seed of their data alone, as one: its seeds are those of the data,
    each with the first run on it.

    A published number is one run on one data set: it differs from ours by both.
    """
    groups: dict[tuple[str, ...], dict[str, Run]] = {}
    for run in runs:
        options = run.made["options"].split()
        drawn = [text for text in options if text.startswith(f"{_DATA_SEED}=")]
        if not drawn:
            continue
        alike = tuple(run.made[key] for key in ("case", "scenario", "algorithm", "rounds"))
        rest = " ".join(text for text in options if text not in drawn)
        seed = drawn[0].partition("=")[2]
        groups.setdefault((*alike, rest), {})[seed] = run
    return [_one_of_each(of, key[-1], experiment) for key, of in groups.items()]


def _one_of_each(of: Mapping[str, Run], options: str, experiment: str) -> Run:
    """The first run on every seed of the data, as one run."""
    seeds = sorted(of, key=int)
    columns = dict.fromkeys(column for run in of.values() for column in run.seeds)
    names = {column: tuple(s for s in seeds if of[s].seeds.get(column)) for column in columns}
    values = {column: tuple(of[s].seeds[column][0] for s in some) for column, some in names.items()}
    first = of[seeds[0]].made
    made = {
        **first,
        "options": options,
        "seeds": " ".join(seeds),
        "hours": f"{sum(float(run.made['hours']) for run in of.values()):.4f}",
        "commit": " ".join(sorted({run.made["commit"] for run in of.values()})),
    }
    return Run(experiment, made, values, names, over_data=True)


def made_alike(*runs: Run) -> bool:
    """Whether one version of the code made all runs on one machine: only then is a difference, seed
    by seed, one of what was run.
    """
    return len({(run.made["commit"], run.made["machine"]) for run in runs}) <= 1


def mixing(run: Run, runs: Iterable[Run]) -> float | None:
    """How pure a run's clusters are at the end, where they mix true ones that another method of the
    experiment tells apart; None where they do not, or the method has one model or none.
    """
    alike = [
        other
        for other in runs
        if other.made["case"] == run.made["case"] and other.made["algorithm"] not in _NO_CLUSTERS
    ]
    known = [fmean(other.seeds[_PURITY]) for other in alike if other.seeds.get(_PURITY)]
    own = run.seeds.get(_PURITY)
    if not own or run.made["algorithm"] in _NO_CLUSTERS or max(known, default=0) < _PURE:
        return None
    return fmean(own) / 100 if fmean(own) < _PURE else None


def published() -> list[Row]:
    """Every number the papers print."""
    with files("fedclust.papers").joinpath("published.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_runs(results: Path, conf: Path, scale: str = "paper") -> Runs:
    """What is collected below `results`/runs.

    Raises:
        ConfigError: when a file that `jobs.csv` names is missing, and for a run of a modified tree.
    """
    runs = []
    for index in sorted((results / "runs").rglob("jobs.csv")):
        experiment = index.parent.relative_to(results / "runs").as_posix()
        with index.open(newline="") as lines:
            for made in csv.DictReader(lines):
                require(
                    not made["commit"].endswith("-dirty"),
                    f"{index}: {made['file']}",
                    made["commit"],
                    "a run of committed code",
                )
                if made["scale"] == scale:
                    runs.append(Run(experiment, made, *_columns(index.parent / made["file"])))
    return Runs(runs, conf)


def _columns(file: Path) -> tuple[dict[str, tuple[float, ...]], dict[str, tuple[str, ...]]]:
    """Of every column the values, and the seeds that have them."""
    require(file.is_file(), str(file), "missing", "collect the runs again")
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    names = [name for name in (rows[0] if rows else {}) if name != "seed"]
    texts = {name: [(row["seed"], row[name]) for row in rows if row[name]] for name in names}
    values = {
        name: tuple(math.inf if text == "never" else float(text) for _, text in of)
        for name, of in texts.items()
        if of
    }
    return values, {name: tuple(seed for seed, _ in texts[name]) for name in values}


def read_causes(file: Path) -> list[Cause]:
    """The tested causes of a file.

    Raises:
        ConfigError: for one without rows, cause or test, with a run and words for what it gave, or
            whose rows do not exist.
    """
    nodes = (yaml.safe_load(file.read_text()) if file.is_file() else None) or []
    require(isinstance(nodes, list), str(file), type(nodes).__name__, "a list")
    causes = []
    for number, node in enumerate(nodes, 1):
        label = f"{file.name}, entry {number}"
        fine = isinstance(node, dict) and set(node) in (
            {"rows", "cause", "tested"},
            {"rows", "cause", "run"},
        )
        require(fine, label, node, "a mapping with rows, cause, and run or tested")
        rows = {str(key): str(value) for key, value in node["rows"].items()}
        if not any(matches(row, rows) for row in published()):
            raise ConfigError(f"{label}: no published number has {rows}")
        run = {str(k): str(v) for k, v in node["run"].items()} if "run" in node else None
        causes.append(Cause(rows, str(node["cause"]), str(node.get("tested", "")), run))
    return causes


def matches(row: Row, wanted: Mapping[str, str]) -> bool:
    """Whether a published number has these values in its columns."""
    return all(row.get(key) == value for key, value in wanted.items())


def judge(runs: Runs, causes: Sequence[Cause], rows: Iterable[Row] | None = None) -> list[Cell]:
    """What became of every printed number, in the order of published.csv.

    The numbers of one setting of a table are of the seeds that all of its methods have; what a
    method has beside them is kept as `Cell.more`.
    """
    every = published() if rows is None else list(rows)
    found = [measure(row, runs) if row["mean"] else None for row in every]
    common = _in_common(every, found)
    cells = []
    for row, more in zip(every, found, strict=True):
        seeds = common.get(_beside(row, more)) if more is not None else None
        ours = more
        if more is not None and seeds and set(more.seeds) != seeds:
            ours = measure(row, replace(runs, only=seeds))
        cell = _cell(row, runs, causes, ours)
        cells.append(replace(cell, more=more) if ours is not more else cell)
    return cells


def setting_of(row: Row) -> tuple[str, ...]:
    """The table, the data with the model, and the shift or split that a row is about: the methods
    that differ in nothing else stand side by side.
    """
    return row["experiment"], f"{row['dataset']}-{row['model']}", row["setting"].partition(";")[0]


def _beside(row: Row, measured: Measured | None) -> tuple[str, ...]:
    """What all numbers have in common that are judged by the same seeds."""
    return row["paper"], *setting_of(row), measured.stands_in if measured else ""


def _in_common(
    rows: Sequence[Row], found: Sequence[Measured | None]
) -> dict[tuple[str, ...], frozenset[str]]:
    """The seeds that all methods of a setting have; none where they share none."""
    seeds: dict[tuple[str, ...], frozenset[str]] = {}
    for row, measured in zip(rows, found, strict=True):
        if measured is not None and measured.seeds and not follows(row):
            key, own = _beside(row, measured), frozenset(measured.seeds)
            seeds[key] = seeds.get(key, own) & own
    return seeds


def _cell(row: Row, runs: Runs, causes: Sequence[Cause], measured: Measured | None) -> Cell:
    cause = next((cause for cause in causes if matches(row, cause.rows)), None)
    if measured is not None and row["metric"] == "test_acc":
        measured = replace(measured, purity=_purity(row, runs))
    shown, command = _by_cause(row, runs, cause, measured.seeds if measured else ())
    state = decide(Facts(row, measured, has_cause=cause is not None, shown=shown))
    if state in _WITHOUT_CAUSE:
        return Cell(row, state, measured)
    return Cell(row, state, measured, cause, shown, command)


def _by_cause(
    row: Row, runs: Runs, cause: Cause | None, seeds: Collection[str]
) -> tuple[Measured | None, str]:
    """What the run of a cause gives for a row, of the same seeds, and its command."""
    if cause is None or cause.run is None:
        return None, ""
    placed = in_place(runs, row, cause.run, seeds)
    shown = measure(row, placed)
    if shown is None or not shown.seeds:
        return None, ""
    used = max(_run(row, placed), key=lambda run: len(run.made["seeds"].split()))
    return shown, _command(used, shown.n)


def _command(run: Run, number: int) -> str:
    """What makes the first seeds of a run; `jobs.csv` has the last of several commands."""
    seeds = run.made["seeds"].split()[:number]
    if run.over_data:
        of = f"{_DATA_SEED}={','.join(seeds)}"
        words = run.made["command"].split()
        several = [of if word.startswith(f"{_DATA_SEED}=") else word for word in words]
        return " ".join([*several[:2], "-m", *several[2:]])
    words = [word for word in run.made["command"].split() if not word.startswith("seeds=")]
    first = [word for word in words if word.startswith("experiment=")]
    rest = [word for word in words[2:] if word not in first and not word.startswith("threads=")]
    more = [] if seeds == list("01234") or not seeds else [f"seeds=[{','.join(seeds)}]"]
    return " ".join([*words[:2], *first, *rest, *more])


def in_place(
    runs: Runs, row: Row, wanted: Mapping[str, str], seeds: Collection[str] | None = None
) -> Runs:
    """Runs with these entries in `jobs.csv` as if they were those that a row is measured by.

    Args:
        runs: all.
        row: what is printed.
        wanted: the experiment, by default that of the row, and other columns.
        seeds: which to take of each; None for all.
    """
    usual = _EXPERIMENTS.get((row["paper"], row["experiment"]), "")
    others = {key: value for key, value in wanted.items() if key != "experiment"}
    placed = [
        replace(
            run if seeds is None else run.of_seeds(seeds),
            experiment=usual,
            made={**run.made, "options": ""},
            over_data=run.over_data,
        )
        for run in runs.of(wanted.get("experiment", usual))
        if all(run.made[key] == value for key, value in others.items())
    ]
    return Runs(placed, runs.conf)


def measure(row: Row, runs: Runs) -> Measured | None:
    """Our number for a printed one; None where a run that it needs is missing."""
    metric = row["metric"]
    for start, kind in _KINDS.items():
        if metric.startswith(start):
            return kind(row, runs)
    raise ConfigError(f"published.csv: nothing measures {metric}")


def case_of(row: Row, model: str = "") -> str:
    """The title of the case that a row is about."""
    name = _DATASETS.get(row["dataset"], row["dataset"])
    if row["paper"] == "FlexCFL" and (classes := re.match(r"(\d+)\b", row["setting"])):
        number = classes[1]
        plural = "class" if number == "1" else "classes"
        return "IID" if number == "10" else f"{number} {plural} per client"
    if row["paper"] in ("LCFL", "CFL-GP"):  # their experiments have no cases
        return ""
    if row["paper"] == "CLoVE":
        return f"{name}, {row['setting']}"
    return name if row["paper"] == "CFL-MGD" else f"{name}-{model or row['model']}"


def scenario_of(row: Row) -> str:
    """The scenario that a row is about."""
    for name in ("swap all", "swap part", "incremental"):
        if row["setting"].startswith(name):
            return name.replace(" ", "_")
    return "static"


def algorithm_of(row: Row, name: str = "") -> str:
    """The algorithm that a row, or a name in it, is about."""
    name = name or row["algorithm"]
    if name == "IFCA" and row["paper"] in _IFCA:
        return _IFCA[row["paper"]]
    if name == "FlexCFL-eta_g":
        return "flexcfl_inter" if row["experiment"] == "Table III" else "flexcfl_inter5"
    return _ALGORITHMS.get(name, name.lower().replace("-", "_"))


def _run(row: Row, runs: Runs) -> list[Run]:
    experiment = _EXPERIMENTS[row["paper"], row["experiment"]]
    of_method = runs.find(
        experiment, algorithm_of(row), case=case_of(row), scenario=scenario_of(row)
    )
    if row["paper"] == "LCFL":  # prints numbers of earlier iterations too
        return of_method
    return [run for run in of_method if run.made["rounds"] == _full_length(row)]


def _purity(row: Row, runs: Runs) -> float | None:
    """How pure the clusters are behind a row, where they mix some, see `mixing`."""
    of = runs.of(_EXPERIMENTS[row["paper"], row["experiment"]])
    return next((p for run in _run(row, runs) if (p := mixing(run, of)) is not None), None)


def _taken(some: Sequence[Run], column: str, end: str = "", note: str = "") -> Measured | None:
    """The mean over seeds of a column, of the run with most seeds that has it."""
    having = [run for run in some if column in run.seeds]
    if not having:
        return None
    run = max(having, key=lambda one: len(one.seeds[column]))
    values = run.seeds[column]
    last = run.seeds.get(end)
    several = len(values) > 1
    found = Measured(
        median(values),
        seeds=run.named(column),
        note=note,
        stands_in=stand_in(run.made),
        sources=frozenset({run.curve}),
        over_data=run.over_data,
    )
    if "first" in column:  # some seeds may never get there
        return replace(
            found,
            value=math.nan if math.isinf(found.value) else found.value,
            note="median over seeds" if several else "",
            ordered=tuple(sorted(values)) if several else (),
        )
    std, end_mean = pstdev(values) if several else None, fmean(last) if last else None
    return replace(found, value=fmean(values), std=std, end=end_mean)


def _accuracy(row: Row, runs: Runs) -> Measured | None:
    """test_acc: at an iteration, at the end, or the best over rounds."""
    of_row = _run(row, runs)
    if row["round"].startswith("max"):
        return _taken(of_row, "accuracy max", "accuracy last")
    metric, note = _tested(row, of_row)
    whole = _full_length(row)
    finished = [run for run in of_row if run.made["rounds"] == whole]
    if row["round"] == "final" or (row["round"] == whole and finished):
        return _taken(finished, f"{metric} last", "", note)
    return _taken(of_row, f"{metric} at {row['round']}", "", note)


def _tested(row: Row, of_row: Sequence[Run]) -> tuple[str, str]:
    """The metric a paper prints, as far as it was recorded, and how it differs if it was not.

    LCFL's simulator tests every participant with its own last model, and Local is the mean over
    clients; CLoVE's code takes that mean, too, of models that have just been trained.
    """
    if row["paper"] == "CLoVE":
        note = "the served models; the paper tests the model that each participant has just trained"
        return "accuracy_client_mean", note
    if row["paper"] != "LCFL":
        return "accuracy", ""
    if row["algorithm"] == "Local":
        return "accuracy_client_mean", "mean over clients"
    if any("accuracy_last_local last" in run.seeds for run in of_row):
        return "accuracy_last_local", "each participant's own last model"
    return "accuracy", "the clusters' models; the paper tests each participant's own last one"


def _full_length(row: Row) -> str:
    """How many rounds the paper's experiment has."""
    if row["paper"] == "LCFL":
        return "100" if row["dataset"].startswith("FEMNIST") else "60"
    return {"CFL-GP": "18", "CLoVE": "100"}.get(row["paper"], "300")


def _statistic(column: str) -> Callable[[Row, Runs], Measured | None]:
    """A column of the run that a row is about."""
    return lambda row, runs: _taken(_run(row, runs), column)


def _first(row: Row, runs: Runs) -> Measured | None:
    """first_round_test_acc_ge_X."""
    percent, of_row = row["metric"].rpartition("_")[2], _run(row, runs)
    metric, _ = _tested(row, of_row)
    taken = _taken(of_row, f"{metric} first {percent}")
    if taken is not None and math.isnan(taken.value) and row["paper"] == "LCFL":
        long = any(run.made["rounds"] == _full_length(row) for run in of_row)
        return taken if long else None  # not in the rounds that were run
    return taken


def _variance_reduction(_: Row, runs: Runs) -> Measured | None:
    """By how many percent the variance of the discrepancy falls from one class to IID."""
    one, iid = (
        _taken(runs.find("flexcfl/table1", "fedavg", case=case), "discrepancy variance")
        for case in ("1 class per client", "IID")
    )
    if one is None or iid is None:
        return None
    return Measured(100 * (1 - iid.value / one.value), seeds=min(one.seeds, iid.seeds, key=len))


def _best(runs: Runs, experiment: str, algorithm: str, scenario: str, case: str) -> Measured | None:
    return _taken(
        runs.find(experiment, algorithm, case=case, scenario=scenario, rounds="300"),
        "accuracy max",
        "accuracy last",
    )


def _gain(row: Row, runs: Runs) -> Measured | None:
    """Points by which one method leads another, or itself in another scenario."""
    if row["paper"] == "CFL-MGD":
        made = {"case": case_of(row), "rounds": "300"}
        both = [runs.find("cfl_mgd/table2", name, **made) for name in ("cfl_mgd", "ifca")]
        return _difference([tuple(_taken(one, "accuracy last") for one in both)])
    if row["experiment"] == "Section 3.1":
        cases = ("IID", "1 class per client")
        table = ("flexcfl/table1", "fedavg", "static")
        return _difference([tuple(_best(runs, *table, case) for case in cases)])
    pairs = [tuple(_best(runs, *side, case) for side in _sides(row)) for case in _cases(row)]
    return _difference(pairs, total=row["metric"].endswith("total"))


def _sides(row: Row) -> tuple[tuple[str, str, str], tuple[str, str, str]]:
    """Experiment, algorithm and scenario of both sides of a difference."""
    scenario = scenario_of(row)
    table = "flexcfl/table3" if scenario == "static" else "flexcfl/table4"
    if row["experiment"].startswith("Fig. 6"):
        table = _EXPERIMENTS[row["paper"], row["experiment"]]
    left, variant = algorithm_of(row), row["variant"]
    if re.search("no.shift|^as printed", variant):  # FedGroup's table without shift is FlexCFL's
        against = "flexcfl" if left == "fedgroup" else left
        return (table, left, scenario), ("flexcfl/table3", against, "static")
    other = variant.partition("vs ")[2].partition(";")[0]
    return (table, left, scenario), (table, algorithm_of(row, other), scenario)


def _cases(row: Row) -> list[str]:
    """The cases over which a difference is averaged."""
    if row["dataset"] == "all":
        names = ("MNIST", "FEMNIST", "Synthetic", "FashionMNIST")
        return [f"{n}-{model}" for n in names for model in _MODELS.get(n, _ALL_MODELS)]
    name = _DATASETS.get(row["dataset"], row["dataset"])
    models = _MODELS.get(name, _ALL_MODELS) if "mean" in row["model"] else (row["model"],)
    return [f"{name}-{model}" for model in models]


def _difference(
    pairs: Sequence[tuple[Measured | None, ...]], *, total: bool = False
) -> Measured | None:
    """Mean or sum of the differences of pairs; None where one is missing."""
    known = [(left, right) for left, right in pairs if left is not None and right is not None]
    if len(known) < len(pairs):
        return None
    both = [one for pair in known for one in pair]
    share = 1 if total else len(known)
    has_ends = all(one.end is not None for one in both)
    return Measured(
        sum(left.value - right.value for left, right in known) / share,
        seeds=min((one.seeds for one in both), key=len),
        end=sum((left.end or 0) - (right.end or 0) for left, right in known) / share
        if has_ends
        else None,
        stands_in=", ".join(sorted({one.stands_in for one in both} - {""})),
    )


def _gap(row: Row, runs: Runs) -> Measured | None:
    """test_acc_gap: the size of a difference."""
    gain = _gain(row, runs)
    return gain and replace(gain, value=abs(gain.value), end=None)


def _communication(row: Row, runs: Runs) -> Measured | None:
    """Models sent, relative to FedAvg or to FlexCFL without exchange."""
    experiment = _EXPERIMENTS[row["paper"], row["experiment"]]
    is_ratio = row["metric"].endswith("ratio")
    column = "models total"
    sides = []
    for name in (algorithm_of(row), "fedavg" if is_ratio else "flexcfl"):
        having = [run for run in runs.find(experiment, name) if column in run.seeds]
        if not having:
            return None
        sides.append(max(having, key=lambda run: len(run.seeds[column])))
    if not made_alike(*sides):
        return None
    known = [dict(zip(run.named(column), run.seeds[column], strict=True)) for run in sides]
    seeds = tuple(seed for seed in known[0] if seed in known[1])
    ratios = [known[0][seed] / known[1][seed] for seed in seeds]
    values = ratios if is_ratio else [100 * (ratio - 1) for ratio in ratios]
    if not values:
        return None
    return Measured(
        fmean(values),
        pstdev(values) if len(values) > 1 else None,
        seeds,
        stands_in=stand_in(sides[0].made),
        sources=frozenset(run.curve for run in sides),
    )


def _reduction(row: Row, runs: Runs) -> Measured | None:
    """By how many percent fewer iterations JGL needs than IFCA, the best reading if none is given.

    The median over seeds of each seed's saving; who never gets there counts with the rounds it ran.
    """
    column = "accuracy_client_mean first 80" if "test_acc" in row["metric"] else "purity first 90"
    tried = []
    for experiment in ("jgl/fig4", "jgl/fig5"):
        for case in sorted({run.made["case"] for run in runs.of(experiment)}):
            if row["dataset"] == "all" or case.startswith(f"{case_of(row).rpartition('-')[0]}-"):
                tried += _reductions(row, runs, experiment, case, column)
    # on the paper's data, if there are any
    return max(tried, key=lambda one: (not one.stands_in, one.value), default=None)


def _reductions(row: Row, runs: Runs, experiment: str, case: str, column: str) -> list[Measured]:
    if row["model"] in _ALL_MODELS and not case.endswith(row["model"]):
        return []
    tried = []
    for weight in ("0.2",) if row["variant"] == "lambda=0.2" else ("0.1", "0.2", "0.5"):
        saved = savings(runs, experiment, case, weight, column)
        if not saved:
            continue
        run, base = (
            runs.find(experiment, "jgl", case=case, options=f"{_WEIGHT}{value}")[0]
            for value in (weight, "0")
        )
        slower = sum(value < 0 for value in saved)
        text = f"{case}, lambda = {weight}"
        if len(saved) > 1:
            ends = f"{min(saved):.0f} to {max(saved):.0f} %".replace("-", "−")
            text += f", median over seeds, of {ends}"
        text += f", more iterations in {slower}" if slower else ""
        several = len(saved) > 1
        tried.append(
            Measured(
                median(saved),
                seeds=run.named(column)[: len(saved)],
                note=text,
                stands_in=stand_in(run.made),
                ordered=tuple(sorted(saved)) if several else (),
                sources=frozenset({run.curve, base.curve}),
            )
        )
    return tried


def savings(
    runs: Runs, experiment: str, case: str, weight: str, column: str, rate: str = ""
) -> list[float]:
    """By how many percent fewer iterations JGL needs than the loss alone, seed by seed.

    Who never gets there counts with the rounds it ran: of a baseline that is a lower bound of what
    is saved.

    Args:
        runs: all.
        experiment: the folder below runs/.
        case: the title of its case.
        weight: λ, as in `algorithm.gradient_weight`.
        column: iterations, as "purity first 90".
        rate: a further option of both runs.

    Returns:
        Percent per seed; empty where a run is missing, or two versions or machines made them.
    """
    needed: list[list[float]] = []
    sides: list[Run] = []
    for value in ("0", weight):
        of_case = runs.find(experiment, "jgl", case=case, options=f"{_WEIGHT}{value}{rate}")
        of = [run for run in of_case if run.seeds.get(column)]
        if not of:
            return []
        sides.append(of[0])
        rounds = float(of[0].made["rounds"])
        needed.append([min(one, rounds) for one in of[0].seeds[column]])
    if not made_alike(*sides):
        return []
    return [100 * (1 - ours / base) for base, ours in zip(*needed, strict=False)]


def _setting(row: Row, runs: Runs) -> Measured | None:
    """A hyper-parameter, from the experiment's config."""
    file = f"experiment/{_SETTINGS[row['dataset']]}.yaml"
    path, factor = _KEYS[row["metric"]]
    node = yaml.safe_load((runs.conf / file).read_text())
    for key in path.split("."):
        node = node[key]
    return Measured(factor * float(node), note=f"conf/{file}")


def _size(column: str) -> Callable[[Row, Runs], Measured | None]:
    """A size of the federation or the model of FlexCFL's Table II."""

    def size(row: Row, runs: Runs) -> Measured | None:
        start = f"{_DATASETS.get(row['dataset'], row['dataset'])}-{row['model']}"
        of_case = [run for run in runs.of("flexcfl/table2") if run.made["case"].startswith(start)]
        if not of_case or not of_case[0].made[column]:
            return None
        # a stand-in has the model's size and the number of clients, but other examples
        other = stand_in(of_case[0].made) if column == "examples" else ""
        return Measured(float(of_case[0].made[column]), stands_in=other)

    return size


def _group_size(row: Row, runs: Runs) -> Measured | None:
    """Training examples of one cluster of JGL's split, where no run was told how many."""
    of_case = [run for run in runs.find("jgl/fig2", "jgl") if run.made["case"].startswith("MNIST-")]
    if not of_case or not of_case[0].made["examples_of_groups"]:
        return None
    sizes = [float(size) for size in of_case[0].made["examples_of_groups"].split()]
    return Measured(sizes[0 if row["variant"].startswith("cluster A") else 1])


_KINDS: Mapping[str, Callable[[Row, Runs], Measured | None]] = {
    **dict.fromkeys(_KEYS, _setting),
    "first_round": _first,
    "test_acc_max_gain": _gain,
    "test_acc_max": _statistic("accuracy max"),
    "test_acc_median": _statistic("accuracy median"),
    "test_acc_gain": _gain,
    "test_acc_gap": _gap,
    "test_acc": _accuracy,
    "discrepancy_mean": _statistic("discrepancy mean"),
    "discrepancy_variance_over": _statistic("discrepancy variance"),
    "discrepancy_variance_reduction": _variance_reduction,
    "num_devices": _size("clients"),
    "num_samples": _size("examples"),
    "num_parameters": _size("parameters"),
    "train_samples": _group_size,
    "communication": _communication,
    "iteration_reduction": _reduction,
}
