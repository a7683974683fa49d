"""Any method on a model with running statistics that are not averaged: FedBN (Li et al., ICLR 2021,
arXiv:2102.07623), SiloBN (Andreux et al., 2020, arXiv:2008.07424), and statistics that each client
computes anew before a test.

A client that has not trained yet, and has two training examples, computes its statistics from them
for a test. Losses by which a method chooses look at those that the model began with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import torch
from torch import Tensor

from fedclust.core.own_statistics import OwnStatistics
from fedclust.core.types import Cost, Round, Served
from fedclust.core.verbs import Algorithm, Clients, Method
from fedclust.core.wrapper import Wrapper
from fedclust.helpers.errors import require
from fedclust.models.params import Layout

Norm = Literal["local", "fedbn", "recalibrate"]


def with_norm(base: Algorithm, norm: Norm) -> Method:
    """The method with statistics of each client's own.

    Args:
        base: the method.
        norm: `local`: they stay with the client; `fedbn`: so do the parameters of the layers that
            have them; `recalibrate`: they are averaged, and for a test each client computes them
            from its training examples.
    """
    return _WithNorm(base=base, norm=norm)


@dataclass(frozen=True, kw_only=True)
class _WithNorm(Wrapper):
    """A method whose models have statistics of each client's own; see `with_norm`."""

    norm: Norm

    @property
    def kept(self) -> Mapping[str, type[Any]]:
        """own_statistics: [M, S] what stays with clients; has_statistics: [M] bool, who has any."""
        return {"own_statistics": Tensor, "has_statistics": Tensor}

    def init(self, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        """As the base; nobody has statistics."""
        columns = columns_of(clients.layout, affine=self.norm == "fedbn")
        num_clients = rnd.fed.num_clients
        width = int(columns.sum()) if self._kept else 0
        device = rnd.cohort.device
        values = torch.zeros(num_clients, width, device=device)
        known = torch.zeros(num_clients, dtype=torch.bool, device=device)
        own = self._given(values, known, clients)
        state, cost = self._with(own, clients, lambda: self.base.init(clients, rnd))
        return self._state(state, own), self._cost(cost, own)

    def round(self, state: Any, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        """As the base; whoever trains keeps its statistics."""
        own = self._given(state.own_statistics.clone(), state.has_statistics.clone(), clients)
        after, cost = self._with(own, clients, lambda: self.base.round(state, clients, rnd))
        return self._state(after, own), self._cost(cost, own)

    def serve(self, state: Any, clients: Clients, rnd: Round) -> Served:
        """As the base; a test looks at each client's own statistics."""
        own = self._given(state.own_statistics, state.has_statistics, clients).aside()
        served: Served = self._with(own, clients, lambda: self.base.serve(state, clients, rnd))
        require(
            served.weight is None,
            "norm",
            self.norm,
            f"average: {type(self.base).__name__} serves mixtures of models, each with statistics "
            "of its own",
        )
        given, count = cast(Any, clients), rnd.fed.train.count
        given.own = own.in_test(served, count, given.recalibrated)
        return served

    @property
    def _kept(self) -> bool:
        return self.norm != "recalibrate"

    def _given(self, values: Tensor, known: Tensor, clients: Clients) -> OwnStatistics:
        """What the clients have now."""
        columns = columns_of(clients.layout, affine=self.norm == "fedbn").to(values.device)
        nobody = torch.zeros_like(known)
        return OwnStatistics(
            norm=self.norm,
            columns=columns,
            values=values,
            known=known,
            kept=self._kept,
            trained=nobody,
        )

    def _with(self, own: OwnStatistics, clients: Clients, work: Any) -> Any:
        """What a verb of the base returns to clients with their own statistics."""
        given = cast(Any, clients)
        given.own, given.tested = own if self._kept else None, own
        try:
            return work()
        finally:
            given.own = given.tested = None

    def _cost(self, cost: Cost, own: OwnStatistics) -> Cost:
        """The cost, less what is not sent of a model."""
        if not self._kept:
            return cost
        less = int(own.columns.sum())
        return replace(
            cost,
            floats_down=cost.floats_down - less * cost.models_down,
            floats_up=cost.floats_up - less * cost.models_up,
        )

    def _state(self, state: Any, own: OwnStatistics) -> Any:
        return self.with_kept(state, own_statistics=own.values, has_statistics=own.known)


def columns_of(layout: Layout, *, affine: bool) -> Tensor:
    """Which numbers of a row are statistics, or also the parameters beside them, [P] bool."""
    owners = {name.rpartition(".")[0] for name in layout.buffers}
    beside = [name for name in layout.parameters if affine and name.rpartition(".")[0] in owners]
    return layout.mask([*beside, *layout.buffers])
