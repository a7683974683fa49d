"""Any method whose clients keep what their solver keeps from round to round, `solver.keep=client`.

It belongs to the client, whichever model it trains, and is never sent. What trains a client before
its first round, or for a test, begins without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, make_dataclass
from functools import cache
from typing import Any

from torch import Tensor

from fedclust.core.kept import Kept
from fedclust.core.solver import solvers_of
from fedclust.core.types import ClientModels, Cost, Round, Served
from fedclust.core.verbs import Algorithm, Clients, Method, Scenario


@dataclass(frozen=True, kw_only=True)
class _Keeping(Method):
    """A method with what its solvers keep.

    Attributes:
        base: the method.
        slots: numbers that are kept of every parameter, besides one.
        counts: whether the steps of a client are counted.
    """

    base: Algorithm
    slots: int
    counts: bool

    @property
    def moments(self) -> int:
        """Those of a server's step."""
        return getattr(self.base, "moments", 0)

    @property
    def State(self) -> type[Any]:
        """That of the base with two fields more.

        solver_kept, solver_places: see `fedclust.core.kept.Kept`.
        """
        base: Any = self.base.State
        return _extended(base)

    def remark(self, rounds: int) -> str:
        """That of the base."""
        return self.base.remark(rounds)

    def beside(self, scenario: Scenario, num_clients: int) -> str:
        """That of the base."""
        return self.base.beside(scenario, num_clients)

    def tables(self, num_clients: int) -> Mapping[str, int]:
        """Those of the base."""
        return self.base.tables(num_clients)

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

    def serve(self, state: Any, clients: Clients, rnd: Round) -> Served:
        """As the base."""
        return self.base.serve(state, clients, rnd)

    def _with(self, state: Any, kept: Kept) -> Any:
        own = {field.name: getattr(state, field.name) for field in fields(self.base.State)}
        return self.State(**own, solver_kept=kept.rows, solver_places=kept.places)


def keeping(method: Algorithm) -> Algorithm:
    """A method whose clients keep what they are to keep; itself where that is nothing."""
    laws = [solver.law for solver in solvers_of(method) if solver.keep == "client"]
    if not laws:
        return method
    slots, counts = max(law.slots for law in laws), any(law.counts for law in laws)
    return _Keeping(base=method, slots=slots, counts=counts)


@cache
def _extended(state: Any) -> type[Any]:
    """A method's state with what solvers keep."""
    more = [("solver_kept", ClientModels), ("solver_places", Tensor)]
    return make_dataclass("State", more, bases=(state,), frozen=True, kw_only=True)
