"""Numbers of a model that stay with each client: running statistics, and what belongs to them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedclust.helpers.errors import require


@dataclass
class OwnStatistics:
    """What clients have in place of some columns of every model's row.

    Attributes:
        norm: the value of the key that asks for it.
        columns: [P] bool which columns.
        values: [M, S] of every client.
        known: [M] bool, who has any.
        kept: whether training gives clients new ones; else they are for tests alone.
        trained: [M] bool, who has trained in this round.
        tuned: whether models are tuned to be served, which moves statistics too.
    """

    norm: str
    columns: Tensor
    values: Tensor
    known: Tensor
    kept: bool
    trained: Tensor
    tuned: bool = False

    def placed(self, rows: Tensor, ids: Tensor) -> Tensor:
        """Rows [C, P] with what the clients `ids` [C] have, where they have any."""
        own = rows.clone()
        own[:, self.columns] = torch.where(
            self.known[ids].unsqueeze(1), self.values[ids], rows[:, self.columns]
        )
        return own

    def keep(self, params: Tensor, start: Tensor, ids: Tensor) -> Tensor:
        """What is sent of what clients `ids` [C] made, params [C, P]: the rest is kept by them, and
        in its place stands that of the `start` [C, P].

        Raises:
            ConfigError: if a client has trained another model in this round.
        """
        once = len(ids.unique()) == len(ids) and not bool(self.trained[ids].any())  # type: ignore[no-untyped-call]
        allowed = "average or recalibrate: the algorithm trains several models of a client in a"
        require(once, "norm", self.norm, f"{allowed} round, each with statistics of its own")
        self.trained[ids], self.known[ids] = True, True
        self.values[ids] = params[:, self.columns]
        return torch.where(self.columns, start, params)
