"""Which named clients share a cluster at the end, whatever numbers the clusters have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, product
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from fedclust.helpers.errors import counted as counted_as
from fedclust.report.arms import Arm
from fedclust.report.columns import TableColumn, tabulate
from fedclust.report.federations import called
from fedclust.report.table import Cell, Table

MOST_NAMED = 60  # clients; a table of more is no reading
_WIDE = 12  # clients; a wider table is folded away

Partition = tuple[tuple[int, ...], ...]  # the clients of every cluster, by their numbers


def partitions(arm: Arm) -> Mapping[int, Partition]:
    """The clusters of every seed at its end, largest first; none where all seeds are trivial."""
    rows = arm.run.final_clients
    rows = rows[rows["label"] >= 0] if len(rows) else rows
    by_seed: dict[int, Partition] = {}
    for seed in sorted(set(rows["seed"].tolist())) if len(rows) else ():
        own = rows[rows["seed"] == seed].groupby("label")["client"]
        clusters = (tuple(sorted(one.tolist())) for _, one in own)
        by_seed[seed] = tuple(sorted(clusters, key=lambda one: (-len(one), one)))
    between = any(1 < len(one) < sum(map(len, one)) for one in by_seed.values())
    return by_seed if between else {}


def together(by_seed: Mapping[int, Partition], size: int) -> NDArray[np.int64]:
    """[M, M] in how many seeds two of `size` clients share a cluster; diagonal: are in any."""
    counts = np.zeros((size, size), dtype=np.int64)
    for clusters in by_seed.values():
        for cluster in clusters:
            counts[np.ix_(cluster, cluster)] += 1
    return counts


def together_tables(arms: Sequence[Arm]) -> list[Table]:
    """The commonest partition of every arm, and how often two named clients share a cluster."""
    names = called(arms[0], "clients", 30)
    of_arms = {arm.label: partitions(arm) for arm in arms if called(arm, "clients", 30) == names}
    of_arms = {label: seeds for label, seeds in of_arms.items() if seeds}
    if not of_arms or not 2 < len(names) <= MOST_NAMED:
        return []
    clients = range(len(names))
    counted = {label: together(seeds, len(names)) for label, seeds in of_arms.items()}
    commonest = {
        label: Counter(seeds.values()).most_common(1)[0] for label, seeds in of_arms.items()
    }

    def seeds_of(label: str) -> tuple[int, int, int]:
        often, seeds = commonest[label][1], of_arms[label]
        others = [number for number in Counter(seeds.values()).values() if number == often][1:]
        return often, len(seeds), len(others)

    def listed(label: str) -> str:
        clusters = commonest[label][0]
        return "; ".join(", ".join(names[client] for client in one) for one in clusters)

    first = tabulate(
        "partition",
        "Who is with whom: the most frequent partition at the end",
        [
            TableColumn("arm", str, record="arm"),
            TableColumn("clusters", listed, record="partition"),
            TableColumn(
                "in",
                seeds_of,
                lambda one: (
                    f"{one[0]} of {counted_as(one[1], 'seed')}"
                    + (f", as {counted_as(one[2], 'other')}" if one[2] else "")
                ),
                lambda one: {"seeds": one[0], "of": one[1]},
            ),
        ],
        of_arms,
        notes=("Semicolons part clusters, whose numbers mean nothing from seed to seed.",),
    )

    def shared(other: int, row: tuple[str, int]) -> Cell:
        label, client = row
        count = int(counted[label][client, other])
        if client == other:
            return Cell(text="–", pale=True)
        return Cell(text=str(count), strong=count == len(of_arms[label]))

    records = tuple(
        {
            "arm": label,
            "client": names[client],
            "other": names[other],
            "seeds together": int(counted[label][client, other]),
            "of": len(seeds),
        }
        for label, seeds in of_arms.items()
        for client, other in combinations(clients, 2)
    )
    columns = [
        TableColumn("arm", itemgetter(0)),
        TableColumn("client", lambda row: names[row[1]]),
        *(TableColumn(names[other], partial(shared, other)) for other in clients),
    ]
    heading = "Who is with whom: seeds in which two clients share a cluster at the end"
    notes = ("Of the seeds of an arm, bold: all of them.",)
    rows = product(of_arms, clients)
    second = tabulate("together", heading, columns, rows, notes=notes, folded=len(names) > _WIDE)
    assert first is not None
    assert second is not None
    return [first, replace(second, records=records)]
