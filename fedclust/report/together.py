"""Which named clients share a cluster at the end, whatever numbers the clusters have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

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
    """The clusters of every seed at its end, largest first, without clients that nobody serves;
    none where in no seed there is anything between one cluster and a cluster for each.
    """
    rows = arm.run.final_clients
    rows = rows[rows["label"] >= 0] if len(rows) else rows
    found: dict[int, Partition] = {}
    for seed in sorted(set(rows["seed"].tolist())) if len(rows) else ():
        own = rows[rows["seed"] == seed].groupby("label")["client"]
        clusters = (tuple(sorted(one.tolist())) for _, one in own)
        found[seed] = tuple(sorted(clusters, key=lambda one: (-len(one), one)))
    between = any(1 < len(one) < sum(map(len, one)) for one in found.values())
    return found if between else {}


def together(found: Mapping[int, Partition], size: int) -> NDArray[np.int64]:
    """[M, M] in how many seeds two of `size` clients share a cluster; the diagonal counts the
    seeds in which a client is in one.
    """
    counts = np.zeros((size, size), dtype=np.int64)
    for clusters in found.values():
        for cluster in clusters:
            counts[np.ix_(cluster, cluster)] += 1
    return counts


def together_tables(arms: Sequence[Arm]) -> list[Table]:
    """The commonest partition of every arm, and how often two clients share a cluster; none where
    clients have no names, or are too many. Of several federations those with the first one's names.
    """
    names = called(arms[0], "clients", 30)
    found = {arm.label: partitions(arm) for arm in arms if called(arm, "clients", 30) == names}
    found = {label: seeds for label, seeds in found.items() if seeds}
    if not found or not 2 < len(names) <= MOST_NAMED:
        return []
    clients = range(len(names))
    counted = {label: together(seeds, len(names)) for label, seeds in found.items()}
    commonest = {label: Counter(seeds.values()).most_common(1)[0] for label, seeds in found.items()}

    def seeds_of(label: str) -> tuple[int, int, int]:
        often, seeds = commonest[label][1], found[label]
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
        found,
        notes=("Semicolons part clusters, whose numbers mean nothing from seed to seed.",),
    )

    def shared(label: str, client: int, other: int) -> Cell:
        count = int(counted[label][client, other])
        if client == other:
            return Cell(text="–", pale=True)
        return Cell(text=str(count), strong=count == len(found[label]))

    rows = [(label, client) for label in found for client in clients]
    second = Table(
        name="together",
        title="Who is with whom: seeds in which two clients share a cluster at the end",
        columns=("arm", "client", *(names[i] for i in clients)),
        rows=tuple(
            (
                Cell(text=label),
                Cell(text=names[client]),
                *(shared(label, client, other) for other in clients),
            )
            for label, client in rows
        ),
        records=tuple(
            {
                "arm": label,
                "client": names[client],
                "other": names[other],
                "seeds together": int(counted[label][client, other]),
                "of": len(found[label]),
            }
            for label, client in rows
            for other in clients
            if client < other
        ),
        notes=("Of the seeds of an arm, bold: all of them.",),
        folded=len(names) > _WIDE,
    )
    assert first is not None
    return [first, second]
