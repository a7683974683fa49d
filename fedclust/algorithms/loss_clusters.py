"""What IFCA and CFL-MGD share: K models, and every client in the cluster of least loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from torch import Tensor

from fedclust.algorithms.cheapest import ClusterChoice, serve_cheapest
from fedclust.algorithms.descent import Averaging, Denominator, check_plain_step
from fedclust.algorithms.start import Start, check_start, initial_models
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.ranges import AtLeastOne, Fraction
from fedclust.solver import Solver
from fedclust.types import Cost, Round, Served
from fedclust.verbs import Clients, Method


@dataclass(frozen=True, kw_only=True)
class LossClusters(Method):
    """K models; every participant joins the one that fits its data best, anew in each round.

    Attributes:
        solver: local work; gradient averaging uses its learning rate, and its momentum if the
            method has one.
        num_clusters: K.
        averaging: of a cluster's participants: `model` (option II) or `gradient` (option I).
        gradient_denominator: of gradient averaging, see `fedclust.algorithms.descent.descend`.
        start, restart_fraction: see `fedclust.algorithms.start.initial_models`.
        cluster_choice: what a client's model is chosen by when it is served: `train_loss`, or
            `test_loss`, which looks at test labels.
    """

    solver: Solver
    num_clusters: AtLeastOne
    averaging: Averaging = "model"
    gradient_denominator: Annotated[Denominator, OnlyWith("averaging", "gradient")] = "all"
    start: Start = "independent"
    restart_fraction: Fraction | None = None
    cluster_choice: ClusterChoice = "train_loss"

    has_momentum: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_start(self.start, self.restart_fraction, self.num_clusters)
        if self.averaging == "gradient":
            option = "algorithm.averaging=gradient"
            check_plain_step(self.solver, option, momentum=self.has_momentum)

    def initial_models(self, clients: Clients, rnd: Round) -> tuple[Tensor, Cost]:
        """Models [K, P] before round 0, and what finding them cost."""
        return initial_models(
            clients, rnd, self.num_clusters, self.start, self.restart_fraction, self.solver
        )

    def serve(self, state: Any, clients: Clients, rnd: Round) -> Served:
        """Each client's model of least loss."""
        return serve_cheapest(state.models, clients, rnd, self.cluster_choice)
