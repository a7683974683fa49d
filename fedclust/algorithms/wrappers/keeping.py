"""Any method whose clients keep what their solver keeps from round to round, `solver.keep=client`.

It belongs to the client, whichever model it trains, and is never sent. What trains a client before
its first round, or for a test, begins without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from fedclust.core.kept import Kept
from fedclust.core.solver import solvers_of
from fedclust.core.traits import Traits
from fedclust.core.types import ClientModels, Cost, Round
from fedclust.core.verbs import Algorithm, Clients
from fedclust.core.wrapper import Wrapper


@dataclass(frozen=True, kw_only=True)
class _Keeping(Wrapper):
    """A method with what its solvers keep.

    Attributes:
        base: the method.
        slots: numbers that are kept of every parameter, besides one.
        counts: whether the steps of a client are counted.
    """

    slots: int
    counts: bool

    @property
    def traits(self) -> Traits:
        """As the base, with what clients keep."""
        return replace(super().traits, slots=self.slots)

    @property
    def kept(self) -> Mapping[str, type[Any]]:
        """solver_kept, solver_places: see `fedclust.core.kept.Kept`."""
        return {"solver_kept": ClientModels, "solver_places": Tensor}

    def init(self, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        """As the base; nothing is kept."""
        state, cost = self.base.init(clients, rnd)
        width = self.slots * clients.layout.num_params + self.counts
        nothing = Kept.nothing(rnd.fed.num_clients, width, rnd.present.device)
        return self._with(state, nothing), cost

    def round(self, state: Any, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        """As the base, each client going on with what it kept."""
        clients.kept = kept = Kept(state.solver_kept, state.solver_places)
        try:
            after, cost = self.base.round(state, clients, rnd)
        finally:
            clients.kept = None
        return self._with(after, kept), cost

    def _with(self, state: Any, kept: Kept) -> Any:
        return self.with_kept(state, solver_kept=kept.rows, solver_places=kept.places)


def keeping(method: Algorithm) -> Algorithm:
    """A method whose clients keep what they are to keep; itself where that is nothing."""
    laws = [solver.law for solver in solvers_of(method) if solver.keep == "client"]
    if not laws:
        return method
    slots, counts = max(law.slots for law in laws), any(law.counts for law in laws)
    return _Keeping(base=method, slots=slots, counts=counts)
