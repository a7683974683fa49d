"""FedDrift: distances, merging and opening in closed form, its limits, drifting groups, costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from planted import (
    CLASSES,
    CLIENTS,
    configured,
    engine_for,
    federation,
    partition_of,
    rounds_of,
    simulate,
)

from fedclust.algorithms.feddrift import (
    merged,
    merged_models,
    model_distances,
    opened,
    training_hits,
)
from fedclust.core.task import Classification
from fedclust.core.types import Federation, Round
from fedclust.scenarios.static import Static
from fedclust.scenarios.swap_all import SwapAll

NOBODY = torch.zeros(CLIENTS, dtype=torch.bool)


def one_concept() -> Federation:
    """Everybody has the concept of group 0."""
    fed = federation()
    y = fed.pool.y.clone()
    for client in range(CLIENTS):
        rows = torch.cat([fed.train.of_client(client), fed.test.of_client(client)])
        y[rows] = (y[rows] - client % 3) % CLASSES
    return replace(fed, pool=replace(fed.pool, y=y), group=torch.zeros_like(fed.group))


def drifting(steps: Sequence[dict[int, int]], length: int) -> list[Round]:
    """Rounds of several steps, in each of which some clients' classes move by so many."""
    start = one_concept()
    concept, rounds = torch.zeros_like(start.group), list[Round]()
    for step, change in enumerate(steps):
        for client, to in change.items():
            concept[client] = to
        y = start.pool.y.clone()
        for client in range(CLIENTS):
            rows = torch.cat([start.train.of_client(client), start.test.of_client(client)])
            y[rows] = (y[rows] + concept[client]) % CLASSES
        fed = replace(start, pool=replace(start.pool, y=y), group=concept.clone())
        for rnd in rounds_of(fed, (step + 1) * length)[step * length :]:
            everybody = step > 0 and rnd.t == step * length
            rounds.append(replace(rnd, shifted=~NOBODY if everybody else NOBODY))
    return rounds


def played(name: str, rounds: Sequence[Round], *options: str) -> tuple[list[Any], list[Any]]:
    """States and costs over rounds whose data change: one engine for each pool."""
    algorithm: Any = configured(name, *options)
    state, states, costs = None, list[Any](), list[Any]()
    for rnd in rounds:
        clients = engine_for(rnd.fed).at(rnd)
        if state is None:
            state, _ = algorithm.init(clients, rnd)
        state, cost = algorithm.round(state, clients, rnd)
        states.append(state)
        costs.append(cost)
    return states, costs


def test_distances_by_hand() -> None:
    found = model_distances(torch.tensor([[0.9, 0.5], [0.6, 0.8]]))
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.4], [0.4, 0.0]]))
    better = model_distances(torch.tensor([[0.7, 0.9], [0.8, 0.8]]))
    assert better.tolist() == [[0.0, 0.0], [0.0, 0.0]]


ACCURACY = Classification().merit


def test_complete_linkage_joins_no_chain() -> None:
    chain = torch.tensor([[0, 0.05, 0.2], [0.05, 0, 0.05], [0.2, 0.05, 0]])
    assert len(merged_models(chain, 0.1, "complete").unique()) == 2
    assert len(merged_models(chain, 0.13, "average").unique()) == 1
    assert len(merged_models(chain, 0.01, "complete").unique()) == 3
    assert merged_models(chain[:1, :1], 0.1, "complete").tolist() == [0]


def test_a_merged_model_is_the_mean_by_clients() -> None:
    models, used = torch.tensor([[1.0], [5.0], [7.0], [9.0]]), torch.tensor([3, 2, 1, 0])
    label, ids = torch.tensor([0, 0, 0, 1, 2, -1]), torch.arange(5)
    # models 0 and 1 are as good on each other's data, 2 is not, 3 has no clients
    fits = torch.tensor([[9, 9, 1, 0], [9, 9, 1, 0], [9, 9, 1, 0], [9, 9, 1, 0], [1, 1, 9, 0]])
    count = torch.full((5,), 10)
    got = merged(
        models, used, label, ids, fits.double().unsqueeze(2), count, ACCURACY, 0.1, "complete"
    )
    assert got[0].tolist() == [[(3 * 1.0 + 5.0) / 4], [7.0], [9.0]]
    assert got[2].tolist() == [0, 0, 0, 0, 1, -1]


