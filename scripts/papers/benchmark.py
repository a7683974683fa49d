"""Makes docs/benchmark.md: the leaderboard of `experiment=benchmark`, from the files of its runs.

    make leaderboard                               of the jobs in docs/benchmark/runs
    make leaderboard RUNS=outputs/benchmark        of those in a folder
    python -m scripts.papers.benchmark [outputs/benchmark]    the same without make

A federation is in the tables as soon as every method of the experiment has run there; the page says
which ones are not. A method of your own that ran in the same federations is a row like any other.
What the kept jobs mean is written by hand in docs/benchmark/reading.txt, which their page takes in.
What is looked up rather than read stands on a second page, docs/benchmark/data.md. The same files
give the same pages.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from scipy.stats import kendalltau

from fedclust.helpers.errors import UserError, counted
from fedclust.helpers.files import atomic_write
from fedclust.helpers.prose import table
from fedclust.report import diagrams, flow, group_recovery, heatmaps, style
from fedclust.report.against_best import MARGIN
from fedclust.report.arms import Arm
from fedclust.report.formats import byte_unit
from fedclust.report.relative import Relative, explained
from fedclust.report.statistics.aggregates import iqm, stratified
from fedclust.report.trivial import MEANING, guessed
from fedclust.report.trivial import NAME as NO_INPUTS
from scripts.papers.benchmark_runs import (
    ALIKE,
    EXPERIMENT,
    KNOWING,
    REFERENCE,
    Federation,
    Results,
    results,
)
from scripts.papers.collect_results import small
from scripts.papers.kept_runs import restore
from scripts.papers.tables import each_commit, machines

ROOT = Path(__file__).resolve().parents[2]
_READING = ROOT / "docs" / "benchmark" / "reading.txt"
_ALONE = "local"
_COSTS = {"bytes": "sent", "gradient_steps": "local steps", "seconds": "seconds"}


def page(found: Results, reading: str = "") -> str:
    """The page as Markdown, but for the figure of `at_a_glance`.

    Args:
        found: what the runs say.
        reading: what they mean, in words.
    """
    head = [
        "# The benchmark",
        "`make leaderboard` generates this page from the files of the runs"
        + ("; only the section *In plain words* is written by hand." if reading else "."),
    ]
    tail = ["## How to run it", *_how(found)]
    if not found.complete:
        return _page([*head, *_so_far(found), *tail])
    shares = found.at_a_glance
    parts = [
        *head,
        *_what_ran(found),
        *(["## Where groups help", *_glance(shares)] if shares else []),
        *(["## In plain words", reading.strip()] if reading else []),
        "## Leaderboard",
        *_leaderboard(found),
        "## What each kind of shift asks for",
        *_shifts(found),
        *tail,
    ]
    return _page(parts)


def _glance(shares: Relative) -> list[str]:
    copies = "Methods that are near copies of each other have one row, as in the leaderboard."
    return ["![at a glance](benchmark/at_a_glance.png)", f"{explained(shares)} {copies}"]


def data_page(found: Results, pictures: Path) -> str:
    """What is looked up: a line per method; its pictures go to a folder beside the page.

    Args:
        found: what the runs say.
        pictures: the folder; old pictures there are removed.
    """
    pictures.mkdir(parents=True, exist_ok=True)
    for old in pictures.glob("*.png"):
        old.unlink()

    def draw(name: str, figure: Figure | None) -> list[str]:
        if figure is None:
            return []
        drawn = io.BytesIO()
        figure.savefig(drawn, format="png", metadata={"Software": None})
        file = pictures / f"{name}.png"
        file.write_bytes(drawn.getvalue())
        file.write_bytes(small(file))
        return [f"![{name.replace('_', ' ')}]({file.name})"]

    with mpl.rc_context(cast(Any, style.RC)):
        if shares := found.at_a_glance:
            draw("at_a_glance", diagrams.at_a_glance(shares))
        parts = [
            "# The benchmark's data",
            "This page is generated together with [the benchmark's page](../benchmark.md), from "
            "the same runs. `scores.csv` in the same folder has every seed.",
            *_about(found),
            *_tuned(found),
            "## Accuracy of every method under every shift",
            *_accuracies(found),
            "## What became of the groups",
            *_recovered(found),
            "## Distances of clients under every shift",
            *_separations(found),
            *_flows(found, draw),
        ]
    return _page(parts)


def _page(parts: Sequence[str]) -> str:
    """The parts below each other; paragraphs and items of lists are wrapped."""
    return "\n\n".join(_wrapped(part) for part in parts) + "\n"


def _wrapped(part: str) -> str:
    lines = part.split("\n")
    if all(line.startswith("- ") for line in lines):
        return "\n".join(_filled(line, "  ") for line in lines)
    if len(lines) > 1 or part.startswith(("#", "|", "!", "<", "`")):
        return part
    return _filled(part)


def _filled(line: str, indent: str = "") -> str:
    return textwrap.fill(
        line, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _what_ran(found: Results) -> list[str]:
    complete = found.complete
    config = complete[0].arms[next(iter(complete[0].arms))].run.config
    ran = sorted({int(arm.run.config["rounds"]) for arm in found.counted})
    rounds = " or ".join(map(str, ran)) if len(ran) < 3 else f"{ran[0]} to {ran[-1]}"
    hours = sum(float(arm.total("seconds").sum()) for arm in found.arms) / 3600
    versions = [arm.run.versions for arm in found.counted]
    commits = each_commit(str(one.get("commit") or "unknown") for one in versions)
    used = machines(str(one.get("device")) for one in versions)
    failed = [arm.label for arm in found.counted if not arm.finished]
    lines = [
        f"Size: `scale={found.scale}`; {counted(len(complete), 'federation')}, "
        f"{len({arm.name for arm in found.counted})} methods, {len(config['seeds'])} seeds, "
        f"{rounds} rounds. The score is the test accuracy in the last round. "
        + (
            "Every method has the settings that its search found."
            if found.searches
            else "Every method has its default settings and the same local solver. Methods differ "
            "in their number of local steps, which is a column of the leaderboard. Nothing was "
            "tuned on these runs."
        )
        + f" {len(_told(found))} methods need the number of clusters; they get the true number "
        "([list](benchmark/data.md)).",
        f"The runs took {hours:.1f} hours of computing, without searches and tuned runs, on a "
        f"machine that did other work too ({used}; commit {commits}).",
    ]
    if left := _left(found):
        lines.append(left)
    if failed:
        lines.append(f"Failed, as their job says: {', '.join(failed)}.")
    return lines


def _about(found: Results) -> list[str]:
    """What the federations are, and which methods weight clients by examples."""
    lines = ["\n".join(f"- **{one.title}**: {one.about}" for one in found.complete)]
    if told := _told(found):
        lines.append(
            f"These methods need the number of clusters and get the true number: {', '.join(told)}."
            " The oracle gets the true groups. All other methods find a number or need none."
        )
    if weighted := _weighted(found):
        lines.append(
            "These methods weight a client's model by its number of examples, as in their papers "
            f"or code: {', '.join(weighted)}. All others, including FedAvg and the oracle, take "
            "plain means. If clients have different sizes (quantity, dirichlet), this is a "
            "difference between methods in itself."
        )
    return lines


def _told(found: Results) -> list[str]:
    """The methods that ask for a number of clusters."""
    asks = {arm.name for arm in found.counted if _asks(arm.run.config["algorithm"])}
    return sorted(asks)


def _asks(node: object) -> bool:
    """Whether a part of a method's config has a number of clusters."""
    if not isinstance(node, Mapping):
        return False
    return node.get("num_clusters") is not None or any(map(_asks, node.values()))


