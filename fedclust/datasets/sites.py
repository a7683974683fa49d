"""Differences between clients that are slips of a table: other units, other codes, a column that
one has never measured. Nothing is changed; each is a remark of one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from fedclust.datasets.columns import NamedColumns, Owners
from fedclust.helpers.errors import some_of

if TYPE_CHECKING:
    from fedclust.datasets.column import Column

Values = npt.NDArray[Any]
_FEWEST = 5  # values of a client, from which on they say something of it
_TIMES = 1.7  # as large, from which on another unit is likelier than another population
_SPREAD = 2.5  # at most, between the relative spreads of one quantity in two units
_FEW = 12  # codes of a column at most
_EXPECTED = 10  # rows of a code where there is none, from which on that is no accident
_SHOWN = 4  # clients, or codes, that a remark names


@dataclass(frozen=True)
class SlipCheck:
    """A slip that values of clients may show."""

    # measurements, categories (classes are some), or both
    of: Literal["measurements", "categories", "both"]
    # what is said of the values of every client, "" for nothing
    find: Callable[[Mapping[str, Values]], str]
    cure: str  # what helps


def tell_of_inputs(
    table: NamedColumns, columns: Sequence[Column], whose: Owners, *, apart: bool, indicated: bool
) -> None:
    """Remark on inputs that clients have in units or codes of their own, or have never measured;
    units do not matter where each client is scaled by itself, `apart`.
    """
    rows = _rows(whose)
    if len(rows) < 2:
        return
    never = {
        one.name: [client for client, own in rows.items() if one.gaps[own].all()]
        for one in columns
        if one.gaps.any() and not one.gaps.all()
    }
    missing = {name: clients for name, clients in never.items() if clients}
    if missing:
        each = [f"{name} at {some_of(clients, _SHOWN)}" for name, clients in missing.items()]
        becomes = "what dataset.fill puts there is the others'"
        if indicated:
            becomes = "the input that says where gaps are says which client it is"
        what = f"no value of column {some_of(each, _SHOWN, '; of ')}"
        table.remark(f"{what}: {becomes}; dataset.exclude leaves a column out")
    for one in columns:
        values = one.words if one.is_words else one.number
        own = {client: values[places][~one.gaps[places]] for client, places in rows.items()}
        for remark in told(own, f"column {one.name}, an input,", one.is_words, apart=apart):
            table.remark(remark)


def tell_of_targets(table: NamedColumns, y: Values, names: Sequence[str], whose: Owners) -> None:
    """Remark on classes [N] that clients code differently, or targets [N, T] in units of their
    own; `names` are of the classes, or of the targets.
    """
    rows, classes = _rows(whose), y.ndim == 1
    if len(rows) < 2:
        return
    if classes:
        words = np.array(names, dtype=object)[y]
        if all(name.isdecimal() for name in names):
            words = words.astype(np.float64)
        columns = {"the label": words}
    else:
        columns = {f"target {name}": one for name, one in zip(names, y.T, strict=True)}
    for what, values in columns.items():
        own = {client: values[places] for client, places in rows.items()}
        for remark in told(own, what, classes, apart=False):
            table.remark(remark)


def told(
    values: Mapping[str, Values], what: str, is_coded: bool, *, apart: bool = False
) -> Iterator[str]:
    """What the checks say of `what` values of every client by its name, none missing: classes or
    categories where `is_coded`, else numbers, whose units do not matter with `apart`.
    """
    enough = {client: own for client, own in values.items() if len(own) >= _FEWEST}
    for check in _CHECKS if len(enough) > 1 else ():
        other = check.of == ("measurements" if is_coded else "categories")
        if other or (apart and check.find is _units):
            continue
        if slip := check.find(enough):
            yield f"{what} {slip}: {check.cure}"


def _rows(whose: Owners) -> dict[str, Values]:
    """The rows of every client, by its name."""
    if whose.of_row is None:
        return {}
    owner = whose.of_row.numpy()
    order = np.argsort(owner, kind="stable")
    ends = np.cumsum(np.bincount(owner, minlength=len(whose.names)))[:-1]
    return dict(zip(whose.names, np.split(order, ends), strict=True))


def _units(values: Mapping[str, Values]) -> str:
    """Clients in two parts whose ranges do not meet, while those of a part do and differ less: the
    numbers of one are so many times those of the other, and spread as widely relative to them.
    """
    ranges = dict[str, tuple[float, ...]]()
    for client, own in values.items():
        if (own < 0).any():
            return ""
        some = own[own > 0]  # of loads and counts, many are 0
        if len(np.unique(some)) >= _FEWEST:
            ranges[client] = tuple(np.quantile(some, (0.02, 0.5, 0.98)))
    if len(ranges) < 2:
        return ""
    order = sorted(ranges, key=lambda client: float(ranges[client][1]))
    parts, top = [[order[0]]], ranges[order[0]][2]
    for client in order[1:]:
        low, _, high = ranges[client]
        if low > top:
            parts.append([])
        parts[-1].append(client)
        top = max(top, high)
    if len(parts) != 2:
        return ""
    below, above = parts
    middles = {client: float(ranges[client][1]) for client in order}
    gap = middles[above[0]] / middles[below[-1]]
    if gap < max(_TIMES, *(middles[part[-1]] / middles[part[0]] for part in parts)):
        return ""
    spreads, sizes = zip(*(map(np.median, _sizes(part, values)) for part in parts), strict=True)
    if max(spreads) > _SPREAD * max(min(spreads), 1e-9):
        return ""
    times = float(sizes[1] / sizes[0])
    few_of, others = (below, above) if len(below) <= len(above) else (above, below)
    all_of = [np.concatenate([values[client] for client in part]) for part in (few_of, others)]
    one, other = (f"{own.min():.4g} to {own.max():.4g}" for own in all_of)
    where = f"is {one} at {some_of(few_of, _SHOWN)} and {other} at {_rest(others)}"
    return f"{where}, about {times:.3g} times apart"


def _sizes(part: Sequence[str], values: Mapping[str, Values]) -> tuple[list[float], list[float]]:
    """The spread of every client's values relative to their middle, and their middle."""
    own = [values[client][values[client] > 0] for client in part]
    middles = [float(np.median(one)) for one in own]
    widths = [float(np.subtract(*np.quantile(one, (0.75, 0.25)))) for one in own]
    return [width / middle for width, middle in zip(widths, middles, strict=True)], middles