def test_new_models_take_free_rows_then_those_of_rested_models() -> None:
    models, used = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([5, 2, 1])
    label, ids = torch.tensor([0, 0, 0, 0]), torch.tensor([1, 2, 3])
    copies = torch.tensor([[7.0], [8.0], [9.0]])
    got = opened(models, used, label, ids, copies, most=4)
    assert got[0].tolist() == [[1.0], [9.0], [8.0], [7.0]]
    assert got[2].tolist() == [0, 3, 2, 1]
    few = opened(models, used, label, ids, copies, most=1)
    assert (few[0].tolist(), few[2].tolist()) == ([[1.0], [8.0], [7.0]], [0, 2, 1, 0])
    one = opened(models, used, label, ids, copies[:1], most=4)
    assert (one[0].tolist(), one[2].tolist()) == ([[1.0], [2.0], [3.0], [7.0]], [0, 3, 3, 3])
    full = opened(models[:1], used[:1], label, ids, copies, most=1)
    assert torch.equal(full[0], models[:1])
    assert torch.equal(full[2], label)


def test_hits_are_on_training_data() -> None:
    fed = federation()
    rnd, front = rounds_of(fed, 1)[0], engine_for(fed)
    models, ids = front.init(rnd.stream("any"), 2), torch.tensor([0, 5])
    found = training_hits(models, ids, front.at(rnd), rnd)
    for row, client in enumerate(ids.tolist()):
        rows = fed.train.of_client(client)
        for k, model in enumerate(models):
            logits = fed.pool.x[rows] @ model[:18].view(3, 6).T + model[18:]
            assert int(found[row, k]) == int((logits.argmax(1) == fed.pool.y[rows]).sum())


def test_without_drift_together_is_fedavg_and_apart_is_local() -> None:
    rounds = rounds_of(federation(equal=False), 2)
    together, _ = simulate(configured("feddrift_eager"), rounds)
    fedavg, _ = simulate(configured("fedavg", "common.aggregation=by_samples"), rounds)
    apart, _ = simulate(configured("feddrift"), rounds)
    local, _ = simulate(configured("local"), rounds)
    assert torch.equal(together[-1].models, fedavg[-1].model)
    torch.testing.assert_close(apart[-1].models, local[-1].models.all())


def test_far_enough_all_models_merge_and_at_zero_none_of_different_ones() -> None:
    rounds = drifting([{}, {}], 3)
    one, _ = played("feddrift", rounds, "algorithm.merge_delta=1")
    assert len(one[2].models) == CLIENTS
    assert one[3].label.tolist() == [0] * CLIENTS  # models without clients rest
    none, costs = played("feddrift", rounds, "algorithm.merge_delta=null")
    assert len(none[-1].models) == CLIENTS
    assert (costs[3].models_down, costs[3].scalars_up) == (CLIENTS**2 + CLIENTS, CLIENTS**2)
    assert costs[3].forward_passes == CLIENTS**2
    assert (costs[2].models_down, costs[2].scalars_up) == (CLIENTS, 0)


@pytest.mark.parametrize(("name", "models"), [("feddrift", 3), ("feddrift_eager", 2)])
def test_two_new_concepts_at_once(name: str, models: int) -> None:
    """Step 1 sets what is usual; in step 2 three clients go one way and three another."""
    moved = {**dict.fromkeys((1, 4, 7), 1), **dict.fromkeys((2, 5, 8), 2)}
    rounds = drifting([{}, {}, moved, {}], 5)
    options = ("algorithm.first_models=together", "algorithm.delta=0.2")
    if name == "feddrift":
        options += ("algorithm.merge_delta=0.4",)
    states, _ = played(name, rounds, *options)
    before, drifted, after = states[9], states[10], states[15]
    assert len(before.models) == 1
    new = torch.tensor(sorted(moved))
    if name == "feddrift":
        assert len(drifted.models) == 1 + len(moved)
        assert partition_of(after.label) == partition_of(rounds[-1].fed.group)
    else:
        assert bool((drifted.label[new] == 1).all())
    assert len(after.models) == models


def test_steps_every_so_many_rounds_need_no_drift() -> None:
    fed = federation()
    states, costs = simulate(configured("feddrift", "algorithm.every=3"), rounds_of(fed, 7))
    asked = [cost.forward_passes for cost in costs[1:]]
    assert asked[0] == asked[1] == asked[2] == asked[4] == asked[5] == 0
    assert asked[3] == CLIENTS**2
    assert asked[6] == CLIENTS * len(states[5].models)
    assert len(states[6].label.unique()) < CLIENTS, "models of one group merge"
    assert states[0].best.tolist() == [-math.inf] * CLIENTS
    assert bool((states[3].best > 0).all())


@pytest.mark.parametrize(
    ("name", "equal"), [("feddrift", "training alone"), ("feddrift_eager", "FedAvg")]
)
def test_without_drift_it_says_what_it_is(name: str, equal: str) -> None:
    plain: Any = configured(name)
    assert f"this is {equal}; take algorithm.every" in plain.beside(Static(), 12)
    assert plain.beside(SwapAll(), 12) == ""
    stepping: Any = configured(name, "algorithm.every=2")
    assert stepping.beside(Static(), 12) == ""


