"""IFCA: both options by hand, its starts, and how clients are served."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from planted import (
    CLIENTS,
    LR,
    STEPS,
    configured,
    engine_for,
    federation,
    rounds_of,
    simulate,
    softmax_gradient,
)
from toy_engine import SOLVER, ToyEngine, toy_federation, toy_round

from fedclust.algorithms.ifca import IFCA
from fedclust.algorithms.parts.cheapest import serve_cheapest
from fedclust.helpers.errors import ConfigError


@pytest.mark.parametrize("denominator", ["all", "participants", "cluster"])
def test_gradient_averaging_by_hand(denominator: str) -> None:
    fed = federation()
    algorithm: Any = configured(
        "ifca",
        "algorithm.averaging=gradient",
        f"algorithm.gradient_denominator={denominator}",
        "solver.decay=0.5",
    )
    rnd = rounds_of(fed, 2, participation=0.5)[1]
    clients = engine_for(fed)
    state, _ = algorithm.init(clients.at(rnd), rnd)
    after, report = algorithm.round(state, clients.at(rnd), rnd)
    total, size, losses = torch.zeros(3, 21, dtype=torch.float64), [0, 0, 0], []
    for client in rnd.cohort.tolist():
        loss, gradient = zip(
            *(softmax_gradient(model, fed, client) for model in state.models), strict=True
        )
        best = min(range(3), key=loss.__getitem__)
        total[best] += gradient[best]
        size[best] += 1
        losses.append(loss[best])
    assert max(size) < 6, "one cluster took all: the case is too easy"
    divisor = {"all": [12] * 3, "participants": [6] * 3, "cluster": [max(1, s) for s in size]}[
        denominator
    ]
    # second round, decay 0.5
    expected = state.models.double() - LR / 2 * total / torch.tensor(divisor).unsqueeze(1)
    torch.testing.assert_close(after.models.double(), expected, rtol=1e-5, atol=1e-6)
    assert report.train_loss == pytest.approx(sum(losses) / 6, rel=1e-5)
    assert (report.models_down, report.models_up, report.gradient_steps) == (18, 6, 6)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_from_a_start_near_the_groups_it_finds_them(seed: int) -> None:
    fed = federation(seed)
    rounds, clients = rounds_of(fed, 6, seed=seed), engine_for(fed)
    near, _ = simulate(configured("oracle"), rounds[:1])
    algorithm: Any = configured("ifca")
    start = algorithm.State(models=near[0].models, label=torch.full((CLIENTS,), -1))
    states, _ = simulate(algorithm, rounds[1:], start)
    served = algorithm.serve(states[-1], clients.at(rounds[-1]), rounds[-1])
    assert torch.equal(served.label, fed.group)


def test_starts() -> None:
    fed = federation()
    rnd, clients = rounds_of(fed, 1)[0], engine_for(fed)
    independent: Any = configured("ifca").init(clients.at(rnd), rnd)[0]
    shared: Any = configured("ifca", "algorithm.start=shared").init(clients.at(rnd), rnd)[0]
    assert len(independent.models.unique(dim=0)) == 3
    assert len(shared.models.unique(dim=0)) == 1
    assert torch.equal(independent.models[0], shared.models[0])
    spread, report = configured("ifca", "algorithm.start=kmeans++").init(clients.at(rnd), rnd)
    assert spread.models.shape == independent.models.shape
    assert (report.models_down, report.models_up) == (3 + 2 * CLIENTS, 3)
    assert report.gradient_steps == 3 * STEPS


def spread(place: list[float], pull: list[float], seed: int, k: int) -> list[float]:
    """The starts of k-means++ from 0: client i has no loss at place[i] and trains to pull[i]."""
    target, move = (torch.tensor(values).unsqueeze(1) for values in (place, pull))
    clients = ToyEngine(pull=move, start=torch.zeros(1, 1), target=target)
    rnd = replace(toy_round(toy_federation([[0]] * len(place)), range(len(place))), seed=seed)
    how = IFCA(solver=SOLVER, num_clusters=k, start="kmeans++")
    models, _ = how.initial_models(clients.at(rnd), rnd)
    return sorted(models.squeeze(1).tolist())


def test_spread_start_draws_by_the_loss_under_the_best_centre() -> None:
    """A client that a centre nearly fits is a million times less likely than one that none fits,
    so each next centre is of another group, whatever the draw.
    """
    two, three = [1.0] * 8 + [9000.0], [1.0] * 4 + [5000.0] * 4 + [9000.0] * 4
    for seed in range(8):
        assert spread([pull + 1e-3 for pull in two], two, seed, 2) == [1.0, 9000.0]
        assert spread([pull + 1e-3 for pull in three], three, seed, 3) == [1.0, 5000.0, 9000.0]


def test_nobody_is_two_centres_of_a_spread_start() -> None:
    """Even where its own model does not fit it."""
    for seed in range(8):
        assert spread([5.0, 5.0, 5.0], [1.0, 2.0, 3.0], seed, 3) == [1.0, 2.0, 3.0]


def test_restart_redraws_until_every_cluster_attracts_its_part() -> None:
    fed = federation()
    clients, redrawn = engine_for(fed), 0
    algorithm: Any = configured("ifca", "num_clusters=2", "algorithm.restart_fraction=0.35")
    plain: Any = configured("ifca", "num_clusters=2")
    for seed in range(6):
        rnd = rounds_of(fed, 1, seed=seed)[0]
        state, report = algorithm.init(clients.at(rnd), rnd)
        size = clients.at(rnd).loss(state.models, rnd.cohort).argmin(1).bincount(minlength=2)
        assert int(size.min()) >= 0.35 * CLIENTS
        draws = report.models_down // (2 * CLIENTS)
        assert torch.equal(state.models, plain.init(clients.at(rnd), rnd)[0].models) == (draws == 1)
        redrawn += draws > 1
    assert redrawn > 0


@dataclass
class Draws(ToyEngine):
    """Initial models are those of `draws` [D, K, 1], one after the other."""

    draws: tuple[tuple[float, ...], ...] = ()
    drawn: int = 0

    def init(self, stream: Any, k: int) -> torch.Tensor:
        self.drawn += 1
        return torch.tensor(self.draws[self.drawn - 1]).unsqueeze(1)


@pytest.mark.parametrize(
    ("draws", "expected", "number"),
    [
        (((0.0, 3.0), (9.0, 8.0), (9.0, 8.0)), [0.0, 3.0], 1),  # two and two of four: a half each
        (((-9.0, -8.0), (0.0, 1.6), (-5.0, -6.0), (9.0, 8.0)), [0.0, 1.6], 3),  # one and three
    ],
)
def test_restart_gives_up_with_the_evenest_draw(
    draws: Any, expected: list[float], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients at 0, 1, 2 and 3 choose the nearer of two models; four other clients stay away."""
    monkeypatch.setattr("fedclust.algorithms.parts.loss_clusters._MAX_DRAWS", 3)
    target = torch.tensor([0.0, 1.0, 2.0, 3.0]).unsqueeze(1)
    clients = Draws(pull=target, start=target, target=target, draws=draws)
    rnd = toy_round(toy_federation([[0]] * 8), [0, 1, 2, 3])
    how = IFCA(solver=SOLVER, num_clusters=2, restart_fraction=0.5)
    models, cost = how.initial_models(clients.at(rnd), rnd)
    assert models.squeeze(1).tolist() == pytest.approx(expected)
    assert (cost.models_down, cost.scalars_up) == (2 * 4 * number, 4 * number)


