"""Measures how often `fedclust advise` errs, on drawn federations whose truth is known.

python -m scripts.docs.adviser run FOLDER KIND ROWS FIRST LAST  # federations with these seeds
python -m scripts.docs.adviser write FOLDER                     # the tables of docs/adviser.md
python -m scripts.docs.adviser natural FOLDER                   # that of natural federations, from
                                                                # FOLDER/NAME/advice/verdict.json

Each federation is a table of binary labels and five inputs, of opposite and wide more. A finished
one is not run again. Kinds and truths stand in `KINDS`; ROWS is the mean number of rows of a
client.
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedclust.commands.advise import searches_of
from fedclust.helpers import prose
from fedclust.launch.typed import Typed
from fedclust.metrics.contingency import contingency
from fedclust.metrics.recovery import adjusted_rand_index
from fedclust.runtime.progress import Silent
from fedclust.tuning.one_search import Search
from fedclust.tuning.tuned import with_values

PAGE = Path(__file__).parents[2] / "docs" / "adviser.md"
RESULTS = PAGE.with_suffix(".csv")
FIELDS = ("kind", "rows", "seed", "verdict", "choice", "left", "groups_gain", "low", "high")
FIELDS += ("p", "agreement", "count", "ari", "best", "redrawn", "scores")
# what the choice gives away against the best mean, from the scores, in the CSV that is kept
GIVEN = "given_away"
# four methods, two rates and 8 rounds, so that a federation takes seconds; fewer choices without
# groups make it easier for groups to be better than each, so errors are rather more frequent
FEWER = (
    *("algorithm=local,fedavg,ifca,lcfl", "num_clusters=2,3", "solver.lr=0.03,0.3"),
    *("rounds=8", "eval_every=8"),
)
_INPUTS, _STRENGTH = 5, 2.0
_POINT = 0.01  # the margin of accuracies and scores, which are shown in percent
Floats = npt.NDArray[np.float64]
Drawn = tuple[Floats, npt.NDArray[np.int64]]  # inputs and labels


@dataclass(frozen=True)
class Kind:
    """A kind of federation.

    Attributes:
        truth: the choices that are right; none of a null kind is groups.
        clients: how many.
        draw: inputs and labels of a client, from a generator, its rows, its number and the seed.
        sizes: rows of every client, from a generator, their mean and how many clients there are.
        grouped: whether clients of even and of odd numbers are two true groups.
    """

    truth: tuple[str, ...]
    clients: int
    draw: Callable[[np.random.Generator, int, int, int], Drawn]
    sizes: Callable[[np.random.Generator, int, int], npt.NDArray[np.int64]] = lambda _, n, m: (
        np.full(m, n)
    )
    grouped: bool = False


def _labels(x: Floats, weights: Floats, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Labels of a logistic model with these weights [5]."""
    return (rng.random(len(x)) < 1 / (1 + np.exp(-x @ weights))).astype(np.int64)


def _weights(*key: int) -> Floats:
    """A direction of length `_STRENGTH`; those of two keys are nearly orthogonal on average."""
    drawn = np.random.default_rng([17, *key]).normal(size=_INPUTS)
    return _STRENGTH * drawn / np.linalg.norm(drawn)


def _alike(rng: np.random.Generator, rows: int, _: int, seed: int) -> Drawn:
    x = rng.normal(size=(rows, _INPUTS))
    return x, _labels(x, _weights(seed), rng)


def _noise(rng: np.random.Generator, rows: int, *_: int) -> Drawn:
    return rng.normal(size=(rows, _INPUTS)), rng.integers(2, size=rows)


def _relation(rng: np.random.Generator, rows: int, client: int, seed: int) -> Drawn:
    """The second group has a relation orthogonal to that of the first."""
    x, one = rng.normal(size=(rows, _INPUTS)), _weights(seed)
    other = _weights(seed, 1)
    other = other - one * (other @ one) / (one @ one)
    other *= _STRENGTH / np.linalg.norm(other)
    return x, _labels(x, (one, other)[client % 2], rng)


def _shares(rng: np.random.Generator, rows: int, client: int, seed: int) -> Drawn:
    """Inputs given the label are alike, the share of ones is a fifth or four fifths."""
    y = (rng.random(rows) < (0.2, 0.8)[client % 2]).astype(np.int64)
    middle = _weights(seed) / 2
    return rng.normal(size=(rows, _INPUTS)) + np.where(y[:, None] == 1, middle, -middle), y


