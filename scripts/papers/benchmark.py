"""Makes docs/benchmark.md: the leaderboard of `experiment=benchmark`, from the files of its runs.

    make leaderboard                               of the jobs in docs/benchmark/runs
    make leaderboard RUNS=outputs/benchmark        of those in a folder
    python -m scripts.papers.benchmark [outputs/benchmark]    the same without make

A federation is in the tables as soon as every method of the experiment has run there; the page says
which ones are not. A method of your own that ran in the same federations is a row like any other.
What the kept jobs mean is written by hand in docs/benchmark/reading.txt, which their page takes in.
The same files give the same page. Longer than other files because it is that page, section by
section.
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
from fedclust.report import diagrams, flow, group_recovery, heatmaps, style
from fedclust.report.arms import Arm
from fedclust.report.comparison import Overall, significance
from fedclust.report.formats import byte_unit
from fedclust.report.relative import Relative, explained, percent
from fedclust.report.statistics.aggregates import improvement, iqm, stratified
from scripts.papers.benchmark_runs import EXPERIMENT, KNOWING, Federation, Results, results
from scripts.papers.collect_results import small
from scripts.papers.kept_runs import restore
from scripts.papers.tables import table

ROOT = Path(__file__).resolve().parents[2]
_READING = ROOT / "docs" / "benchmark" / "reading.txt"
_REFERENCE = "fedavg"
_ALONE = "local"
_GOOD, _POOR = 0.97, 0.90  # shares of the oracle's accuracy that are called good and poor
_COSTS = {"bytes": "sent", "gradient_steps": "local steps", "seconds": "seconds"}


def page(found: Results, pictures: Path, reading: str = "") -> str:
    """The page as Markdown; its pictures go to a folder beside it.

    Args:
        found: what the runs say.
        pictures: the folder; old pictures there are removed.
        reading: what they mean, in words.
    """
    shares = found.shares
    beside = pictures.name
    pictures.mkdir(parents=True, exist_ok=True)
    for old in pictures.glob("*.png"):
        old.unlink()

    def draw(name: str, figure: Figure | None) -> list[str]:
        if figure is None:
            return []
        with mpl.rc_context(cast(Any, style.RC)):
            drawn = io.BytesIO()
            figure.savefig(drawn, format="png", metadata={"Software": None})
        file = pictures / f"{name}.png"
        file.write_bytes(drawn.getvalue())
        file.write_bytes(small(file))
        return [f"![{name.replace('_', ' ')}]({beside}/{file.name})"]

    head = [
        "# The benchmark",
        "Made by `make leaderboard` from the files of the runs; not written by hand"
        + (", but for what it says in plain words." if reading else "."),
    ]
    tail = ["## How to run it", *_how(found)]
    if shares is None:
        return _page([*head, *_so_far(found), *tail])
    with mpl.rc_context(cast(Any, style.RC)):
        parts = [
            *head,
            *_what_ran(found),
            "## Every method under every shift",
            *draw("at_a_glance", diagrams.at_a_glance(shares)),
            explained(shares),
            *(["## In plain words", reading.strip()] if reading else []),
            "## Leaderboard",
            *_leaderboard(found, shares),
            *_ranks(found, draw),
            *_tuned(found),
            "## What each kind of shift asks for",
            *_shifts(found, shares),
            "## What each method is good at, and where it fails",
            *_methods(found, shares),
            "## Distances of clients under every shift",
            *_separations(found),
            *_flows(found, draw),
            *tail,
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
    commits = sorted({str(arm.run.versions.get("commit") or "unknown") for arm in found.counted})
    machines = sorted({str(arm.run.versions.get("device")) for arm in found.counted})
    failed = [arm.label for arm in found.counted if not arm.finished]
    lines = [
        f"Size: `scale={found.scale}`; {counted(len(complete), 'federation')}, "
        f"{len({arm.name for arm in found.counted})} methods, {len(config['seeds'])} seeds, "
        f"{rounds} rounds; test accuracy in the last round. "
        + (
            "Every method has the settings that its search found."
            if found.searches
            else "Every method has its default settings and the same local training; nothing is "
            "tuned on these runs."
        ),
        f"{hours:.1f} hours of computing so far, on a machine that did other work too "
        f"({', '.join(machines)}; commit {', '.join(commits)}).",
        "\n".join(f"- **{one.title}**: {one.about}" for one in complete),
    ]
    if weighted := _weighted(found):
        lines.append(
            f"{', '.join(weighted)} weight a client's model by its number of examples, as their "
            "papers or codes do; the others, FedAvg and the oracle too, take plain means. Where "
            "sizes differ (quantity, dirichlet), that is a difference of its own."
        )
    if left := _left(found):
        lines.append(left)
    if failed:
        lines.append(f"Failed, as their job says: {', '.join(failed)}.")
    return lines


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
        "leaderboard: ranks of some methods change with the others. " + _left(found),
        "## Jobs that are done",
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


def _leaderboard(found: Results, shares: Relative) -> list[str]:
    """A row per method, the best mean rank first."""
    over = found.overall
    complete = found.complete
    names = [KNOWING, *shares.names]
    means = dict(zip(shares.names, shares.means.tolist(), strict=True)) | {KNOWING: 1.0}
    ranks = dict(zip(over.names, over.ranks.tolist(), strict=True)) if over else {}
    best = min(ranks.values(), default=np.nan)
    rows = []
    for name in sorted(names, key=lambda name: (ranks.get(name, np.inf), -means[name])):
        leads = sum(
            found.standing[one.arms[name].label].leads
            for one in complete
            if name in one.arms and one.arms[name].label in found.standing
        )
        row: list[object] = [name]
        if over is not None:
            rank = ranks.get(name)
            strong = rank is not None and rank - best < over.difference < np.inf
            text = "–" if rank is None else f"{rank:.1f}"
            row += [f"**{text}**" if strong else text, *_gain(over, name)]
        ran = sum(name in one.arms for one in complete)
        row.append("–" if np.isnan(means[name]) else f"{100 * means[name]:.1f}")
        row.append("–" if name == KNOWING else f"{leads} of {ran}")
        row += [_ratio(complete, name, cost) for cost in _COSTS]
        rows.append(row)
    head = ["method", *(["mean rank", "IQM", "95 % interval", "ahead of FedAvg"] if over else [])]
    head += ["of the oracle's (%)", "among the best", *_COSTS.values()]
    notes = [
        "Of the oracle's: the mean of a row of the figure. Among the best: federations in which it "
        "has the best mean, or no difference to that is shown (exact sign-flip test over seeds "
        "after Holm, and half a point).",
        "Sent, local steps, seconds: of a whole run, over FedAvg's in the same federation, "
        "geometric mean. Bytes and steps are exact; the seconds were taken beside other work and "
        "say little. FedAvg itself: " + _absolute(complete) + ".",
    ]
    if over is not None:
        notes.insert(
            0,
            "Mean rank: methods ranked in every federation by their mean over seeds, 1 the best. "
            "IQM: interquartile mean of all runs, in points of accuracy above FedAvg in the same "
            "seed, with a bootstrap interval over seeds. Ahead of FedAvg: share of runs, ties "
            "half. Methods that ran in every federation have a rank, but for the oracle, which is "
            f"told the groups. {significance(over)}"
            + (" Bold: not significantly behind the best." if np.isfinite(over.difference) else ""),
        )
    else:
        notes.insert(0, "Mean ranks need two federations or more.")
    return [table(head, rows, 1), *notes]


def _gain(over: Overall, name: str) -> list[str]:
    """IQM above FedAvg, its interval and how often it is ahead; dashes where there is none."""
    if name not in over.names or not over.reference or name == over.reference:
        return ["–", "–", "–"]
    runs = over.runs[name]
    low, high = stratified(runs)
    share = improvement(runs, over.runs[over.reference])
    middle = float(iqm(np.concatenate(runs)))
    return [_signed(middle), f"{_signed(low)} to {_signed(high)}", f"{100 * share:.0f} %"]


def _signed(value: float) -> str:
    shown = f"{value:+.1f}"
    return "0.0" if shown in ("+0.0", "-0.0") else shown.replace("-", "−")


def _ratio(complete: Sequence[Federation], name: str, cost: str) -> str:
    """A cost over FedAvg's, geometric mean over the federations."""
    ratios = []
    for one in complete:
        own, base = (one.arms[n].total(cost) if n in one.arms else [] for n in (name, _REFERENCE))
        if len(own) and len(base) and np.mean(base) > 0:
            ratios.append(float(np.mean(own) / np.mean(base)))
    if not ratios:
        return "–"
    return "0" if min(ratios) == 0 else f"{np.exp(np.mean(np.log(ratios))):.2g}"


