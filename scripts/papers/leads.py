"""One sentence per paper: what stands and what does not, with its numbers and seeds, from the runs.

A paper whose runs are missing, or of which few numbers were run, gets a count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median

from fedclust.helpers.errors import counted
from fedclust.report.reference import outcome
from scripts.papers.cells import (
    DERIVED,
    NOT_PRINTED,
    NOT_RUN,
    REPRODUCED,
    SETTING,
    Cell,
    Runs,
    matches,
    published,
    savings,
)

_MODELS = ("MCLR", "MLP", "CNN")
_SWAP_ALL = "swap all; swap probability 0.05; E=10"


class _Missing(Exception):
    """A run that a sentence needs is not kept."""


def lead(paper: str, cells: Sequence[Cell], runs: Runs) -> str:
    """The sentence on a paper.

    Args:
        paper: its name in published.csv.
        cells: its numbers.
        runs: all.
    """
    try:
        return _LEADS[paper](runs) if paper in _LEADS else _count(cells)
    except _Missing:
        return _count(cells)


def _count(cells: Sequence[Cell]) -> str:
    count = Counter(cell.state for cell in cells)
    left = (NOT_RUN, DERIVED, SETTING, NOT_PRINTED)
    run = sum(number for state, number in count.items() if state not in left)
    if not cells:
        return "only orders are claimed, no numbers; the runs that would tell have not been made."
    if not run:
        return f"none of {counted(len(cells), 'number')} has been run."
    return (
        f"{count[REPRODUCED]} of {counted(run, 'result')} that were run are reproduced, "
        f"{count[NOT_RUN]} have not been run."
    )


def _values(runs: Runs, experiment: str, algorithm: str, column: str, **wanted: str) -> list[float]:
    """The values of the seeds of the longest run that has the column."""
    found = [
        run.seeds[column]
        for run in runs.find(experiment, algorithm, **wanted)
        if run.seeds.get(column)
    ]
    if not found:
        raise _Missing(experiment)
    return list(max(found, key=len))


def _seeds(*numbers: Sequence[float]) -> str:
    """How many seeds, as "5 seeds" or "5, 5 and 1 seeds"."""
    counts = [len(one) for one in numbers]
    if len(set(counts)) == 1:
        return counted(counts[0], "seed")
    return _listed([str(count) for count in counts]) + " seeds"


def _listed(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + f" and {texts[-1]}"


def _flexcfl(runs: Runs) -> str:
    def best(
        experiment: str, algorithm: str, model: str, at: str = "max", **wanted: str
    ) -> list[float]:
        wanted = {"case": f"MNIST-{model}", "scenario": "static", "rounds": "300", **wanted}
        return _values(runs, experiment, algorithm, f"accuracy {at}", **wanted)

    one_client = {"options": "algorithm.aggregation=first_client"}
    flex, ifca = (
        [best("flexcfl/table3", name, model) for model in _MODELS]
        for name in ("flexcfl", "ifca_flex")
    )
    single = [best("flexcfl/table3_one_client", "ifca_flex", m, **one_client) for m in _MODELS]
    ahead = [fmean(b) - fmean(a) for a, b in zip(flex, ifca, strict=True)]
    then = [fmean(a) - fmean(b) for a, b in zip(flex, single, strict=True)]
    last = [
        fmean(best("flexcfl/table3", "ifca_flex", m, "last"))
        - fmean(best("flexcfl/table3", "flexcfl", m, "last"))
        for m in _MODELS
    ]
    single_last = [
        fmean(best("flexcfl/table3", "flexcfl", m, "last"))
        - fmean(best("flexcfl/table3_one_client", "ifca_flex", m, "last", **one_client))
        for m in _MODELS
    ]
    moved = [
        [best("flexcfl/table4", name, m, scenario="swap_all") for name in ("flexcfl", "fedgroup")]
        for m in _MODELS[:2]
    ]
    gains = [fmean(a) - fmean(b) for a, b in moved]
    rows = {"experiment": "Table IV", "dataset": "MNIST", "setting": _SWAP_ALL}
    printed = [
        _printed(rows | {"model": m, "algorithm": "FlexCFL"})
        - _printed(rows | {"model": m, "algorithm": "FedGroup"})
        for m in _MODELS[:2]
    ]
    decided, by_best = list[str](), list[str]()
    for model, by, a, b in zip(_MODELS, ahead, flex, ifca, strict=True):
        wins, seeds = sum(y > x for x, y in zip(a, b, strict=False)), min(len(a), len(b))
        by_best.append(f"{model} {by:+.2f} points, in {wins} of {counted(seeds, 'seed')}")
        if by > 0 and outcome(by > 0, wins, seeds) == "holds":
            decided.append(model)
    return (
        "averaging over all clients of a cluster, IFCA is ahead of FlexCFL on MNIST by the best "
        f"round ({'; '.join(by_best)}; decided with {_listed(decided or ['none'])}) and by the "
        f"last ({_listed([f'{value:.1f}' for value in last])} points); with one client's model as "
        "IFCA's mean, as in the released code, FlexCFL is ahead by the best round "
        f"({_listed([f'{value:.2f}' for value in then])}, as a mean {fmean(then):.2f}, where 1.33 "
        f"is printed; {_seeds(*single)}), by the last by "
        f"{_listed([_one_digit(value) for value in single_last])}. Migration helps under swap "
        f"all, by {_listed([f'{value:.1f}' for value in gains])} points over FedGroup with MCLR "
        f"and MLP, where {_listed([f'{value:.1f}' for value in printed])} are printed "
        f"({_seeds(*(pair[0] for pair in moved))})."
    )


def _cfl_mgd(runs: Runs) -> str:
    def lead_of(options: str) -> list[float]:
        ours, ifca = (
            _values(runs, "cfl_mgd/table2", name, "accuracy last", case="MNIST", options=options)
            for name in ("cfl_mgd", "ifca")
        )
        return [a - b for a, b in zip(ours, ifca, strict=False)]

    whole, tenth = lead_of(""), lead_of("participation=0.1")
    rows = {"experiment": "Table 2", "dataset": "Rotated MNIST"}
    off = []
    for title, name in (("CFL-MGD (MCFL)", "cfl_mgd"), ("IFCA", "ifca"), ("FedAvg", "fedavg")):
        ours = _values(runs, "cfl_mgd/table2", name, "accuracy last", case="MNIST")
        off.append(f"{fmean(ours) - _printed(rows | {'algorithm': title}):+.2f}".replace("-", "−"))
    return (
        f"CFL-MGD leads IFCA on MNIST by {fmean(whole):.1f} points with all clients in every round "
        f"({_seeds(whole)}; printed 3.45) and by {min(tenth):.1f} to {max(tenth):.1f} with a tenth "
        f"({_seeds(tenth)}), but its own accuracy, IFCA's and FedAvg's are not the printed ones "
        f"({_listed(off)} points). CIFAR-10 has not been run."
    )


def _jgl(runs: Runs) -> str:
    column = "purity first 90"
    mnist, slow = (
        savings(runs, "jgl/fig4", "MNIST-MLP", "0.2", column, rate)
        for rate in ("", " solver.lr=0.01")
    )
    slowest = savings(runs, "jgl/fig5", "FashionMNIST-MLP", "0.5", column, " solver.lr=0.005")
    fashion = [
        savings(runs, "jgl/fig5", "FashionMNIST-MLP", weight, column)
        for weight in ("0.1", "0.2", "0.5")
    ]
    if not all((mnist, slow, slowest, *fashion)):
        raise _Missing("jgl")
    strong = {"case": "FashionMNIST-MLP", "options": "algorithm.gradient_weight=0.5"}
    ends = [value / 100 for value in _values(runs, "jgl/fig5", "jgl", "purity last", **strong)]
    middle = [median(of) for of in fashion]
    return (
        "in the median of 5 seeds, joint gradient and loss reaches a purity of 0.9 in fewer "
        "iterations than loss alone. The saving depends on the learning rate. On MNIST-MLP it is "
        f"{median(mnist):.0f} %, and with a rate of 0.01 {median(slow):.0f} % (printed: 99 %). On "
        f"FashionMNIST-MLP it is {min(middle):.0f} to {max(middle):.0f} %, and with a rate of "
        f"0.005 {median(slowest):.0f} % (printed: up to 98 %). With λ = 0.5 and the rate of 0.05 "
        f"the clusters get mixed again (purity {min(ends):.2f} to {max(ends):.2f})."
    )


def _lcfl(runs: Runs) -> str:
    def of(experiment: str, algorithm: str, column: str) -> list[float]:
        return _values(runs, experiment, algorithm, column)

    last = "accuracy_last_local last"
    table2, cifar = (
        [a - b for a, b in zip(*(of(e, name, last) for name in ("lcfl", "ifca")), strict=False)]
        for e in ("lcfl/table2", "lcfl/fig5")
    )
    mixed = [fmean(of(e, "ifca", "purity last")) / 100 for e in ("lcfl/table2", "lcfl/fig5")]
    return (
        "it is undecided whether LCFL ends above IFCA. It leads by "
        f"{fmean(table2):.2f} points at iteration 15 of 60 of Table II ({_seeds(table2)}; printed "
        f"0.61) and by {fmean(cifar):.1f} points at the end of Figure 5 on JPEG copies "
        f"({_seeds(cifar)}), both in runs in which IFCA mixes clusters (purity {mixed[0]:.2f} and "
        f"{mixed[1]:.2f}). Table III has not been run."
    )


def _cfl_gp(runs: Runs) -> str:
    def end(algorithm: str) -> list[float]:
        return _values(runs, "cfl_gp/rot8", algorithm, "accuracy last")

    ours = end("cfl_gp")
    ifca, fedavg = (end(name)[: len(ours)] for name in ("ifca", "fedavg"))
    return (
        "the released notebook's order is ours: CFL-GP leads IFCA by "
        f"{fmean(ours) - fmean(ifca):.1f} points (in {_wins(ours, ifca)} seeds), where 5.6 is read "
        "off its figure, and FedAvg by "
        f"{fmean(ours) - fmean(fedavg):.1f}, where 32.9 is ({_seeds(ours)})."
    )


def _clove(runs: Runs) -> str:
    def ends(experiment: str, case: str) -> tuple[list[float], list[float]]:
        column = "accuracy_client_mean last"
        clove, ifca = (
            _values(runs, f"clove/{experiment}", name, column, case=f"MNIST, {case}")
            for name in ("clove_random", "ifca_random")
        )
        return clove, ifca

    said, left = list[str](), list[str]()
    for experiment, title, case in (
        ("label_skew", "Label skew", "skew 1"),
        ("feature_skew", "Feature skew", "rotations"),
    ):
        rows = {"experiment": title, "dataset": "MNIST", "setting": case}
        try:
            clove, ifca = ends(experiment, case)
        except _Missing:
            left.append(f"MNIST with {case}")
            continue
        ours = f"{fmean(clove):.1f} and {fmean(ifca):.1f}"
        theirs = " and ".join(
            f"{_printed(rows | {'algorithm': name}):.1f}" for name in ("CLoVE", "IFCA")
        )
        said.append(
            f"with {case} CLoVE and IFCA end at {ours} %, where {theirs} are printed (CLoVE above "
            f"in {_wins(clove, ifca)} seeds)"
        )
    if not said:
        raise _Missing("clove")
    waits = _listed([*left, "CIFAR-10"])
    return f"on MNIST {_listed(said)}. Not yet run: {waits}."


def _stocfl(runs: Runs) -> str:
    def end(name: str, case: str) -> list[float]:
        return _values(runs, "stocfl/shifts", name, "accuracy last", case=f"MNIST, {case}")

    cases = ("rotations", "sets of classes", "shifted labels")
    ours = [end("stocfl", case) for case in cases]
    fedavg, ifca = (
        [fmean(a) - fmean(end(name, case)) for a, case in zip(ours, cases, strict=True)]
        for name in ("fedavg", "ifca")
    )
    return (
        "only orders are claimed, that StoCFL ends above FedAvg and IFCA. On MNIST with "
        f"{_listed(cases)} it ends {_above(fedavg)} FedAvg and {_above(ifca)} IFCA, which is told "
        f"the number of clusters ({_seeds(*ours)})."
    )


def _feddrift(runs: Runs) -> str:
    def end(name: str, table: str) -> list[float]:
        options = f"scenario.table=feddrift_{table}"
        return _values(runs, "feddrift/mnist4", name, "accuracy last", options=options)

    ours = [end("feddrift", table) for table in "ac"]
    fedavg, ifca = (
        [fmean(a) - fmean(end(name, table)) for a, table in zip(ours, "ac", strict=True)]
        for name in ("fedavg", "ifca")
    )
    wins = [_wins(a, end("ifca", table)) for a, table in zip(ours, "ac", strict=True)]
    return (
        "only orders are claimed, that FedDrift ends above one model for all and above IFCA with "
        f"four models. In the patterns A and C of MNIST-4 it ends {_above(fedavg)} one model, and "
        f"{_above(ifca)} IFCA (above in {_listed(wins)} seeds)."
    )


def _wins(ours: Sequence[float], others: Sequence[float]) -> str:
    """In how many seeds one ends above another, as "4 of 5"."""
    pairs = list(zip(ours, others, strict=False))
    return f"{sum(a > b for a, b in pairs)} of {len(pairs)}"


def _one_digit(value: float) -> str:
    return f"{round(value, 1) + 0.0:.1f}".replace("-", "−")


def _above(leads: Sequence[float]) -> str:
    """By how many points one ends above or below another, setting by setting."""
    sides = ["above" if value > 0 else "below" for value in leads]
    numbers = [f"{abs(value):.1f}" for value in leads]
    if len(set(sides)) == 1:
        return f"{_listed(numbers)} points {sides[0]}"
    return _listed([f"{n} points {side}" for n, side in zip(numbers, sides, strict=True)])


def _printed(wanted: Mapping[str, str]) -> float:
    """The one accuracy that is printed with these entries."""
    (row,) = [r for r in published() if matches(r, wanted) and r["metric"] == "test_acc"]
    return float(row["mean"])


_LEADS: Mapping[str, Callable[[Runs], str]] = {
    "LCFL": _lcfl,
    "CFL-MGD": _cfl_mgd,
    "JGL": _jgl,
    "FlexCFL": _flexcfl,
    "CFL-GP": _cfl_gp,
    "CLoVE": _clove,
    "StoCFL": _stocfl,
    "FedDrift": _feddrift,
}