def test_restart_gives_up_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fed = federation()
    monkeypatch.setattr("fedclust.algorithms.parts.loss_clusters._MAX_DRAWS", 3)
    # one client cannot fill two clusters
    rnd = replace(rounds_of(fed, 1)[0], cohort=torch.tensor([0]))
    algorithm: Any = configured("ifca", "num_clusters=2", "algorithm.restart_fraction=0.5")
    with caplog.at_level(logging.WARNING):
        _, report = algorithm.init(engine_for(fed).at(rnd), rnd)
    assert "none of 3 initial draws" in caplog.text
    assert "algorithm.restart_fraction" in caplog.text
    assert report.models_down == 3 * 2


def test_spread_start_needs_enough_clients() -> None:
    fed = federation()
    rnd = replace(rounds_of(fed, 1)[0], cohort=torch.tensor([0, 5]))
    with pytest.raises(ConfigError, match="num_clusters=3"):
        configured("ifca", "algorithm.start=kmeans++").init(engine_for(fed).at(rnd), rnd)


@pytest.mark.parametrize("choose_by", ["train_loss", "test_loss"])
def test_clients_are_served_their_cheapest_model(choose_by: Any) -> None:
    fed = federation()
    rnd, clients = rounds_of(fed, 1, absent=(3,))[0], engine_for(fed)
    models = clients.init(rnd.stream("any"), 4)
    label = serve_cheapest(models, clients.at(rnd), rnd, choose_by).label
    swapped = replace(fed, train=fed.test) if choose_by == "test_loss" else fed
    losses = [[softmax_gradient(model, swapped, i)[0] for model in models] for i in range(CLIENTS)]
    expected = torch.tensor(losses).argmin(1)
    expected[3] = -1
    assert torch.equal(label, expected)


def test_equal_losses_go_to_the_smallest_index() -> None:
    fed = federation()
    rnd, clients = rounds_of(fed, 1)[0], engine_for(fed)
    models = clients.init(rnd.stream("any"), 1).repeat(3, 1)
    assert (serve_cheapest(models, clients.at(rnd), rnd, "train_loss").label == 0).all()