def _absolute(complete: Sequence[Federation]) -> str:
    """What FedAvg costs, mean over the federations and seeds."""
    arms = [one.arms[_REFERENCE] for one in complete if _REFERENCE in one.arms]
    spent = {cost: float(np.mean([arm.total(cost).mean() for arm in arms])) for cost in _COSTS}
    size, unit = byte_unit(spent["bytes"])
    return (
        f"{spent['bytes'] / size:.3g} {unit}, {spent['gradient_steps']:,.0f} local steps, "
        f"{spent['seconds']:.0f} seconds a seed"
    )


def _ranks(found: Results, draw: Any) -> list[str]:
    over = found.overall
    figure = diagrams.critical_difference(over) if over is not None else None
    if figure is None:
        return []
    return [
        "### Do the ranks differ?",
        *draw("critical_difference", figure),
        "Bars join methods whose mean ranks do not differ significantly. The diagram depends on "
        "who else is in it; the paired tests within each federation do not.",
    ]


def _tuned(found: Results) -> list[str]:
    """What a search on validation data changes: a row per method, the best mean rank first."""
    head = "## Tuned on validation data"
    if found.tuned is None:
        return []
    cases = {one.case for one in found.complete}
    both = [one.case for one in found.tuned.complete if one.case in cases]
    tuned, default = found.tuned.only(both), found.only(both)
    if not both or tuned.shares is None or default.shares is None:
        return [head, f"In no federation did every method run tuned yet. {_left(found.tuned)}"]
    over, before = tuned.overall, default.overall
    ranks = dict(zip(over.names, over.ranks.tolist(), strict=True)) if over else {}
    old = dict(zip(before.names, before.ranks.tolist(), strict=True)) if before else {}
    means = dict(zip(tuned.shares.names, tuned.shares.means.tolist(), strict=True))
    were = dict(zip(default.shares.names, default.shares.means.tolist(), strict=True))
    rows = []
    for name in sorted(means, key=lambda name: (ranks.get(name, np.inf), -means[name])):
        gains, rates = _gains(tuned, default, name)
        if not gains:
            continue
        low, high = stratified(gains)
        rows.append(
            [
                name,
                *(_two_ranks(name, ranks, old) if ranks else ()),
                f"{100 * means[name]:.1f}",
                f"{100 * were.get(name, np.nan):.1f}",
                _signed(float(iqm(np.concatenate(gains)))),
                f"{_signed(low)} to {_signed(high)}",
                _span([float(one.mean()) for one in gains]),
                f"{min(rates):.2g} to {max(rates):.2g}" if len(rates) > 1 else f"{rates[0]:.2g}",
            ]
        )
    search = tuned.searches[0]
    common = [name for name in ranks if name in old]
    notes = [
        f"Every method was searched alike in {counted(len(both), 'federation')} "
        f"({', '.join(one.title for one in tuned.complete)}) with the rounds of "
        f"{search.get('trials')} whole trials (one that is stopped early, or fails, leaves its "
        "rounds to others), the first with the default settings, of the learning rate and what "
        f"`conf/space` has for the method, on {counted(len(search['seeds']), 'seed')} of its own, "
        f"judged in the last round by {100 * float(search['validation']):.0f} % of each client's "
        "training examples, which no method sees. What was found then ran on all training "
        f"examples with the seeds of the table above. {_left(found.tuned)}".rstrip(),
        "Gain: interquartile mean of accuracy tuned minus default in the same seed and federation, "
        "in points, with a bootstrap interval over seeds; below 0 where a setting that was best on "
        "few validation examples is not on test data. It is the middle half of all runs, so one "
        "federation of three may be hardly in it: the lowest and the highest mean of a federation "
        "stand beside it. Of the oracle's: in percent of what the "
        "oracle reaches with the same kind of settings. Learning rate: the lowest and highest "
        "found.",
    ]
    if len(common) > 2:
        tau = kendalltau([ranks[name] for name in common], [old[name] for name in common]).statistic
        notes.append(
            f"The order of the methods before and after tuning agrees with Kendall's τ = {tau:.2f} "
            "(1: the same order, 0: none in common)."
        )
    titles = ["method", *(["mean rank", "default rank"] if ranks else ())]
    titles += ["of the oracle's (%)", "default (%)", "gain", "95 % interval"]
    titles += ["by federation", "learning rate"]
    return [head, notes[0], table(titles, rows, 1), *notes[1:]]


