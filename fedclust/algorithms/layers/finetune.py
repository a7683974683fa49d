"""Any method with local fine-tuning: what it serves is trained further by each client before use.

The plain baseline of personalisation: Yu, Bagdasaryan, Shmatikov, Salvaging federated learning by
local adaptation, 2020, arXiv:2002.04758 (section 3.1); Cheng, Chadha, Duchi, Fine-tuning is fine in
federated learning, 2021, arXiv:2108.07313.

Differs from the papers: the rate of fine-tuning is that of the round, as in training; nothing is
frozen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from fedclust.algorithms.steps import each
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import Round, Served
from fedclust.core.wrapper import Wrapper
from fedclust.helpers.ranges import AtLeastZero


@dataclass(frozen=True, kw_only=True)
class FineTune(Wrapper):
    """A method whose models each client adapts to its training data when it uses them.

    Training is that of `base` and never sees the adapted models. Adapting happens in `serve`, so at
    every evaluation: it makes up to M models there, and its steps are not counted as training.
    """

    solver: Solver  # how a client adapts, but for the number of passes
    # passes over the client's data; 0 serves the models of `base` as they are
    epochs: AtLeastZero = 1

    def serve(self, state: Any, clients: Clients, rnd: Round) -> Served:
        """A model of its own for every served client with training data, after the base's."""
        served = self.base.serve(state, clients, rnd)
        if self.epochs == 0:
            return served
        ids = ((served.label >= 0) & (rnd.fed.train.count > 0)).nonzero().squeeze(1)
        solver = replace(self.solver, epochs=self.epochs, steps=None)
        tuned = clients.train(
            Train(served.models, served.label[ids], ids, solver, purpose="finetune")
        ).params
        row = each(ids) + len(served.models)
        return Served(
            models=torch.cat([served.models, tuned]), label=served.label.index_copy(0, ids, row)
        )
