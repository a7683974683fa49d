"""IFCA whose first round trains random groups, as the code of CLoVE (arXiv:2506.22427) runs it.

From the second round on it is IFCA, whose losses then are those of models trained once, not of
random ones.

Differs from that code: random groups are of one size; the code draws every client's group by itself
and gives groups without clients one of another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from fedclust.algorithms.ifca import IFCA
from fedclust.algorithms.steps import federated_averaging, random_groups
from fedclust.core.front import Clients
from fedclust.core.types import Cost, Round


@dataclass(frozen=True, kw_only=True)
class IFCARandom(IFCA):
    """IFCA with clusters of random participants in the first round."""

    first_round: Literal["random"] = "random"  # `random`, in groups of one size
    averaging: Literal["model"] = "model"  # `model`; the first round is one of federated averaging

    # one client more gives others another random group, which noise for one does not hide
    unnoised = "a place among groups of one size, by who else takes part,"

    def round(self, state: IFCA.State, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        """Random groups at first, then a round of IFCA."""
        if rnd.t:
            return super().round(state, clients, rnd)
        cohort, label = rnd.cohort, random_groups(rnd.cohort, self.num_clusters, rnd)
        models, cost = federated_averaging(self, clients, state.models, label, rnd)
        return replace(state, models=models, label=state.label.index_copy(0, cohort, label)), cost