def _shifted(values: Mapping[str, Values]) -> str:
    """Whole numbers that count from 0 at some clients and from 1 at others, up to as many."""
    starts: dict[int, list[str]] = {0: [], 1: []}
    counts = {}
    for client, own in values.items():
        if own.dtype.kind not in "buif" or len(own) == 0:
            return ""
        codes, times = np.unique(own, return_counts=True)
        if len(codes) > _FEW or codes[0] not in (0, 1) or (codes != np.floor(codes)).any():
            return ""
        counts[client] = {int(k): int(n) for k, n in zip(codes, times, strict=True)}
        starts[int(codes[0])].append(client)
    if not starts[0] or not starts[1]:
        return ""
    tops = [{max(counts[client]) for client in starts[first]} for first in (0, 1)]
    size = max(tops[0])
    if any(len(top) != 1 for top in tops) or size < 1 or max(tops[1]) != size + 1:
        return ""
    for first, code in ((0, size + 1), (1, 0)):  # what is lacking there is usual elsewhere
        others = [counts[client] for client in starts[1 - first]]
        share = sum(one.get(code, 0) for one in others) / sum(sum(o.values()) for o in others)
        if share * sum(sum(counts[client].values()) for client in starts[first]) < _EXPECTED:
            return ""
    one_based = some_of(starts[1], _SHOWN)
    return f"counts from 1 to {size + 1} at {one_based} and from 0 to {size} at {_rest(starts[0])}"


def _disjoint(values: Mapping[str, Values]) -> str:
    """Clients in parts of which none has a code of another, each with as many, at least two."""
    parts: list[tuple[set[Any], list[str]]] = []
    for client, own in values.items():
        codes, clients = set(np.unique(own).tolist()), [client]
        if len(codes) > _FEW:
            return ""
        apart = []
        for others, named in parts:
            if others & codes:
                codes, clients = codes | others, [*named, *clients]
            else:
                apart.append((others, named))
        parts = [*apart, (codes, clients)]
    sizes = {len(codes) for codes, _ in parts}
    if len(parts) < 2 or len(sizes) > 1 or min(sizes) < 2:
        return ""
    each = [
        f"{some_of([_code(k) for k in sorted(codes)], _SHOWN)} at {_rest(clients)}"
        for codes, clients in parts
    ]
    return f"has no code that is at all of them: {some_of(each, _SHOWN, '; ')}"


def _code(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _rest(clients: Sequence[str]) -> str:
    return some_of(clients, _SHOWN) if len(clients) <= _SHOWN else f"{len(clients)} others"


_ONE = "give all clients one coding"
_CHECKS = (
    SlipCheck("measurements", _units, "if these are units, give all one unit"),
    SlipCheck("both", _shifted, _ONE),
    SlipCheck("categories", _disjoint, f"if they mean the same, {_ONE}"),
)