def _span(means: Sequence[float]) -> str:
    """The lowest and the highest mean of the federations."""
    return f"{_signed(min(means))} to {_signed(max(means))}"


def _two_ranks(name: str, *ranks: Mapping[str, float]) -> list[str]:
    return [f"{of[name]:.1f}" if name in of else "–" for of in ranks]


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


def _shifts(found: Results, shares: Relative) -> list[str]:
    """A line per federation: what knowing the groups, one model, and training alone reach there."""
    rows = []
    for one in found.complete:
        place = shares.settings.index(one.title)
        column = shares.shares[:, place]
        leads = [
            name
            for name, arm in one.arms.items()
            if arm.label in found.standing and found.standing[arm.label].leads
        ]
        below = int((column < shares.common[place]).sum())
        known = int(np.isfinite(column).sum()) - 1  # but for FedAvg itself
        accuracy = [_accuracy(one, name) for name in (KNOWING, _REFERENCE, _ALONE)]
        shown = ", ".join(leads[:8]) + (f" and {len(leads) - 8} more" if len(leads) > 8 else "")
        rows.append([one.title, *accuracy, f"{below} of {known}", shown])
    head = ["shift", "oracle", "FedAvg", "Local", "below FedAvg", "among the best"]
    note = (
        "Accuracy in percent, mean ± standard deviation over seeds. Below FedAvg: methods of all "
        "that ran. The gap from FedAvg to the oracle is what knowing the groups is worth."
    )
    return [table(head, rows, 1, left=5), note]


