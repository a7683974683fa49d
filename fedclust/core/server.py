"""What the server makes of what participants have sent: a mean, the step along it, its memory.

A method hands over the models it had and their means, and gets models back; it knows nothing of a
memory. So the memory of a model is looked up by the model's own bits: whatever keeps a model, moves
it or gives it to two clusters keeps its memory with it. A model that nobody has been given before,
such as the mean of two that are merged, begins without.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from numpy.random import Generator
from torch import Tensor

from fedclust.core.types import Round
from fedclust.helpers.rng import uniform
from fedclust.models.params import Layout


class ServerStep(Protocol):
    """The step of a server's optimiser."""

    @property
    def first(self) -> tuple[float, ...]:
        """What every number of the memory is before the first step, one for each of S moments."""
        ...

    def __call__(self, models: Tensor, means: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """The next models [K, P] and the memory [K, S, P] after it, from the models [K, P], the
        means [K, P] of what the participants made of them, and the memory [K, S, P] before.
        """
        ...


class Aggregation(Protocol):
    """A mean that bad updates move less than the plain one."""

    def check(self, cohort: int) -> None:
        """Raise `ConfigError` where a cohort of that size is too small."""
        ...

    def is_short(self, count: int) -> bool:
        """Whether so many participants of a cluster are too few, so that it takes their median."""
        ...

    def __call__(self, updates: Tensor, share: Tensor) -> Tensor | None:
        """The mean [P] of the updates [C, P] of a cluster's participants, by their shares [C] of
        1; float64. None for the plain mean.
        """
        ...


class Privacy(Protocol):
    """Means that say little of any single client."""

    def assigned(
        self, label: Tensor, num_models: int, ids: Tensor, rnd: Round, expected: float
    ) -> Tensor:
        """The models [C] int64 in [0, K) that the participants `ids` [C] train in this round, where
        a method has given them `label` [C]; `expected` participants are drawn on average.
        """
        ...

    def noised(
        self, updates: Tensor, label: Tensor, num_models: int, expected: float, draw: Generator
    ) -> Tensor:
        """The mean updates [K, P] from those of the participants [C, P] with the models `label`
        [C], as each model is expected to have so many; float64.
        """
        ...

    def epsilon(self, rounds: Mapping[tuple[float, int], int]) -> float:
        """Of all rounds so far: how many there were in which every client took part with a
        probability, the share, and of how many models; no round more may make it less.
        """
        ...


def as_drawn(rnd: Round) -> tuple[Round, bool]:
    """The round with a cohort in which everybody is drawn with probability `rnd.share`, and whether
    nobody was: then one client takes part whose update must not count.
    """
    able = (rnd.present & (rnd.fed.train.count > 0) & ~rnd.dropped).nonzero().squeeze(1)
    chance = uniform(rnd.stream("poisson").keys(able), 1).squeeze(1)
    drawn = able[chance < rnd.share]
    if len(drawn):
        return replace(rnd, cohort=drawn), False
    return replace(rnd, cohort=able[chance.argsort()[:1]]), True


@dataclass
class Server:
    """The server in one round of one seed."""

    aggregation: Aggregation | None = None  # the mean of updates; None for the plain one
    # for every mean by `aggregation`, whether it had too few participants
    short: list[bool] = field(default_factory=list)
    privacy: Privacy | None = None  # makes noisy means of updates; None without noise
    num_drawn: float = 1.0  # clients of a round on average, by whose number a noisy sum is divided
    # of how many models noisy means were made in it
    released: list[int] = field(default_factory=list)
    # whether the participants were not drawn: they are there because a method needs some
    nobody: bool = False
    draw: Generator | None = None  # the noise of the round
    step: ServerStep | None = None  # how models become others; None takes the means as they are
    # memories [S, P] at the start of the round, by the digest of their model
    before: Mapping[bytes, Tensor] = field(default_factory=dict)
    after: dict[bytes, Tensor] = field(default_factory=dict)  # those of models that were made in it
    # of the models' rows; statistics are taken as they are in the means, and their robust mean is
    # the median
    layout: Layout | None = None

    @property
    def needs_updates(self) -> bool:
        """Whether the mean of the participants' models does not do."""
        return self.aggregation is not None or self.privacy is not None

    def assigned(self, label: Tensor, num_models: int, ids: Tensor, rnd: Round) -> Tensor:
        """What the participants `ids` [C] train in this round, [C] int64 in [0, K), where a method
        has given them `label` [C].
        """
        if self.privacy is None:
            return label
        return self.privacy.assigned(label, num_models, ids, rnd, self.num_drawn)

    def replaced(
        self, models: Tensor, params: Tensor, means: Tensor, label: Tensor, weight: Tensor | None
    ) -> Tensor:
        """The models [K, P] that replace `models` [K, P].

        Args:
            params: [C, P] what the participants made of them.
            means: [K, P] their plain means.
            label: [C] int64 in [0, K), the participants' clusters.
            weight: [C] of the participants in the means, None = equal.
        """
        return self.stepped(models, self.combined(models, params, means, label, weight), label)

    def combined(
        self, models: Tensor, params: Tensor, means: Tensor, label: Tensor, weight: Tensor | None
    ) -> Tensor:
        """The means [K, P] by `aggregation` or `privacy`; arguments as of `replaced`."""
        if self.privacy is not None:
            moves = (params.double() - models.double()[label]) * (not self.nobody)
            # a second mean in one round would be a second release
            draw, self.draw = self.draw, None
            assert draw is not None
            self.released.append(len(models))
            expected = self.num_drawn / len(models)
            mean = self.privacy.noised(moves, label, len(models), expected, draw)
            return (models.double() + mean).to(models.dtype)
        if self.aggregation is None:
            return means
        mass = torch.ones_like(label) if weight is None else weight
        rows = list(means.unbind())
        for k, model in enumerate(models):
            mine = (label == k) & (mass > 0)
            if not bool(mine.any()):
                continue
            share, start = mass[mine].double(), model.double()
            moves = params[mine].double() - start
            end = moves.shape[1] if self.layout is None else self.layout.num_trained
            self.short.append(self.aggregation.is_short(len(moves)))
            moved = self.aggregation(moves[:, :end], share / share.sum())
            if moved is not None:
                whole = torch.cat([moved, median(moves[:, end:])])
                rows[k] = (start + whole).to(model.dtype)
        return torch.stack(rows)

    def stepped(self, models: Tensor, means: Tensor, label: Tensor) -> Tensor:
        """The models [K, P] that replace `models` [K, P], of which participants with the clusters
        `label` [C] made `means` [K, P]. One without participants stays, and its memory, too.
        """
        if self.step is None:
            return means
        memory = torch.stack([self._memory(key, models) for key in digests(models)])
        trained = label.bincount(minlength=len(models)) > 0
        if self.privacy is not None:  # noise comes to all, or it would say who took part
            trained = torch.ones_like(trained)
        after, moved = self.step(models, means, memory)
        after = after.where(trained.unsqueeze(1), models)
        if self.layout is not None:
            after = self.layout.joined(after, means)
        moved = moved.where(trained.view(-1, 1, 1), memory)
        self.after.update(zip(digests(after), moved.unbind(), strict=True))
        return after

    def passed_on(self, models: Tensor, changed: Tensor) -> Tensor:
        """`changed` [K, P] with the memories of `models` [K, P], which a method has been given."""
        if self.step is not None:
            old = [self._memory(key, models) for key in digests(models)]
            self.after.update(zip(digests(changed), old, strict=True))
        return changed

    def memories(self, rows: Tensor) -> dict[bytes, Tensor]:
        """The memories [S, P] of those of the models `rows` [A, P] that have one."""
        there = {**self.before, **self.after}
        return {key: there[key] for key in digests(rows) if key in there}

    def _memory(self, key: bytes, like: Tensor) -> Tensor:
        """The memory [S, P] of the model with this digest."""
        found = self.after.get(key, self.before.get(key))
        if found is not None:
            return found
        assert self.step is not None
        first = torch.tensor(self.step.first, dtype=like.dtype, device=like.device)
        return first.unsqueeze(1).repeat(1, like.shape[1])


def median(values: Tensor) -> Tensor:
    """The median [P] of every column of [C, P]: the mean of the middle two where C is even."""
    ordered, count = values.sort(0).values, len(values)
    return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2


def digests(models: Tensor) -> list[bytes]:
    """16 bytes for the bits of every model [K, P]."""
    rows = models.detach().cpu().contiguous().numpy()
    return [hashlib.blake2b(row.data, digest_size=16).digest() for row in rows]
