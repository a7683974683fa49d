"""A federation whose clients own few classes and unequal amounts, for the tests of the
scenarios.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
from toys import pool_of

from fedclust.core.types import Federation, Round, Split
from fedclust.core.verbs import Scenario

CLASSES = 6


def federation(
    num_clients: int = 20,
    *,
    train: int = 12,
    test: int = 4,
    classes: int | None = 2,
    empty: Sequence[int] = (),
) -> Federation:
    """Client i owns train + i % 5 training and `test` test examples, group i % 3.

    The pool holds every example under two concepts; clients begin with concept 0. An example's
    inputs are its number and one of four periods.

    Args:
        num_clients: M.
        train, test: examples, the same number of each class but for remainders.
        classes: of a client, neighbours on the circle of classes beginning at its number; None for
            all.
        empty: clients without training examples.
    """
    own = classes or CLASSES
    counts = [0 if i in empty else train + i % 5 for i in range(num_clients)]
    labels, splits, begin = [], [], 0
    for sizes in (counts, [test] * num_clients):
        rows = []
        for client, size in enumerate(sizes):
            labels.append((client + torch.arange(size) % own) % CLASSES)
            rows.append(2 * torch.arange(begin, begin + size))
            begin += size
        splits.append(Split.of(rows))
    y = torch.cat(labels).repeat_interleave(2)
    number = torch.arange(len(y))
    x = torch.stack([number, number // 2 % 4], 1).float()
    pool = pool_of(x, y, CLASSES, concepts=2)
    return Federation(
        pool=pool, train=splits[0], test=splits[1], group=torch.arange(num_clients) % 3
    )


def play(scenario: Scenario, fed: Federation, count: int, seed: int = 0) -> list[Round]:
    """The first rounds."""
    return list(islice(scenario.rounds(fed, seed), count))


def rows_of(split: Split) -> list[list[int]]:
    """Pool rows of every client, sorted."""
    return [sorted(split.of_client(i).tolist()) for i in range(len(split.count))]


def labels_of(fed: Federation, client: int) -> list[set[int]]:
    """Classes of a client's training and of its test examples."""
    return [set(fed.pool.y[split.of_client(client)].tolist()) for split in (fed.train, fed.test)]


def numbers(rnd: Round) -> list[Any]:
    """All that a round says, comparable with ==."""
    tensors = [rnd.cohort, rnd.present, rnd.shifted, rnd.work, rnd.dropped, rnd.fed.group]
    for split in (rnd.fed.train, rnd.fed.test):
        tensors += [split.index, split.start]
    return [rnd.t, rnd.seed, *(tensor.tolist() for tensor in tensors)]
