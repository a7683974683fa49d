"""Numbers of a model that stay with each client: running statistics, and what belongs to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedclust.core.norms import AVERAGED
from fedclust.helpers.errors import require


@dataclass
class OwnStatistics:
    """What clients have in place of some columns of every model's row."""

    norm: str  # the value of the key that asks for it
    columns: Tensor  # [P] bool which columns
    values: Tensor  # [M, S] of every client
    known: Tensor  # [M] bool, who has any
    stay: bool  # whether training gives clients new ones; else they are for tests alone
    trained: Tensor  # [M] bool, who has trained in this round
    tuned: bool = False  # whether models are tuned to be served, which moves statistics too

    def placed(self, rows: Tensor, ids: Tensor) -> Tensor:
        """Rows [C, P] with what the clients `ids` [C] have, where they have any."""
        own = rows.clone()
        own[:, self.columns] = torch.where(
            self.known[ids].unsqueeze(1), self.values[ids], rows[:, self.columns]
        )
        return own

    def aside(self) -> OwnStatistics:
        """A copy for models that are tuned, served and tested: what becomes of it is lost."""
        nobody = torch.zeros_like(self.known)
        values, known = self.values.clone(), self.known.clone()
        return replace(self, values=values, known=known, trained=nobody, tuned=True)

    def in_test(
        self,
        models: Tensor,
        label: Tensor,
        count: Tensor,
        anew: Callable[[Tensor, Tensor, Tensor], Tensor],
    ) -> OwnStatistics:
        """Those that a test looks at: of who has none, and with `recalibrate` of all, those of the
        client's training examples.

        Args:
            label: [M] int64 the model of every client, -1 without.
            count: [M] int64 training examples.
            anew: from models, labels [A] and clients [A] with two examples at least, the rows
                [A, P] with the statistics of each client's examples.
        """
        known = (label >= 0) & (count > 1)
        ids = (known & ~self.known if self.stay else known).nonzero().squeeze(1)
        seen = anew(models, label[ids], ids)
        values = torch.zeros(len(known), int(self.columns.sum()), device=known.device)
        if self.stay:
            values.copy_(self.values)
        values[ids] = seen[:, self.columns]
        return replace(self, values=values, known=self.known | known, stay=False)

    def keep(self, params: Tensor, start: Tensor, ids: Tensor) -> Tensor:
        """What is sent of what clients `ids` [C] made, params [C, P]: the rest is kept by them, and
        in its place stands that of the `start` [C, P].

        Raises:
            ConfigError: if a client has trained another model in this round.
        """
        once = len(ids.unique()) == len(ids) and not bool(self.trained[ids].any())  # type: ignore[no-untyped-call]
        allowed = f"{AVERAGED}: the algorithm trains several models of a client in a round"
        require(once, "norm", self.norm, f"{allowed}, each with statistics of its own")
        self.trained[ids], self.known[ids] = True, True
        self.values[ids] = params[:, self.columns]
        return self.without(params, start)

    def without(self, params: Tensor, start: Tensor) -> Tensor:
        """Params [C, P] with what the `start` [C, P] has in place of what is the clients' own."""
        return torch.where(self.columns, start, params)
