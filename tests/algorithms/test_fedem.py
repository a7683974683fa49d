"""FedEM and FedRC: expectation and maximisation by their definitions, and where they differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from planted import CLIENTS, LR, configured, engine_for, federation, rounds_of, simulate, started

from fedclust.core.types import Split

EVERYBODY = torch.arange(CLIENTS)
FULL = ("solver.batch_size=null", "solver.epochs=1")


def test_a_full_batch_round_by_hand() -> None:
    """q = softmax(log pi - l), pi = mean of q, theta_k -= lr sum_i n_i / N grad of mean_j q l."""
    fed = federation(equal=False)
    states, costs = simulate(configured("fedem", *FULL), rounds_of(fed, 2))
    before, after = states
    models = torch.zeros_like(before.models)
    for client in range(CLIENTS):
        rows = fed.train.of_client(client)
        x, y = fed.pool.x[rows], fed.pool.y[rows]
        theta = before.models.clone().requires_grad_()
        logits = torch.stack([x @ t[:18].view(3, 6).T + t[18:] for t in theta], 1)  # [n, K, Y]
        loss = -logits.log_softmax(2)[torch.arange(len(y)), :, y]
        q = (before.share[client].log() - loss).softmax(1).detach()
        torch.testing.assert_close(after.share[client], q.mean(0), rtol=1e-4, atol=1e-6)
        (q * loss).sum(1).mean().backward()  # type: ignore[no-untyped-call]
        assert theta.grad is not None
        share = len(y) / int(fed.train.count.sum())
        models += share * (before.models - LR * theta.grad)
    torch.testing.assert_close(after.models, models, rtol=1e-4, atol=1e-5)
    entropy = -(after.share * after.share.log()).sum(1).mean()
    assert costs[2].notes["mixture_entropy"] == pytest.approx(float(entropy))
    assert costs[2].notes["least_share"] == pytest.approx(float(after.share.mean(0).min()))
    assert costs[2].models_down == costs[2].models_up == 3 * CLIENTS
    assert costs[2].gradient_steps == 3 * CLIENTS
    assert costs[2].scalars_up == 0


def test_a_hopeless_component_is_left_alone() -> None:
    fed = federation()
    algorithm, state, clients = started("fedem", fed)
    wrong = state.models.clone()
    wrong[2, :18] = 0
    wrong[2, 18:] = torch.tensor([1e4, -1e4, -1e4])  # sure of class 0
    belongs = algorithm.expect(replace(state, models=wrong), EVERYBODY, clients, clients.rnd)
    y = fed.pool.y[fed.train.take(EVERYBODY)[0]]
    assert (belongs[y != 0][:, 2] == 0).all()
    assert (belongs[y == 0][:, 2] > 0.3).all()


def test_examples_twice_change_nothing_but_their_number() -> None:
    fed = federation()
    rows = [fed.train.of_client(i) for i in range(CLIENTS)]
    twice = replace(fed, train=Split.of([torch.cat([r, r]) for r in rows]))
    for name in ("fedem", "fedrc"):
        one, _ = simulate(configured(name, *FULL), rounds_of(fed, 2))
        two, _ = simulate(configured(name, *FULL), rounds_of(twice, 2))
        torch.testing.assert_close(one[-1].models, two[-1].models)
        torch.testing.assert_close(one[-1].share, two[-1].share)


def test_who_has_not_taken_part_is_served_by_one_expectation_step() -> None:
    fed = federation(equal=False)
    rounds = rounds_of(fed, 1, participation=0.25, absent=(4,))
    algorithm: Any = configured("fedem")
    states, _ = simulate(algorithm, rounds)
    clients, state = engine_for(fed).at(rounds[0]), states[0]
    served = algorithm.serve(state, clients, rounds[0])
    new = torch.tensor([i for i in range(CLIENTS) if i not in rounds[0].cohort.tolist()])
    loss = clients.example_losses(state.models, new)
    count = fed.train.count[new]
    for row, client in enumerate(new.tolist()):
        share = (-loss[row, : count[row]]).softmax(1).mean(0)  # from uniform shares
        if client != 4:
            torch.testing.assert_close(served.weight[client], share)
            assert served.label[client] == share.argmax()
    assert torch.equal(served.weight[rounds[0].cohort], state.share[rounds[0].cohort])
    assert served.label[4] == -1


def test_the_first_round_of_fedrc_is_fedems() -> None:
    rounds = rounds_of(federation(equal=False), 2, participation=0.5)
    fedrc, costs = simulate(configured("fedrc"), rounds)
    fedem, _ = simulate(configured("fedem"), rounds)
    assert torch.equal(fedrc[0].models, fedem[0].models)
    assert torch.equal(fedrc[0].share, fedem[0].share)
    assert (fedrc[1].share - fedem[1].share).abs().max() > 1e-4
    assert [(c.floats_down, c.floats_up) for c in costs[1:]] == [(6 * 3 * 3, 6 * 3 * 3)] * 2


def test_expectation_of_fedrc_by_hand() -> None:
    """gamma = softmax(log omega - l - log Q(y)), Q from the examples' parts of the last rounds."""
    fed = federation(equal=False)
    rounds = rounds_of(fed, 2, participation=0.5)
    algorithm: Any = configured("fedrc")
    clients = engine_for(fed)
    states, _ = simulate(algorithm, rounds)
    start, _ = algorithm.init(clients.at(rounds[0]), rounds[0])
    total = torch.zeros(3, 3)
    for client in rounds[0].cohort.tolist():
        y = fed.pool.y[fed.train.of_client(client)]
        loss = clients.at(rounds[0]).example_losses(start.models, torch.tensor([client]))[0]
        for example, q in zip(y.tolist(), (-loss).softmax(1), strict=True):
            total[:, example] += q
    torch.testing.assert_close(states[0].count.sum(0), total, rtol=1e-4, atol=1e-4)
    frequency = total / total.sum(1, keepdim=True)
    ids = rounds[1].cohort
    got = algorithm.expect(states[0], ids, clients.at(rounds[1]), rounds[1])
    loss = clients.at(rounds[1]).example_losses(states[0].models, ids)
    for row, client in enumerate(ids.tolist()):
        y = fed.pool.y[fed.train.of_client(client)]
        score = states[0].share[client].log() - loss[row, : len(y)] - frequency.log().T[y]
        torch.testing.assert_close(got[row, : len(y)], score.softmax(1), rtol=1e-4, atol=1e-5)
        assert not got[row, len(y) :].any()


def test_fedrc_can_serve_the_heaviest_model_alone() -> None:
    fed = federation()
    rounds = rounds_of(fed, 2)
    hard: Any = configured("fedrc", "algorithm.prediction=heaviest")
    states, _ = simulate(hard, rounds)
    clients = engine_for(fed).at(rounds[1])
    served = hard.serve(states[1], clients, rounds[1])
    soft = configured("fedrc").serve(states[1], clients, rounds[1])
    assert served.weight is None
    assert torch.equal(served.label, states[1].share.argmax(1))
    assert torch.equal(soft.weight, states[1].share)
    assert torch.equal(soft.label, served.label)