def _so_far(found: Results) -> list[str]:
    """The jobs that are done, where no federation is."""
    rows = []
    for one in found.federations:
        for name, arm in one.arms.items():
            if name not in one.missing and len(arm.last("accuracy")):
                purity = arm.last("purity")
                said = f"{purity.mean():.2f}" if len(purity) else "–"
                rows.append([one.title, name, _accuracy(one, name), said])
    return [
        f"Size: `scale={found.scale}`. No federation has every method yet, so there is no "
        "leaderboard yet. " + _left(found),
        "## Finished jobs",
        "Accuracy in percent, mean ± standard deviation over seeds, and the purity of the "
        "clusters, both in the last round. Every method has its default settings.",
        table(["shift", "method", "accuracy", "purity"], rows, 2),
    ]


def _weighted(found: Results) -> list[str]:
    """The methods whose means are weighted by examples."""
    configs = {arm.name: arm.run.config.get("algorithm") or {} for arm in found.counted}
    return sorted(n for n, config in configs.items() if config.get("aggregation") == "by_samples")


def _left(found: Results) -> str:
    """Which federations are not in the tables, and why; "" where all are."""
    left = [
        f"{one.title} ({counted(len(one.missing), 'job')} left)"
        if one.arms
        else f"{one.title} (not run)"
        for one in found.federations
        if one.missing
    ]
    return f"Not in the tables: {', '.join(left)}." if left else ""


