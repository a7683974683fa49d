"""IFCA whose clients keep the cluster of their last participation, and IFCA-MIG.

So FlexCFL (arXiv:2108.09749) compares with IFCA. In IFCA-MIG (`migration`) those that fail its test
of a shift choose anew at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from torch import Tensor

from fedclust.algorithms.cold_start import ShiftTest
from fedclust.algorithms.ifca import IFCA
from fedclust.algorithms.steps import arrived
from fedclust.core.front import Clients
from fedclust.core.types import Cost, Round, Served
from fedclust.helpers.effects import IfDataChange, OnlyWith


@dataclass(frozen=True, kw_only=True)
class IFCAMemory(IFCA):
    """IFCA whose clients are served the model of the cluster they trained in last."""

    # `last`, the cluster a client trained in last
    cluster_choice: Literal["last"] = "last"  # type: ignore[assignment]  # another set of values
    # whether clients whose data shifted choose a cluster anew at once
    migration: Annotated[bool, IfDataChange()] = False
    # with `migration`: the test that finds these clients, that of FlexCFL
    shift: Annotated[ShiftTest, OnlyWith("migration", True)] = field(default_factory=ShiftTest)

    @property
    def unnoised(self) -> str:  # type: ignore[override]
        """The test of a shift looks at the classes of a client's data."""
        return "how many examples of every class they have" if self.migration else super().unnoised

    @dataclass(frozen=True, kw_only=True)
    class State(IFCA.State):
        """The clusters' models, who uses them, and what they had."""

        # [M, L + 1] int64 what the test of a shift compares with, None without migration
        reference: Tensor | None = None

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """As IFCA; nobody has a cluster."""
        start, cost = super().init(clients, rnd)
        reference = self.shift.start(rnd, rnd.cohort[:0]) if self.migration else None
        state = self.State(models=start.models, label=start.label, reference=reference)
        return state, cost

    def round(self, state: Any, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        """Clients whose data shifted choose anew; then a round of IFCA."""
        if not self.migration:
            return super().round(state, clients, rnd)
        moving, reference = self.shift.followed(state.label, state.reference, rnd)
        known = state.label
        if len(moving):
            known = known.index_copy(0, moving, clients.loss(state.models, moving).argmin(1))
        moved = Cost(
            models_down=len(moving) * self.num_clusters,
            scalars_up=len(moving),
            notes={"migrated": int((known[moving] != state.label[moving]).sum())},
        )
        state = replace(state, label=known, reference=reference)
        state, cost = super().round(state, clients, rnd)
        return state, cost.plus(moved)

    def serve(self, state: Any, clients: Clients, rnd: Round) -> Served:
        """The model of the client's last cluster; nobody serves it before its first time."""
        return Served(models=state.models, label=arrived(state.label, rnd))
