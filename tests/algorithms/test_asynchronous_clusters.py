"""Asynchronous servers of clusters: they are IFCA where all devices are alike; a run by hand, whose
clusters have rounds of their own pace; what is held for the next round.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from digits_jobs import config_of
from planted import configured, copied, engine_for, federation, rounds_of, same, simulate
from run_folders import assert_pieces_make_the_whole
from test_timing import devices, seconds, timed
from toy_engine import SOLVER, ToyEngine, toy_federation, toy_round

from fedclust.algorithms.fedasync import FedAsync
from fedclust.algorithms.fedbuff import FedBuff
from fedclust.core.clock import Devices, Pace
from fedclust.engines.loop import LoopEngine
from fedclust.helpers.errors import ConfigError

UNEVEN = torch.tensor([1.0, 2.0, 5.0, 3.0] * 3)


@pytest.mark.thinned
@pytest.mark.parametrize("participation", [1.0, 0.5, 0.25])
@pytest.mark.parametrize("aggregation", ["by_samples", "uniform"])
def test_with_equal_devices_and_the_default_buffer_it_is_ifca(
    participation: float, aggregation: str
) -> None:
    rounds = rounds_of(federation(equal=False), participation=participation)
    key = f"common.aggregation={aggregation}"
    plain, others = simulate(configured("ifca", key), rounds, kind=LoopEngine)
    states, costs = simulate(configured("ifca_fedbuff", key), rounds, kind=LoopEngine)
    for one, other in zip(plain, states, strict=True):
        torch.testing.assert_close(one.models, other.models, atol=1e-6, rtol=0)
    for one, other in zip(others[1:], costs[1:], strict=True):
        sent = [(c.models_down, c.models_up, c.scalars_up, c.gradient_steps) for c in (one, other)]
        assert sent[0] == sent[1]
        assert one.train_loss == pytest.approx(other.train_loss)
    assert (states[-1].made > 0).sum() > 1, "one cluster took all: the case is too easy"
    assert len(states[-1].held) == len(states[-1].training) == 0


def test_equal_devices_last_as_ifca() -> None:
    rounds = rounds_of(federation(), participation=0.5)
    own = devices(7.0, down=100.0, up=50.0)
    states, costs = simulate(timed("ifca_fedbuff", own), rounds)
    plain, others = simulate(timed("ifca", own), rounds)
    assert seconds(costs) == pytest.approx(seconds(others))
    torch.testing.assert_close(states[-1].models, plain[-1].models, atol=1e-6, rtol=0)
    # three models of 84 bytes down, a third of a pass over 24 examples with each, and one up
    assert seconds(costs)[0] == pytest.approx(3 * 0.84 + 24 / 7 + 48 / 7 + 1.68)


def test_a_client_at_a_time_with_all_the_weight_is_ifca() -> None:
    rounds = rounds_of(federation(), participation=1 / 12)
    plain, _ = simulate(configured("ifca"), rounds)
    keys = "algorithm.alpha=1", "algorithm.staleness=constant"
    states, _ = simulate(configured("ifca_fedasync", *keys), rounds)
    torch.testing.assert_close(states[-1].models, plain[-1].models, atol=1e-6, rtol=0)


@pytest.mark.full
@pytest.mark.parametrize("name", ["fedbuff", "fedasync"])
def test_of_one_cluster_it_is_the_method_with_one_model(name: str) -> None:
    rounds, own = rounds_of(federation(), participation=0.5), devices(UNEVEN, 100.0, 50.0)
    one = configured(f"ifca_{name}", "algorithm.num_clusters=1")
    states, costs = simulate(replace(timed(name, own), base=one), rounds)
    plain, others = simulate(timed(name, own), rounds)
    assert all(same(a, b) for a, b in zip(plain, states, strict=True))
    assert costs == pytest.approx(others, nan_ok=True) or repr(costs) == repr(others)


# four clients: their models move by so much, and they want to be there
PULL, TARGET = (1.0, 2.0, -1.0, -3.0), (0.0, 0.0, 10.0, 10.0)


def by_hand(method: Any, busy: list[float], count: int, **toy: Any) -> tuple[list[Any], list[Any]]:
    """States and costs of some rounds, in which all train that can."""
    fed = toy_federation([[0], [0], [0], [0]])
    column = {"pull": PULL, "target": TARGET, "start": (0.0, 10.0)} | toy
    clients = ToyEngine(**{k: torch.tensor(v).unsqueeze(1) for k, v in column.items()})
    pace = Pace(devices=Devices.alike(4, 1.0), now=0.0, busy=torch.tensor(busy).double())
    rounds = [replace(toy_round(fed, [0, 1, 2, 3], t), pace=pace) for t in range(count)]
    clients.rnd = rounds[0]  # type: ignore[attr-defined]
    state, _ = method.init(clients, rounds[0])
    states, costs = [], []
    for rnd in rounds:
        state, cost = method.round(state, clients, rnd)
        states.append(state)
        costs.append(cost)
    return states, costs


def test_two_clusters_by_hand() -> None:
    """A step after every second arrival in a cluster; rounds of two arrivals."""
    method = FedBuff(solver=SOLVER, num_clusters=2, aggregation="uniform", buffer=2)
    (one, two, three), costs = by_hand(method, [1, 4, 2, 5], 3)
    # 0 arrives at 1 and begins again; then 2 at 2, where 0 arrives again, in the next round
    assert (one.now, one.made.tolist(), one.models.tolist()) == (2, [0, 0], [[0], [10]])
    assert (one.held.tolist(), one.held_label.tolist()) == ([0, 2], [0, 1])
    assert (one.held_start.tolist(), one.held_params.tolist()) == ([[0], [10]], [[1], [9]])
    # that is the second in the first cluster, from which it begins anew; it arrives at 3
    assert (two.now, two.made.tolist(), two.models.tolist()) == (3, [1, 0], [[1], [10]])
    assert (two.held.tolist(), two.held_label.tolist()) == ([2, 0], [1, 0])
    assert two.held_start.tolist() == [[10], [1]]
    # 1 and 2 at 4: a model has been made of 1's cluster since it began, and none of the other
    stale = 2**-0.5 * 2
    assert (three.now, three.made.tolist()) == (4, [2, 1])
    assert three.models.squeeze(1).tolist() == pytest.approx([1 + (1 + stale) / 2, 9])
    assert three.held.tolist() == []
    # who is left: 3 since the start, and 0 since 3; 1 and 2 have not begun again
    left = [x.tolist() for x in (three.training, three.done, three.label, three.version)]
    assert left == [[3, 0], [5, 4], [1, 0], [0, 1]]
    assert [(c.models_down, c.models_up, c.scalars_up) for c in costs] == [
        (10, 2, 5),
        (4, 2, 2),
        (2, 2, 1),
    ]
    assert [(c.gradient_steps, c.lasted) for c in costs] == [(2, 2), (2, 1), (2, 1)]


def test_a_cluster_waits_for_as_many_as_train_in_it() -> None:
    """By default. Three are in the first cluster: what it holds is enough when one of the two that
    are left in it has gone to the other.
    """
    method = FedBuff(solver=SOLVER, num_clusters=2, aggregation="uniform")
    moving = {"pull": (1.0, 3.0, 5.0, -9.0), "target": (0.6, 0.0, 0.0, 9.0)}
    (state,), _ = by_hand(method, [2.5, 3.0, 9.0, 2.0], 1, **moving)
    # 3 alone at 2, so that the second model is 1. 0 at 2.5, which then joins 3 in the second
    # cluster. 1 at 3, with 2 left: two have arrived, as many as trained there. 1 joins the second
    # cluster, too, which waits for three when 3 arrives at 4
    assert (state.now, state.made.tolist()) == (4, [1, 1])
    assert state.models.tolist() == [[2], [1]]
    assert (state.training.tolist(), state.label.tolist()) == ([2, 0, 1], [0, 1, 1])
    assert state.held.tolist() == [3]


def test_nothing_is_held_of_a_cluster_that_nobody_trains_in() -> None:
    method = FedBuff(solver=SOLVER, num_clusters=2, aggregation="uniform")
    (before, _), _ = by_hand(method, [1.0, 1.0, 1.0, 1.0], 2)
    held = {"held_start": [[4.0]], "held_params": [[6.0]], "held_loss": [1.0]}
    more = {"held": [0], "held_label": [0], "held_version": [0], "held_steps": [1]}
    values = {key: torch.tensor(value) for key, value in (held | more).items()}
    before = replace(before, **values, held_first_loss=torch.ones(1), models=before.models + 100)
    fed = toy_federation([[0], [0], [0], [0]])
    columns = {"pull": PULL, "start": (0.0, 10.0), "target": (200.0,) * 4}  # all in the second
    clients = ToyEngine(**{k: torch.tensor(v).unsqueeze(1) for k, v in columns.items()})
    rnd = toy_round(fed, [0, 1, 2, 3], 2)
    clients.rnd = rnd  # type: ignore[attr-defined]
    after, _ = method.round(before, clients, rnd)
    assert after.made.tolist() == [before.made[0] + 1, before.made[1] + 1]
    assert len(after.held) == 0
    assert before.made[0] == 1
    assert float(after.models[0]) == pytest.approx(float(before.models[0]) + 2 / 2**0.5)


def test_every_model_is_mixed_with_its_own_clusters() -> None:
    method = FedAsync(solver=SOLVER, num_clusters=2, alpha=0.5, staleness="constant")
    (state,), _ = by_hand(method, [1.0, 8.0, 1.0, 8.0], 1)
    # 0 and 2 at 1, and from the new models at 2
    first = [0 + 0.5, 10 - 0.5]
    assert state.models.squeeze(1).tolist() == [first[0] + 0.5, first[1] - 0.5]
    assert state.made.tolist() == [2, 2]
    assert state.held.tolist() == []


@pytest.mark.full
@pytest.mark.parametrize("name", ["ifca_fedbuff", "ifca_fedasync"])
@pytest.mark.parametrize("keys", [(), ("algorithm.buffer=3",)])
def test_it_continues_from_a_file(name: str, keys: tuple[str, ...]) -> None:
    if keys and name == "ifca_fedasync":
        keys = ("algorithm.staleness=hinge",)
    rounds, own = rounds_of(federation(), participation=0.5), devices(UNEVEN)
    method = replace(timed(name, own), base=configured(name, *keys))
    states, _ = simulate(method, rounds)
    assert any(len(state.held) for state in states) == (name == "ifca_fedbuff")
    for t in (2, 5):
        rest, _ = simulate(method, rounds[t + 1 :], copied(states[t]))
        assert same(rest[-1], states[-1])


def test_each_is_served_the_model_that_fits_its_training_data() -> None:
    fed = federation()
    rounds, method = rounds_of(fed, 2), configured("ifca_fedbuff")
    states, _ = simulate(method, rounds)
    clients = engine_for(fed).at(rounds[-1])
    served = method.serve(states[-1], clients, rounds[-1])
    loss = clients.loss(states[-1].models, torch.arange(12))
    assert torch.equal(served.label, loss.argmin(1))


def test_models_that_begin_alike_are_refused() -> None:
    method = FedBuff(solver=SOLVER, num_clusters=2)
    with pytest.raises(ConfigError, match="begin alike"):
        by_hand(method, [1.0] * 4, 1, start=(5.0, 5.0))


@pytest.mark.full
@pytest.mark.parametrize("algorithm", ["ifca_fedbuff", "ifca_fedasync"])
def test_an_interrupted_run_ends_with_the_same_bits(algorithm: str, tmp_path: Path) -> None:
    config = config_of(algorithm, "clock=devices", "clock.speed_spread=1", "compression=top_k")
    assert_pieces_make_the_whole(config, tmp_path)
