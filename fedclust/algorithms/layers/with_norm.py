"""Any method on a model with running statistics that are not averaged: FedBN (Li et al., ICLR 2021,
arXiv:2102.07623), SiloBN (Andreux et al., 2020, arXiv:2008.07424), and statistics that each client
computes anew before a test.

A client that has not trained yet, and has two training examples, computes its statistics from them
for a test. Losses by which a method chooses look at those that the model began with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedclust.core.calls import Alignment, LocalResult, MeanResult, TestResult
from fedclust.core.front import Clients, Gradient, Layer, Train, mean_by_rows, sum_by_rows
from fedclust.core.norms import AVERAGED, NORMS, OF_MODELS, Norm
from fedclust.core.own_statistics import OwnStatistics
from fedclust.core.types import Cost, Evaluation, Round, Served
from fedclust.core.verbs import Algorithm
from fedclust.core.wrapper import Wrapper
from fedclust.helpers.errors import require
from fedclust.models.params import Layout


def with_norm(base: Algorithm, norm: str) -> Algorithm:
    """The method with statistics of each client's own, if `norm`, one of `NORMS`, asks for them."""
    return _WithNorm(base=base, norm=norm) if NORMS[norm].own_test else base


@dataclass(frozen=True)
class _Owners(Layer):
    """Clients with running statistics of their own, in place of those of every model."""

    own: OwnStatistics  # what they have

    def aside(self) -> Clients:
        return replace(self, behind=self.behind.aside(), own=self.own.aside())

    def train(self, asked: Train) -> LocalResult:
        """They keep what they make of it where they train for the method alone."""
        if not self.own.stay:
            return self.behind.train(asked)
        begun, ids, stays = asked.begun, asked.ids, self.own.columns
        asked = replace(asked, stays=stays if asked.stays is None else asked.stays | stays)
        result = self.behind.train(asked.starting(self.own.placed(begun, ids)))
        if self.own.tuned or asked.purpose == "train":
            return replace(result, params=self.own.keep(result.params, begun, ids))
        return replace(result, params=self.own.without(result.params, begun))

    def train_mean(self, asked: Train) -> MeanResult:
        return mean_by_rows(self, asked) if self.own.stay else self.behind.train_mean(asked)

    def loss(self, models: Tensor, ids: Tensor, batch_size: int | None = None) -> Tensor:
        if not self.own.stay:
            return self.behind.loss(models, ids, batch_size)
        columns = [
            self.behind.loss_of_each(self._all_have(model, ids), ids, batch_size)
            for model in models
        ]
        return torch.stack(columns, 1)

    def example_losses(self, models: Tensor, ids: Tensor, passes: int | None = None) -> Tensor:
        if not self.own.stay or not len(ids):
            return self.behind.example_losses(models, ids, passes)
        tables = [
            self.behind.example_losses(
                self.own.placed(models, one.expand(len(models))), one, passes
            ).squeeze(0)
            for one in torch.split(ids, 1)
        ]
        return pad_sequence(tables, batch_first=True)

    def grad(self, asked: Gradient) -> Tensor:
        if self.own.stay:
            asked = replace(asked, start=self.own.placed(asked.begun, asked.ids))
        return self.behind.grad(asked)

    def grad_sum(self, asked: Gradient) -> Tensor:
        return sum_by_rows(self, asked) if self.own.stay else self.behind.grad_sum(asked)

    def align(
        self,
        models: Tensor,
        directions: Tensor,
        ids: Tensor,
        batch_size: int | None = None,
        margin: Tensor | None = None,
    ) -> Alignment:
        allowed = f"{AVERAGED}, where gradients of every model are compared"
        require(not self.own.stay, "norm", self.own.norm, allowed)
        return self.behind.align(models, directions, ids, batch_size, margin)

    def trial(self, served: Served) -> TestResult:
        """With what training begins with."""
        own = self.own if self.own.stay else None
        return self.behind.trial(replace(served, own=own))

    def evaluate(self, served: Served) -> Evaluation:
        return self.behind.evaluate(self.tested(served))

    def tested(self, served: Served) -> Served:
        """What is served, with the statistics that a test looks at."""
        count = self.rnd.fed.train.count
        own = self.own.in_test(served.models, served.label, count, self.behind.recalibrated)
        return replace(served, own=own)

    def _all_have(self, model: Tensor, ids: Tensor) -> Tensor:
        """A model [P] as each of the clients `ids` [C] has it, [C, P]."""
        return self.own.placed(model.expand(len(ids), -1), ids)


@dataclass(frozen=True, kw_only=True)
class _WithNorm(Wrapper):
    """A method whose models have statistics of each client's own; see `with_norm`."""

    norm: str

    @property
    def _mode(self) -> Norm:
        return NORMS[self.norm]

    @property
    def added(self) -> Mapping[str, type[Any]]:
        """own_statistics: [M, S] what stays with clients; has_statistics: [M] bool, who has any."""
        return {"own_statistics": Tensor, "has_statistics": Tensor}

    def init(self, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        """As the base; nobody has statistics."""
        columns = columns_of(clients.layout, affine=self._mode.affine)
        num_clients = rnd.fed.num_clients
        width = int(columns.sum()) if self._mode.stay else 0
        device = rnd.cohort.device
        values = torch.zeros(num_clients, width, device=device)
        known = torch.zeros(num_clients, dtype=torch.bool, device=device)
        own = self._given(values, known, clients)
        state, cost = self.base.init(_Owners(clients, own), rnd)
        return self._state(state, own), self._cost(cost, own)

    def round(self, state: Any, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        """As the base; whoever trains keeps its statistics."""
        own = self._given(state.own_statistics.clone(), state.has_statistics.clone(), clients)
        after, cost = self.base.round(state, _Owners(clients, own), rnd)
        return self._state(after, own), self._cost(cost, own)

    def serve(self, state: Any, clients: Clients, rnd: Round) -> Served:
        """As the base; a test looks at each client's own statistics."""
        own = self._given(state.own_statistics, state.has_statistics, clients).aside()
        owners = _Owners(clients, own)
        served = self.base.serve(state, owners, rnd)
        require(
            served.weight is None,
            "norm",
            self.norm,
            f"{OF_MODELS}: {type(self.base).__name__} serves mixtures of models, each with "
            "statistics of its own",
        )
        return owners.tested(served)

    def _given(self, values: Tensor, known: Tensor, clients: Clients) -> OwnStatistics:
        """What the clients have now."""
        mode, nobody = self._mode, torch.zeros_like(known)
        columns = columns_of(clients.layout, affine=mode.affine).to(values.device)
        return OwnStatistics(self.norm, columns, values, known, stay=mode.stay, trained=nobody)

    def _cost(self, cost: Cost, own: OwnStatistics) -> Cost:
        """The cost, less what is not sent of a model."""
        if not self._mode.stay:
            return cost
        less = int(own.columns.sum())
        return replace(
            cost,
            floats_down=cost.floats_down - less * cost.models_down,
            floats_up=cost.floats_up - less * cost.models_up,
        )

    def _state(self, state: Any, own: OwnStatistics) -> Any:
        return self.with_added(state, own_statistics=own.values, has_statistics=own.known)


def columns_of(layout: Layout, *, affine: bool) -> Tensor:
    """Which numbers of a row are statistics, or also the parameters beside them, [P] bool."""
    owners = {name.rpartition(".")[0] for name in layout.buffers}
    beside = [name for name in layout.parameters if affine and name.rpartition(".")[0] in owners]
    return layout.mask([*beside, *layout.buffers])
