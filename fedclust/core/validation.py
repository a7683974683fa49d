"""Examples that nobody trains on: each client's validation examples, and a seed's test examples."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fedclust.core.types import Dataset, Split
from fedclust.helpers.errors import counted, require
from fedclust.helpers.rng import Stream, fold, uniform
from fedclust.helpers.rounding import rounded_up


def drawn_test(
    owner: Tensor | None,
    size: int,
    share: float,
    seed: int,
    y: Tensor | None = None,
    unit: Tensor | None = None,
) -> Tensor:
    """Which rows are for testing, [N] bool: of every client's rows a share, rounded up, in which
    the classes have about their shares of all its rows. A class of which a client has two rows or
    more is in both parts, unless either is too small for all such classes.

    Args:
        owner: [N] natural client of every row, None where all are of one.
        y: [N] int64 classes; None, or other targets, where there are none.
        unit: [N] int64 of whom every row is, see `apart`; None where each is by itself.
    """
    tests = torch.zeros(size, dtype=torch.bool)
    if share == 0:
        return tests
    whose = torch.zeros(size, dtype=torch.int64) if owner is None else owner
    start = torch.cat([whose.new_zeros(1), whose.bincount().cumsum(0)])
    own = Split(whose.argsort(stable=True).to(torch.int32), start)
    known = y is not None and y.dim() == 1 and not y.is_floating_point()
    classes = y if y is not None and known else torch.zeros_like(whose)
    wanted = rounded_up(share, own.count)
    stream = Stream.of(seed, "test share")
    tests[own.index.long()] = apart(own, classes, wanted, stream, unit, rare=True)
    return tests


def redrawn(dataset: Dataset, seed: int) -> tuple[Dataset, Tensor]:
    """The dataset with the test examples of a seed, and the place that each of its examples, those
    for training first, has in the dataset given, [N] int64.
    """
    assert dataset.test_share is not None
    own, tested = dataset.owner, dataset.test_owner
    own = own if own is None or tested is None else torch.cat([own, tested])
    y = torch.cat([dataset.y_train, dataset.y_test])
    tests = drawn_test(own, len(y), dataset.test_share, seed, y, dataset.unit)
    parts = [torch.nonzero(rows).flatten() for rows in (~tests, tests)]
    x_train, x_test = _rows(dataset.x_train, dataset.x_test, parts)
    y_train, y_test = _rows(dataset.y_train, dataset.y_test, parts)
    seen = replace(
        dataset,
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        owner=None if own is None else own[parts[0]],
        test_owner=None if own is None else own[parts[1]],
        unit=None if dataset.unit is None else dataset.unit[torch.cat(parts)],
    )
    return seen, torch.cat(parts)


def _rows(first: Tensor, second: Tensor, parts: list[Tensor]) -> list[Tensor]:
    """Rows `parts`, ascending in [0, n + m), of two tensors [n, …] and [m, …] that stand one behind
    the other; each row is copied once, since data may take most of the memory.
    """
    results = []
    for part in parts:
        rows = first.new_empty(len(part), *first.shape[1:])
        near = int((part < len(first)).sum())
        torch.index_select(first, 0, part[:near], out=rows[:near])
        torch.index_select(second, 0, part[near:] - len(first), out=rows[near:])
        results.append(rows)
    return results


def cut(
    train: Split, y: Tensor, share: float, seed: int, unit: Tensor | None = None
) -> tuple[Split, Split]:
    """The training rows of every client without its validation rows, and the validation rows.

    Client i with n_i examples gives round(share * n_i) of them away, at least one, and keeps at
    least one. Every class gives its part, as far as it has examples enough. A smaller share takes
    some of the rows that a larger one takes. What a client gives depends on its own rows and the
    seed alone. Both splits keep the order of the rows.

    Args:
        y: [N] int64 classes of the pool's examples.
        unit: [N] int64 of whom every row of the pool is, see `apart`; None where each is by itself.

    Raises:
        ConfigError: a client has a single example, or none of its own units is left to train on.
    """
    count = train.count
    fewest = int(count.argmin())
    allowed = (
        f"client {fewest} has {counted(int(count[fewest]), 'training example')}, and needs one to "
        "train on and one to validate with; 0, or a partition that gives every client two"
    )
    require(int(count[fewest]) >= 2, "validation", share, allowed)
    wanted = torch.minimum((share * count.double()).round().clamp(min=1).long(), count - 1)
    given = apart(train, y, wanted, Stream.of(seed, "validation"), unit)
    held_out = torch.bincount(train.owner_and_place()[0][given], minlength=len(count))
    emptied = int((count - held_out).argmin())
    allowed = f"a smaller share, since units of client {emptied} and others are held out whole"
    require(int(held_out[emptied]) < int(count[emptied]), "validation", share, allowed)
    return part_of(train, ~given), part_of(train, given)


def apart(
    split: Split,
    y: Tensor,
    wanted: Tensor,
    stream: Stream,
    unit: Tensor | None = None,
    *,
    rare: bool = False,
) -> Tensor:
    """Which rows of a split leave it, [total] bool: `wanted` [M] of every client, in which the
    classes have about their shares.

    With units all rows of one leave, or none, so that a client gives as many rows as come nearest,
    at least a unit and not its last one; a unit of several clients is the first one's.

    Args:
        y: [N] int64 classes of all examples, of a unit that of its first row.
        unit: [N] int64 of whom every example is; None where each is by itself.
        rare: whether, without units, a class of which a client has two is in both parts.
    """
    owner, _ = split.owner_and_place()
    if unit is None:
        return _place_in_line(split, y, stream, wanted if rare else None) < wanted[owner]
    _, whose, sizes = torch.unique(
        unit[split.index.long()], return_inverse=True, return_counts=True
    )
    first = torch.full_like(sizes, len(whose)).scatter_reduce(
        0, whose, torch.arange(len(whose)), "amin"
    )
    order = first.argsort()  # by client, since the rows are
    number = torch.bincount(owner[first], minlength=len(split.count))
    units = Split(split.index[first[order]], torch.cat([number.new_zeros(1), number.cumsum(0)]))
    place, by = _place_in_line(units, y, stream), owner[first[order]]
    rows = sizes[order]
    line = (by * (int(number.max()) + 1) + place).argsort()
    before = torch.empty_like(rows)
    before[line] = rows[line].cumsum(0) - rows[line]
    begin = torch.zeros_like(number).scatter_add_(0, by, rows).cumsum(0)
    before -= torch.cat([begin.new_zeros(1), begin])[by]
    leaves = (2 * before + rows < 2 * wanted[by]) | ((place == 0) & (wanted[by] > 0))
    taken = torch.empty_like(leaves)
    taken[order] = leaves & (place < number[by] - 1)
    return taken[whose]


def _place_in_line(split: Split, y: Tensor, stream: Stream, wanted: Tensor | None = None) -> Tensor:
    """The place of every row, [total] int64, in a random line of its client's rows.

    The j-th of the n examples of a class stands at (j + u) / n of the line, u in [0, 1) random, so
    that any beginning of the line has about the classes of the whole. With `wanted` [M], the length
    of the beginning that counts, the first example of each class stands in front of all others and
    the last one behind them, where a client has at least two and both parts hold so many classes.
    """
    owner, _ = split.owner_and_place()
    rows = split.index.long()
    classes = int(y.max()) + 1
    kind = owner * classes + y[rows]  # a client's class
    sizes = torch.bincount(kind, minlength=len(split.count) * classes)
    drawn = (fold(stream.keys(owner), rows) >> 1).argsort(stable=True)
    among = _places(drawn, kind, sizes)
    start = uniform(stream.fold(0).keys(kind), 1).squeeze(1).double()
    line = (among + start) / sizes[kind]
    if wanted is not None:
        several = sizes >= 2
        kinds = several.view(-1, classes).sum(1)
        fits = (kinds <= wanted) & (kinds <= split.count - wanted)
        ends = several[kind] & fits[owner]
        line[ends & (among == 0)] = -1
        line[ends & (among == sizes[kind] - 1)] = 2
    return _places(line.argsort(stable=True), owner, split.count)


def _places(order: Tensor, part: Tensor, sizes: Tensor) -> Tensor:
    """The place of every row within its `part` [total], rows standing in an `order` [total]."""
    order = order[part[order].argsort(stable=True)]
    begin = sizes.cumsum(0) - sizes
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device) - begin[part[order]]
    return place


def part_of(split: Split, kept: Tensor) -> Split:
    """Some rows of a split, [total] bool, of the same clients."""
    count = torch.bincount(split.owner_and_place()[0][kept], minlength=len(split.count))
    return Split(split.index[kept], torch.cat([count.new_zeros(1), count.cumsum(0)]))
