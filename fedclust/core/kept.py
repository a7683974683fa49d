"""What clients keep of their trainings from round to round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import torch
from torch import Tensor

from fedclust.core.client_models import ClientModels

_FREE = -1  # a place that nobody has asked for


@dataclass
class Kept:
    """What is kept of every client, in one round.

    A client may be trained several times in a round: for different purposes, or several of its
    models. Each of these times has a place of its own.
    """

    # [S * M, W] what is kept in each of S places of each of M clients, place by place
    rows: ClientModels
    places: Tensor  # [S] int64 what they are
    _times: dict[str, Tensor] = field(default_factory=dict)  # each client was trained so far, [M]

    @classmethod
    def nothing(cls, num_clients: int, width: int, device: torch.device) -> Kept:
        """Of a run that begins."""
        blank = torch.zeros(1, width, device=device)
        return cls(ClientModels.alike(blank, num_clients), torch.tensor([_FREE]))

    def of(self, purpose: str, ids: Tensor) -> Tensor:
        """Where the clients `ids` [C] int64, trained now for a purpose, have their rows, [C]
        int64; a client that stands there twice has two.
        """
        num_clients = len(self.rows) // len(self.places)
        times = self._times.setdefault(purpose, torch.zeros(num_clients, dtype=torch.int64))
        own = list[int]()
        for client in ids.tolist():
            place = self._place(f"{purpose} {int(times[client])}", num_clients)
            own.append(place * num_clients + client)
            times[client] += 1
        return torch.tensor(own, dtype=torch.int64)

    def keep(self, own: Tensor, slots: Tensor) -> None:
        """Replace the rows `own` [C] int64 by `slots` [C, w], w <= W."""
        wide = slots.new_zeros(len(slots), self.rows[own[:0]].shape[1])
        wide[:, : slots.shape[1]] = slots
        self.rows = self.rows.replaced(own, wide)

    def _place(self, name: str, num_clients: int) -> int:
        """The number of a place, which is made where there is none."""
        key = int.from_bytes(blake2b(name.encode(), digest_size=7).digest(), "big")
        known: Sequence[int] = self.places.tolist()
        if key in known:
            return known.index(key)
        if known == [_FREE]:
            self.places = torch.tensor([key])
            return 0
        blank = torch.zeros_like(self.rows[torch.tensor([0])])
        self.rows = self.rows.followed(ClientModels.alike(blank, num_clients))
        self.places = torch.tensor([*known, key])
        return len(known)