def _leaderboard(found: Results) -> list[str]:
    """A row per family of near copies, the best where groups help first."""
    helped = found.only(found.helped).complete
    others = [one for one in found.complete if one.case not in found.helped]
    families = found.families
    gains = {name: _points(helped or others, name) for name in families}
    order = sorted(families, key=lambda name: -_mean(gains[name]))
    rows = []
    for name in order:
        low, high = _interval(gains[name])
        row: list[object] = [", ".join(families[name])]
        reference = name == REFERENCE
        if helped:
            row += ["–" if reference else _signed(_mean(gains[name]))]
            row += ["–" if reference else f"{_signed(low)} to {_signed(high)}"]
        if others:
            row.append("–" if reference else _signed(_mean(_points(others, name))))
        every = [float(one.mean()) for one in _points(found.complete, name)]
        row.append("–" if reference else _signed(min(every, default=np.nan)))
        rows.append([*row, *(_ratio(found.complete, name, cost) for cost in _COSTS)])
    head = ["method"]
    head += ["where groups help", "95 % interval"] if helped else []
    head += ["elsewhere"] if others else []
    head += ["worst federation", *_COSTS.values()]
    notes = [
        "*Where groups help* and *elsewhere*: points of accuracy above FedAvg in the same seed. "
        "They are first combined over the seeds of a federation by the interquartile mean, then "
        "averaged over federations. The interval is a bootstrap over seeds. Groups help in the "
        f"federations in which the oracle leads FedAvg by more than {MARGIN:g} points: "
        f"{_titles(helped) or 'in no federation'}. *Worst federation*: the lowest mean over seeds.",
        "Methods in one row are near copies in these runs. In the same seed, they are less than "
        f"{ALIKE:g} points apart in the mean over federations, directly or through other methods "
        "of the row. The numbers are those of the first one.",
        "*Sent*, *local steps* and *seconds* are those of a whole run, divided by FedAvg's in the "
        "same federation; the geometric mean over federations is shown. Bytes and steps are "
        "exact. The seconds were measured beside other work and are only a rough guide. FedAvg "
        "itself needs " + _absolute(found.complete) + ".",
        "The intervals describe the randomness of seeds in these federations. They do not say how "
        "a method performs in other federations. [The benchmark's data](benchmark/data.md) show "
        "every method under every kind of shift.",
    ]
    return [table(head, rows, 1), *notes]


def _titles(federations: Sequence[Federation]) -> str:
    return ", ".join(one.title for one in federations)


def _points(federations: Sequence[Federation], name: str) -> list[Any]:
    """[S] points above FedAvg in the same seed, for every federation in which both ran."""
    found = []
    for one in federations:
        if name in one.arms and REFERENCE in one.arms:
            own, base = (one.arms[n].by_seed("accuracy") for n in (name, REFERENCE))
            found.append(100 * np.array([own[seed] - base[seed] for seed in own if seed in base]))
    return found


def _interval(strata: Sequence[Any]) -> tuple[float, float]:
    """95 % interval of `_mean` by the bootstrap over seeds."""
    ends = np.cumsum([len(one) for one in strata])[:-1]

    def mean(drawn: Any) -> Any:
        return np.mean([iqm(part) for part in np.split(drawn, ends, axis=1)], axis=0)

    return stratified(strata, mean)


def _mean(strata: Sequence[Any]) -> float:
    """Mean over federations of the interquartile mean over seeds."""
    return float(np.mean([iqm(one) for one in strata])) if strata else -np.inf


def _signed(value: float) -> str:
    shown = f"{value:+.1f}"
    return "0.0" if shown in ("+0.0", "-0.0") else shown.replace("-", "−")


def _ratio(complete: Sequence[Federation], name: str, cost: str) -> str:
    """A cost over FedAvg's, geometric mean over the federations."""
    ratios = []
    for one in complete:
        own, base = (one.arms[n].total(cost) if n in one.arms else [] for n in (name, REFERENCE))
        if len(own) and len(base) and np.mean(base) > 0:
            ratios.append(float(np.mean(own) / np.mean(base)))
    if not ratios:
        return "–"
    return "0" if min(ratios) == 0 else f"{np.exp(np.mean(np.log(ratios))):.2g}"


