"""Clients that do not answer, and clients that do not get far: heterogeneous systems as in FedProx.

Li et al., Federated optimization in heterogeneous networks, MLSys 2020,
https://arxiv.org/abs/1812.06127, section 5.2. Differs from the paper: it counts stragglers' work in
epochs, this in local steps, and it either drops all stragglers or none, which here are two
independent things.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from fedclust.core.types import Federation, Round
from fedclust.helpers.effects import OnlyWithout
from fedclust.helpers.ranges import BelowOne, Fraction, Probability
from fedclust.helpers.rng import uniform
from fedclust.scenarios.sampling import Sampling


@dataclass(frozen=True, kw_only=True)
class Unavailable(Sampling):
    """In every round some clients drop out if sampled, and some do only part of their local steps.

    Both are drawn anew per client and round. Of a cohort in which everybody would drop out, one
    client stays.
    """

    shifts: ClassVar[bool] = False

    # probability that a sampled client drops out; nothing is sent to or from it
    dropout: BelowOne = 0.1
    stragglers: Probability = 0.0  # probability that a client does part of its work only
    # that part is uniform in [min_work, 1), rounded up to whole steps
    min_work: Annotated[Fraction, OnlyWithout("stragglers", 0)] = 0.1

    def samples_all(self, num_clients: int) -> bool:
        """Not where clients drop out."""
        return self.dropout == 0 and super().samples_all(num_clients)

    def rounds(self, fed: Federation, seed: int) -> Iterator[Round]:
        return self.play(fed, seed, self._disturb)

    def _disturb(self, rnd: Round, seen: Tensor) -> Round:
        clients = torch.arange(rnd.fed.num_clients, device=rnd.present.device)
        late, part = uniform(rnd.stream("straggler").keys(clients), 2).unbind(1)
        dropped = uniform(rnd.stream("dropout").keys(clients), 1).squeeze(1) < self.dropout
        some = self.min_work + (1 - self.min_work) * part
        work = torch.where(late < self.stragglers, some, rnd.work)
        return replace(rnd, work=work, dropped=dropped)