def _inputs(rng: np.random.Generator, rows: int, client: int, seed: int) -> Drawn:
    """Inputs lie elsewhere in the second group, the relation is one."""
    far = np.random.default_rng([19, seed]).normal(size=_INPUTS)
    x = rng.normal(size=(rows, _INPUTS)) + (client % 2) * far
    return x, _labels(x, _weights(seed), rng)


def _own(rng: np.random.Generator, rows: int, client: int, seed: int) -> Drawn:
    """Every client has a relation of its own."""
    x = rng.normal(size=(rows, _INPUTS))
    return x, _labels(x, _weights(seed, 100 + client), rng)


def _opposite(
    rng: np.random.Generator, rows: int, client: int, seed: int, inputs: int = 20
) -> Drawn:
    """Of twenty inputs; what makes ill in the first group protects in the second."""
    weights = np.random.default_rng([29, seed]).normal(size=inputs)
    weights *= 2 * _STRENGTH / np.linalg.norm(weights)
    x = rng.normal(size=(rows, len(weights)))
    return x, _labels(x, (1, -1)[client % 2] * weights, rng)


def _wide(rng: np.random.Generator, rows: int, client: int, seed: int) -> Drawn:
    """The same with two inputs for every five rows of a client, so that more rows do not make a
    model for each client good enough.
    """
    return _opposite(rng, rows, client, seed, inputs=2 * rows // 5)


def _mixed(rng: np.random.Generator, rows: int, client: int, seed: int) -> Drawn:
    """Rows of both groups of `_opposite`: a fifth of the other one's."""
    (x, y), (_, other) = (
        _opposite(np.random.default_rng([31, seed, client, rows]), rows, one, seed)
        for one in (client, client + 1)
    )
    return x, np.where(rng.random(rows) < 0.2, other, y)


def _noisy(rng: np.random.Generator, rows: int, client: int, seed: int) -> Drawn:
    """The inputs of the second group are measured with noise, the relation is one."""
    x, y = _alike(rng, rows, client, seed)
    return x + (client % 2) * 1.5 * rng.normal(size=x.shape), y


def _own_shares(rng: np.random.Generator, rows: int, client: int, seed: int) -> Drawn:
    """Inputs given the label are alike, every client has a share of ones of its own."""
    share = np.random.default_rng([37, seed, client]).beta(0.5, 0.5)
    y = (rng.random(rows) < share).astype(np.int64)
    middle = _weights(seed) / 2
    return rng.normal(size=(rows, _INPUTS)) + np.where(y[:, None] == 1, middle, -middle), y


def _unequal(rng: np.random.Generator, rows: int, clients: int) -> npt.NDArray[np.int64]:
    """Sizes that differ up to tenfold and more, ten rows at least."""
    shares = rng.dirichlet(np.ones(clients))
    return np.maximum(10, (shares * rows * clients).astype(np.int64))


NULL = {
    "iid": Kind(("one", "adapted"), 6, _alike),
    "unequal": Kind(("one", "adapted"), 6, _alike, _unequal),
    "noise": Kind(("alone", "one", "adapted"), 6, _noise),
}
PLANTED = {
    "relation": Kind(("groups",), 8, _relation, grouped=True),
    "shares": Kind(("groups",), 8, _shares, grouped=True),
    "inputs": Kind(("one",), 8, _inputs),
    "own": Kind(("alone", "adapted"), 8, _own),
    "opposite": Kind(("groups",), 12, _opposite, grouped=True),
    "wide": Kind(("groups",), 12, _wide, grouped=True),
    "sizes": Kind(("groups",), 12, _opposite, _unequal, grouped=True),
    "mixed": Kind(("groups",), 12, _mixed, grouped=True),
    "noisy": Kind(("one",), 8, _noisy),
    "dirichlet": Kind(("alone", "adapted"), 8, _own_shares),
}
KINDS = NULL | PLANTED
# the kinds without groups, by how their clients compare
WITHOUT = {"all alike": tuple(NULL), "all different": ("own", "dirichlet")}


def table(kind: str, rows: int, seed: int) -> pd.DataFrame:
    """A federation: columns x0, x1, …, ill and site."""
    known, parts = KINDS[kind], []
    rng = np.random.default_rng([23, list(KINDS).index(kind), rows, seed])
    for client, size in enumerate(known.sizes(rng, rows, known.clients)):
        x, y = known.draw(rng, int(size), client, seed)
        part = pd.DataFrame(x, columns=[f"x{place}" for place in range(x.shape[1])])
        parts.append(part.assign(ill=y, site=f"site {client}"))
    return pd.concat(parts, ignore_index=True)


@cache
def _searches(*more: str) -> list[tuple[str, Search]]:
    """The methods, and what is searched of them, but for the file."""
    data = ("dataset.label=ill", "dataset.client=site")
    typed = Typed(("experiment=advise", *data, *FEWER, *more, "progress=false"), many=False)
    return searches_of(typed, lambda *_: None)


def advised(kind: str, rows: int, seed: int, folder: Path, *more: str) -> dict[str, object]:
    """What is advised for one federation, a value for each of `FIELDS`."""
    from fedclust.advise.advise import Asked, advise
    from fedclust.advise.evidence import agreed
    from fedclust.report.statistics.paired import paired

    folder.mkdir(parents=True, exist_ok=True)
    file, jobs = folder / f"{kind}-{rows}-{seed}.csv", folder / f"{kind}-{rows}-{seed}"
    table(kind, rows, seed).to_csv(file, index=False)
    own = {"dataset.path": str(file)}
    searches = [
        (choice, replace(one, folder=jobs, config=with_values(one.config, own)))
        for choice, one in _searches(*more)
    ]
    asked = Asked(budget=4, permutations=39)
    advice = advise(searches, jobs, asked, lambda *_: None, Silent())
    shutil.rmtree(jobs)
    file.unlink()
    made, one = advice.verdict, advice.repetitions
    lead = paired(one.sign * (one.scores["groups"] - one.others), one.redrawn)
    truth = np.arange(KINDS[kind].clients) % 2
    return {
        "kind": kind,
        "rows": rows,
        "seed": seed,
        "verdict": made.kind,
        "choice": made.choice,
        "left": " ".join(made.left),
        "groups_gain": round(lead.mean, 5),
        "low": round(lead.low, 5),
        "high": round(lead.high, 5),
        "p": round(advice.evidence.p, 4),
        "agreement": round(advice.evidence.agreement, 3),
        "ari": round(adjusted_rand_index(contingency(agreed(advice.together), truth)), 3),
        "best": made.best,
        "count": advice.evidence.count,
        "redrawn": round(one.redrawn, 5),
        "scores": json.dumps({c: np.round(v, 5).tolist() for c, v in one.scores.items()}),
    }


def measure(folder: Path, kind: str, rows: int, first: int, last: int) -> None:
    """Run the federations that have no line in `KIND-ROWS.csv` of the folder yet."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"results-{kind}-{rows}.csv"
    done = set(pd.read_csv(kept)["seed"]) if kept.is_file() else set()
    for seed in range(first, last + 1):
        if seed in done:
            continue
        row = advised(kind, rows, seed, folder)
        is_new = not kept.is_file()
        with kept.open("a", newline="", encoding="utf-8") as out:
            writer = csv.DictWriter(out, FIELDS)
            if is_new:
                writer.writeheader()
            writer.writerow(row)
        print(row, flush=True)


def _share(part: int, whole: int) -> str:
    """A count with its exact 95 % interval (Clopper and Pearson), in percent."""
    from scipy.stats import binomtest

    low, high = binomtest(part, whole).proportion_ci(method="exact")
    return f"{part} of {whole} ({100 * low:.0f} to {100 * high:.0f} %)"


def null(table: pd.DataFrame) -> str:
    """The table of federations without groups, with a row for all whose clients are alike, and one
    for all whose clients each differ.
    """
    lines = []
    for title, kinds in WITHOUT.items():
        some = table[table["kind"].isin(kinds)]
        parts = sorted(some.groupby(["kind", "rows"]), key=lambda part: kinds.index(part[0][0]))
        for (kind, rows), few in [*parts, ((f"**{title}**", ""), some)]:
            told = few["verdict"] != "open"
            groups = told & (few["choice"] == "groups")
            counts = (groups, few["low"] > 0, told & ~groups, ~told)
            shares = [_share(int(one.sum()), len(few)) for one in counts]
            lines.append([f"{kind}", f"{rows}", *shares])
    head = ["federations", "rows of a client", "groups claimed", "interval of groups above 0"]
    head += ["another choice claimed", "cannot be told"]
    return prose.table(head, lines, 5)


def planted(table: pd.DataFrame) -> str:
    """The table of federations with planted differences, and its sums."""
    lines, sums = [], np.zeros(4, dtype=np.int64)
    for (kind, rows), some in table[table["kind"].isin(PLANTED)].groupby(["kind", "rows"]):
        truth, told = KINDS[str(kind)].truth, some["verdict"] != "open"
        right = int((told & some["choice"].isin(truth)).sum())
        left = some["left"].str.split().map(lambda names, truth=truth: bool({*names} & {*truth}))
        opened = int((~told & left).sum())
        good = int((told & ~some["choice"].isin(truth) & (some[GIVEN] < _POINT)).sum())
        wrong = len(some) - right - opened - good
        sums += [right, good, opened, wrong]
        found = f"{int((some['ari'] == 1).sum())}" if KINDS[str(kind)].grouped else "–"
        away = f"{100 * some[GIVEN].mean():.1f}"  # of those whose scores are kept
        lines.append([f"{kind} ({len(some)})", rows, right, good, opened, wrong, found, away])
    head = ["federations", "rows of a client", "right", "as good", "open", "wrong"]
    made = prose.table([*head, "groups exactly found", "given away, points"], lines, 1)
    right, good, opened, wrong = sums.tolist()
    grouped = table[table["kind"].isin([kind for kind in PLANTED if KINDS[kind].grouped])]
    exact = int((grouped["ari"] == 1).sum())
    of = f"Of these {sums.sum()} verdicts"
    return (
        f"{made}\n\n{of} {right} are right, {good} as good, {opened} open, {wrong} wrong.\nWhere "
        "there are two true groups, those that the repetitions agree on are exactly these in "
        f"{exact}\nof {len(grouped)} federations."
    )


def _given(scores: str, choice: str) -> float:
    """What a choice gives away against the best mean, of the scores as they are kept."""
    means = {one: float(np.mean(values)) for one, values in json.loads(scores).items()}
    return round(max(means.values()) - means[choice], 5)


def write(folder: Path) -> None:
    """Add the lines of all finished federations to `RESULTS`, and write the tables of `PAGE`."""
    parts = [pd.read_csv(file) for file in sorted(folder.rglob("results-*.csv"))]
    new = pd.concat(parts, ignore_index=True)
    new[GIVEN] = [_given(*row) for row in zip(new["scores"], new["choice"], strict=True)]
    whole = pd.concat([pd.read_csv(RESULTS), new.drop(columns="scores")], ignore_index=True)
    kept = whole.drop_duplicates(["kind", "rows", "seed"], keep="last")
    kept.sort_values(["kind", "rows", "seed"]).to_csv(RESULTS, index=False, lineterminator="\n")
    for name, made in (("null", null(kept)), ("planted", planted(kept))):
        _replace(name, made)


def _replace(name: str, made: str) -> None:
    """Put a table between its marks on the page."""
    text = PAGE.read_text(encoding="utf-8")
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = text.partition(begin)
    PAGE.write_text(f"{before}{begin}{made}\n{end}{rest.partition(end)[2]}", encoding="utf-8")


def _natural(folder: Path) -> str:
    """The table of what was said of natural federations."""
    names = {"alone": "alone", "one": "one model", "adapted": "adapted", "groups": "groups"}
    rows = []
    for file in sorted(folder.glob("*/advice/verdict.json")):
        said = json.loads(file.read_text(encoding="utf-8"))
        made, times = said["verdict"], 1 if said["margin"] != _POINT else 100
        told = f"{made['kind']}: {', '.join(names[choice] for choice in made['left'])}"
        means = [float(np.mean(said["scores"][choice])) * times for choice in names]
        scores = [f"{mean:.{1 if times == 100 else 3}f}" for mean in means]
        first = [file.parts[-3], said["metric"].replace("_", " "), told]
        rows.append([*first, len(said["groups"]), f"{said['rows']:,}", *scores])
    head = ["federation", "measured", "verdict", "clients", "rows", *names.values()]
    return prose.table(head, rows, 3)


def main(arguments: list[str]) -> None:
    """See the docstring of the file."""
    if arguments[0] == "run":
        folder, kind, rows, first, last = arguments[1:]
        measure(Path(folder), kind, int(rows), int(first), int(last))
    elif arguments[0] == "natural":
        _replace("natural", _natural(Path(arguments[1])))
    else:
        write(Path(arguments[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