def _absolute(complete: Sequence[Federation]) -> str:
    """What FedAvg costs, mean over the federations and seeds."""
    arms = [one.arms[REFERENCE] for one in complete if REFERENCE in one.arms]
    spent = {cost: float(np.mean([arm.total(cost).mean() for arm in arms])) for cost in _COSTS}
    size, unit = byte_unit(spent["bytes"])
    return (
        f"{spent['bytes'] / size:.3g} {unit}, {spent['gradient_steps']:,.0f} local steps, "
        f"{spent['seconds']:.0f} seconds per seed"
    )


def _tuned(found: Results) -> list[str]:
    """What a search on validation data changes: a row per method, the best mean rank first."""
    head = "## Tuned on validation data"
    if found.tuned is None:
        return []
    cases = {one.case for one in found.complete}
    both = [one.case for one in found.tuned.complete if one.case in cases]
    tuned, default = found.tuned.only(both), found.only(both)
    helped = [case for case in both if case in found.helped]
    shares, before = (one.only(helped or both).shares for one in (tuned, default))
    if shares is None or before is None:
        return [head, f"In no federation did every method run tuned yet. {_left(found.tuned)}"]
    means = dict(zip(shares.names, shares.means.tolist(), strict=True))
    were = dict(zip(before.names, before.means.tolist(), strict=True))
    rows = []
    for name in sorted(means, key=lambda name: -means[name]):
        gains, rates = _gains(tuned, default, name)
        if not gains:
            continue
        low, high = _interval(gains)
        rows.append(
            [
                name,
                f"{100 * means[name]:.1f}",
                f"{100 * were.get(name, np.nan):.1f}",
                _signed(_mean(gains)),
                f"{_signed(low)} to {_signed(high)}",
                _span([float(one.mean()) for one in gains]),
                f"{min(rates):.2g} to {max(rates):.2g}" if len(rates) > 1 else f"{rates[0]:.2g}",
            ]
        )
    unsearched = [name for name in found.complete[0].arms if name not in tuned.complete[0].arms]
    common = [name for name in means if not np.isnan(means[name] + were.get(name, np.nan))]
    validated = sorted({float(search["validation"]) for search in tuned.searches})
    percent = " or ".join(f"{100 * share:.0f}" for share in validated)
    notes = [
        f"Every method was tuned in {counted(len(both), 'federation')} with the same budget: "
        f"{'; '.join(_budgets(tuned))}. A trial that is stopped early, or fails, leaves its rounds "
        "to further trials. The first trial has the default settings. The searches vary the "
        "learning rate and the options that `conf/space` lists for the method. They use separate "
        f"seeds and are judged in the last round on {percent} % of each client's training "
        "examples, which no method sees. The best settings were then run on all training examples "
        "with the seeds of the table above. "
        f"{_left(found.tuned)}".rstrip()
        + (f" Not searched: {', '.join(unsearched)}." if unsearched else ""),
        "*Gain*: tuned minus default accuracy in the same seed, in points. It is the interquartile "
        "mean over the seeds of a federation, then the mean over federations, with a bootstrap "
        "interval over seeds. It is negative if the setting that was best on the few validation "
        "examples is not better on test data. *By federation*: the lowest and the highest mean. "
        "*Of the oracle's*: accuracy in percent of the accuracy of the oracle with the same kind "
        "of settings"
        + (f", where groups help ({_titles(tuned.only(helped).complete)})" if helped else "")
        + ". *Learning rate*: the lowest and the highest one found.",
    ]
    if len(common) > 2:
        tau = kendalltau(
            [means[name] for name in common], [were[name] for name in common]
        ).statistic
        notes.append(
            f"The orders of the methods before and after tuning agree with Kendall's τ = {tau:.2f} "
            "(1: the same order, 0: unrelated orders)."
        )
    titles = ["method", "of the oracle's (%)", "default (%)", "gain", "95 % interval"]
    titles += ["by federation", "learning rate"]
    return [
        head,
        notes[0],
        table(titles, rows, 1),
        *notes[1:],
        *_gains_by_federation(tuned, default),
    ]


