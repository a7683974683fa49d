"""One seed of the data for all cells of FlexCFL's Synthetic(1,1), as the authors had one data set.

Tables III and IV print 25 numbers on it. Where each may choose its own seed of the data, hardly any
can fail; here one seed must serve them all. How likely a fit as good is by chance is told by the
same search for printed rows in which the methods' numbers are exchanged at random.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

from fedclust.helpers.prose import table
from scripts.papers.cells import Cell, Runs, algorithm_of, matches, scenario_of

_WITHIN = 1.0  # points: most of the kept seeds of the data have one run under shift
_SHUFFLES = 1000
_DATA = "dataset.data_seed="
Place = tuple[str, str]  # scenario and algorithm


def fits(means: Mapping[Place, float], printed: Mapping[Place, float]) -> int:
    """How many printed numbers lie within a point of ours."""
    return sum(
        abs(means[place] - value) <= _WITHIN for place, value in printed.items() if place in means
    )


def runs_by_arm(runs: Runs) -> dict[tuple[str, str, str], dict[int, tuple[float, ...]]]:
    """Best accuracies over rounds of all runs by scenario, further options and method, and by data
    seed.
    """
    found: dict[tuple[str, str, str], dict[int, tuple[float, ...]]] = {}
    for run in (*runs.of("flexcfl/synthetic_seeds"), *runs.of("flexcfl/synthetic_seeds_shift")):
        if values := run.seeds.get("accuracy max", ()):
            options = run.made["options"].split()
            (seed,) = (one.removeprefix(_DATA) for one in options if one.startswith(_DATA))
            others = " ".join(one for one in options if not one.startswith(_DATA))
            arm = run.made["scenario"], others, run.made["algorithm"]
            found.setdefault(arm, {})[int(seed)] = values
    return found


def printed_scores(cells: Sequence[Cell]) -> dict[Place, str]:
    """What Tables III and IV print of the methods on Synthetic(1,1)."""
    wanted = {"paper": "FlexCFL", "dataset": "Synthetic(1,1)", "metric": "test_acc"}
    return {
        (scenario_of(cell.row), algorithm_of(cell.row)): cell.row["mean"]
        for cell in cells
        if matches(cell.row, wanted) and cell.row["experiment"] in ("Table III", "Table IV")
    }


def chance(
    means: Mapping[int, Mapping[Place, float]], printed: Mapping[Place, float], best: int
) -> int:
    """How many of the shuffled printed rows some seed of the data fits as well as `best`."""
    drawn = random.Random(0)
    hits = 0
    for _ in range(_SHUFFLES):
        shuffled: dict[Place, float] = {}
        for scenario in dict.fromkeys(scenario for scenario, _ in printed):
            places = [place for place in printed if place[0] == scenario]
            values = [printed[place] for place in places]
            drawn.shuffle(values)
            shuffled |= dict(zip(places, values, strict=True))
        hits += max(fits(one, shuffled) for one in means.values()) >= best
    return hits


def told(runs: Runs, cells: Sequence[Cell]) -> list[str]:
    """The part of the page; nothing without runs."""
    printed = {place: float(text) for place, text in printed_scores(cells).items() if text}
    means: dict[int, dict[Place, float]] = {}
    for (scenario, options, method), by_seed in runs_by_arm(runs).items():
        for seed, values in by_seed.items() if not options else ():
            means.setdefault(seed, {})[scenario, method] = fmean(values)
    if not means:
        return []
    most = max(len(one) for one in means.values())
    whole = {seed: one for seed, one in means.items() if len(one) == most}
    many = f"The authors had one data set for all {len(printed)} numbers on Synthetic(1,1). "
    kept = "Five runs without a shift, one run with it."
    parts = [
        "## One seed of the data for all of Synthetic(1,1)",
        *_searched(whole, printed, many, kept),
    ]
    if len(whole) < len(means):
        parts += _searched(means, printed, "More seeds of the data were run with few methods. ", "")
    return parts


def _searched(
    means: Mapping[int, Mapping[Place, float]], printed: Mapping[Place, float], head: str, tail: str
) -> list[str]:
    """How well the best seeds of the data fit the numbers that all of them have, and by chance."""
    known = {p: v for p, v in printed.items() if all(p in one for one in means.values())}
    counts = {seed: fits(one, known) for seed, one in sorted(means.items())}
    best = max(counts.values())
    seeds = [str(seed) for seed, count in counts.items() if count == best]
    methods = ", ".join(sorted({method for _, method in known}))
    note = (
        f"{head}Of {len(known)} that were run with each of {len(means)} seeds of the data "
        f"({methods}), no seed has more than {best} within a point of the printed one (seed "
        f"{', '.join(seeds)}). A fit as good, or better, is found in {chance(means, known, best)} "
        f"of {_SHUFFLES:,} searches in which the printed numbers of every shift are exchanged "
        f"among the methods at random. {tail}"
    )
    often = Counter(counts.values())
    rows = [[count, often[count]] for count in sorted(often, reverse=True)]
    return [note.strip(), table(["numbers within a point", "seeds of the data"], rows, 1)]
