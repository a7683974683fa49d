"""The tables beside the headline: group recovery, costs, statistics over rounds, claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import methodcaller

import numpy as np
from numpy.typing import NDArray

from fedclust.config.about import server_reads
from fedclust.metrics import changed_names, headline_of
from fedclust.report.arms import Arm
from fedclust.report.columns import (
    ARM,
    TableColumn,
    mean_and_std,
    mean_of,
    over_seeds,
    tabulate,
)
from fedclust.report.formats import (
    decimals,
    factor,
    in_bytes,
    in_percent,
    in_time,
    meant,
    plus_minus,
    title,
)
from fedclust.report.group_recovery import words
from fedclust.report.headline import cell, printed_alone
from fedclust.report.reference import Printed
from fedclust.report.spec import TIME, Spec
from fedclust.report.table import Cell, Table

Read = Callable[[Arm], NDArray[np.float64]]  # a number per seed [S] of an arm

_last = partial(methodcaller, "last")  # what reads a metric's newest value per seed
_over_rounds = partial(methodcaller, "over_rounds")  # what reads a statistic per seed
_LATEST = 10  # evaluations that the mean of the last ones is taken over
_RECOVERY = {
    "purity": "purity",
    "ari": "ARI",
    "nmi": "NMI",
    "matched_accuracy": "matched accuracy",
}
_CLUSTERS = {
    "num_clusters": "clusters",
    "largest_cluster": "largest",
    "smallest_cluster": "smallest",
    "empty": "empty",
}


_NUMBER_OF_SEEDS = TableColumn(None, lambda arm: len(arm.last("num_clusters")), record="n")


def recovery_table(arms: Sequence[Arm]) -> Table | None:
    """How well every arm's clusters recover the true groups at the end, also in words."""

    def pure(arm: Arm) -> int:
        return int((arm.last("purity") >= 1).sum())

    columns = [
        ARM,
        _NUMBER_OF_SEEDS,
        TableColumn(None, pure, record="pure_seeds"),
        *(over_seeds(head, name, _last(name), 3) for name, head in _RECOVERY.items()),
        over_seeds("clusters", "num_clusters", _last("num_clusters"), 1),
        TableColumn(
            "seeds with purity 1",
            lambda arm: f"{pure(arm)} of {n}" if (n := len(arm.last("purity"))) else "–",
        ),
    ]
    notes = [line for arm in arms if (line := words(arm))] + [_meanings(_RECOVERY)]
    title = "Recovery of the true groups at the end"
    return tabulate("recovery", title, columns, arms, notes=notes)


def clusters_table(arms: Sequence[Arm]) -> Table | None:
    """The clusters of a federation without true groups: number, sizes, and how clients move."""

    columns = [
        ARM,
        _NUMBER_OF_SEEDS,
        *(
            TableColumn(head, _last(name), lambda v: plus_minus(v, 1), mean_of(name))
            for name, head in _CLUSTERS.items()
        ),
        TableColumn(
            "mean churn",
            _over_rounds(np.nanmean, "churn"),
            lambda v: plus_minus(v, 3),
            mean_of("churn"),
        ),
    ]
    notes = [_meanings((*_CLUSTERS, "churn"))]
    title = "Clusters at the end; the federation has no true groups"
    return tabulate("clusters", title, columns, arms, notes=notes)


def _meanings(metrics: Iterable[str]) -> str:
    return ". ".join(map(meant, metrics)) + "."


def _mean(write: Callable[[float], str]) -> Callable[[NDArray[np.float64]], str]:
    """Writes the mean over seeds [S]; a dash where no seed has a value."""
    return lambda values: write(float(values.mean())) if len(values) else "–"


_HEADS = ("before", "at once", "after")


