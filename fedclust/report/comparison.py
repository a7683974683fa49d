"""The comparison of the arms: in every federation seed by seed, and over all federations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedclust.metrics import METRICS
from fedclust.report.against_best import MARGIN, Standing, silence
from fedclust.report.arms import Arm, settings_of
from fedclust.report.columns import ARM, TableColumn, tabulate
from fedclust.report.formats import (
    decimals,
    factor,
    heading,
    in_percent,
    inside,
    lower_is_better,
    sign,
    signed,
    title,
)
from fedclust.report.headline import final_scores, in_panels, layout, score_column, standing
from fedclust.report.same_data import limits_of_tests, other_data
from fedclust.report.spec import Spec
from fedclust.report.statistics.aggregates import improvement, iqm, stratified
from fedclust.report.statistics.paired import ALPHA
from fedclust.report.statistics.ranks import (
    LEAST_FEDERATIONS,
    LEAST_METHODS,
    critical_difference,
    federations_needed,
    friedman,
    ranks,
)
from fedclust.report.table import Cell, Table

# what scores of several federations are put on a common scale with; the first of them that ran
_REFERENCES = ("fedavg", "fedavg default")
_LEAST_RUNS, _LEAST_SEEDS = 10, 3  # with fewer, a bootstrap interval is too short
_WORDS = {
    "best": "the best mean",
    "below": "below the best",
    "level": "no difference shown",
    "untold": "cannot be told",
    "fewer": "serves fewer clients",
}


def comparison_table(spec: Spec, arms: Sequence[Arm]) -> Table | None:
    """Every arm minus the best of its federation, seed by seed; None without any."""
    column = score_column(spec, arms)
    places = standing(arms, column, spec.metric)
    if not any(one.against for one in places.values()):
        return None
    shown = [arm for arm in arms if arm.label in places]

    def of(arm: Arm) -> Standing:
        return places[arm.label]

    # of a difference as many as of the scores of its federation
    own = {arm.label: _digits(spec, list(column.values(arm).values())) for arm in shown}
    most = {s: max(own[arm.label] for arm in shown if arm.setting == s) for s in settings_of(shown)}
    digits = {arm.label: most[arm.setting] for arm in shown}
    columns = [
        ARM,
        TableColumn(None, of, record=lambda one: _record(one, spec)),
        TableColumn("difference", lambda arm: _difference(of(arm), digits[arm.label])),
        TableColumn("95 % interval", lambda arm: _interval(of(arm), digits[arm.label])),
        TableColumn("common seeds", of, lambda one: str(one.against.n) if one.against else "–"),
    ]
    if _decided(places.values()):
        columns += [
            TableColumn("p after Holm", of, lambda one: _p(one) or "–"),
            TableColumn("verdict", of, lambda one: _verdict(one, spec)),
        ]
    unit = " (points)" if in_percent(spec.metric) else ""
    what = f"{inside(title(spec.metric))}{unit}, {column.title}"
    headed = f"Comparison: difference to the best arm, {what}"
    notes = _notes(spec, arms, list(places.values()))
    table = tabulate("comparison", headed, columns, shown, notes=notes)
    if table is None or not in_panels(arms):
        return table
    heads, rows = _grid(shown, places, digits)
    return replace(table, columns=heads, rows=rows)


def _decided(places: Iterable[Standing]) -> bool:
    """Whether anything is told of an arm but that it is the best."""
    return any(one.verdict in ("below", "level") for one in places)


def _digits(spec: Spec, values: Sequence[float] | NDArray[np.float64]) -> int:
    """Decimals of differences of such scores."""
    return decimals(spec.metric, np.array(values), 2 if in_percent(spec.metric) else 3)


def _grid(
    arms: Sequence[Arm], places: Mapping[str, Standing], digits: Mapping[str, int]
) -> tuple[tuple[str, ...], tuple[tuple[Cell, ...], ...]]:
    """Several federations: a cell for every arm in each."""
    cells = {}
    for arm in arms:
        one = places[arm.label]
        p = f"p {p}" if (p := _p(one)) else ""
        interval = _interval(one, digits[arm.label]) if one.against else ""
        cell = _difference(one, digits[arm.label]).noted(interval, p)
        # the best arm has no common seeds with another one
        cells[arm.label, ""] = cell, one.against.n if one.against else 0
    return layout(arms, [""], cells)


def _difference(one: Standing, digits: int) -> Cell:
    best = "best" if one.leads else "–"
    text = signed(one.against.mean, digits) if one.against else best
    return Cell(text=text, strong=one.leads)


def _p(one: Standing) -> str:
    """The p value after Holm's correction; "" where nothing can be told."""
    return "" if one.p is None or one.verdict == "untold" else _small(one.p)


