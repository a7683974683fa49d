"""Hostile clients, a fact of the federation: what they send is changed before a method sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fedclust.core.calls import LocalResult, MeanResult
from fedclust.core.front import Gradient, Layer, Train, mean_by_rows, sum_by_rows
from fedclust.core.types import Federation, Pool, Round, Split


class Attack(Protocol):
    """What hostile clients do."""

    @property
    def forges(self) -> bool:
        """Whether they send other updates than those that they have trained."""
        ...

    def hostile(self, fed: Federation, seed: int) -> Tensor:
        """Who is hostile, [M] bool."""
        ...

    def targets(self, pool: Pool) -> Tensor | None:
        """The targets that hostile clients train on, as `pool.y`; None for the true ones."""
        ...

    def updates(self, honest: Tensor, own: Tensor, draws: Sequence[np.random.Generator]) -> Tensor:
        """What hostile clients send, [m, P], from the updates of honest ones [h, P], their own
        [m, P], and randomness of each; float64.
        """
        ...


def under_attack(
    federations: Mapping[int, Federation], attack: Attack, named: str = ""
) -> dict[int, Federation]:
    """The federation of every seed with its hostile clients, and what they train on; a remark calls
    the attack by the choice of it, "" for its class.
    """
    pool = next(iter(federations.values())).pool
    targets, count = attack.targets(pool), len(pool.y)
    if targets is not None:  # the same images again, with other targets
        image = torch.arange(count) if pool.image is None else pool.image
        pool = replace(
            pool,
            y=torch.cat([pool.y, targets]),
            image=torch.cat([image, image]),
            copies=2 * pool.copies,
        )
    found = {}
    for seed, fed in federations.items():
        hostile, train = attack.hostile(fed, seed), fed.train
        if targets is not None:
            owner, _ = train.owner_and_place()
            train = Split(train.index + (count * hostile[owner]).to(train.index.dtype), train.start)
        many = int(hostile.sum())
        told = (
            f"{many} of {len(hostile)} clients {'is' if many == 1 else 'are'} hostile "
            f"({named or type(attack).__name__}); what is tested are the others"
        )
        more = getattr(attack, "remark", "")
        remarks = (*fed.remarks, f"{told}; {more}" if more else told)
        found[seed] = replace(fed, pool=pool, train=train, hostile=hostile, remarks=remarks)
    return found


@dataclass(frozen=True)
class Attacked(Layer):
    """Clients of whom some send something forged."""

    attack: Attack  # what hostile clients do

    def train(self, asked: Train) -> LocalResult:
        """What is adapted by its client before use is sent to nobody."""
        result = self.behind.train(asked)
        if asked.purpose == "finetune" or not any_hostile(self.attack, asked.ids, self.rnd):
            return result
        start = asked.begun
        moves = result.params - start
        sent = self._sent(moves, asked.label, asked.ids)
        params = result.params.where(sent == moves, start + sent)  # to the bit where honest
        return replace(result, params=params)

    def train_mean(self, asked: Train) -> MeanResult:
        if any_hostile(self.attack, asked.ids, self.rnd):
            return mean_by_rows(self, asked)
        return self.behind.train_mean(asked)

    def grad(self, asked: Gradient) -> Tensor:
        """An update is a step against the gradient."""
        found = self.behind.grad(asked)
        if not any_hostile(self.attack, asked.ids, self.rnd):
            return found
        return -self._sent(-found, asked.label, asked.ids)

    def grad_sum(self, asked: Gradient) -> Tensor:
        if any_hostile(self.attack, asked.ids, self.rnd):
            return sum_by_rows(self, asked)
        return self.behind.grad_sum(asked)

    def _sent(self, moves: Tensor, label: Tensor, ids: Tensor) -> Tensor:
        """The updates [C, P] that the clients send."""
        return forged(self.attack, moves, label, ids, self.rnd, self.layout.num_trained)


def any_hostile(attack: Attack, ids: Tensor, rnd: Round) -> bool:
    """Whether one of the clients `ids` [C] sends something forged."""
    if not attack.forges or rnd.fed.hostile is None:
        return False
    return bool(rnd.fed.hostile[ids].any())


def forged(
    attack: Attack, moves: Tensor, label: Tensor, ids: Tensor, rnd: Round, width: int
) -> Tensor:
    """The updates [C, P] that clients send, from those that they have trained, `moves` [C, P].

    Hostile clients know the updates of all honest ones in the call that started from the same
    model, of the `label` [C]; where a model has none, those of the other models; where there are
    none at all, their own. The first `width` numbers of an update are forged, the others are
    statistics.
    """
    if rnd.fed.hostile is None or not any_hostile(attack, ids, rnd):
        return moves
    bad, sent = rnd.fed.hostile[ids], moves.clone()
    for k in label[bad].unique().tolist():  # type: ignore[no-untyped-call]
        rows = (label == k) & bad
        known = next(who for who in ((label == k) & ~bad, ~bad, rows) if bool(who.any()))
        draws = [rnd.stream("attack", client, k).numpy() for client in ids[rows].tolist()]
        own, honest = (moves[who, :width].double() for who in (rows, known))
        sent[rows, :width] = attack.updates(honest, own, draws).to(moves.dtype)
    return sent
