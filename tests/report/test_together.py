"""Who shares a cluster with whom, by clients' names, whatever numbers clusters have."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedclust.report.flow import _name_clients, _stack
from fedclust.report.together import partitions, together, together_tables

SITES = ("north", "south", "east", "west")
# by seed; the numbers are swapped in seed 1; in seed 2 west has moved, in seed 3 nobody serves it
LABELS = ([0, 0, 1, 1], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, -1])


def arm(name: str, labels: Sequence[Sequence[int]], sites: Sequence[str] = SITES) -> Any:
    """What the tables read of an arm: the labels of every seed's clients at its end, and names."""
    rows = pd.DataFrame(
        [
            {"seed": seed, "client": client, "label": label}
            for seed, own in enumerate(labels)
            for client, label in enumerate(own)
        ]
    )
    names = {"clients": list(sites)} if sites else {}
    federation = {"seeds": {"0": {"names": names}}}
    return SimpleNamespace(
        label=name, run=SimpleNamespace(final_clients=rows, federation=federation)
    )


def test_partitions_do_not_depend_on_numbers() -> None:
    found = partitions(arm("lcfl", LABELS))
    assert found == {
        0: ((0, 1), (2, 3)),
        1: ((0, 1), (2, 3)),
        2: ((0, 1, 3), (2,)),
        3: ((0, 1), (2,)),
    }
    shared = together(found, 4)
    assert shared.tolist() == [[4, 4, 0, 1], [4, 4, 0, 1], [0, 0, 4, 2], [1, 1, 2, 3]]
    # the same with other numbers and the seeds' rows in another order
    other = arm("lcfl", [[7 - label if label >= 0 else -1 for label in own] for own in LABELS])
    other.run.final_clients = other.run.final_clients.sample(frac=1, random_state=0)
    assert partitions(other) == found
    assert partitions(arm("fedavg", [[0] * 4] * 2)) == partitions(arm("local", [range(4)])) == {}


def test_tables_name_the_clients() -> None:
    shown = [arm("lcfl", LABELS), arm("fedavg", [[0] * 4] * 4)]
    first, second = together_tables(shown)
    assert [[cell.text for cell in row] for row in first.rows] == [
        ["lcfl", "north, south; east, west", "2 of 4 seeds"]
    ]
    assert second.columns == ("arm", "client", *SITES)
    assert [[cell.text for cell in row] for row in second.rows][2] == [
        *("lcfl", "east", "0", "0", "–", "2")
    ]
    # all four seeds are bold
    strong = [[cell.strong for cell in row[2:]] for row in second.rows]
    assert np.argwhere(strong).tolist() == [[0, 1], [1, 0]]
    rows = list(csv.DictReader(io.StringIO(second.csv())))
    assert len(rows) == 6
    assert rows[-1] == {
        **{"arm": "lcfl", "client": "east", "other": "west"},
        **{"seeds together": "2", "of": "4"},
    }
    assert not second.folded
    many = [f"site {i}" for i in range(60)]
    pairs = [[i // 2 for i in range(60)]]
    assert together_tables([arm("lcfl", pairs, many)])[1].folded
    assert together_tables([arm("lcfl", [[0, *own] for own in pairs], [*many, "one more"])]) == []
    assert together_tables([arm("lcfl", LABELS, ())]) == []
    # another federation has other clients
    assert together_tables([*shown[:1], arm("ifca", LABELS, SITES[::-1])])[0].rows == first.rows


def test_the_flow_names_who_ends_where() -> None:
    axes = Figure().subplots()
    label, group = np.array([1, 0, 1, 1]), np.array([0, 0, 1, 0])
    _name_clients(axes, 10.5, label, _stack(label, group), SITES)
    assert [text.get_text() for text in axes.texts] == ["south", "north, east, west"]
    (left, low), (_, high) = (text.get_position() for text in axes.texts)
    # in the middle of a quarter, and of the three quarters above it and a gap
    assert (low, high) == (0.125, 0.25 + 0.02 + 0.375)
    assert left == 10.5