def changes_table(arms: Sequence[Arm]) -> Table | None:
    """What the measured changes of a scenario did to every arm; None where there are none.

    Accuracies are means over changes. Without one before it, or with the next change too soon, a
    change counts as not recovered.
    """
    measured = [arm for arm in arms if arm.curve("changed_clients") is not None]
    own = headline_of(measured[0].run.curves if measured else ())
    names = changed_names(own)
    scale, percent = factor(names[2]), ", %" * in_percent(names[2])
    heads = {name: f"{head}{percent}" for name, head in zip(names, _HEADS, strict=True)}
    changes, recovered = _number_of("changed_clients"), _number_of("recovery_rounds")
    columns = [
        ARM,
        TableColumn("changes in all seeds", changes, record="changes"),
        TableColumn(None, recovered, record="recovered"),
        TableColumn(
            "clients each",
            lambda arm: np.nanmean(arm.curve("changed_clients").values),
            "{:.1f}".format,
        ),
        *(
            over_seeds(
                head, name, _over_rounds(np.nanmean, name), partial(decimals, own), factor=scale
            )
            for name, head in heads.items()
        ),
        TableColumn("recovered", lambda arm: f"{recovered(arm)} of {changes(arm)}"),
        over_seeds(
            "rounds until then", "recovery_rounds", _over_rounds(np.nanmean, "recovery_rounds"), 1
        ),
    ]
    notes = [_meanings((*heads, "recovery_rounds"))]
    return tabulate("changes", "Clients whose data changed", columns, measured, notes=notes)


def _number_of(metric: str) -> Callable[[Arm], int]:
    """Reads how many values of a metric an arm has, in all rounds and seeds."""
    return lambda arm: int((~np.isnan(curve.values)).sum()) if (curve := arm.curve(metric)) else 0


# head, and how the mean over seeds is written
_COSTS: dict[str, tuple[str, Callable[[float], str]]] = {
    "models_down": ("models down", "{:,.0f}".format),
    "models_up": ("models up", "{:,.0f}".format),
    "bytes": ("sent", in_bytes),
    "scalars_up": ("numbers up", "{:,.0f}".format),
    "gradient_steps": ("local steps", "{:,.0f}".format),
    "forward_passes": ("forward passes", "{:,.0f}".format),
    "backward_passes": ("backward passes", "{:,.0f}".format),
    TIME: ("simulated time", in_time),
    "seconds": ("seconds", "{:.1f}".format),
}


def cost_table(arms: Sequence[Arm]) -> Table | None:
    """Models and bytes sent, steps and seconds of every arm over all rounds, per seed."""
    timed = any(arm.curve(TIME) for arm in arms)
    columns = [
        ARM,
        TableColumn(None, lambda arm: arm.run.rounds, record="rounds"),
        *(
            TableColumn(head, methodcaller("total", name), _mean(write), mean_of(name))
            for name, (head, write) in _COSTS.items()
            if name != TIME or timed
        ),
        TableColumn(
            "the server reads",
            lambda arm: "" if arm.outside else server_reads(arm.run.config),
            lambda words: words or "–",
            "the server reads",
        ),
    ]
    notes = (
        "Sent: 4 bytes per parameter. Numbers up: single numbers that clients send in addition to "
        "models, such as losses or the cluster that they chose. Passes: (model, client) pairs "
        "whose loss (forward) or gradient (backward) is computed in addition to local training and "
        "testing.",
        "Seconds: for one seed, with its share of what was computed for several seeds together."
        + " Simulated time: what the clients' devices take, as the clock computes it." * timed,
        "The server reads: what the server must see of participants' models. Sums over all "
        "participants or over each cluster are possible with secure aggregation; with sums by "
        "cluster, the server knows which client is in which cluster.",
    )
    return tabulate("cost", "Cost of a whole run, mean over seeds", columns, arms, notes=notes)


