"""FedSoft against its definition, and the identities it is named for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from planted import CLIENTS, LR, configured, engine_for, federation, rounds_of, simulate, started

from fedclust.algorithms.parts.mixtures import drawn
from fedclust.core.front import Gradient

EVERYBODY = torch.arange(CLIENTS)


def test_a_full_batch_round_by_hand() -> None:
    """u by counting, w <- w - lr (grad f(w) + lambda sum_s u_s (w - c_s)), c_s the mean by v."""
    fed = federation(equal=False)
    full = ("solver.batch_size=null", "solver.epochs=1", "algorithm.solver.proximal=0.3")
    rounds = rounds_of(fed, 3)
    states, costs = simulate(configured("fedsoft", *full), rounds)
    before, after = states[1:]
    clients, count = engine_for(fed).at(rounds[2]), fed.train.count
    loss, u = clients.example_losses(before.models, EVERYBODY), torch.empty(CLIENTS, 3)
    for client in range(CLIENTS):
        best = loss[client, : count[client]].argmin(1)
        u[client] = best.bincount(minlength=3) / count[client]
    u[u == 0] = 1e-4
    assert (u == 1e-4).any()
    torch.testing.assert_close(after.importance, u)
    w, c = before.personal.all(), before.models
    pulls = sum(u[:, s, None] / u.sum(1, keepdim=True) * (w - c[s]) for s in range(3))
    gradient = clients.grad(Gradient(w, EVERYBODY, EVERYBODY))
    torch.testing.assert_close(after.personal.all(), w - LR * (gradient + 0.3 * pulls))
    v = u * count.unsqueeze(1) / (u * count.unsqueeze(1)).sum(0)
    torch.testing.assert_close(after.models, v.T @ after.personal.all())
    # importances are due in rounds 0 and 2: K centres to all, K counts back
    assert [c.scalars_up for c in costs] == [0, 3 * CLIENTS, 0, 3 * CLIENTS]
    assert [(c.models_down, c.models_up) for c in costs[1:]] == [(3 * CLIENTS, CLIENTS)] * 3


def test_without_pull_personal_models_are_trained_alone() -> None:
    fed = federation()
    rounds = rounds_of(fed, 3, participation=0.5)
    states, _ = simulate(configured("fedsoft", "algorithm.solver.proximal=0"), rounds)
    local: Any = configured("local", "algorithm.participants=cohort")
    _, start, _ = started("fedsoft", fed)
    alone, _ = simulate(local, rounds, local.State(models=start.personal))
    assert torch.equal(states[-1].personal.all(), alone[-1].models.all())


def test_one_centre_is_the_mean_of_the_personal_models() -> None:
    fed = federation(equal=False)
    states, _ = simulate(configured("fedsoft", "num_clusters=1"), rounds_of(fed, 2))
    share = fed.train.count / fed.train.count.sum()
    assert torch.equal(states[-1].importance, torch.ones(CLIENTS, 1))
    mean = (share.unsqueeze(1) * states[-1].personal.all()).sum(0, keepdim=True)
    torch.testing.assert_close(states[-1].models, mean)


def test_equal_centres_leave_everything_to_the_first() -> None:
    """The trap of a common start: ties go to the smallest index, and nothing tells them apart."""
    algorithm, state, clients = started("fedsoft", federation())
    equal = replace(state, models=state.models[:1].repeat(3, 1))
    after, _ = algorithm.round(equal, clients, clients.rnd)
    assert after.importance[:, 0].tolist() == [1.0] * CLIENTS
    assert bool((after.importance[:, 1:] == 1e-4).all())


def test_importances_change_when_they_are_due_and_for_newcomers() -> None:
    rounds = rounds_of(federation(), 7, participation=0.5, absent=(4, 11))
    # client 4 arrives in round 2, between two estimations
    arrived = rounds[0].present.clone()
    arrived[4] = True
    rounds = [replace(r, present=arrived) if r.t >= 2 else r for r in rounds]
    states, costs = simulate(configured("fedsoft", "algorithm.estimate_every=5"), rounds)
    assert [c.scalars_up // 3 for c in costs] == [0, 10, 0, 1, 0, 0, 11, 0]
    for t in (1, 3, 4, 6):
        assert torch.equal(states[t].importance, states[t - 1].importance)
    assert not states[1].importance[4].any()
    assert states[2].importance[4].any()
    assert not states[6].importance[11].any()


def test_who_has_not_trained_is_served_the_centre_of_its_largest_importance() -> None:
    fed = federation()
    rnd = rounds_of(fed, 1, participation=0.25, absent=(4,))[0]
    algorithm: Any = configured("fedsoft")
    states, _ = simulate(algorithm, [rnd])
    served = algorithm.serve(states[0], engine_for(fed).at(rnd), rnd)
    for client in range(CLIENTS):
        if client == 4:
            assert served.label[client] == -1
            continue
        centre = int(states[0].importance[client].argmax())
        own = client in rnd.cohort.tolist()
        expected = states[0].personal.all()[client] if own else states[0].models[centre]
        assert torch.equal(served.models[served.label[client]], expected)
    assert served.weight is None


def test_clients_drawn_for_every_centre() -> None:
    rnd = rounds_of(federation(), 1)[0]
    probability = torch.tensor([[0.7, 0.0], [0.2, 0.5], [0.1, 0.5], [0.0, 0.0]])
    first = torch.zeros(4)
    for t in range(400):
        weight = drawn(probability, 2, replace(rnd, t=t))
        assert weight.sum(0).tolist() == [1.0, 1.0]
        assert weight[:, 1].tolist() == [0.0, 0.5, 0.5, 0.0]
        first += weight[:, 0] > 0
    # without replacement, one after the other: 1 - 0.2 * 0.1 / 0.8 - 0.1 * 0.2 / 0.9 = 0.953, …
    torch.testing.assert_close(
        first[:3] / 400, torch.tensor([0.953, 0.689, 0.358]), atol=0.06, rtol=0
    )


def test_selected_clients_form_each_centre_alone() -> None:
    algorithm, state, clients = started("fedsoft", federation(), "algorithm.selected=2")
    after, cost = algorithm.round(state, clients, clients.rnd)
    trained = after.trained.nonzero().squeeze(1)
    assert 2 <= len(trained) <= 6
    assert cost.models_up == len(trained)
    for centre in after.models:
        pairs = [(i, j) for i in trained.tolist() for j in trained.tolist() if i < j]
        means = [(after.personal.all()[i] + after.personal.all()[j]) / 2 for i, j in pairs]
        assert min(float((centre - mean).abs().max()) for mean in means) < 1e-5