def stepped(
    monkeypatch: pytest.MonkeyPatch, share: list[list[float]], best: float, *options: str
) -> Any:
    """The state after a step in which client i has the accuracies share[i] of three models, whose
    parameters are 0, 1 and 2, and had `best` before; with more clients than given, the last repeat.
    """
    fed = federation()
    rows = torch.tensor(share + share[-1:] * (CLIENTS - len(share)), dtype=torch.float64)
    hits = (rows * fed.train.count.unsqueeze(1)).unsqueeze(2)
    monkeypatch.setattr("fedclust.algorithms.feddrift.training_hits", lambda *_: hits)
    algorithm: Any = configured("feddrift", "algorithm.first_models=together", *options)
    state = algorithm.State(
        models=torch.arange(3.0).unsqueeze(1).expand(3, 21).clone(),
        used=torch.tensor([4, 5, 6]),
        label=torch.zeros(CLIENTS, dtype=torch.int64),
        best=torch.full((CLIENTS,), best, dtype=torch.float64),
    )
    rnd = replace(rounds_of(fed, 8)[7], shifted=~NOBODY)
    return algorithm._step(state, engine_for(fed).at(rnd), rnd)[0]


def test_data_of_new_concepts_say_nothing_about_merging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models 0 and 1 are 0.4 apart; with the new client's data model 0 would be worse by 0.225."""
    share = [[0.9, 0.5, 0], [0.5, 0.9, 0], [0, 0, 0.9]]
    apart = stepped(monkeypatch, share, 0.9, "algorithm.merge_delta=0.3")
    assert len(apart.models) == 3
    one = stepped(monkeypatch, share, 0.9, "algorithm.merge_delta=0.4")
    assert len(one.models) == 2
    assert one.label[:3].tolist() == [0, 0, 1]
    # the third is new: its best, 0.6 of model 0, is much worse than before
    share = [[0.9, 0.5, 0], [0.5, 0.7, 0], [0.6, 0.55, 0], [0, 0, 0.9]]
    new = stepped(monkeypatch, share, 0.9, "algorithm.merge_delta=0.3", "algorithm.delta=0.25")
    assert len(set(new.label[[0, 1, 3]].tolist())) == 3, "0.4 apart without its data"
    assert new.label[2] == 3


def test_one_model_for_all_begins_as_the_best_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    share = [[0, 0.5, 0], [0, 0, 0.5], [0.9, 0, 0]]
    eager = ("algorithm.opening=one", "algorithm.merge_delta=null")
    after = stepped(monkeypatch, share, 0.9, *eager)
    assert after.label.tolist() == [3, 3] + [0] * 10
    assert after.models[3].unique().tolist() == [1]
    assert after.used.tolist() == [4, 5, 6, -1]


@pytest.mark.parametrize(("linkage", "models"), [("complete", 2), ("average", 1)])
def test_a_chain_of_models_merges_by_the_linkage(
    monkeypatch: pytest.MonkeyPatch, linkage: str, models: int
) -> None:
    """0 and 1, and 1 and 2, are 0.1 apart, 0 and 2 0.3; the mean of 0.1 and 0.3 is 0.2."""
    share = [[0.9, 0.8, 0.6], [0.8, 0.9, 0.8], [0.6, 0.8, 0.9]]
    options = ("algorithm.merge_delta=0.21", f"algorithm.linkage={linkage}")
    assert len(stepped(monkeypatch, share, 0.9, *options).models) == models


def test_a_shift_of_one_who_does_not_take_part_begins_a_step() -> None:
    rounds = rounds_of(federation(), 2, participation=0.25)
    outside = next(i for i in range(CLIENTS) if i not in rounds[1].cohort.tolist())
    shifted = NOBODY.index_fill(0, torch.tensor([outside]), True)
    _, costs = simulate(configured("feddrift"), [rounds[0], replace(rounds[1], shifted=shifted)])
    assert [cost.forward_passes for cost in costs[1:]] == [0, CLIENTS**2]


def test_models_remember_when_they_were_trained() -> None:
    rounds = rounds_of(federation(), 4, participation=0.25)
    states, _ = simulate(configured("feddrift"), rounds)
    last = torch.full((CLIENTS,), -1)
    for rnd in rounds:
        last[rnd.cohort] = rnd.t
    assert torch.equal(states[-1].used, last)


def test_latecomers_join_the_cheapest() -> None:
    fed, late = federation(), (2, 9)
    states, reports = simulate(
        configured("feddrift_eager"), rounds_of(fed, 2, absent=late, until=1)
    )
    assert states[0].label[list(late)].tolist() == [-1, -1]
    assert states[1].label.tolist() == [0] * CLIENTS
    assert reports[2].models_down == CLIENTS