def rounds_table(spec: Spec, arms: Sequence[Arm]) -> Table | None:
    """Statistics over rounds with the printed ones, and the first round to reach an accuracy."""
    scale, metric = factor(spec.metric), spec.metric
    goals = spec.reference.thresholds(spec.published) if spec.reference and scale == 100.0 else []
    curves = [curve for arm in arms if (curve := arm.curve(metric))]
    latest = min([_LATEST, *(len(curve.rounds) for curve in curves)])

    # head → what is read of an arm and what tables call it
    statistics: dict[str, tuple[Read, str]] = {
        "last": (lambda arm: scale * arm.last(metric), ""),
        "best": (lambda arm: scale * arm.best(metric), "test_acc_max"),
        "median": (_over_rounds(np.nanmedian, metric, scale), "test_acc_median"),
        f"mean of last {latest}": (_over_rounds(np.nanmean, metric, scale, latest), ""),
    }
    for goal in goals:
        first = partial(_first, metric, goal / scale)
        statistics[f"first ≥ {goal} %"] = first, f"first_round_test_acc_ge_{goal}"
    if any(arm.curve("discrepancy") for arm in arms):
        drift, variance = (_over_rounds(f, "discrepancy") for f in (np.nanmean, np.nanvar))
        statistics["discrepancy"] = drift, "discrepancy_mean_over_rounds"
        statistics["its variance"] = variance, "discrepancy_variance_over_rounds"
    columns = [ARM]
    for head, (read, printed_as) in statistics.items():
        columns += _beside_printed(spec, arms, head, read, printed_as)
    heading = f"{title(metric)} over the evaluated rounds" + (" (%)" if scale == 100.0 else "")
    notes = ["First: round, counted from 1, over the seeds that get there."] if goals else []
    return tabulate("over_rounds", heading, columns, arms, notes=notes)


def _beside_printed(
    spec: Spec, arms: Sequence[Arm], head: str, read: Read, printed_as: str
) -> list[TableColumn]:
    """A statistic with the printed number, in a column of its own where it may not be compared."""
    # a point of accuracy is a measure of agreement; for the other statistics there is none
    judged = printed_as.startswith("test_acc")
    fixed = 4 if "discrepancy" in printed_as else 2 if "first_round" in printed_as else None

    def digits(values: NDArray[np.float64]) -> int:
        return decimals(spec.metric, values) if fixed is None else fixed

    def printed(arm: Arm) -> Printed | None:
        if not printed_as or spec.published is None:
            return None
        return spec.printed(arm.algorithm, arm.cell, arm.run.rounds, whole=True, metric=printed_as)

    def alone(arm: Arm) -> Printed | None:
        return None if arm.comparable else printed(arm)

    own = TableColumn(
        head,
        lambda arm: (read(arm), printed(arm) if arm.comparable else None),
        lambda pair: cell(*pair, judged=judged, digits=digits(pair[0])),
        lambda pair: mean_and_std(head, f"{head} std")(pair[0]),
    )
    beside = TableColumn(
        f"paper, {head}" if any(map(alone, arms)) else None,
        lambda arm: (printed(arm), alone(arm)),
        lambda pair: printed_alone(pair[1]) if pair[1] else Cell(text="–", pale=True),
        lambda pair: {f"{head} published": pair[0].mean} if pair[0] else {},
    )
    return [own, beside]


def _first(metric: str, goal: float, arm: Arm) -> NDArray[np.float64]:
    """[S] the first round, from 1, that reaches the goal, of the seeds that do."""
    curve = arm.curve(metric)
    if curve is None:
        return np.empty(0)
    reached = curve.values >= goal
    rounds: NDArray[np.float64] = curve.rounds[reached.argmax(axis=0)] + 1.0
    return rounds[reached.any(axis=0)]


def claims_table(spec: Spec, arms: Sequence[Arm]) -> Table | None:
    """Every claim with what was measured and whether it holds; None where nothing is claimed."""
    marks = {"holds": True, "does not hold": False}
    columns = [
        TableColumn(
            "claimed",
            lambda one: f"{one[1].claimed} [{one[0]}]" if one[0] else one[1].claimed,
            record="claim",
        ),
        TableColumn("measured", lambda one: one[1].measured, record="measured"),
        TableColumn(
            "verdict",
            lambda one: one[1].outcome,
            lambda text: Cell(text=text, good=marks.get(text)),
            "verdict",
        ),
        TableColumn(
            "seeds",
            lambda one: f"{one[1].seeds} of {one[1].of}" if one[1].of else "–",
            record="seeds",
        ),
    ]
    checked = spec.reference.check(spec.claims, arms) if spec.reference else []
    note = (
        "Claims are checked on means over seeds. The last column counts the seeds in which the "
        "claim also holds by itself. There is no verdict for a single seed, or if fewer than four "
        "fifths of the seeds agree."
    )
    if any(not arm.comparable for arm in arms):
        note += (
            " Runs of another size can only show whether an order holds at that size, but nothing "
            "about a value. Runs on other data or with another protocol show nothing."
        )
    return tabulate("claims", "Claims", columns, checked, notes=[note])
