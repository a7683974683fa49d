"""IFCA with a random first round: even groups, what it sends, and IFCA from then on."""

from __future__ import annotations

from typing import Any

import torch
from planted import configured, engine_for, federation, rounds_of, simulate

from fedclust.algorithms.steps import random_groups, zeros
from fedclust.core.front import Train


def test_random_groups_are_even_and_change_with_seed() -> None:
    fed = federation()
    met = set()
    for seed in range(5):
        rnd = rounds_of(fed, 1, seed=seed, participation=0.6)[0]
        label = random_groups(rnd.cohort, 3, rnd)
        assert sorted(label.bincount(minlength=3).tolist()) == [2, 2, 3]
        met.add(tuple(label.tolist()))
    assert len(met) == 5
    assert random_groups(rnd.cohort[:2], 3, rnd).sort().values.tolist() == [0, 1]


def test_the_first_round_trains_random_groups_and_sends_one_model_to_each() -> None:
    fed = federation()
    algorithm: Any = configured("ifca_random")
    rounds = rounds_of(fed, 2)
    states, costs = simulate(algorithm, rounds)
    clients = engine_for(fed).at(rounds[0])
    start = clients.init(rounds[0].stream("init"), 3)
    label = random_groups(rounds[0].cohort, 3, rounds[0])
    assert torch.equal(states[0].label, label)
    for group in range(3):
        ids = (label == group).nonzero().squeeze(1)
        local = clients.train(Train(start[group : group + 1], zeros(ids), ids, algorithm.solver))
        torch.testing.assert_close(states[0].models[group], local.params.mean(0))
    assert (costs[1].models_down, costs[1].models_up, costs[1].scalars_up) == (12, 12, 0)
    assert (costs[2].models_down, costs[2].models_up, costs[2].scalars_up) == (36, 12, 12)


def test_from_the_second_round_on_it_is_ifca() -> None:
    rounds = rounds_of(federation(), 4)
    random, _ = simulate(configured("ifca_random"), rounds)
    plain, _ = simulate(configured("ifca"), rounds[1:], random[0])
    assert torch.equal(random[-1].models, plain[-1].models)
    assert torch.equal(random[-1].label, plain[-1].label)


def test_even_equal_models_come_apart() -> None:
    """IFCA with one start for all clusters needs rounding to tell them apart; this does not."""
    fed = federation()
    states, _ = simulate(configured("ifca_random", "algorithm.start=shared"), rounds_of(fed, 1))
    assert torch.cdist(states[0].models, states[0].models)[0, 1:].min() > 0.05
