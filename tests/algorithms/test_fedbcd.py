"""FedBCD: both blocks by hand, its limits, and what it minimises."""

from __future__ import annotations

import torch
from planted import CLIENTS, LR, STEPS, configured, engine_for, federation, rounds_of, simulate

from fedclust.core.front import Gradient

FULL = ("solver.batch_size=null", "solver.epochs=1")


def test_a_round_by_hand() -> None:
    """w_i -= eta (gradient_i + rho (w_i - x)) for the participants, then x = mean of all w_i."""
    fed, rho = federation(), 0.4
    clients, rounds = engine_for(fed), rounds_of(fed, 2, participation=0.5)
    algorithm = configured("fedbcd", *FULL, f"algorithm.solver.proximal={rho}")
    states, reports = simulate(algorithm, rounds)
    before, rnd = states[0], rounds[1]
    assert not torch.equal(before.local.all(), before.model.expand(CLIENTS, -1))
    held = before.local.all()
    local, pull = held.clone(), rho * (held[rnd.cohort] - before.model)
    local[rnd.cohort] -= LR * (clients.at(rnd).grad(Gradient(held, rnd.cohort, rnd.cohort)) + pull)
    torch.testing.assert_close(states[1].local.all(), local, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(states[1].model, local.mean(0, keepdim=True), rtol=1e-5, atol=1e-6)
    assert (reports[2].models_down, reports[2].models_up, reports[2].gradient_steps) == (6, 6, 6)


def test_without_penalty_it_is_local_training() -> None:
    rounds = rounds_of(federation(), 3, participation=0.5)
    alone, _ = simulate(configured("local", "algorithm.participants=cohort"), rounds)
    untied, reports = simulate(configured("fedbcd", "algorithm.solver.proximal=0"), rounds)
    assert all(
        torch.equal(a.models.all(), b.local.all()) for a, b in zip(alone, untied, strict=True)
    )
    assert reports[1].gradient_steps == 6 * STEPS


def test_either_model_can_be_tested() -> None:
    fed = federation()
    clients, rounds = engine_for(fed), rounds_of(fed, 8, absent=(3,))
    algorithm = configured("fedbcd")
    states, _ = simulate(algorithm, rounds)
    server = algorithm.serve(states[-1], clients.at(rounds[-1]), rounds[-1])
    own = configured("fedbcd", "algorithm.served=personal").serve(
        states[-1], clients.at(rounds[-1]), rounds[-1]
    )
    assert torch.equal(server.models, states[-1].model)
    assert server.label.tolist() == [0, 0, 0, -1, *[0] * 8]
    assert torch.equal(own.models, states[-1].local.all())
    assert own.label.tolist() == [0, 1, 2, -1, *range(4, CLIENTS)]
    correct = [int(clients.at(rounds[-1]).evaluate(served).sums.sum()) for served in (server, own)]
    assert correct[1] > correct[0] + 10, "three groups disagree about every label"


def test_clients_that_have_not_arrived_do_not_enter_the_mean() -> None:
    fed = federation()
    absent = (3, 7)
    states, _ = simulate(configured("fedbcd"), rounds_of(fed, 2, absent=absent))
    here = [client for client in range(CLIENTS) if client not in absent]
    expected = states[-1].local.all()[here].mean(0, keepdim=True)
    torch.testing.assert_close(states[-1].model, expected, rtol=1e-5, atol=1e-6)
