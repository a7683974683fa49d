"""What every method promises; two runs of each are shared: of all clients and without some."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
import torch
from planted import (
    ALGORITHMS,
    CLIENTS,
    ROUNDS,
    configured,
    copied,
    engine_for,
    federation,
    partition_of,
    rounds_of,
    same,
    simulate,
)
from states import dense

from fedclust.config.about import about
from fedclust.core.types import Cost, Federation, Round, Served
from fedclust.helpers.errors import ConfigError
from fedclust.runtime.contract import fields_of
from fedclust.runtime.simulation import models_per_client

ABSENT = (4, 11)
NEEDS_GROUPS = {"oracle"}
# IFCA may merge groups from any random start, which is a fact about IFCA; see test_ifca.py
RECOVERING = (
    *("lcfl", "diffnorm", "gradcos", "oracle", "flexcfl", "fedgroup", "flexcfl_rac", "flhc"),
    *("kmeans_models", "ocfl", "fesem algorithm.first_assignment=kmeans_pretrained"),
)


@pytest.fixture(params=ALGORITHMS, scope="module")
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@dataclass(frozen=True)
class Simulated:
    """Half of the clients per round: states after every round, each also as it was at first."""

    rounds: list[Round]
    states: list[Any]
    before: list[Any]
    served: list[Served]
    reports: list[Cost]


@cache
def simulated(name: str, absent: tuple[int, ...] = ()) -> Simulated:
    fed, algorithm = federation(), configured(name, "participation=0.5")
    rounds, clients = rounds_of(fed, participation=0.5, absent=absent), engine_for(fed, algorithm)
    state, report = algorithm.init(clients.at(rounds[0]), rounds[0])
    states, before, served, reports = [], [copied(state)], [], [report]
    for rnd in rounds:
        after, report = algorithm.round(state, clients.at(rnd), rnd)
        assert same(state, before[-1])
        assert not same(after, state)
        state = after
        states.append(state)
        before.append(copied(state))
        served.append(algorithm.serve(state, clients.at(rnd), rnd))
        reports.append(report)
    return Simulated(rounds, states, before[1:], served, reports)


@pytest.mark.thinned
def test_shapes_and_types(name: str) -> None:
    algorithm, run = configured(name, "participation=0.5"), simulated(name, ABSENT)
    layout = engine_for(federation(), algorithm).layout
    sampled = torch.zeros(CLIENTS, dtype=torch.bool)
    for rnd, state, served in zip(run.rounds, run.states, run.served, strict=True):
        sampled[rnd.cohort] = True
        assert type(state) is algorithm.State
        of_clients = (CLIENTS, layout.num_params)
        kept = [v.shape for v in dense(fields_of(state)).values() if isinstance(v, torch.Tensor)]
        assert kept.count(of_clients) <= models_per_client(algorithm)  # else not counted as memory
        assert served.models.ndim == 2
        assert served.models.shape[1] == layout.num_params
        assert served.models.dtype == torch.float32
        assert torch.isfinite(served.models).all()
        assert served.label.shape == (CLIENTS,)
        assert served.label.dtype == torch.int64
        assert served.label.max() < len(served.models)
        assert (served.label[list(ABSENT)] == -1).all()
        if about(name).get("joins") == "sampled":
            assert (served.label[sampled] >= 0).all()
        else:
            assert (served.label[rnd.present] >= 0).all()
    assert len(run.reports) == ROUNDS + 1
    for report in run.reports:
        for cost in (report.models_down, report.models_up, report.gradient_steps):
            assert isinstance(cost, int)
            assert cost >= 0
        assert all(isinstance(float(value), float) for value in report.notes.values())
    assert all(report.train_loss == report.train_loss for report in run.reports[1:])


@pytest.mark.thinned
def test_the_given_state_is_left_as_it_was(name: str) -> None:
    run = simulated(name)  # which compares them after every round, too
    assert all(same(a, b) for a, b in zip(run.states, run.before, strict=True))


@pytest.mark.thinned
def test_same_seed_same_bits_and_another_seed_others(name: str) -> None:
    fed, algorithm = federation(), configured(name, "participation=0.5")
    whole = simulated(name)
    again, _ = simulate(algorithm, whole.rounds[:2])
    other, _ = simulate(algorithm, rounds_of(fed, 2, participation=0.5, seed=1))
    # the other rounds again: see the next test
    assert all(same(a, b) for a, b in zip(whole.states, again, strict=False))
    assert not same(whole.states[1], other[-1])


@pytest.mark.thinned
def test_a_run_continues_from_a_saved_state(name: str) -> None:
    algorithm, whole = configured(name, "participation=0.5"), simulated(name)
    for stop, end in ((2, 5), (5, 6), (6, ROUNDS)):
        rest, _ = simulate(algorithm, whole.rounds[stop:end], copied(whole.states[stop - 1]))
        assert all(same(a, b) for a, b in zip(whole.states[stop:end], rest, strict=True))


@pytest.mark.thinned
def test_nothing_leaks_from_groups_test_labels_and_absent_clients(name: str) -> None:
    fed, algorithm = federation(), configured(name, "participation=0.5")
    whole = simulated(name, ABSENT)
    spoiled = _spoiled(fed, keep_groups=name in NEEDS_GROUPS)
    spoiled_rounds = [replace(rnd, fed=spoiled) for rnd in whole.rounds]
    others, other_reports = simulate(algorithm, spoiled_rounds)
    assert all(same(a, b) for a, b in zip(whole.states, others, strict=True))
    assert [_costs(r) for r in whole.reports] == [_costs(r) for r in other_reports]
    other = algorithm.serve(
        others[-1], engine_for(spoiled, algorithm).at(spoiled_rounds[-1]), spoiled_rounds[-1]
    )
    assert torch.equal(whole.served[-1].label, other.label)


def _spoiled(fed: Federation, *, keep_groups: bool) -> Federation:
    """The federation with everything changed that an algorithm must not look at."""
    x, y = fed.pool.x.clone(), fed.pool.y.clone()
    y[fed.test.index.long()] = (y[fed.test.index.long()] + 1) % fed.pool.num_classes
    for client in ABSENT:
        rows = fed.train.of_client(client)
        x[rows], y[rows] = 1e6, 0
    group = fed.group if keep_groups else torch.full_like(fed.group, -1)
    return replace(fed, pool=replace(fed.pool, x=x, y=y), group=group)


def _costs(report: Any) -> tuple[Any, ...]:
    return report.models_down, report.models_up, report.gradient_steps, repr(report.train_loss)


@pytest.mark.full
@pytest.mark.parametrize("recovering", RECOVERING)
@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in (1, 2))])
def test_planted_groups_are_recovered(recovering: str, seed: int) -> None:
    fed, algorithm = federation(seed), configured(*recovering.split())
    rounds = rounds_of(fed, 10, seed=seed)
    states, _ = simulate(algorithm, rounds)
    clients = engine_for(fed, algorithm)
    served = algorithm.serve(states[-1], clients.at(rounds[-1]), rounds[-1])
    assert partition_of(served.label) == partition_of(fed.group)
    evaluation = clients.at(rounds[-1]).evaluate(served)
    assert int(evaluation.sums.sum()) / int(evaluation.count.sum()) > 0.75


def test_oracle_asks_for_groups() -> None:
    fed = replace(federation(), group=torch.full((CLIENTS,), -1))
    with pytest.raises(ConfigError, match="algorithm=oracle"):
        simulate(configured("oracle"), rounds_of(fed, 1))


@pytest.mark.thinned
def test_states_hold_tensors_and_plain_numbers_only(name: str) -> None:
    for state in simulated(name).states:
        for value in dense(fields_of(state)).values():
            assert value is None or isinstance(value, torch.Tensor | int | float)
