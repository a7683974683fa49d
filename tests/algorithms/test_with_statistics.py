"""Methods on a model with batch normalisation: they run, and compare models by what is trained."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from fronts import Front
from planted import ALGORITHMS, CLASSES, FEATURES, configured, federation, rounds_of
from torch import Tensor, nn

from fedclust.cluster_metrics.edc import EDC
from fedclust.cluster_metrics.madc import MADC
from fedclust.cluster_metrics.param_norm import ParamNorm
from fedclust.cluster_metrics.update_distance import UpdateDistance
from fedclust.config.fits import check_statistics
from fedclust.core.calls import LocalResult
from fedclust.core.front import Train
from fedclust.core.types import Round, Served
from fedclust.core.verbs import Engine
from fedclust.engines import make_engine
from fedclust.engines.clients import SeedClients
from fedclust.helpers.errors import ConfigError

GRADIENTS = ("jgl",)  # sent instead of models


def normed() -> nn.Module:
    return nn.Sequential(
        nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, CLASSES)
    )


@cache
def engine() -> Engine:
    return make_engine("auto", normed(), federation().pool)


class Noisy(SeedClients):
    """Clients whose statistics are moved by a large number of their own."""

    def train(self, asked: Train) -> LocalResult:
        result = super().train(asked)
        ids, layout = asked.ids, self.layout
        noise = 1000 * torch.randn(12, layout.num_params - layout.num_trained)[ids].abs()
        params = result.params.clone()
        params[:, layout.num_trained :] += noise
        return replace(result, params=params)


class NoisyFront(Front):
    def at(self, rnd: Round) -> SeedClients:
        return Noisy(self.engine, rnd, discrepancy=True)


def ran(name: str, front: Front) -> tuple[Served, Tensor]:
    fed, algorithm = federation(), configured(name)
    rounds = rounds_of(fed, 2)
    state, cost = algorithm.init(front.at(rounds[0]), rounds[0])
    for rnd in rounds:
        state, cost = algorithm.round(state, front.at(rnd), rnd)
    served = algorithm.serve(state, front.at(rounds[-1]), rounds[-1])
    return served, torch.tensor(cost.notes.get("discrepancy", 0.0))


@pytest.mark.thinned
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_method_runs(name: str) -> None:
    """With the statistics that training made: a variance is one."""
    front = Front(engine())
    if name in GRADIENTS:
        with pytest.raises(ConfigError, match="sends gradients, which move none"):
            check_statistics("average", configured(name), front.layout)
        return
    check_statistics("average", configured(name), front.layout)
    served, _ = ran(name, front)
    assert served.models.isfinite().all()
    var = served.models[:, front.layout["module.1.running_var"]]
    assert (var > 0).all()
    used = served.models[served.label]
    assert (used[:, front.layout["module.1.running_var"]] != 1).any()


@pytest.mark.full
@pytest.mark.parametrize(
    "name", ["sattler_cfl", "stocfl", "fesem", "flexcfl", "ocfl", "hcfl", "lcfed"]
)
def test_statistics_do_not_choose_clusters(name: str) -> None:
    plain, near = ran(name, Front(engine(), discrepancy=True))
    noisy, far = ran(name, NoisyFront(engine(), discrepancy=True))
    assert torch.equal(plain.label, noisy.label)
    assert float(near) == pytest.approx(float(far))


@pytest.mark.parametrize(
    "metric",
    [
        EDC(num_components=2),
        MADC(),
        ParamNorm(),
        *(UpdateDistance(norm=norm) for norm in ("l1", "l2", "cosine")),
    ],
)
def test_metrics_look_at_what_is_trained(metric: Any) -> None:
    front = Front(engine())
    models = torch.randn(5, front.layout.num_params, generator=torch.Generator().manual_seed(0))
    common, ids = torch.zeros(1, models.shape[1]), torch.arange(5)
    other = models.clone()
    other[:, front.layout.num_trained :] = torch.rand(5, 17) * 100
    want, got = (metric(front, rows, common, ids, None) for rows in (models, other))
    assert torch.equal(want, got)
