"""IFCA, the iterative federated clustering algorithm: Ghosh, Chung, Yin, Ramchandran, NeurIPS 2020.

https://arxiv.org/abs/2006.04088, Algorithm 1, options I (gradient averaging) and II (model averaging).

Differs from the paper:
- Option I divides the summed gradients by `gradient_denominator`; the paper prints the number of all clients,
  which makes the step shrink with the cluster's share and with participation.
- `start: kmeans++` and `restart_fraction` are not in the paper; the latter is in its CIFAR code.
Differs from the released code (jichan3751/ifca):
- Each client is served the model of least training loss; `cluster_choice: test_loss` does what the code does.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedclust.algorithms import (
    Aggregation,
    ClusterChoice,
    average,
    check_choice,
    serve_cheapest,
    zeros,
)
from fedclust.errors import require
from fedclust.ops import cluster_sum
from fedclust.solver import Solver
from fedclust.types import Engine, Report, Round, Served

Averaging = Literal["model", "gradient"]
Denominator = Literal["all", "participants", "cluster"]
Start = Literal["independent", "shared", "kmeans++"]

_MAX_DRAWS = 100
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class IFCA:
    """K models; every participant joins the one that fits its data best, anew in each round.

    Attributes:
        solver: local work; gradient averaging uses its learning rate only.
        num_clusters: k in the paper.
        averaging: `model` (option II) or `gradient` (option I).
        aggregation: of models, `uniform` over a cluster's participants or weighted `by_samples`.
        gradient_denominator: what the gradient sum of a cluster is divided by: the number of `all` clients,
            of the round's `participants`, or of the participants in that `cluster`.
        start: `independent` initial models, one `shared` by all clusters (then only rounding breaks the
            tie), or `kmeans++`: see `_spread`.
        restart_fraction: redraw independent models until every cluster attracts at least this fraction of
            the first cohort; None takes the first draw.
        cluster_choice: what a client's model is chosen by when it is served: `train_loss`, or `test_loss`,
            which looks at test labels.
    """

    solver: Solver
    num_clusters: int
    averaging: Averaging = "model"
    aggregation: Aggregation = "uniform"
    gradient_denominator: Denominator = "all"
    start: Start = "independent"
    restart_fraction: float | None = None
    cluster_choice: ClusterChoice = "train_loss"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """The clusters' models.

        Attributes:
            models: [K, P].
        """

        models: Tensor

    def __post_init__(self) -> None:
        require(self.num_clusters >= 1, "num_clusters", self.num_clusters, "at least 1")
        check_choice("algorithm.averaging", self.averaging, Averaging)
        check_choice("algorithm.aggregation", self.aggregation, Aggregation)
        check_choice("algorithm.gradient_denominator", self.gradient_denominator, Denominator)
        check_choice("algorithm.start", self.start, Start)
        check_choice("algorithm.cluster_choice", self.cluster_choice, ClusterChoice)
        if self.averaging == "gradient":
            why = "0, because algorithm.averaging=gradient takes one plain gradient step per round"
            require(self.solver.momentum == 0, "solver.momentum", self.solver.momentum, why)
            require(self.solver.weight_decay == 0, "solver.weight_decay", self.solver.weight_decay, why)
        if self.restart_fraction is not None:
            require(
                0 < self.restart_fraction <= 1 / self.num_clusters and self.start == "independent",
                "algorithm.restart_fraction",
                self.restart_fraction,
                f"null, or, with start=independent, up to {1 / self.num_clusters:.3g} = 1/num_clusters",
            )

    def init(self, engine: Engine, rnd: Round) -> tuple[State, Report]:
        """Initial models, by `start` and `restart_fraction`."""
        if self.start == "kmeans++":
            models, report = self._spread(engine, rnd)
            return self.State(models=models), report
        if self.start == "shared":
            model = engine.init(rnd.stream("init"), 1)
            return self.State(models=model.repeat(self.num_clusters, 1)), Report()
        models = engine.init(rnd.stream("init"), self.num_clusters)
        if self.restart_fraction is None:
            return self.State(models=models), Report()
        models, draws = self._redraw(models, engine, rnd)
        return self.State(models=models), Report(models_down=draws * self.num_clusters * len(rnd.cohort))

    def round(self, state: State, engine: Engine, rnd: Round) -> tuple[State, Report]:
        """Assignment of the cohort by loss, then one step of every cluster."""
        down = len(rnd.cohort) * self.num_clusters
        loss = engine.loss(state.models, rnd.cohort, rnd)  # [C, K]
        label = loss.argmin(1)  # line 7: cluster identity estimate
        if self.averaging == "model":
            local = engine.train(state.models, label, rnd.cohort, self.solver, rnd)
            models, report = average(local, state.models, label, rnd.cohort, rnd, self.aggregation)
            return self.State(models=models), replace(report, models_down=down)
        gradient = engine.grad(state.models, label, rnd.cohort, rnd)  # [C, P]
        total = cluster_sum(gradient, label, self.num_clusters)
        models = state.models - self.solver.rate(rnd.t) * total / self._denominator(label, rnd)
        report = Report(
            models_down=down,
            models_up=len(rnd.cohort),
            gradient_steps=len(rnd.cohort),
            train_loss=float(loss.amin(1).mean()),
        )
        return self.State(models=models), report

    def serve(self, state: State, engine: Engine, rnd: Round) -> Served:
        """Each client's model of least loss."""
        return serve_cheapest(state.models, engine, rnd, self.cluster_choice)

    def _denominator(self, label: Tensor, rnd: Round) -> Tensor:
        """What each cluster's gradient sum is divided by, [K, 1] or [1]; 1 for empty clusters."""
        if self.gradient_denominator == "cluster":
            return label.bincount(minlength=self.num_clusters).clamp(min=1).unsqueeze(1)
        count = rnd.fed.num_clients if self.gradient_denominator == "all" else len(label)
        return torch.tensor([count], device=label.device)

    def _redraw(self, models: Tensor, engine: Engine, rnd: Round) -> tuple[Tensor, int]:
        """The first draw that gives every cluster its fraction of the cohort, else the evenest; and draws."""
        best, most = models, -1.0
        for draw in range(1, _MAX_DRAWS + 1):
            size = engine.loss(models, rnd.cohort, rnd).argmin(1).bincount(minlength=self.num_clusters)
            least = int(size.min()) / len(rnd.cohort)
            if least > most:
                best, most = models, least
            if self.restart_fraction is not None and least >= self.restart_fraction:
                return best, draw
            models = engine.init(rnd.stream("init", draw), self.num_clusters)
        _log.warning(
            "seed %d: none of %d initial draws gave every cluster %g of the first cohort; "
            "going on with the evenest, whose smallest cluster has %g (algorithm.restart_fraction)",
            rnd.seed,
            _MAX_DRAWS,
            self.restart_fraction,
            most,
        )
        return best, _MAX_DRAWS

    def _spread(self, engine: Engine, rnd: Round) -> tuple[Tensor, Report]:
        """Initial models spread as k-means++ spreads its centres (Arthur, Vassilvitskii, SODA 2007).

        The first centre is a common fresh model trained locally by a random client of the first cohort. Each
        next one is that common model trained by a client drawn with a probability proportional to its loss
        under the best centre so far: clients that no centre fits are the likely ones.
        """
        cohort, chosen = rnd.cohort, list[int]()
        require(
            len(cohort) >= self.num_clusters,
            "num_clusters",
            self.num_clusters,
            f"at most the {len(cohort)} clients of the first cohort with algorithm.start=kmeans++",
        )
        common = engine.init(rnd.stream("init"), 1)
        generator = rnd.stream("spread").numpy()
        probability = np.full(len(cohort), 1 / len(cohort))
        centres, steps = list[Tensor](), 0
        loss = torch.full_like(cohort, torch.inf, dtype=torch.float64)
        while len(centres) < self.num_clusters:
            if centres:
                loss = loss.minimum(engine.loss(centres[-1], cohort, rnd).squeeze(1).double())
                left = loss.cpu().numpy().copy()
                left[chosen] = 0
                probability = left / left.sum()
            chosen.append(int(generator.choice(len(cohort), p=probability)))
            client = cohort[chosen[-1:]]
            local = engine.train(common, zeros(client), client, self.solver, rnd, purpose="spread")
            centres.append(local.params)
            steps += int(local.steps.sum())
        report = Report(
            models_down=self.num_clusters + (self.num_clusters - 1) * len(cohort),
            models_up=self.num_clusters,
            gradient_steps=steps,
        )
        return torch.cat(centres), report
