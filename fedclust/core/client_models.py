"""A row of parameters for every client, of which a round changes a few."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class ClientModels:
    """Rows of M clients, [M, P], that never change: their models, updates or control variates.

    `replaced` gives others that share every row but the new ones, so a round in which 20 of 1,000
    clients take part copies 20 rows. A State that annotates a field so is counted in the memory
    that a job needs before its first round.

    Args:
        rows: one [P] per client.
    """

    def __init__(self, rows: Sequence[Tensor]) -> None:
        self._rows = rows
        self._together: Tensor | None = None  # the same rows where they lie in one tensor

    @classmethod
    def of(cls, rows: Tensor) -> ClientModels:
        """The rows of a tensor [M, P], which must not change from now on."""
        models = cls(())
        models._together = rows
        return models

    @classmethod
    def alike(cls, row: Tensor, num_clients: int) -> ClientModels:
        """One row [1, P] for each of `num_clients` clients, held once."""
        return cls([row[0]] * num_clients)

    @classmethod
    def restored(cls, rows: Tensor, places: Tensor) -> ClientModels:
        """What `saved` gave."""
        each = rows.unbind(0)
        return cls([each[place] for place in places.tolist()])

    def saved(self) -> dict[str, Tensor]:
        """`rows` [U, P], every row that differs from all others by its place in memory, and the
        `places` [M] int64 of the clients' rows among them: of clients that share one it is kept
        once, in memory as on the disk.
        """
        if self._together is not None:
            return {"rows": self._together, "places": torch.arange(len(self))}
        rows = {id(row): row for row in self._rows}
        place = {key: number for number, key in enumerate(rows)}
        places = torch.tensor([place[id(row)] for row in self._rows])
        return {"rows": torch.stack(list(rows.values())), "places": places}

    def __len__(self) -> int:
        """M."""
        return len(self._rows if self._together is None else self._together)

    def __getitem__(self, ids: Tensor) -> Tensor:
        """The rows of the clients `ids` [C] int64, [C, P], which must not be changed."""
        places = ids.tolist()
        if places == self._everybody():
            return self.all()
        if self._together is not None:
            return self._together[ids]
        if not places:
            return self._rows[0].new_empty(0, len(self._rows[0]))
        return torch.stack([self._rows[client] for client in places])

    def all(self) -> Tensor:
        """The rows of all clients in one tensor [M, P], which must not be changed."""
        if self._together is None:
            self._together, self._rows = torch.stack(list(self._rows)), ()
        return self._together

    def replaced(self, ids: Tensor, rows: Tensor) -> ClientModels:
        """These, but `rows` [C, P] for the clients `ids` [C] int64.

        Where they are all clients in their order it is `rows` itself, which must not change from
        now on: a copy of everybody's models can be gigabytes.
        """
        places = ids.tolist()
        if places == self._everybody():
            return ClientModels.of(rows)
        kept = list(self._rows if self._together is None else self._together.unbind(0))
        for client, row in zip(places, rows.unbind(0), strict=True):
            kept[client] = row.clone()  # alone, or it would hold the memory of all C
        return ClientModels(kept)

    def followed(self, others: ClientModels) -> ClientModels:
        """These and then others, [M + N, P]."""
        both = (self, others)
        parts = (x._rows if x._together is None else x._together.unbind(0) for x in both)
        return ClientModels([row for rows in parts for row in rows])

    def _everybody(self) -> list[int]:
        """All clients in their order."""
        return list(range(len(self)))
