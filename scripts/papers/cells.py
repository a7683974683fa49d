"""What was measured for a number that a paper prints, and what became of it.

Reads docs/results/runs, as `scripts/papers/collect_results.py` writes it. Accuracies are in
percent, iterations count from 1. One function per kind of number; `measure` finds the right one.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from statistics import fmean, median, pstdev

import yaml

from fedclust.helpers.errors import ConfigError, require
from fedclust.papers.published import interval, limit, rounding

Row = Mapping[str, str]
REPRODUCED, SHOWN, SPREAD = "reproduced", "cause shown", "within our spread"
CONJECTURE, OUTSIDE = "conjecture", "outside"
OTHER_DATA, NOT_RUN = "other data", "not yet run"
DERIVED = "derived"  # follows from other cells, or says one again: counted apart
SETTING, NOT_PRINTED = "setting", "nothing printed"  # no results: put in as printed, left out
STATES = (
    *(REPRODUCED, SHOWN, SPREAD, CONJECTURE, OUTSIDE, OTHER_DATA, NOT_RUN),
    *(DERIVED, SETTING, NOT_PRINTED),
)

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
_INPUTS = (*_KEYS, "num_devices", "num_parameters")  # what a config states
# how far a number of one seed may lie from the printed one, by unit; else 5 % of the printed one
_ALLOWED = {"percent": 1.0, "percentage points": 1.0, "round": 1.0}
# how far any number may, however much the seeds differ
_CAP = {"percent": 2.0, "percentage points": 2.0, "round": 2.0}
_WIDE_SHARE = 0.5  # of another quantity, within a wide spread of our seeds
_PURITY, _PURE = "purity last", 95.0  # percent
_NO_CLUSTERS = ("fedavg", "fedprox", "fedbcd", "local")
_EXACT = ("devices", "parameters")
_WEIGHT = "algorithm.gradient_weight="  # of the joint score
_SHARE_ALLOWED = 0.05
_SHARE_OF_SAMPLES = 0.01  # sizes of clients are drawn
# what ran in place of the data that a paper names, the nearest first
_STAND_INS = {
    ("emnist", "emnist_letters"): "letters of both cases for EMNIST's small ones",
    ("emnist", "mnist"): "digits for EMNIST's letters",
    ("emnist_bymerge", "mnist"): "digits for EMNIST's letters",
    ("cifar10", "npz"): "JPEG copies of CIFAR-10",
}
_NEAREST = [used for _, used in _STAND_INS]


@dataclass(frozen=True)
class Run:
    """A line of `jobs.csv` with the numbers of its seeds.

    Attributes:
        experiment: the folder below runs/.
        made: the line.
        seeds: per column the values of the seeds that have one; never reached is infinite.
    """

    experiment: str
    made: Row
    seeds: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class Measured:
    """What we have for a printed number.

    Attributes:
        value: in the printed unit; NaN where the runs never get there.
        std: over seeds, or None.
        n: seeds; 0 for what no seed changes.
        end: the value of the last round, where the printed one is a maximum over rounds.
        note: how it was measured, where that is not plain.
        stands_in: which data were used in place of others, in words; else "".
        purity: how pure the clusters are at the end, where they mix true ones that another method
            tells apart.
    """

    value: float
    std: float | None = None
    n: int = 0
    end: float | None = None
    note: str = ""
    stands_in: str = ""
    purity: float | None = None


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

    @property
    def agrees(self) -> bool:
        """Whether our number lies within the limit of the printed one."""
        return self.measured is not None and agrees(self.row, self.measured)

    @property
    def difference(self) -> float:
        """Measured minus printed; NaN where either is missing."""
        if self.measured is None or not self.row["mean"]:
            return math.nan
        return self.measured.value - float(self.row["mean"])


@dataclass(frozen=True)
class Runs:
    """All collected runs of the paper's scale."""

    runs: Sequence[Run]
    conf: Path
    _by_experiment: dict[str, list[Run]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for run in self.runs:
            self._by_experiment.setdefault(run.experiment, []).append(run)

    def of(self, experiment: str) -> list[Run]:
        """The runs of an experiment."""
        return self._by_experiment.get(experiment, [])

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
        nearest = min(map(_distance, matching), default=0)
        return [run for run in matching if _distance(run) == nearest]


def stand_in(made: Row) -> str:
    """Which data a line of `jobs.csv` used in place of those that were meant, in words; else ""."""
    meant, used = made["stands_in_for"], made["dataset"]
    return meant and _STAND_INS.get((meant, used), f"{used} for {meant}")


def _distance(run: Run) -> int:
    """How far the data are from those that were meant, 0 for these."""
    used = run.made["dataset"]
    if not run.made["stands_in_for"]:
        return 0
    return 1 + (_NEAREST.index(used) if used in _NEAREST else len(_NEAREST))


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
                    runs.append(Run(experiment, made, _columns(index.parent / made["file"])))
    return Runs(runs, conf)


def _columns(file: Path) -> dict[str, tuple[float, ...]]:
    require(file.is_file(), str(file), "missing", "collect the runs again")
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    names = [name for name in (rows[0] if rows else {}) if name != "seed"]
    texts = {name: [row[name] for row in rows if row[name]] for name in names}
    return {
        name: tuple(math.inf if text == "never" else float(text) for text in of)
        for name, of in texts.items()
        if of
    }


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
    """What became of every printed number, in the order of published.csv."""
    return [_cell(row, runs, causes) for row in (published() if rows is None else rows)]


def _cell(row: Row, runs: Runs, causes: Sequence[Cause]) -> Cell:
    if not row["mean"]:
        return Cell(row, NOT_PRINTED)
    measured = measure(row, runs)
    cause = next((cause for cause in causes if matches(row, cause.rows)), None)
    if _follows(row):
        return Cell(row, DERIVED, measured, cause)
    if measured is None:
        return Cell(row, NOT_RUN)
    if row["metric"] == "test_acc":
        measured = replace(measured, purity=_purity(row, runs))
    if measured.stands_in:
        return Cell(row, OTHER_DATA, measured)
    if agrees(row, measured):
        return Cell(row, SETTING if _is_input(row) else REPRODUCED, measured)
    shown, command = _by_cause(row, runs, cause, measured.n)
    spread = interval(measured.std, measured.n, _printed_std(row))
    if shown is not None and shown.n == measured.n and agrees(row, shown):
        state = SHOWN
    elif spread is not None and agrees(row, measured, capped=False):
        state = SPREAD
    else:
        state = CONJECTURE if cause else OUTSIDE
    return Cell(row, state, measured, cause, shown, command)


def _by_cause(row: Row, runs: Runs, cause: Cause | None, seeds: int) -> tuple[Measured | None, str]:
    """What the run of a cause gives for a row, of its first seeds, and its command."""
    if cause is None or cause.run is None:
        return None, ""
    placed = in_place(runs, row, cause.run, seeds)
    shown = measure(row, placed)
    if shown is None:
        return None, ""
    used = max(_run(row, placed), key=lambda run: len(run.made["seeds"].split()))
    return shown, _command(used, shown.n)


def _command(run: Run, number: int) -> str:
    """What makes the first seeds of a run; `jobs.csv` has the last of several commands."""
    seeds = run.made["seeds"].split()[:number]
    words = [word for word in run.made["command"].split() if not word.startswith("seeds=")]
    first = [word for word in words if word.startswith("experiment=")]
    rest = [word for word in words[2:] if word not in first and not word.startswith("threads=")]
    more = [] if seeds == list("01234") or not seeds else [f"seeds=[{','.join(seeds)}]"]
    return " ".join([*words[:2], *first, *rest, *more])


def _follows(row: Row) -> bool:
    """Whether a number follows from others that are printed, or is a second reading of one."""
    difference = any(part in row["metric"] for part in ("gain", "gap", "variance_reduction"))
    return difference or row["variant"].startswith("order reversed")


def _is_input(row: Row) -> bool:
    """Whether a number was put in; the examples of Synthetic are a file of theirs, too."""
    total = row["metric"] == "num_samples" and row["dataset"].startswith("Synthetic")
    return row["metric"] in _INPUTS or total


def in_place(runs: Runs, row: Row, wanted: Mapping[str, str], seeds: int) -> Runs:
    """Runs with these entries in `jobs.csv` as if they were those that a row is measured by.

    Args:
        runs: all.
        row: what is printed.
        wanted: the experiment, by default that of the row, and other columns.
        seeds: how many to take of each, the first ones.
    """
    usual = _EXPERIMENTS.get((row["paper"], row["experiment"]), "")
    others = {key: value for key, value in wanted.items() if key != "experiment"}
    placed = [
        replace(
            run,
            experiment=usual,
            made={**run.made, "options": ""},
            seeds={name: values[:seeds] for name, values in run.seeds.items()},
        )
        for run in runs.of(wanted.get("experiment", usual))
        if all(run.made[key] == value for key, value in others.items())
    ]
    return Runs(placed, runs.conf)


def _printed_std(row: Row) -> float | None:
    return float(row["std"]) if row["std"] else None


def agrees(row: Row, measured: Measured, *, capped: bool = True) -> bool:
    """Whether a measured number counts as the printed one.

    Of several seeds, within `fedclust.papers.published.interval`, and at most 2 points or
    iterations, or 5 % of any other quantity; of one seed within 1 point, one iteration or 5 %. What
    rounds to the printed number counts in any case.
    Devices and parameters exactly, numbers of examples (which are drawn) within 1 %. A printed
    lower bound, and a printed saving, are met by more.

    Args:
        row: what is printed.
        measured: ours.
        capped: whether the limit ends at 2 points and so on, however much the seeds differ; else
            points and iterations have none, and other quantities half of the printed one.
    """
    value, printed = measured.value, float(row["mean"])
    if math.isnan(value):
        return False
    if row["unit"] in _EXACT or row["metric"] in _KEYS:
        return math.isclose(value, printed, rel_tol=1e-9)
    share = _SHARE_OF_SAMPLES if row["unit"] == "samples" else _SHARE_ALLOWED
    alone = _ALLOWED.get(row["unit"], share * abs(printed))
    if capped:
        cap = _CAP.get(row["unit"], share * abs(printed))
    else:
        cap = math.inf if row["unit"] in _CAP else _WIDE_SHARE * abs(printed)
    seeds = 1 if row["unit"] == "samples" else measured.n
    last = rounding(row["mean"])
    allowed = limit(measured.std, seeds, _printed_std(row), rounding=last, alone=alone, cap=cap)
    if row["variant"] == "lower bound":
        return value >= printed
    if row["metric"].startswith("iteration_reduction"):
        return value >= printed - allowed
    return abs(value - printed) <= allowed + 1e-9


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
    stands_in = stand_in(run.made)
    several = len(values) > 1
    if "first" in column:  # some seeds may never get there
        middle = median(values)
        middle = math.nan if math.isinf(middle) else middle
        note = "median over seeds" if several else ""
        return Measured(middle, n=len(values), note=note, stands_in=stands_in)
    std, end = pstdev(values) if several else None, fmean(last) if last else None
    return Measured(fmean(values), std, len(values), end, note, stands_in)


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
    return one and iid and Measured(100 * (1 - iid.value / one.value), n=min(one.n, iid.n))


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
        n=min(one.n for one in both),
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
    ours, base = (
        _taken(runs.find(experiment, name), "models total")
        for name in (algorithm_of(row), "fedavg" if is_ratio else "flexcfl")
    )
    if ours is None or base is None:
        return None
    ratio = ours.value / base.value
    value = ratio if is_ratio else 100 * (ratio - 1)
    return Measured(value, n=min(ours.n, base.n), stands_in=ours.stands_in)


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
        run = runs.find(experiment, "jgl", case=case, options=f"{_WEIGHT}{weight}")[0]
        slower = sum(value < 0 for value in saved)
        text = f"{case}, lambda = {weight}"
        if len(saved) > 1:
            ends = f"{min(saved):.0f} to {max(saved):.0f} %".replace("-", "−")
            text += f", median over seeds, of {ends}"
        text += f", more iterations in {slower}" if slower else ""
        tried.append(Measured(median(saved), n=len(saved), note=text, stands_in=stand_in(run.made)))
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
        Percent per seed; empty where a run is missing.
    """
    needed: list[list[float]] = []
    for value in ("0", weight):
        of_case = runs.find(experiment, "jgl", case=case, options=f"{_WEIGHT}{value}{rate}")
        of = [run for run in of_case if run.seeds.get(column)]
        if not of:
            return []
        rounds = float(of[0].made["rounds"])
        needed.append([min(one, rounds) for one in of[0].seeds[column]])
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