def _interval(one: Standing, digits: int) -> str:
    if one.against is None or np.isnan(one.against.low):
        return "one seed" if one.against and one.verdict == "untold" else "–"
    return f"{signed(one.against.low, digits)} to {signed(one.against.high, digits)}"


def _small(p: float) -> str:
    """A p value with three decimals, rounded up: none looks smaller than it is."""
    return "below 0.001" if p < 0.001 else f"{math.ceil(round(1000 * p, 9)) / 1000:.3f}"


def _verdict(one: Standing, spec: Spec) -> str:
    words = _WORDS[one.verdict]
    return words.replace("below", "worse than") if lower_is_better(spec.metric) else words


def _record(one: Standing, spec: Spec) -> Mapping[str, Any]:
    record: dict[str, Any] = {"verdict": _verdict(one, spec)}
    if one.against is not None:
        record |= {"n": one.against.n, "difference": one.against.mean}
        ends = {"low": one.against.low, "high": one.against.high}
        record |= {name: "" if np.isnan(end) else end for name, end in ends.items()}
        if one.verdict != "untold":
            record |= {"p": one.against.p, "p after Holm": one.p}
    return record


def _notes(spec: Spec, arms: Sequence[Arm], places: Sequence[Standing]) -> list[str]:
    """Every term of the table, and what is missing."""
    where = " of its federation" if len(settings_of(arms)) > 1 else ""
    same = (
        "In a given seed, all arms use the same data, cohorts and initial models. So differences "
        "within a seed are less noisy than differences of means."
    )
    if any(arm.outside for arm in arms):
        same += " Arms marked (outside) share only the data."
    if other_data(arms):
        same = (
            "Not all arms used the same data in a given seed, so a difference may be caused by the "
            "data and not by the methods."
        )
    lines = [
        f"Difference: the arm minus the best arm{where}, mean over the seeds that both have. "
        f"{same} 95 % interval: confidence interval of the mean difference, by Student's t."
    ]
    lines += limits_of_tests(arms)
    untold = [one for one in places if one.verdict == "untold"]
    if _decided(places):
        points = f", or a difference of less than {MARGIN} points"
        margin = points if in_percent(spec.metric) else ""
        lines.append(
            "p: the probability that the mean difference is at least this far from zero if the "
            "sign of each difference is random (exact sign-flip test over all combinations of "
            "signs). After Holm: corrected, because several arms are compared with the best one. "
            f"No difference shown (bold): p of at least {ALPHA}{margin}; this does not prove that "
            "there is none. The best arm is selected on these same seeds, which exaggerates its "
            "lead: if all arms were equal, some arm would still be called worse in 10 % (10 arms) "
            "to 20 % (40 arms) of such tables."
        )
    if untold:
        lines.append(silence(untold))
    return lines


@dataclass(frozen=True)
class Overall:
    """The methods that ran in every one of several federations.

    Attributes:
        names: [k] methods.
        settings: [F] federations.
        means: [F, k] mean score over seeds, as shown; higher is better.
        runs: by method, per federation [S] scores on a common scale; higher is better.
        reference: the method whose score in the same seed was subtracted; "" for none.
        left_out: methods that did not run to their end in every federation, in all seeds, or leave
            clients out that others serve.
        again: settings that are one of the federations once more, run for longer or shorter.
    """

    names: tuple[str, ...]
    settings: tuple[str, ...]
    means: NDArray[np.float64]
    runs: Mapping[str, Sequence[NDArray[np.float64]]]
    reference: str
    left_out: tuple[str, ...]
    again: tuple[str, ...] = ()

    @property
    def ranks(self) -> NDArray[np.float64]:
        """[k] mean rank over the federations, 1 the best."""
        mean: NDArray[np.float64] = ranks(self.means).mean(axis=0)
        return mean

    @property
    def enough(self) -> bool:
        """Whether there are federations and methods enough for a critical difference."""
        return len(self.settings) >= LEAST_FEDERATIONS and len(self.names) >= LEAST_METHODS

    @property
    def difference(self) -> float:
        """The critical difference of two mean ranks; infinite where none can be significant."""
        if not self.enough or len(self.settings) < federations_needed(len(self.names)):
            return np.inf
        return critical_difference(len(self.names), len(self.settings))


