"""pFedMe and APFL against their definitions, and the identities they are named for."""

from __future__ import annotations

import torch
from planted import CLIENTS, LR, configured, engine_for, federation, rounds_of, simulate, started

from fedclust.algorithms.pfedme import with_one_batch
from fedclust.core.front import Gradient

EVERYBODY = torch.arange(CLIENTS)
FULL = ("solver.batch_size=null", "solver.epochs=1")
UNIFORM = "common.aggregation=uniform"


def test_one_batch_is_some_of_a_participants_own_examples() -> None:
    fed = federation(equal=False)
    rnd = rounds_of(fed, 1, participation=0.5)[0]
    cut = [with_one_batch(rnd, 15, draw).fed.train for draw in (0, 0, 1)]
    for client in range(CLIENTS):
        mine, again, other = (split.of_client(client).tolist() for split in cut)
        count = min(15, 12 + 2 * client) if client in rnd.cohort.tolist() else 0
        assert len(mine) == len(set(mine)) == count
        assert mine == again
        assert set(mine) <= set(fed.train.of_client(client).tolist())
        assert count == 0 or mine != other
    assert with_one_batch(rnd, None, 0) is rnd


def test_the_outer_step_follows_the_gradient_of_the_moreau_envelope() -> None:
    """At the proximal point grad f(theta) = lambda (w - theta), the envelope's gradient at w."""
    fed = federation()
    exact = ("algorithm.solver.steps=400", "algorithm.solver.lr=0.1", "algorithm.local_rounds=1")
    more = ("algorithm.solver.proximal=2", "algorithm.local_lr=0.3", "solver.batch_size=null")
    algorithm, state, clients = started("pfedme", fed, *exact, *more)
    after, cost = algorithm.round(state, clients, clients.rnd)
    theta = after.personal.all()
    gradient = clients.grad(Gradient(theta, EVERYBODY, EVERYBODY))
    torch.testing.assert_close(gradient, 2 * (state.model - theta), rtol=1e-4, atol=1e-5)
    expected = state.model - 0.3 * gradient.mean(0, keepdim=True)
    torch.testing.assert_close(after.model, expected, rtol=1e-4, atol=1e-5)
    assert cost.gradient_steps == 400 * CLIENTS
    assert (cost.models_down, cost.models_up) == (CLIENTS, CLIENTS)


def test_the_server_mixes_what_is_returned_into_its_model() -> None:
    one = ("algorithm.local_rounds=1", "algorithm.solver.proximal=4", "algorithm.local_lr=0.25")
    algorithm, state, clients = started("pfedme", federation(), *one)
    after, _ = algorithm.round(state, clients, clients.rnd)
    far = configured("pfedme", *one, "algorithm.server_mix=2.0")
    beyond, _ = far.round(state, clients, clients.rnd)
    step = after.model - state.model
    torch.testing.assert_close(beyond.model, state.model + 2 * step, rtol=1e-5, atol=1e-6)


def test_local_models_are_weighted_by_examples() -> None:
    """With local_lr = 1 / lambda and one local round, w_i is theta_i."""
    fed = federation(equal=False)
    one = ("algorithm.local_rounds=1", "algorithm.solver.proximal=4", "algorithm.local_lr=0.25")
    share = fed.train.count / fed.train.count.sum()
    for how, weight in (("by_samples", share), ("uniform", torch.full((CLIENTS,), 1 / CLIENTS))):
        algorithm, state, clients = started("pfedme", fed, *one, f"common.aggregation={how}")
        after, _ = algorithm.round(state, clients, clients.rnd)
        mean = weight.unsqueeze(0) @ after.personal.all()
        torch.testing.assert_close(after.model, mean, rtol=1e-5, atol=1e-6)


def test_every_local_round_keeps_to_its_batch() -> None:
    """K steps on one batch: theta is what gradient descent on these examples makes of it."""
    fed = federation()
    once = ("algorithm.local_rounds=1", "algorithm.solver.lr=0.1", "algorithm.solver.proximal=3")
    algorithm, state, clients = started("pfedme", fed, *once)
    after, _ = algorithm.round(state, clients, clients.rnd)
    batch = clients.at(with_one_batch(clients.rnd, 12, 0))
    theta = state.model.repeat(CLIENTS, 1)
    for _ in range(5):
        pulled = 3 * (theta - state.model)
        theta = theta - 0.1 * (batch.grad(Gradient(theta, EVERYBODY, EVERYBODY)) + pulled)
    torch.testing.assert_close(after.personal.all(), theta, rtol=1e-5, atol=1e-6)


def test_one_full_batch_step_of_apfl_by_hand() -> None:
    fed = federation(equal=False)
    rounds = rounds_of(fed, 2)
    states, _ = simulate(configured("apfl", *FULL, "algorithm.alpha=0.3", UNIFORM), rounds)
    clients, zero = engine_for(fed).at(rounds[1]), torch.zeros_like(EVERYBODY)
    v, w = states[0].personal.all(), states[0].model
    u = 0.3 * v + 0.7 * w
    gradient = clients.grad(Gradient(u, EVERYBODY, EVERYBODY))
    torch.testing.assert_close(
        states[1].personal.all(), v - LR * 0.3 * gradient, rtol=1e-4, atol=1e-5
    )
    common = clients.grad(Gradient(w, zero, EVERYBODY)).mean(0, keepdim=True)
    torch.testing.assert_close(states[1].model, w - LR * common, rtol=1e-4, atol=1e-5)


def test_small_steps_of_apfl_are_nearly_those_of_the_paper() -> None:
    """Both models step by step, on all examples: what even movement changes vanishes with lr."""
    fed = federation()

    def gap(lr: float) -> float:
        size = (f"solver.lr={lr}", "solver.batch_size=null", "solver.epochs=5")
        algorithm, state, clients = started("apfl", fed, *size)
        after, _ = algorithm.round(state, clients, clients.rnd)
        w = v = state.model.repeat(CLIENTS, 1)
        for _ in range(5):
            u = 0.5 * v + 0.5 * w
            v = v - lr * 0.5 * clients.grad(Gradient(u, EVERYBODY, EVERYBODY))
            w = w - lr * clients.grad(Gradient(w, EVERYBODY, EVERYBODY))
        moved = (v - state.model).norm()
        return float((after.personal.all() - v).norm() / moved)

    assert gap(0.5) < 0.06
    assert gap(0.05) < 0.006
