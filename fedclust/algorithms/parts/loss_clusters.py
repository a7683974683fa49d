"""Base of IFCA and CFL-MGD: K models, and every client in the cluster of least loss."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedclust.algorithms.parts.apart import check_apart
from fedclust.algorithms.parts.cheapest import ClusterChoice, serve_cheapest
from fedclust.algorithms.parts.descent import Averaging, Denominator, check_plain_step
from fedclust.algorithms.steps import zeros
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import Cost, Round, Served
from fedclust.core.verbs import Method
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastOne, Fraction

Start = Literal["independent", "shared", "kmeans++"]
_MAX_DRAWS = 100
_OTHER = "algorithm.start=kmeans++"  # where independent models begin alike
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LossClusters(Method):
    """K models; every participant joins the one that fits its data best, anew in each round.

    Attributes:
        solver: local work; gradient averaging uses its learning rate, and its momentum if the
            method has one.
        num_clusters: K.
        averaging: of a cluster's participants: `model` (option II) or `gradient` (option I).
        gradient_denominator: of gradient averaging, see `descend`.
        start: `independent` models, one `shared` by all clusters (then only rounding breaks the
            tie), or `kmeans++`: see `_spread`; it trains with `solver`.
        restart_fraction: redraw independent models until every cluster attracts at least this
            fraction of the first cohort; None takes the first draw.
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
        super().__post_init__()
        most, fraction = 1 / self.num_clusters, self.restart_fraction
        require(
            fraction is None or (fraction <= most and self.start == "independent"),
            "algorithm.restart_fraction",
            fraction,
            f"null, or, with start=independent, up to {most:.3g} = 1/num_clusters",
        )
        if self.steps_by_gradients:
            check_plain_step(self.solver, self.steps_by_gradients, momentum=self.has_momentum)

    @property
    def steps_by_gradients(self) -> str:  # type: ignore[override]
        """Of option I."""
        return "algorithm.averaging=gradient" if self.averaging == "gradient" else ""

    @property
    def averages(self) -> bool:
        """Not with gradients."""
        return super().averages and self.averaging == "model"

    def initial_models(self, clients: Clients, rnd: Round) -> tuple[Tensor, Cost]:
        """Models [K, P] before round 0, and what finding them cost."""
        k = self.num_clusters
        if self.start == "kmeans++":
            return _spread(clients, rnd, k, self.solver)
        if self.start == "shared":
            return clients.init(rnd.stream("init"), 1).repeat(k, 1), Cost()
        models = clients.init(rnd.stream("init"), k)
        if self.restart_fraction is None:
            return models, Cost()
        models, draws = _redraw(models, clients, rnd, self.restart_fraction)
        asked = draws * len(rnd.cohort)  # each gets all models and says which it would choose
        return models, Cost(models_down=k * asked, scalars_up=asked)

    def losses(self, models: Tensor, clients: Clients, rnd: Round) -> Tensor:
        """Of every model for the cohort, [C, K] nats.

        Raises:
            ConfigError: in the first round, for independent models that are equal.
        """
        loss = clients.loss(models, rnd.cohort)
        if rnd.t == 0 and self.start == "independent":
            check_apart(loss.T, _OTHER)
        return loss

    def serve(self, state: Any, clients: Clients, rnd: Round) -> Served:
        return serve_cheapest(state.models, clients, rnd, self.cluster_choice)


def _redraw(models: Tensor, clients: Clients, rnd: Round, fraction: float) -> tuple[Tensor, int]:
    """The first draw that gives each cluster its fraction, else the evenest; and draws."""
    best, most, num_clusters = models, -1.0, len(models)
    for draw in range(1, _MAX_DRAWS + 1):
        loss = clients.loss(models, rnd.cohort)
        check_apart(loss.T, _OTHER)
        size = loss.argmin(1).bincount(minlength=num_clusters)
        least = int(size.min()) / len(rnd.cohort)
        if least > most:
            best, most = models, least
        if least >= fraction:
            return best, draw
        models = clients.init(rnd.stream("init", draw), num_clusters)
    _log.warning(
        "seed %d: none of %d initial draws gave every cluster %g of the first cohort; "
        "going on with the evenest, whose smallest cluster has %g (algorithm.restart_fraction)",
        rnd.seed,
        _MAX_DRAWS,
        fraction,
        most,
    )
    return best, _MAX_DRAWS


def _spread(clients: Clients, rnd: Round, num_clusters: int, solver: Solver) -> tuple[Tensor, Cost]:
    """Initial models spread as k-means++ spreads its centres (Arthur, Vassilvitskii, SODA 2007).

    The first centre is a common fresh model trained locally by a random client of the first cohort.
    Each next one is that common model trained by a client drawn with a probability proportional to
    its loss under the best centre so far: clients that no centre fits are the likely ones.
    """
    cohort, chosen = rnd.cohort, list[int]()
    require(
        len(cohort) >= num_clusters,
        "num_clusters",
        num_clusters,
        f"at most the {len(cohort)} clients of the first cohort with algorithm.start=kmeans++",
    )
    common = clients.init(rnd.stream("init"), 1)
    generator = rnd.stream("spread").numpy()
    probability = np.full(len(cohort), 1 / len(cohort))
    centres, steps = list[Tensor](), 0
    loss = torch.full_like(cohort, torch.inf, dtype=torch.float64)
    while len(centres) < num_clusters:
        if centres:
            loss = loss.minimum(clients.loss(centres[-1], cohort).squeeze(1).double())
            left = loss.cpu().numpy().copy()
            left[chosen] = 0
            probability = left / left.sum()
        chosen.append(int(generator.choice(len(cohort), p=probability)))
        client = cohort[chosen[-1:]]
        local = clients.train(Train(common, zeros(client), client, solver, purpose="spread"))
        centres.append(local.params)
        steps += int(local.steps.sum())
    cost = Cost(
        models_down=num_clusters + (num_clusters - 1) * len(cohort),
        models_up=num_clusters,
        scalars_up=(num_clusters - 1) * len(cohort),  # losses
        gradient_steps=steps,
    )
    return torch.cat(centres), cost
