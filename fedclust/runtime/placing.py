"""Which model a client gets that was not there when the models were trained, and how sure that is.

With labels for some of its rows: the model with the least mean loss on them. Without: the model
whose clients have the most similar inputs, by the energy distance of Székely and Rizzo (2013),

    2 E|X - Y| - E|X - X'| - E|Y - Y'|,

which is zero only between equal distributions. Inputs say nothing where groups differ in the
relation of inputs and label alone, so it is told how many known clients they would place rightly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedclust.helpers.rng import Stream

Floats = NDArray[np.float64]
_RESAMPLES = 500
_MOST_ROWS = 300  # of a side of an energy distance, which grows with the product of both


@dataclass(frozen=True)
class Fit:
    """What fits a client best.

    Attributes:
        place: which of the candidates.
        sure: share of resamples of the client's rows, drawn with replacement, in which the same one
            fits best.
    """

    place: int
    sure: float


def by_loss(losses: Floats, seed: int) -> Fit:
    """The candidate with the least mean of losses [K, N], N at least 1."""
    return _least(losses.mean(1), (losses @ _counts(losses.shape[1], seed)).argmin(0))


def by_inputs(new: Floats, known: Sequence[Floats], seed: int) -> Fit:
    """The candidate whose inputs [M_k, F] have the least energy distance to the new ones [N, F]."""
    new = _some(new, seed, 0)
    others = [_some(one, seed, 1 + number) for number, one in enumerate(known)]
    own = _distances(new, new)
    across = np.stack([_distances(new, one).mean(1) for one in others])  # [K, N]
    inside = np.array([_distances(one, one).mean() for one in others])
    share = _counts(len(new), seed) / len(new)  # [N, B]
    of_resamples = 2 * across @ share - ((own @ share) * share).sum(0) - inside[:, None]
    return _least(2 * across.mean(1) - inside, of_resamples.argmin(0))


def placed_rightly(
    inputs: Sequence[Floats], model: NDArray[np.int64], seed: int
) -> tuple[int, int]:
    """How many of the clients would get their own model by their inputs, each held against the
    others; and of how many that can be said, which are those that share their model.

    Args:
        inputs: of every client [N_i, F].
        model: [M] which model each has.
    """
    names, right, told = np.unique(model), 0, 0
    for client, own in enumerate(model):
        others = [
            np.flatnonzero((model == one) & (np.arange(len(model)) != client)) for one in names
        ]
        if not len(others[int(np.searchsorted(names, own))]):
            continue
        there = [place for place, some in enumerate(others) if len(some)]
        known = [np.concatenate([inputs[int(one)] for one in others[k]]) for k in there]
        told += 1
        right += names[there[by_inputs(inputs[client], known, seed).place]] == own
    return int(right), told


def _least(values: Floats, of_resamples: NDArray[np.int64]) -> Fit:
    place = int(values.argmin())
    return Fit(place, float((of_resamples == place).mean()))


def _counts(rows: int, seed: int) -> Floats:
    """[N, B] how often each row is in each resample."""
    rng = Stream.of(seed, "placing").numpy()
    return rng.multinomial(rows, np.full(rows, 1 / rows), _RESAMPLES).T.astype(np.float64)


def _some(rows: Floats, seed: int, whose: int) -> Floats:
    """At most `_MOST_ROWS` of them, drawn."""
    if len(rows) <= _MOST_ROWS:
        return rows
    rng = Stream.of(seed, "placing", whose).numpy()
    return rows[rng.choice(len(rows), _MOST_ROWS, replace=False)]


def _distances(one: Floats, other: Floats) -> Floats:
    """[N, M] Euclidean distances of rows."""
    squares = (one**2).sum(1)[:, None] + (other**2).sum(1) - 2 * one @ other.T
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))
