"""Where in a call something was raised: an engine names rows and step, others the clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from fedclust.core.types import Round
from fedclust.helpers.errors import some_of
from fedclust.helpers.meter import meter

_NAMED = 5  # clients


@dataclass(frozen=True)
class ErrorPlace:
    """Rows of the call computed together, one of them to blame, and the step from 1, or 0."""

    rows: tuple[int, ...]
    step: int = 0


def place_of(error: Exception) -> ErrorPlace | None:
    """What is known of an exception's place."""
    place = getattr(error, "place", None)
    return place if isinstance(place, ErrorPlace) else None


def put(error: Exception, place: ErrorPlace | None) -> None:
    """Note the place of an exception; None for nothing known."""
    error.__dict__["place"] = place


@contextmanager
def at_rows(rows: Sequence[int] | Tensor) -> Iterator[None]:
    """What is raised within happened in these rows; where it says in which of them, in those."""
    try:
        yield
    except Exception as error:
        own = tuple(int(row) for row in rows)
        known = place_of(error)
        if known is None:
            put(error, ErrorPlace(own, meter.step + 1 if meter.steps else 0))
        else:
            put(error, ErrorPlace(tuple(own[row] for row in known.rows), known.step))
        raise


@contextmanager
def named(doing: str, ids: Tensor, rnd: Round) -> Iterator[None]:
    """What is raised within has a note that names the client, or those of whom it is one, the round
    and the local step, as far as they are known.

    Args:
        doing: what is done; "" for local training, in which alone rows are those of `ids`.
        ids: [C] int64 the clients.
    """
    try:
        yield
    except Exception as error:
        place = place_of(error) if not doing else None
        rows, step = (range(len(ids)), 0) if place is None else (place.rows, place.step)
        names = [str(int(ids[row])) for row in rows]
        clients = some_of(names, _NAMED)
        who = f"client {clients}" if len(names) == 1 else f"one of the clients {clients}"
        at = f", local step {step}" if step else ""
        what = f"{doing} of " if doing else ""
        error.add_note(f"{what}{who}, round {rnd.t}{at} (seed {rnd.seed})")
        raise
