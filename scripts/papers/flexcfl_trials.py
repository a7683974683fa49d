"""FlexCFL's tables run in other ways: causes, all rules of its code at once, seeds of the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from fedclust.helpers.prose import table
from scripts.papers import as_released
from scripts.papers.cells import Cell, Runs, algorithm_of, case_of, in_place, measure, scenario_of
from scripts.papers.one_world import printed_scores, runs_by_arm
from scripts.papers.rules import agrees
from scripts.papers.stand_ins import stand_in
from scripts.papers.tables import mean_and_std

# experiments that run a table again in another way: the table, its title, what is different, and
# what an option of a run begins with that is different
_ONE_CLIENT = "one client as a cluster's mean"
_VARIANTS = {
    "flexcfl/table3_one_client": ("flexcfl/table3", "Table III", _ONE_CLIENT, ""),
    "flexcfl/table4_one_client": ("flexcfl/table4", "Table IV", _ONE_CLIENT, ""),
    "flexcfl/table4_released": ("flexcfl/table4", "Table IV", "the released test of a shift", ""),
    "flexcfl/fesem_start": (
        "flexcfl/table3",
        "Table III",
        "models trained once as the start",
        "algorithm.first_assignment=kmeans_pretrained",
    ),
    "flexcfl/femnist_sharing": (
        "flexcfl/table3",
        "Table III",
        "no image twice",
        "partition.sharing=disjoint",
    ),
    "flexcfl/table4": ("flexcfl/table4", "Table IV", "", "scenario."),
}
_VARIANTS_OF_TABLES = ("flexcfl/table3", *_VARIANTS)
_SPREADS = "flexcfl/table1_spread"
_SHIFTS = {"static": "no shift"}  # other scenarios by their names


def tested_causes(runs: Runs, cells: Sequence[Cell]) -> list[str]:
    """What each variant that a released code or a paper suggests makes of FlexCFL's scores,
    whether it comes nearer to the printed one or not.
    """
    printed = {
        (c.row["experiment"], case_of(c.row), scenario_of(c.row), algorithm_of(c.row)): c
        for c in cells
        if c.row["paper"] == "FlexCFL" and c.row["metric"] == "test_acc"
    }
    rows = []
    for experiment, (base, title, what, option) in _VARIANTS.items():
        for run in runs.of(experiment):
            made = run.made
            cell = printed.get((title, made["case"], made["scenario"], made["algorithm"]))
            values = run.seeds.get("accuracy max", ())
            alike = {key: made[key] for key in ("case", "scenario", "dataset")}
            usual = runs.find(base, made["algorithm"], **alike)
            other = not option or any(o.startswith(option) for o in made["options"].split())
            if cell is None or not values or not usual or not other:
                continue
            ours = max(usual, key=lambda one: len(one.seeds["accuracy max"]))
            shift = _SHIFTS.get(made["scenario"], made["scenario"].replace("_", " "))
            name = made["case"] + (f" ({other_data})" if (other_data := stand_in(made)) else "")
            options = " ".join(o for o in made["options"].split() if o.startswith("scenario."))
            rows.append(
                [
                    f"{title}, {name}, {shift}",
                    cell.row["algorithm"],
                    ", ".join(part for part in (what, options and f"`{options}`") if part),
                    cell.row["mean"],
                    mean_and_std(ours.seeds["accuracy max"]),
                    mean_and_std(values),
                    len(values),
                ]
            )
    if not rows:
        return []
    head = ["setting", "method", "tested", "printed", "ours", "with it", "seeds"]
    note = (
        "Every variant of FlexCFL's Tables III and IV that was run, also where it leads away from "
        "the printed number: best accuracy over the rounds, in percent, mean and standard "
        "deviation over seeds. What was tried for its other tables, for CFL-MGD and for JGL stands "
        "on the [papers' own pages](README.md#what-else-was-run)."
    )
    return ["## Causes that were tested", note, table(head, sorted(rows, key=lambda r: r[:3]), 3)]


def spreads(runs: Runs, cells: Sequence[Cell]) -> list[str]:
    """How many numbers of Table I agree with each spread of the clients' sizes that was run."""
    agreeing = agreeing_spreads(runs, cells)
    if not agreeing:
        return []
    rows = [[spread, sum(told), len(told)] for spread, told in sorted(agreeing.items())]
    note = (
        "The paper calls the sizes of the clients a power law and does not say how far they spread "
        "(the standard deviation of the logarithm of a client's share of a class). Every spread "
        "was run for the whole table but its IID row, five seeds; 2 is that of FedProx's generator "
        "and the one beside the printed table. The spread that agrees most often is the tested "
        "cause there. It was chosen by these very numbers, so that some of its agreement is the "
        "choice's."
    )
    head = ["spread", "numbers that agree", "of"]
    return ["## Table I with other spreads of the clients' sizes", note, table(head, rows, 0)]


