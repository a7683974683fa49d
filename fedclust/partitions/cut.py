"""Rows to clients: the few operations that every partition is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedclust.core.types import Dataset, Pool, Split
from fedclust.helpers.errors import ConfigError, DataError, require
from fedclust.helpers.ranges import Ranged
from fedclust.helpers.rng import Stream
from fedclust.helpers.rounding import rounded_down

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class OfExamples(Ranged):
    """A partition whose pool is the training examples, then the test examples."""

    def pool(self, dataset: Dataset) -> Pool:
        return plain_pool(dataset)


def plain_pool(dataset: Dataset) -> Pool:
    """The training examples, then the test examples; without test examples nothing is copied."""
    empty = len(dataset.x_test) == 0
    return Pool(
        x=dataset.x_train if empty else torch.cat([dataset.x_train, dataset.x_test]),
        y=dataset.y_train if empty else torch.cat([dataset.y_train, dataset.y_test]),
        scale=dataset.scale,
        shift=dataset.shift,
        num_classes=dataset.num_classes,
        view=dataset.view,
        vocabulary=dataset.vocabulary,
        in_order=True,
    )


def check_test(dataset: Dataset) -> None:
    """Raise a `ConfigError` unless the dataset has a test set of its own."""
    if len(dataset.x_test) == 0:
        raise ConfigError(
            f"dataset={dataset.name} has no test set: use partition=natural, which cuts one per "
            "client"
        )


def check_scale(images: Dataset | Pool, how: str) -> None:
    """Raise a `ConfigError` if images that are moved are scaled pixel by pixel."""
    plain = all(t.dim() < 2 or t.shape[-2:] == (1, 1) for t in (images.scale, images.shift))
    allowed = f"statistics per pixel do not fit {how} images, use mean_std, unit or inverted"
    require(plain, "dataset.normalise", "pixel", allowed)


def too_few(dataset: Dataset, what: str, remedy: str) -> DataError:
    """The one-line error for a dataset that is too small."""
    return DataError(f"{dataset.name} has too few examples: {what}: {remedy}")


def even(total: int, parts: int) -> Rows:
    """Sizes of `parts` parts of `total` rows as `np.array_split` makes them, larger first."""
    size, left = divmod(total, parts)
    return np.full(parts, size, dtype=np.int64) + (np.arange(parts) < left)


def labels(y: Tensor) -> Rows:
    """Labels as NumPy sees them, [N] int64."""
    array: Rows = y.cpu().numpy()
    return array


def grouped(rows: Rows, owner: Rows, num_clients: int) -> Split:
    """The split that gives pool row `rows[i]` [total] to client `owner[i]`, in their order."""
    index = torch.from_numpy(rows[np.argsort(owner, kind="stable")].astype(np.int32))
    return Split(index, _offsets(np.bincount(owner, minlength=num_clients)))


def consecutive(rows: Rows, sizes: Rows, cap: int | None = None) -> Split:
    """The split that cuts `rows` [sum of sizes] into parts, each of its first `cap` rows."""
    if cap is not None:
        place = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        rows, sizes = rows[place < cap], np.minimum(sizes, cap)
    return Split(torch.from_numpy(rows.astype(np.int32)), _offsets(sizes))


def hold_out(
    rows: Rows, sizes: Rows, fraction: float, rng: np.random.Generator
) -> tuple[Split, Split]:
    """Train and test split of pool rows [total], client after client, `sizes` [M] each: every
    client's rows shuffled, the first of them, the fraction rounded down, to train.
    """
    owner = np.repeat(np.arange(len(sizes)), sizes)
    rows = rows[np.lexsort((rng.random(len(rows)), owner))]  # shuffled within each client
    first = rounded_down(fraction, sizes)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    trains = place < np.repeat(first, sizes)
    return consecutive(rows[trains], first), consecutive(rows[~trains], sizes - first)


def shuffled_classes(
    y: Rows, num_classes: int, rng: np.random.Generator, cap: int | None = None
) -> list[Rows]:
    """Rows of every class in random order, at most `cap` of each."""
    order = rng.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    parts = np.split(order, np.cumsum(np.bincount(y, minlength=num_classes))[:-1])
    return [part[:cap] for part in parts]


def spread(
    y: Rows, first: int, shares: Rows, num_clients: int, stream: Stream, cap: int | None
) -> Split:
    """The split of a set with labels [N], whose first row is pool row `first`, among clusters that
    get `shares` [G, Y] rows of each class. A cluster's rows are spread over its M / G clients
    equally and at random, at most `cap` each; None for all.
    """
    classes, ends = shuffled_classes(y, shares.shape[1], stream.fold(0).numpy()), shares.cumsum(0)
    parts, sizes = [], []
    for g, share in enumerate(shares):
        own = [rows[e - n : e] for rows, e, n in zip(classes, ends[g], share, strict=True)]
        parts.append(stream.fold(1, g).numpy().permutation(np.concatenate(own)) + first)
        sizes.append(even(len(parts[-1]), num_clients // len(shares)))
    return consecutive(np.concatenate(parts), np.concatenate(sizes), cap)


def deal(counts: Rows, classes: list[Rows]) -> tuple[Rows, Rows]:
    """Rows [total], client after client, and sizes [M] of clients that take `counts` [M, Y] rows
    off the top of each class, without sharing any; a column sums to at most the class's length.
    """
    num_clients = len(counts)
    owner = np.concatenate([np.repeat(np.arange(num_clients), column) for column in counts.T])
    rows = np.concatenate(
        [own[: column.sum()] for own, column in zip(classes, counts.T, strict=True)]
    )
    return rows[np.argsort(owner, kind="stable")], counts.sum(1)


def no_group(num_clients: int) -> Tensor:
    """[M] int64 of -1: there is no true group."""
    return torch.full((num_clients,), -1, dtype=torch.int64)


def _offsets(sizes: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