def overall(spec: Spec, arms: Sequence[Arm]) -> Overall | None:
    """The methods over all federations; None for fewer than two, or if no direction is better."""
    if not in_panels(arms) or METRICS[spec.metric].better == "neither":
        return None
    unit = factor(spec.metric) * sign(spec.metric)
    scores = {
        place: {seed: unit * value for seed, value in values.items()}
        for place, values in final_scores(spec, arms).items()
    }
    settings, again = _counted_once(arms)
    every = tuple(dict.fromkeys(arm.name for arm in arms))
    most = {s: max(len(scores.get((s, name), {})) for name in every) for s in settings}

    def ran(name: str) -> bool:
        return all(len(scores.get((s, name), {})) == most[s] > 0 for s in settings)

    names = tuple(name for name in every if ran(name))
    reference = next((name for name in _REFERENCES if name in names), "")
    if reference:  # what shares no seed with it cannot be put on its scale
        shared = {n: [_gains(scores, s, n, reference).size for s in settings] for n in names}
        names = tuple(name for name in names if all(shared[name]))
    if len(settings) < 2 or len(names) < 2:
        return None
    runs = {name: [_gains(scores, s, name, reference) for s in settings] for name in names}
    means = [[np.mean(list(scores[s, name].values())) for name in names] for s in settings]
    left_out = tuple(name for name in every if name not in names)
    return Overall(names, settings, np.array(means), runs, reference, left_out, again)


