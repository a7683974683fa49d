"""What the server makes of what participants have sent: the step along their mean, and its memory.

A method hands over the models it had and their means, and gets models back; it knows nothing of a
memory. So the memory of a model is looked up by the model's own bits: whatever keeps a model, moves
it or gives it to two clusters keeps its memory with it. A model that nobody has been given before,
such as the mean of two that are merged, begins without.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

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


@dataclass
class Server:
    """The server in one round of one seed.

    Attributes:
        step: how models become others; None takes the means as they are.
        before: memories [S, P] at the start of the round, by the digest of their model.
        after: those of models that were made in it.
        layout: of the models' rows; statistics are taken as they are in the means.
    """

    step: ServerStep | None = None
    before: Mapping[bytes, Tensor] = field(default_factory=dict)
    after: dict[bytes, Tensor] = field(default_factory=dict)
    layout: Layout | None = None

    def stepped(self, models: Tensor, means: Tensor, label: Tensor) -> Tensor:
        """The models [K, P] that replace `models` [K, P], of which participants with the clusters
        `label` [C] made `means` [K, P]. One without participants stays, and its memory, too.
        """
        if self.step is None:
            return means
        memory = torch.stack([self._memory(key, models) for key in digests(models)])
        trained = label.bincount(minlength=len(models)) > 0
        after, moved = self.step(models, means, memory)
        after = after.where(trained.unsqueeze(1), models)
        if self.layout is not None:
            after = self.layout.joined(after, means)
        moved = moved.where(trained.view(-1, 1, 1), memory)
        self.after.update(zip(digests(after), moved.unbind(), strict=True))
        return after

    def passed_on(self, models: Tensor, changed: Tensor) -> Tensor:
        """`changed` [K, P], with the memories of `models` [K, P]: for what a method does with the
        models that it has just been given.
        """
        if self.step is not None:
            old = [self._memory(key, models) for key in digests(models)]
            self.after.update(zip(digests(changed), old, strict=True))
        return changed

    def kept(self, rows: Tensor) -> dict[bytes, Tensor]:
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


def digests(models: Tensor) -> list[bytes]:
    """16 bytes for the bits of every model [K, P]."""
    rows = models.detach().cpu().contiguous().numpy()
    return [hashlib.blake2b(row.data, digest_size=16).digest() for row in rows]