def _gains_by_federation(tuned: Results, default: Results) -> list[str]:
    """What tuning changes in every federation, a row per method."""
    names = dict.fromkeys(name for one in tuned.complete for name in one.arms)
    rows = []
    for name in names:
        cells = []
        for one in tuned.complete:
            gains, _ = _gains(tuned.only([one.case]), default.only([one.case]), name)
            cells.append(
                f"{_signed(float(gains[0].mean()))} ± {gains[0].std():.1f}" if gains else "–"
            )
        rows.append([name, *cells])
    head = ["method", *(one.title for one in tuned.complete)]
    return [
        "Gain by federation, mean ± standard deviation over seeds:",
        table(head, rows, 1),
    ]


def _budgets(tuned: Results) -> list[str]:
    """What the searches were allowed, and in which federations."""
    return [
        f"the rounds of {trials} whole trials on {counted(len(seeds), 'seed')} in "
        f"{', '.join(one.title for one in where)}"
        for (trials, seeds), where in _by_budget(tuned).items()
    ]


def _by_budget(tuned: Results) -> dict[tuple[int, tuple[int, ...]], list[Federation]]:
    """The federations by the trials and the seeds of their searches, the largest first.

    A search counts the trials it made, more than it may where some were stopped early, so the
    fewest of all searches on the same seeds are the budget of each.
    """
    made: dict[tuple[int, ...], list[int]] = {}
    of: dict[tuple[int, ...], list[Federation]] = {}
    for one in tuned.complete:
        searches = tuned.only([one.case]).searches
        seeds = tuple(searches[0]["seeds"])
        made.setdefault(seeds, []).extend(int(search["trials"]) for search in searches)
        of.setdefault(seeds, []).append(one)
    budgets = {(min(made[seeds]), seeds): where for seeds, where in of.items()}
    return dict(sorted(budgets.items(), key=lambda item: item[0], reverse=True))


def _span(means: Sequence[float]) -> str:
    """The lowest and the highest mean of the federations."""
    return f"{_signed(min(means))} to {_signed(max(means))}"


def _gains(tuned: Results, default: Results, name: str) -> tuple[list[Any], list[float]]:
    """Tuned minus default by federation [seeds], in points, and the learning rates found."""
    gains, rates = [], []
    for one, before in zip(tuned.complete, default.complete, strict=True):
        if not all(name in arms and arms[name].finished for arms in (one.arms, before.arms)):
            continue
        spec = tuned.spec
        new, old = (arms[name].by_seed(spec.metric, spec.score) for arms in (one.arms, before.arms))
        shared = sorted(set(new) & set(old))
        gains.append(100 * np.array([new[seed] - old[seed] for seed in shared]))
        rates.append(float(one.arms[name].run.config["solver"]["lr"]))
    return gains, rates


def _shifts(found: Results) -> list[str]:
    """A line per federation: what knowing the groups, one model, and training alone reach there,
    and whether the best on half of the seeds is the best on the others.
    """
    rows = []
    for one in found.complete:
        gains = {name: _points([one], name)[0] for name in found.families if name in one.arms}
        half = min(len(values) for values in gains.values()) // 2
        first = {name: float(values[:half].mean()) for name, values in gains.items() if half}
        rest = {name: float(values[half:].mean()) for name, values in gains.items()}
        best = max(first, key=first.__getitem__, default="")
        place = 1 + sum(value > rest[best] for value in rest.values()) if best else 0
        said = f"{_signed(rest[best])}, place {place} of {len(rest)}" if best else "–"
        below = sum(float(v.mean()) < 0 for name, v in gains.items() if name != REFERENCE)
        accuracy = [_accuracy(one, name) for name in (KNOWING, REFERENCE, _ALONE)]
        accuracy.append(_guess(found, one.case) or "–")
        rows.append([one.title, *accuracy, f"{below} of {len(gains) - 1}", best or "–", said])
    head = [
        "shift",
        "oracle",
        "FedAvg",
        "Local",
        NO_INPUTS,
        "below FedAvg",
        "best on half of the seeds",
    ]
    note = (
        f"Accuracy in percent, mean ± standard deviation over seeds. {MEANING}. *Below FedAvg*: "
        "how many of the families (rows) of the leaderboard. The difference between the oracle and "
        "FedAvg is what knowing the groups is worth. If the oracle is not better than FedAvg, "
        "clustering by these groups does not help. The last two columns show the family that is "
        "best on the first half of the seeds, and its points above FedAvg and its rank on the "
        "other half, which had no influence on the choice."
    )
    return [table([*head, "on the others"], rows, 1, left=6), note]


