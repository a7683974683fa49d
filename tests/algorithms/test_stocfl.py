"""StoCFL: unions in closed form, its limits FedAvg and Local, observations, costs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from planted import (
    CLIENTS,
    LR,
    configured,
    engine_for,
    federation,
    partition_of,
    rounds_of,
    simulate,
)

from fedclust.algorithms.parts.uniting import linked, unite
from fedclust.core.front import Gradient, Train

APART = ("algorithm.similarity=1.5", "algorithm.mu=0")


def test_links_are_transitive() -> None:
    cosine = torch.tensor([[1.0, 0.9, 0.1], [0.9, 1.0, 0.8], [0.1, 0.8, 1.0]])
    assert linked(cosine, 0.5).tolist() == [0, 0, 0]
    assert linked(cosine, 0.85).tolist() == [0, 0, 1]
    assert linked(cosine, 0.95).tolist() == [0, 1, 2]
    half = torch.tensor([[1.0, 0.5], [0.5, 1.0]])
    assert linked(half, 0.5).tolist() == [0, 0], "at least tau"


def test_a_union_keeps_the_smallest_number_and_the_largest_clusters_model() -> None:
    label = torch.tensor([0, 1, 1, 2, 3, -1, 4])
    # clusters 0, 1 and 3 become one; 2 was not in the round; 4 is new and stays alone
    clusters, part = torch.tensor([0, 1, 3, 4]), torch.tensor([0, 0, 0, 1])
    after, model = unite(label, clusters, part, known=4, num_clusters=5)
    assert after.tolist() == [0, 0, 0, 1, 0, -1, 2]
    assert model.tolist() == [1, 2, 4]


def test_a_new_cluster_never_gives_its_model_to_a_known_one() -> None:
    label = torch.tensor([0, 1, 1, 1, 2])
    clusters, part = torch.tensor([0, 1, 2]), torch.tensor([0, 0, 0])
    assert unite(label, clusters, part, known=1, num_clusters=3)[1].tolist() == [0]
    assert unite(label, clusters, part, known=0, num_clusters=3)[1].tolist() == [0]


def test_without_unions_and_pull_everybody_is_alone() -> None:
    rounds = rounds_of(federation(), 3)
    states, _ = simulate(configured("stocfl", *APART), rounds)
    local, _ = simulate(configured("local"), rounds)
    for mine, its in zip(states, local, strict=True):
        assert torch.equal(mine.label, torch.arange(CLIENTS))
        assert torch.equal(mine.models, its.models.all())


def test_one_step_of_a_cluster_model_by_hand() -> None:
    """theta - lr (g(theta) + mu (theta - w)), w the common model of the round before."""
    fed = federation()
    rounds = rounds_of(fed, 2)
    one_step = ("solver.batch_size=null", "solver.epochs=1", "algorithm.similarity=1.5")
    algorithm: Any = configured("stocfl", *one_step, "algorithm.mu=0.3")
    states, _ = simulate(algorithm, rounds)
    theta, w = states[0].models, states[0].common
    assert float((w - states[0].anchor).norm()) > 0.01
    clients = engine_for(fed).at(rounds[1])
    gradient = clients.grad(Gradient(theta, states[0].label, torch.arange(CLIENTS)))
    expected = theta - LR * (gradient + 0.3 * (theta - w))
    torch.testing.assert_close(states[1].models, expected)


def test_a_new_cluster_begins_at_the_common_model() -> None:
    fed = federation()
    rounds = rounds_of(fed, 2, participation=0.25)
    algorithm: Any = configured("stocfl", "algorithm.similarity=1.5")
    states, _ = simulate(algorithm, rounds[:1])
    clients = engine_for(fed).at(rounds[1])
    observed, _ = algorithm._observe(states[0], clients, rounds[1])
    new = observed.models[len(states[0].models) :]
    assert len(new) > 0
    assert torch.equal(new, states[0].common.expand_as(new))
    assert not torch.equal(states[0].common, states[0].anchor)


@pytest.mark.parametrize("direction", ["participants", "members"])
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_planted_groups_unite_and_never_split(direction: str, participation: float) -> None:
    fed = federation()
    options = ("algorithm.similarity=0.5", f"algorithm.direction={direction}")
    rounds = rounds_of(fed, 10, participation=participation)
    states, reports = simulate(configured("stocfl", *options), rounds)
    last = states[-1].label
    assert partition_of(last) == partition_of(fed.group)
    assert reports[-1].notes["num_clusters_found"] == len(states[-1].models) == 3
    for state in states:
        known = state.label >= 0
        together = (state.label.unsqueeze(1) == state.label) & known & known.unsqueeze(1)
        assert bool((last.unsqueeze(1) == last)[together].all())


def test_clients_are_observed_once_from_the_same_model() -> None:
    fed = federation()
    rounds = rounds_of(fed, 7, participation=0.25)
    algorithm: Any = configured("stocfl")
    states, reports = simulate(algorithm, rounds)
    seen = set[int]()
    for rnd, state, report in zip(rounds, states, reports[1:], strict=True):
        new = set(rnd.cohort.tolist()) - seen
        seen |= new
        assert report.models_up == report.models_down == 2 * len(rnd.cohort) + len(new)
        # two epochs of two batches for each model, ten full steps of an observation
        assert report.gradient_steps == 2 * 4 * len(rnd.cohort) + 10 * len(new)
        assert {i for i in range(CLIENTS) if state.label[i] >= 0} == seen
        assert torch.equal(state.anchor, states[0].anchor)
    alone = torch.tensor(sorted(seen))
    clients = engine_for(fed).at(rounds[0])
    again = clients.train(
        Train(states[0].anchor, 0 * alone, alone, algorithm.observe, purpose="observe")
    )
    torch.testing.assert_close(states[-1].update.all()[alone], again.params - states[0].anchor)


def test_who_was_never_sampled_is_served_the_common_model() -> None:
    fed, late = federation(), (4,)
    rounds = rounds_of(fed, 2, participation=0.25, absent=late)
    algorithm: Any = configured("stocfl")
    states, _ = simulate(algorithm, rounds)
    served = algorithm.serve(states[-1], engine_for(fed).at(rounds[-1]), rounds[-1])
    unseen = (states[-1].label < 0) & rounds[-1].present
    assert 0 < int(unseen.sum()) < CLIENTS
    assert torch.equal(
        served.models[served.label[unseen]], states[-1].common.repeat(int(unseen.sum()), 1)
    )
    assert served.label[4] == -1