def _counted_once(arms: Sequence[Arm]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of the settings of each federation the one with most arms, of those the one that ran longest;
    and all others: repeats of the same data are not evidence from other data.
    """
    settings = settings_of(arms)
    size = {s: [arm.run.rounds for arm in arms if arm.setting == s] for s in settings}
    best: dict[str, str] = {}
    for arm in arms:
        known = best.setdefault(arm.federation, arm.setting)
        best[arm.federation] = max(known, arm.setting, key=lambda s: (len(size[s]), max(size[s])))
    kept = set(best.values())
    return tuple(s for s in settings if s in kept), tuple(s for s in settings if s not in kept)


def _gains(
    scores: Mapping[tuple[str, str], Mapping[int, float]], setting: str, name: str, reference: str
) -> NDArray[np.float64]:
    """[S] the scores of a method in a federation, minus those of the reference in the same seed."""
    own, base = scores[setting, name], scores.get((setting, reference), {})
    if not reference:
        return np.array(list(own.values()))
    return np.array([value - base[seed] for seed, value in own.items() if seed in base])


def overall_table(spec: Spec, arms: Sequence[Arm]) -> Table | None:
    """Mean rank, interquartile mean and wins against the reference, over all federations."""
    results = overall(spec, arms)
    if results is None:
        return None
    best = float(results.ranks.min())
    tested = np.isfinite(results.difference)
    intervals = all(
        sum(map(len, runs)) >= _LEAST_RUNS and min(map(len, runs)) >= _LEAST_SEEDS
        for runs in results.runs.values()
    )
    mean_ranks = dict(zip(results.names, results.ranks.tolist(), strict=True))
    middles = {name: float(iqm(np.concatenate(runs))) for name, runs in results.runs.items()}
    reference = results.reference

    def ranked(rank: float) -> Cell:
        return Cell(text=f"{rank:.2f}", strong=bool(tested and rank - best < results.difference))

    def level(value: float) -> str:
        """A score on the common scale: with its sign where it is a difference."""
        if reference:
            return signed(value, _digits(spec, results.means))
        return f"{value:.{decimals(spec.metric, results.means)}f}".replace("-", "−")

    columns = [
        TableColumn("arm", str, record="arm"),
        TableColumn("mean rank", mean_ranks.__getitem__, ranked, "mean rank"),
        TableColumn(None, lambda name: sum(map(len, results.runs[name])), record="runs"),
        TableColumn(f"IQM of {scale(spec, results)}", middles.__getitem__, level, "IQM"),
    ]
    if intervals:
        columns.append(
            TableColumn(
                "95 % interval",
                lambda name: (name, *stratified(results.runs[name])),
                lambda one: "–" if one[0] == reference else " to ".join(map(level, one[1:])),
                lambda one: {"low": one[1], "high": one[2]},
            )
        )
    if reference:
        columns.append(
            TableColumn(
                f"beats {reference}",
                lambda name: (name, improvement(results.runs[name], results.runs[reference])),
                lambda one: "–" if one[0] == reference else f"{100 * one[1]:.0f} %",
                lambda one: {"beats reference": one[1]},
            )
        )
    headed = f"Comparison: over all {len(results.settings)} federations"
    notes = _overall_notes(results, intervals, lower=lower_is_better(spec.metric))
    return tabulate("overall", headed, columns, results.names, notes=notes)


def scale(spec: Spec, results: Overall) -> str:
    """What the scores of all federations are measured in, in words."""
    lower = lower_is_better(spec.metric)
    if not results.reference:
        name = inside(heading(spec.metric))
        return f"−{name}" if lower else name
    points = (
        "points " if in_percent(spec.metric) else "" if lower else f"{inside(title(spec.metric))} "
    )
    return f"{points}{'lead over' if lower else 'above'} {results.reference}"


def significance(results: Overall) -> str:
    """Which mean ranks differ, in words, or what is missing to tell."""
    k, number = len(results.names), len(results.settings)
    if number < LEAST_FEDERATIONS:
        return (
            f"A critical difference of mean ranks needs at least {LEAST_FEDERATIONS} federations; "
            f"there are {number}."
        )
    if k < LEAST_METHODS:
        return f"A critical difference of mean ranks needs at least {LEAST_METHODS} methods."
    least = federations_needed(k)
    if number < least:
        return (
            f"With {k} methods in {number} federations no two mean ranks can differ significantly; "
            f"that takes at least {least} federations."
        )
    p = friedman(results.means)
    return (
        f"Mean ranks differ significantly where they are {results.difference:.2f} or more apart, "
        f"the critical difference (Nemenyi's test, p < {ALPHA}, {k} methods, {number} "
        "federations). If all methods were equally good, ranks as unequal as these would be seen "
        f"with probability {_small(p)} (Friedman's test)."
    )


def _overall_notes(results: Overall, intervals: bool, *, lower: bool) -> list[str]:
    bold = " Bold: not significantly behind the best mean rank."
    interval = (
        f"An interval is given from {_LEAST_RUNS} runs and {_LEAST_SEEDS} seeds per federation on; "
        "with fewer it would be too short."
    )
    if intervals:
        interval = (
            "Its 95 % interval: bootstrap, seeds drawn anew within every federation, lengthened "
            "for their small number."
        )
    own, other = "its score", f"that of {results.reference} in the same seed"
    if lower:
        own, other = f"the score of {results.reference} in the same seed", "its own"
    runs = f"{own} minus {other}"
    if not results.reference:
        runs = "minus its score, so that more is better" if lower else own
    lines = [
        "Mean rank: the arms of a federation are ranked by their mean over seeds (1 is the best, "
        "equal ones share their mean rank), then averaged over the federations. Federations are "
        "what is counted; more seeds of one are no further evidence. "
        f"{significance(results)}{bold * bool(np.isfinite(results.difference))}",
        f"IQM: interquartile mean, the mean of the middle half of all runs; of each run {runs}. "
        f"A few very good or very bad runs do not move it. {interval}",
    ]
    if results.reference:
        lines.append(
            f"Beats {results.reference}: the share of seeds in which the arm is ahead of it, ties "
            "half, mean over the federations."
        )
    if results.again:
        lines.append(
            "A federation counts once, with most arms and as it ran longest, and not again with "
            f"{'; '.join(results.again)}."
        )
    if results.left_out:
        lines.append(
            "Not run in every federation, in all of its seeds and for all clients that others "
            "serve, and left out: "
            f"{', '.join(results.left_out)}."
        )
    return lines
