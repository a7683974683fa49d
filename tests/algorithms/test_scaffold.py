"""SCAFFOLD against its definition, and the identities it is named for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from planted import CLIENTS, LR, configured, engine_for, federation, rounds_of, simulate

from fedclust.core.front import Gradient

FULL = ("scaffold", "solver.batch_size=null", "solver.epochs=1")


@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_with_one_full_batch_step_controls_are_the_gradients(decay: float) -> None:
    """c_i+ = (x - y_i) / eta + c_i - c, and y_i = x - eta (g_i - c_i + c), so c_i+ = g_i.

    Where the rate falls, eta is that of the round.
    """
    fed = federation(equal=False)
    rounds = rounds_of(fed, 2)
    states, _ = simulate(configured(*FULL, f"solver.decay={decay}"), rounds)
    clients, everybody = engine_for(fed).at(rounds[1]), torch.arange(CLIENTS)
    gradient = clients.grad(Gradient(states[0].model, 0 * everybody, everybody))
    torch.testing.assert_close(states[1].controls.all(), gradient, rtol=1e-3, atol=1e-5)
    mean = gradient.mean(0, keepdim=True)
    torch.testing.assert_close(states[1].control, mean, rtol=1e-3, atol=1e-5)
    # with everybody there the corrections cancel in the mean
    expected = states[0].model - LR * decay * mean
    torch.testing.assert_close(states[1].model, expected, rtol=1e-4, atol=1e-6)


def test_a_cohort_steps_along_its_corrected_gradients() -> None:
    """One full-batch step: x - eta * the mean over the cohort of g_i - c_i + c."""
    fed = federation()
    rounds = rounds_of(fed, 2, participation=0.5)
    before, after = simulate(configured(*FULL), rounds)[0]
    cohort = rounds[1].cohort
    zero = torch.zeros(len(cohort), dtype=torch.int64)
    gradient = engine_for(fed).at(rounds[1]).grad(Gradient(before.model, zero, cohort))
    corrected = gradient - before.controls.all()[cohort] + before.control
    expected = before.model - LR * corrected.mean(0, keepdim=True)
    torch.testing.assert_close(after.model, expected, rtol=1e-4, atol=1e-6)
    plain = before.model - LR * gradient.mean(0, keepdim=True)
    assert float((expected - plain).norm()) > 1e-3, "the correction does not cancel in this cohort"


def test_the_first_round_is_fedavg() -> None:
    """All control variates are 0."""
    rounds = rounds_of(federation(), 2, participation=0.5)
    ours, _ = simulate(configured("scaffold"), rounds)
    plain, _ = simulate(configured("fedavg"), rounds)
    torch.testing.assert_close(ours[0].model, plain[0].model)
    assert (ours[1].model - plain[1].model).abs().max() > 1e-3


def test_the_servers_control_is_the_mean_of_the_clients() -> None:
    rounds = rounds_of(federation(), 4, participation=0.5)
    states, reports = simulate(configured("scaffold"), rounds)
    for state in states:
        mean = state.controls.all().mean(0, keepdim=True)
        torch.testing.assert_close(state.control, mean, rtol=1e-4, atol=1e-6)
    away = [i for i in range(CLIENTS) if i not in rounds[0].cohort.tolist()]
    assert not states[0].controls.all()[away].any()
    assert [(r.models_down, r.models_up) for r in reports[1:]] == [(12, 12)] * 4


def test_the_control_is_the_mean_of_the_clients_that_are_there() -> None:
    """One full-batch step, when half of the clients are still away."""
    fed = federation()
    rounds = rounds_of(fed, 2)
    there = torch.arange(CLIENTS) % 2 == 0
    half = [replace(rnd, present=there, cohort=there.nonzero().squeeze(1)) for rnd in rounds]
    before, after = simulate(configured(*FULL), half)[0]
    cohort = half[1].cohort
    own = before.controls.all()[cohort]
    gradient = (
        engine_for(fed).at(half[1]).grad(Gradient(before.model, torch.zeros_like(cohort), cohort))
    )
    corrected = gradient - own + own.mean(0, keepdim=True)
    expected = before.model - LR * corrected.mean(0, keepdim=True)
    torch.testing.assert_close(after.model, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(after.controls.all()[cohort], gradient, rtol=1e-3, atol=1e-5)
    assert not after.controls.all()[~there].any()


def test_the_servers_step_scales_the_movement() -> None:
    fed = federation()
    rounds = rounds_of(fed, 1)
    one, _ = simulate(configured("scaffold"), rounds)
    two, _ = simulate(configured("scaffold", "algorithm.server_lr=2.0"), rounds)
    algorithm: Any = configured("scaffold")
    start = algorithm.init(engine_for(fed).at(rounds[0]), rounds[0])[0].model
    torch.testing.assert_close(two[0].model - start, 2 * (one[0].model - start))