def _accuracy(one: Federation, name: str) -> str:
    values = 100 * one.arms[name].last("accuracy") if name in one.arms else np.empty(0)
    return f"{values.mean():.1f} ± {values.std():.1f}" if len(values) else "–"


def _methods(found: Results, shares: Relative) -> list[str]:
    """A line per method: where it is good, where it fails, what became of the groups."""
    lines = []
    for name, row in zip(shares.names, shares.shares, strict=True):
        ranked = [(s, t, c) for s, t, c in zip(row, shares.settings, shares.common, strict=True)]
        ranked = sorted((entry for entry in ranked if np.isfinite(entry[0])), reverse=True)
        good = [f"{title} ({percent(share)} %)" for share, title, _ in ranked if share >= _GOOD]
        poor = [
            f"{title} ({percent(share)} %)" for share, title, _ in reversed(ranked) if share < _POOR
        ]
        below = [title for share, title, common in ranked if share < common]
        said = [
            f"good at {_few(good)}" if good else "nowhere good",
            *([f"poor at {_few(poor)}"] if poor else []),
            *([f"below FedAvg in {_few(below)}"] if below and name != _REFERENCE else []),
        ]
        groups = _groups(found, name)
        lines.append(f"- **{name}**: {'; '.join(said)}.{' ' + groups if groups else ''}")
    note = (
        f"Good: at least {100 * _GOOD:.0f} % of the oracle's accuracy; poor: less than "
        f"{100 * _POOR:.0f} %. What became of the true groups is counted over seeds."
    )
    return [note, "\n".join(lines)]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


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
        "The probability that two clients of different groups are farther apart than two of one "
        "group, by the distance that the method clusters by, first seed: 1 where a threshold "
        "divides the groups without a mistake, 0.5 where the distance says nothing of them. A "
        "method with a high number that still mixes groups fails in the clustering; one with a "
        "low number never saw them.",
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
        "Which clients are in which cluster over rounds, of the method with the best and of the "
        "one with the worst accuracy among those whose clients move."
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
    searched = cases = ""
    if found.tuned:  # in fewer federations than there are
        seeds = ",".join(map(str, found.tuned.searches[0]["seeds"]))
        cases = f" case={','.join(one.case for one in found.tuned.complete)}"
        searched = f"{cases} 'tuning_seeds=[{seeds}]'"
    commands = "\n".join(
        [
            "```",
            f"fedclust run experiment={EXPERIMENT}{scale}",
            f"fedclust run experiment={EXPERIMENT}{scale} algorithm=mine --config-dir DIR",
            f"fedclust tune experiment={EXPERIMENT}{scale}{searched}",
            f"fedclust run experiment={EXPERIMENT}{scale}{cases} tuned={runs}-tuning",
            f"make leaderboard RUNS={runs}",
            "make leaderboard                # this page, from the jobs in docs/benchmark/runs",
            "```",
        ]
    )
    return [
        commands,
        "The second command adds a method of your own (`fedclust example own_algorithm` writes "
        "one) to the same folder, and so to every table and figure here. The third and fourth "
        "search settings on validation data and run every method with them. "
        "`scripts/papers/campaign.py run --list scripts/papers/benchmark.yaml` runs it "
        "federation by federation in the background, through any interruption. CIFAR-10 as a file "
        "of your own: `dataset=npz dataset.path=FILE` with the two cases that use it. The oracle "
        "is refused under dirichlet, which has no groups; the other jobs run.",
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
            text, of_seeds = page(found, asked.to.with_suffix(""), reading), scores(found)
    except UserError as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return UserError.exit_status
    atomic_write(asked.to.with_suffix("") / "scores.csv", of_seeds)
    atomic_write(asked.to, text)
    print(asked.to)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
