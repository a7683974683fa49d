"""What of the inputs follows from training rows: their scale, and what fills gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedclust.core.types import Dataset, Federation, Pool, Split
from fedclust.datasets.normalise import affine
from fedclust.helpers.errors import DataError, require


@dataclass(frozen=True)
class Fit:
    """Gaps filled and features scaled by what a seed's training rows say, never by its test rows.

    Attributes:
        word: mean_std, by_row, pixel or none as in `fedclust.datasets.normalise`, of the training
            rows of all clients; client: mean_std by those of each client.
        fill: what a gap becomes: the median, mean or most_frequent value of its feature; indicator
            takes the mean, too. None where there are none. With `word` client it is that of the
            client's own training rows, where any of them has a value.
        coded: [F] bool, features of categories; a value that no training row has is a gap.
        names: of the features, for messages; may be empty.
        flags: [F] bool, features that stay as they are: 0 and 1, of which a rare one, scaled, would
            reach as many standard deviations as make every rate too large; and ids, of categories,
            where the most frequent one fills gaps.
    """

    word: str
    fill: str | None = None
    coded: Tensor | None = None
    names: tuple[str, ...] = ()
    flags: Tensor | None = None

    @property
    def anyway(self) -> bool:
        """Whether examples change by more than one scale for all."""
        return self.fill is not None or self.word == "client" or self._has_codes

    @property
    def _has_codes(self) -> bool:
        return self.coded is not None and bool(self.coded.any())

    def __call__(
        self, dataset: Dataset, federations: Mapping[int, Federation]
    ) -> dict[int, Federation]:
        """The federations with fitted examples.

        Where the seeds differ the pool holds the examples of every seed, one copy behind the other.
        Nothing changes where the scale of the dataset has not looked at test rows. Pictures keep it
        where seeds differ: a few numbers of all training images, which test images hardly move.

        Raises:
            DataError: a feature has no value in a seed's training rows.
            ConfigError: two clients own a row that is to be scaled by client.
        """
        feds = dict(federations)
        pool = next(iter(feds.values())).pool
        if not self.anyway:
            if self.word == "none" or not any(_has_looked(dataset, fed) for fed in feds.values()):
                return feds
            scales = [affine(self.word, pool.x[_trained(fed)]) for fed in feds.values()]
            scale, shift = scales[0]
            if all(torch.equal(scale, a) and torch.equal(shift, b) for a, b in scales):
                one = replace(pool, scale=scale, shift=shift)
                return {seed: replace(fed, pool=one) for seed, fed in feds.items()}
            if pool.x.dtype == torch.uint8:
                return feds
        if self.word == "client" and pool.image is not None:
            pool = replace(pool, x=pool.x[pool.image], image=None)
            feds = {seed: replace(fed, pool=pool) for seed, fed in feds.items()}
        fitted = {seed: self._fitted(fed) for seed, fed in feds.items()}
        copies = [x for x, _ in fitted.values()]
        if all(torch.equal(copies[0], other) for other in copies[1:]):
            copies = copies[:1]
        both = _joined(pool, copies)
        step = len(pool.y) if len(copies) > 1 else 0
        return {
            seed: _moved(replace(fed, pool=both, raw={**fed.raw, **fitted[seed][1]}), turn * step)
            for turn, (seed, fed) in enumerate(feds.items())
        }

    def _fitted(self, fed: Federation) -> tuple[Tensor, dict[str, Any]]:
        """The examples as a model of one seed sees them, [images, *shape] float32, and how they
        were made, see `fedclust.datasets.raw`.
        """
        x, rows, learnt = fed.pool.x.float(), _trained(fed), dict[str, Any]()
        if self.fill is not None or self._has_codes:
            learnt = self._stand_ins(x.numpy(), rows, fed)
            owner = _owners(len(x), fed).numpy() if self.word == "client" else -1
            x = torch.from_numpy(filled(x.numpy().copy(), learnt, self.names, owner))
        flags = slice(0) if self.flags is None else self.flags
        if self.word == "client":
            scaled, own = _by_client(x.double(), rows, fed, flags)
            return scaled.float(), {**learnt, "of_clients": own}
        if self.word == "none":
            return x, learnt
        scale, shift = affine(self.word, x[rows])
        scale[flags], shift[flags] = 1, 0
        learnt |= {"scale": scale.tolist(), "shift": shift.tolist()}
        return x * scale + shift, learnt  # the bits of a seed whose pool has this scale

    def _stand_ins(
        self, x: npt.NDArray[np.float32], rows: Tensor, fed: Federation
    ) -> dict[str, Any]:
        """What `filled` reads, by the values of features x [N, F] in `rows`."""
        places = range(x.shape[1])
        coded = [p for p in places if self.coded is not None and bool(self.coded[p])]
        flags = [] if self.flags is None else self.flags.nonzero().flatten().tolist()
        # between two ids there is none
        of_codes = {p: "most_frequent" if p in flags else self.fill or "mean" for p in coded}
        fills = [of_codes.get(p, self.fill) for p in places]

        learnt = x[rows.numpy()]
        seen = {str(p): np.unique(learnt[:, p][~np.isnan(learnt[:, p])]).tolist() for p in coded}
        stand_ins: dict[str, Any] = {"fill": typical(learnt, fills), "seen": seen}
        if self.word == "client":
            mine = (fed.train.of_client(client).numpy() for client in range(fed.num_clients))
            stand_ins["fill_of_clients"] = [typical(x[one], fills) for one in mine]
        return stand_ins


def filled(
    values: npt.NDArray[np.float32],
    learnt: Mapping[str, Any],
    names: Sequence[str],
    owner: npt.NDArray[np.int64] | int = -1,
) -> npt.NDArray[np.float32]:
    """Features [N, F] without gaps, changed in place.

    Args:
        values: NaN for a gap.
        learnt: `seen`, the values of features of categories by place, of which others are gaps;
            `fill`, what stands for a gap, None where nothing does; `fill_of_clients` likewise, of
            the client's own.
        names: of the features; may be empty.
        owner: the client of every row [N], or of all; -1 for none.

    Raises:
        DataError: a feature with gaps has nothing that stands for them.
    """
    for place in range(values.shape[1]):
        column = values[:, place]
        if str(place) in learnt["seen"]:
            column[~np.isin(column, np.float32(learnt["seen"][str(place)]))] = np.nan
        gaps = np.isnan(column)
        if not gaps.any():
            continue
        if learnt["fill"][place] is None:
            name = names[place] if names else str(place)
            raise DataError(
                f"no training row has a value in column {name}, so its gaps cannot be filled: "
                "dataset.exclude leaves it out"
            )
        column[gaps] = learnt["fill"][place]
        for client, own in enumerate(learnt.get("fill_of_clients", ())):
            if own[place] is not None:
                column[gaps & (owner == client)] = own[place]
    return values


def typical(values: npt.NDArray[np.float32], fills: Sequence[str | None]) -> list[float | None]:
    """What stands for a gap in each feature of values [N, F], each by its own way; None where
    nothing does.
    """
    known = [column[~np.isnan(column)] for column in values.T]
    each = zip(known, fills, strict=True)
    return [_typical(one, how) if one.size and how else None for one, how in each]


def _typical(known: npt.NDArray[np.float32], fill: str | None) -> float:
    """The value that stands for a gap."""
    if fill == "median":
        return float(np.median(known))
    if fill == "most_frequent":  # the smallest of those
        values, times = np.unique(known, return_counts=True)
        return float(values[times.argmax()])
    return float(known.mean())


def _trained(fed: Federation) -> Tensor:
    """Places of the examples that somebody trains on, sorted, each once."""
    return torch.from_numpy(np.unique(fed.pool.images(fed.train.index.long()).numpy()))


def _has_looked(dataset: Dataset, fed: Federation) -> bool:
    """Whether the scale of the dataset may follow from rows that are tested on."""
    pool = fed.pool
    if dataset.test_share is not None or not pool.in_order:
        return True
    examples, learnt = len(dataset.x_train) + len(dataset.x_test), len(dataset.x_train)
    if len(pool.x) == examples * pool.concepts:  # each in every form
        examples, learnt = len(pool.x), learnt * pool.concepts
    tested = [split.index.long() for name, split in fed.splits.items() if name != "train"]
    among = any(bool((pool.images(rows) < learnt).any()) for rows in tested)
    return among or len(pool.x) != examples


def _by_client(
    x: Tensor, rows: Tensor, fed: Federation, flags: Tensor | slice
) -> tuple[Tensor, list[dict[str, Any]]]:
    """Examples x [N, *shape] float64, those of every client minus the mean of its training rows,
    over their standard deviation, or over that of all where a feature is constant there; and both
    of every client. The features `flags` stay as they are.
    """
    flat = x.reshape(len(x), -1)
    mean, std = flat[rows].mean(0), flat[rows].std(0, correction=0)
    mean[flags], std[flags] = 0, 1
    result = (flat - mean) / torch.where(std > 0, std, 1)
    owner = _owners(len(x), fed)
    scales = []
    for client in range(fed.num_clients):
        own, mine = fed.train.of_client(client), owner == client
        mu, sigma = mean, torch.where(std > 0, std, 1)
        if len(own):
            mu, sigma = flat[own].mean(0), flat[own].std(0, correction=0)
            sigma = torch.where(sigma > 0, sigma, torch.where(std > 0, std, 1))
            mu[flags], sigma[flags] = 0, 1
            result[mine] = (flat[mine] - mu) / sigma
        scales.append({"mean": mu.tolist(), "deviation": sigma.tolist()})
    return result.view_as(x), scales


def _owners(number: int, fed: Federation) -> Tensor:
    """The client of every example [N], -1 where nobody has it."""
    owner = torch.full((number,), -1)
    for split in fed.splits.values():
        whose, _ = split.owner_and_place()
        place = split.index.long()
        before = owner[place]
        owner[place] = whose
        shared = ((before >= 0) & (before != whose)) | (owner[place] != whose)
        allowed = "mean_std or none, since two clients own one row"
        require(not bool(shared.any()), "dataset.normalise", "client", allowed)
    return owner


def _joined(pool: Pool, copies: list[Tensor]) -> Pool:
    """The pool with fitted examples, one copy behind the other."""
    times = len(copies)
    image = pool.image
    if image is not None and times > 1:
        image = torch.cat([image + turn * len(pool.x) for turn in range(times)])
    return replace(
        pool,
        x=torch.cat(copies) if times > 1 else copies[0],
        y=torch.cat([pool.y] * times) if times > 1 else pool.y,
        scale=torch.ones_like(pool.scale),
        shift=torch.zeros_like(pool.shift),
        image=image,
        copies=times,
        in_order=False,
    )


def _moved(fed: Federation, step: int) -> Federation:
    """The federation whose rows are `step` further in the pool."""
    if not step:
        return fed

    def moved(split: Split) -> Split:
        return Split((split.index.long() + step).to(torch.int32), split.start)

    held_out = None if fed.validation is None else moved(fed.validation)
    return replace(fed, train=moved(fed.train), test=moved(fed.test), validation=held_out)