def _accuracies(found: Results) -> list[str]:
    """Mean accuracy, a row per method and a column per federation."""
    names = dict.fromkeys(name for one in found.complete for name in one.arms)
    rows = [
        [name, *(_accuracy(one, name).partition(" ")[0] for one in found.complete)]
        for name in names
    ]
    head = ["method", *(one.title for one in found.complete)]
    note = "Accuracy in percent in the last round, mean over seeds."
    guess = [_guess(found, one.case) for one in found.complete]
    if any(guess):
        rows.append([NO_INPUTS, *(value or "–" for value in guess)])
        note += f" {MEANING}. Not all runs have kept it."
    return [table(head, rows, 1), note]


def _guess(found: Results, case: str) -> str:
    """What a guess without inputs reaches, of the first runs of a federation that have kept it."""
    both = [*found.federations, *(found.tuned.federations if found.tuned else ())]
    arms = [arm for one in both if one.case == case for arm in one.arms.values()]
    kept = (values for arm in arms if len(values := guessed(arm, "accuracy")))
    return f"{100 * values.mean():.1f}" if (values := next(kept, None)) is not None else ""


def _accuracy(one: Federation, name: str) -> str:
    values = 100 * one.arms[name].last("accuracy") if name in one.arms else np.empty(0)
    return f"{values.mean():.1f} ± {values.std():.1f}" if len(values) else "–"


def _recovered(found: Results) -> list[str]:
    """What each method's clusters do to the true groups, a line per method."""
    names = dict.fromkeys(name for one in found.complete for name in one.arms if name != KNOWING)
    said = {name: _groups(found, name) for name in names}
    lines = [f"- **{name}**: {what}" for name, what in said.items() if what]
    return [
        "For each method, the most frequent outcome over seeds at the end of the runs.",
        "\n".join(lines),
    ]


def _groups(found: Results, name: str) -> str:
    """What a method's clusters do to the groups, federation by federation, in one sentence."""
    usual: dict[str, list[str]] = {}
    for one in found.complete:
        if name not in one.arms:
            continue
        counts = group_recovery.verdicts(one.arms[name])
        if not counts:
            continue
        (what, number), total = counts.most_common(1)[0], counts.total()
        often = "" if number == total else f" ({number} of {total} seeds)"
        usual.setdefault(what, []).append(f"{one.title}{often}")
    if set(usual) <= {group_recovery.ONE}:
        return "One model for all, so there are no clusters." if usual else ""
    if set(usual) <= {group_recovery.OWN}:
        return "A model for every client, so there are no clusters."
    said = "; ".join(f"{what}: {', '.join(where)}" for what, where in usual.items())
    return f"{said[0].upper()}{said[1:]}."


def _separations(found: Results) -> list[str]:
    """How well the distances that methods cluster by tell the groups apart."""
    values = {
        (name, one.title): value
        for one in found.complete
        for name, arm in one.arms.items()
        if not np.isnan(value := heatmaps.separation_of(arm))
    }
    if not values:
        return ["No method here kept its distances."]
    names = dict.fromkeys(name for name, _ in values)
    titles = [one.title for one in found.complete if any(t == one.title for _, t in values)]
    rows = [
        [name, *(f"{values[name, t]:.2f}" if (name, t) in values else "–" for t in titles)]
        for name in names
    ]
    return [
        "The table shows how well the distance by which a method clusters separates the true "
        "groups, in the first seed. It is the probability that two clients of different groups are "
        "farther apart than two clients of one group. 1 means that a threshold separates the "
        "groups without error; 0.5 means that the distance is unrelated to the groups. If a method "
        "has a high number but still mixes groups, its clustering fails. If it has a low number, "
        "its distance does not contain the information.",
        table(["method", *titles], rows, 1),
    ]