def agreeing_spreads(runs: Runs, cells: Sequence[Cell]) -> dict[str, list[bool]]:
    """By spread, which numbers of Table I agree, of those that were run with it."""
    found: dict[str, list[bool]] = {}
    for option in dict.fromkeys(run.made["options"] for run in runs.of(_SPREADS)):
        wanted = {"experiment": _SPREADS, "options": option}
        for cell in cells:
            if cell.row["experiment"] == "Table I" and cell.measured is not None:
                placed = in_place(runs, cell.row, wanted, cell.measured.seeds)
                if (shown := measure(cell.row, placed)) is not None:
                    found.setdefault(option.partition("=")[2], []).append(agrees(cell.row, shown))
    return found


def both_ways(runs: Runs, cells: Sequence[Cell]) -> list[str]:
    """FlexCFL's Table IV in two worlds: all rules of the paper, all rules of its code."""
    count, written, released = as_released.counts(runs, cells)
    if not count:
        return []
    note = (
        f"Of {count} cells that were run both ways {written} agree with all rules as the paper "
        f"writes them, and {released} with all rules of the released code at once: one client as a "
        "cluster's mean for IFCA and FeSEM, its test of a shift, `abort_round`, `shrink_current` "
        "and `complete_start` (`scripts/papers/as_released.py`). No cell chooses a rule of its "
        "own. Best accuracy over the rounds in percent, as many seeds on both sides; * is "
        "reproduced or consistent."
    )
    head = ["setting", "method", "printed", "as written", "as released"]
    return [
        "## FlexCFL's Table IV, as written and as released",
        note,
        table(head, as_released.rows(runs, cells), 2),
    ]


def data_seeds(runs: Runs, cells: Sequence[Cell]) -> list[str]:
    """FlexCFL's Synthetic(1,1) over seeds of the data, beside the printed rows."""
    by_arm, printed = runs_by_arm(runs), printed_scores(cells)
    if not by_arm:
        return []
    rows = []
    for (scenario, options, method), of in sorted(by_arm.items()):
        ascending = sorted(values[0] for values in of.values())
        paper = printed.get((scenario, method), "")
        shift = "no shift" if scenario == "static" else scenario.replace("_", " ")
        shift = f"{shift}, `{options}`" if options else shift
        spread = f"{ascending[0]:.2f} to {ascending[-1]:.2f}"
        below = sum(value < float(paper or "nan") for value in ascending)
        beside = (paper, below) if paper else ("–", "–")
        one = _on_one(runs, scenario, options, method)
        line = [shift, method, len(of), mean_and_std(ascending), spread, *beside]
        rows.append([*line, mean_and_std(one) if one else "–"])
    flex, rac = (by_arm.get(("static", "", name), {}) for name in ("flexcfl", "flexcfl_rac"))
    common = sorted(set(flex) & set(rac))
    equal = sum(math.isclose(fmean(flex[s]), fmean(rac[s]), abs_tol=5e-3) for s in common)
    head = ["shift", "method", "data seeds", "mean ± s", "lowest to highest", "printed"]
    head += ["data seeds below it", "five runs on the data of seed 21"]
    return [
        "## FlexCFL's Synthetic(1,1) over data seeds",
        "Best accuracy over rounds, one run on every seed of the data. The seed of the published\n"
        "data is not known. Runs on the data of one seed differ much less than the data do: their\n"
        "spread tells nothing of how far a number on other data may lie.",
        table(head, rows, 2),
        f"FlexCFL and RAC agree to two decimals for {equal} of {len(common)} data seeds:\nall "
        "100 clients are in the cold start, so nobody joins later, at random or not.",
    ]


def _on_one(runs: Runs, scenario: str, options: str, method: str) -> tuple[float, ...]:
    """The best accuracies of several runs on one data set, that of the tables' own config."""
    named = {"scenario": scenario, "options": options, "algorithm": method, "dataset": "synthetic"}
    found = (
        run.seeds.get("accuracy max", ())
        for table in _VARIANTS_OF_TABLES
        for run in runs.made_for(table)
        if all(run.made[key] == value for key, value in named.items())
    )
    return max(found, key=len, default=())
