"""Concepts: the examples of a base partition in several forms, and clients that see one of them.

The pool holds every example under every concept, row r G + g for example r under concept g, so that
a scenario moves a client to another concept by arithmetic. Images that several rows share are
stored once (`Pool.image`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedclust.core.types import Dataset, Pool, Split
from fedclust.core.verbs import Partition
from fedclust.helpers.errors import UserError, require
from fedclust.helpers.ranges import Fraction
from fedclust.helpers.rng import Stream

Assignment = Literal["balanced", "in_order", "uniform"] | Sequence[Fraction]


@runtime_checkable
class ConceptPartition(Partition, Protocol):
    """A partition whose pool holds every example under several concepts."""

    def concepts(self, dataset: Dataset) -> int:
        """How many: G."""
        ...


@contextmanager
def of_base() -> Iterator[None]:
    """Errors of the block name the keys of `partition.base` instead of those of `partition`."""
    try:
        yield
    except UserError as error:
        raise type(error)(str(error).replace("partition.", "partition.base.")) from error


def base_pool(base: Partition, dataset: Dataset) -> Pool:
    """The pool of the base partition."""
    with of_base():
        return base.pool(dataset)


def with_concepts(
    pool: Pool, *, x: Tensor | None = None, image: Tensor | None = None, y: Tensor | None = None
) -> Pool:
    """The pool whose N rows occur under G concepts each.

    Args:
        x: stored images; None for those of `pool`.
        image: [N, G] int64 place in `x` under every concept; None where all share that of `pool`.
        y: [N, G, …] targets under every concept; None where all share those of `pool`.
    """
    shapes = [table.shape for table in (image, y) if table is not None]
    concepts = shapes[0][1]
    if image is None:
        rows = torch.arange(len(pool.y)) if pool.image is None else pool.image
        image = rows.unsqueeze(1).expand(-1, concepts)
    if y is None:
        y = pool.y.unsqueeze(1).expand(-1, concepts, *pool.y.shape[1:])
    return replace(
        pool,
        x=pool.x if x is None else x,
        y=y.flatten(0, 1).contiguous(),
        image=image.reshape(-1).contiguous(),
        concepts=concepts,
    )


def dealt(
    base: Partition, concepts: int, assignment: Assignment, dataset: Dataset, stream: Stream
) -> tuple[Split, Split, Tensor]:
    """Train split, test split and group [M] of the base's clients, each under one concept.

    Args:
        assignment: `balanced`: every concept as often as can be, in random order; `in_order`:
            likewise, the first clients have concept 0; `uniform`: every client draws its own, so
            that some may be rare or absent; or the share of the clients that each concept has, in
            random order, as whole numbers by largest remainders.

    Raises:
        ConfigError: there are fewer clients than concepts to balance, or the shares are not one
            per concept, above 0, with the sum 1, or leave a concept without a client.
    """
    with of_base():
        train, test, _ = base.split(dataset, stream.fold(0))
    num_clients, rng = len(train.count), stream.fold(1).numpy()
    if not isinstance(assignment, str):
        sizes = _sizes(np.array(assignment, np.float64), num_clients, concepts)
        group = torch.from_numpy(rng.permutation(np.arange(concepts).repeat(sizes)))
    elif assignment == "uniform":
        group = torch.from_numpy(rng.integers(0, concepts, num_clients))
    else:
        allowed = f"at least {concepts}, a client for every concept"
        require(num_clients >= concepts, "partition.base.num_clients", num_clients, allowed)
        group = torch.arange(num_clients) * concepts // num_clients
        if assignment == "balanced":
            group = group[torch.from_numpy(rng.permutation(num_clients))]
    return under(train, concepts, group), under(test, concepts, group), group


def _sizes(
    shares: npt.NDArray[np.float64], num_clients: int, concepts: int
) -> npt.NDArray[np.int64]:
    """How many clients every concept has [G]."""
    sound = len(shares) == concepts and bool((shares > 0).all()) and abs(shares.sum() - 1) < 1e-6
    allowed = f"{concepts} shares above 0 with the sum 1, one per concept"
    require(sound, "partition.assignment", shares.tolist(), allowed)
    sizes = (shares * num_clients).astype(np.int64)
    rest = sizes - shares * num_clients
    sizes[rest.argsort(kind="stable")[: num_clients - sizes.sum()]] += 1
    allowed = f"shares that give each of the {concepts} concepts one of {num_clients} clients"
    require(bool(sizes.all()), "partition.assignment", shares.tolist(), allowed)
    return sizes


def under(split: Split, concepts: int, concept: Tensor) -> Split:
    """The split of examples as one of pool rows, client i under `concept[i]` [M] int64."""
    owner, _ = split.owner_and_place()
    return Split((split.index * concepts + concept[owner]).to(torch.int32), split.start)