def _flows(found: Results, draw: Any) -> list[str]:
    """Who moved where, in the federations that shift."""
    parts = []
    for one in found.complete:
        stem = one.case.rpartition("/")[2]
        arms = list(one.arms.values())
        if arms[0].run.choices.get("scenario") == "static":
            continue
        shown = [
            line
            for which, arm in zip(("best", "worst"), _moving(arms), strict=False)
            for line in draw(f"{stem}_flow_{which}", flow.flow(arm))
        ]
        if shown:
            parts += [f"### {one.title[0].upper()}{one.title[1:]}", *shown]
    note = (
        "The figures show which clients are in which cluster over the rounds. Of the methods whose "
        "clients move, they show the one with the best and the one with the worst accuracy, in the "
        "first seed. A bar is a cluster with its number; “–” are clients without a cluster yet. "
        "Bands are clients, coloured by their true group. Below is the churn: the share of clients "
        "that changed their cluster since the previous evaluation, mean over seeds."
    )
    return ["## Clients that move", note, *parts] if parts else []


def _moving(arms: Sequence[Arm]) -> list[Arm]:
    """The arms with the best and the worst accuracy of those that have a flow."""
    flows = [arm for arm in arms if arm.algorithm != KNOWING and flow.flow(arm) is not None]
    ranked = sorted(flows, key=lambda arm: -float(arm.last("accuracy").mean()))
    return ranked if len(ranked) < 2 else [ranked[0], ranked[-1]]


def _how(found: Results) -> list[str]:
    scale = "" if found.scale == "paper" else f" scale={found.scale}"
    runs = f"outputs/{EXPERIMENT}{'' if not scale else '-' + found.scale}"
    searches, cases = [f"fedclust tune experiment={EXPERIMENT}{scale}"], ""
    if found.tuned:  # in fewer federations than there are
        cases = f" case={','.join(one.case for one in found.tuned.complete)}"
        searches = [
            f"fedclust tune experiment={EXPERIMENT}{scale} "
            f"case={','.join(one.case for one in where)} trials={trials} "
            f"'tuning_seeds=[{','.join(map(str, seeds))}]'"
            for (trials, seeds), where in _by_budget(found.tuned).items()
        ]
    commands = "\n".join(
        [
            "```",
            f"fedclust run experiment={EXPERIMENT}{scale}",
            f"fedclust run experiment={EXPERIMENT}{scale} algorithm=mine --config-dir DIR",
            *searches,
            f"fedclust run experiment={EXPERIMENT}{scale}{cases} tuned={runs}-tuning",
            f"make leaderboard RUNS={runs}",
            "make leaderboard                # this page, from the jobs in docs/benchmark/runs",
            "```",
        ]
    )
    return [
        commands,
        "The second command adds your own method to the same folder, and so to every table and "
        "figure of this page (`fedclust example own_algorithm` writes an example). The next two "
        "commands tune every method on validation data and run it with the settings found. "
        "`python -m scripts.papers.kept_runs restore outputs/kept` unpacks the searches that are "
        "kept in docs/benchmark/searches, with every trial; use them with "
        "`tuned=outputs/kept-tuning`. `scripts/papers/campaign.py run --list "
        "scripts/papers/benchmark.yaml` runs the benchmark federation by federation in the "
        "background and continues after interruptions. If you have CIFAR-10 as your own file, use "
        "`dataset=npz dataset.path=FILE` with the two cases that need it. Under dirichlet, which "
        "has no true groups, the oracle is refused; all other jobs run.",
    ]


def scores(found: Results) -> str:
    """The score of every seed as CSV: federation, method, seed, accuracy."""
    lines = ["federation,method,seed,accuracy"]
    for one in found.complete:
        for name, arm in one.arms.items():
            values = arm.by_seed(found.spec.metric, found.spec.score)
            lines += [f"{one.title},{name},{s},{v:.6f}" for s, v in sorted(values.items())]
    return "\n".join(lines) + "\n"


def main(given: Sequence[str]) -> int:
    """Write the page, its pictures and numbers; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "runs", type=Path, nargs="?", help="such as outputs/benchmark; default: the jobs kept here"
    )
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "benchmark.md")
    asked = parser.parse_args(list(given))
    try:
        with tempfile.TemporaryDirectory() as unpacked:
            if asked.runs is None:
                restore(Path(unpacked))
            found = results(asked.runs or Path(unpacked))
            reading = _READING.read_text() if asked.runs is None and _READING.is_file() else ""
            beside = asked.to.with_suffix("")
            text, of_seeds = page(found, reading), scores(found)
            data = data_page(found, beside)
    except UserError as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return UserError.exit_status
    atomic_write(beside / "scores.csv", of_seeds)
    atomic_write(beside / "data.md", data)
    atomic_write(asked.to, text)
    print(asked.to)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
