"""Any method whose clients keep what their solver keeps from round to round, `solver.keep=client`.

It belongs to the client, whichever model it trains, and is never sent. What trains a client before
its first round, or for a test, begins without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from fedclust.core.calls import LocalResult, MeanResult
from fedclust.core.front import Clients, Layer, Train, mean_by_rows
from fedclust.core.kept import Kept
from fedclust.core.solver import solvers_of
from fedclust.core.traits import Traits
from fedclust.core.types import ClientModels, Cost, Round
from fedclust.core.verbs import Algorithm
from fedclust.core.wrapper import Wrapper


@dataclass(frozen=True)
class _Keepers(Layer):
    """Clients that go on with what their solver has kept, and keep it anew."""

    kept: Kept  # by all clients

    def aside(self) -> Clients:
        return self.behind.aside()

    def train(self, asked: Train) -> LocalResult:
        if asked.solver.keep != "client":
            return self.behind.train(asked)
        own = self.kept.of(asked.purpose, asked.ids)
        slots = self.kept.rows[own][:, : asked.solver.law.width(self.layout.num_params)]
        asked = asked.starting(asked.begun)  # what is kept is the row's, not the model's
        result = self.behind.train(replace(asked, work=replace(asked.work, slots=slots)))
        if result.slots is not None:
            self.kept.keep(own, result.slots)
        return replace(result, slots=None)

    def train_mean(self, asked: Train) -> MeanResult:
        if asked.solver.keep != "client":
            return self.behind.train_mean(asked)
        return mean_by_rows(self, asked)


@dataclass(frozen=True, kw_only=True)
class _Keeping(Wrapper):
    """A method with what its solvers keep."""

    slots: int  # numbers that are kept of every parameter, besides one
    counts: bool  # whether the steps of a client are counted

    @property
    def traits(self) -> Traits:
        """As the base, with what clients keep."""
        return replace(super().traits, slots=self.slots)

    @property
    def added(self) -> Mapping[str, type[Any]]:
        """solver_kept, solver_places: see `fedclust.core.kept.Kept`."""
        return {"solver_kept": ClientModels, "solver_places": Tensor}

    def init(self, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        state, cost = self.base.init(clients, rnd)
        width = self.slots * clients.layout.num_params + self.counts
        nothing = Kept.nothing(rnd.fed.num_clients, width, rnd.present.device)
        return self._with(state, nothing), cost

    def round(self, state: Any, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        """As the base, each client going on with what it kept."""
        kept = Kept(state.solver_kept, state.solver_places)
        after, cost = self.base.round(state, _Keepers(clients, kept), rnd)
        return self._with(after, kept), cost

    def _with(self, state: Any, kept: Kept) -> Any:
        return self.with_added(state, solver_kept=kept.rows, solver_places=kept.places)


def keeping(method: Algorithm) -> Algorithm:
    """A method whose clients keep what they are to keep; itself where that is nothing."""
    laws = [solver.law for solver in solvers_of(method) if solver.keep == "client"]
    if not laws:
        return method
    slots, counts = max(law.slots for law in laws), any(law.counts for law in laws)
    return _Keeping(base=method, slots=slots, counts=counts)
