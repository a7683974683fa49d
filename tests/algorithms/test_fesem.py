"""FeSEM in one dimension, where every assignment and every mean can be done by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from planted import configured, federation, partition_of, rounds_of, simulate
from toy_engine import SOLVER, ToyEngine, toy_federation, toy_round

from fedclust.algorithms.cold_start import ColdStart
from fedclust.algorithms.fesem import FeSEM
from fedclust.cluster_methods.kmeans import KMeans
from fedclust.cluster_metrics.param_norm import ParamNorm

PULL = torch.tensor([[-4.0], [6.0], [-2.0], [2.0], [7.0], [-3.0]])


def fesem(k: int = 2, **options: Any) -> FeSEM:
    cold = ColdStart(solver=SOLVER, metric=ParamNorm(), method=KMeans(num_clusters=k), scale=2)
    return FeSEM(solver=SOLVER, num_clusters=k, cold_start=cold, **options)


def toy() -> tuple[Any, ToyEngine]:
    """Cluster models begin at -1 and 10, clients at 1; client i adds PULL[i] to what it gets."""
    clients = ToyEngine(pull=PULL, start=torch.tensor([[-1.0], [10.0], [1.0]]))
    return toy_federation([[i % 3] for i in range(6)]), clients


def test_two_rounds_by_hand() -> None:
    fed, clients = toy()
    algorithm = fesem()
    state, report = algorithm.init(clients, toy_round(fed, [0, 1, 2]))
    assert state.models.tolist() == [[-1.0], [10.0]]
    assert state.local.all().tolist() == [[1.0]] * 6
    assert (report.models_down, report.models_up, report.gradient_steps) == (0, 0, 0)
    # all begin at 1, nearest to -1: clients 0, 1, 2 return -5, 5, -3
    state, report = algorithm.round(state, clients, toy_round(fed, [0, 1, 2]))
    assert state.local.all().squeeze(1).tolist() == [-5.0, 5.0, -3.0, 1.0, 1.0, 1.0]
    assert state.label.tolist() == [0, 0, 0, -1, -1, -1]
    torch.testing.assert_close(state.models, torch.tensor([[-1.0], [10.0]]))
    assert (report.models_down, report.models_up, report.gradient_steps) == (3, 3, 3)
    # now 5 is nearer to 10 than to -1; client 3 is new, at 1
    state, _ = algorithm.round(state, clients, toy_round(fed, [0, 1, 3], t=1))
    assert state.label.tolist() == [0, 1, 0, 0, -1, -1]
    assert state.local.all().squeeze(1).tolist() == [-5.0, 16.0, -3.0, 1.0, 1.0, 1.0]
    torch.testing.assert_close(state.models, torch.tensor([[(-5.0 + 1.0) / 2], [16.0]]))
    served = algorithm.serve(state, clients, toy_round(fed, [0]))
    assert served.label.tolist() == [0, 1, 0, 0, -1, -1]


def test_all_first_assignments_coincide() -> None:
    fed = federation()
    algorithm: Any = configured("fesem")
    for seed in range(3):
        states, _ = simulate(algorithm, rounds_of(fed, 1, seed=seed))
        assert len(states[0].label.unique()) == 1


def test_pretrained_start_by_hand() -> None:
    fed, clients = toy()
    algorithm = fesem(first_assignment="kmeans_pretrained")
    state, report = algorithm.init(clients, toy_round(fed, [0]))
    members = (state.label >= 0).nonzero().squeeze(1)
    assert len(members) == 4
    assert partition_of(state.label[members]) == partition_of((PULL[members, 0] > 0).long())
    assert torch.equal(state.local.all()[members], 1 + PULL[members])
    for k in range(2):
        torch.testing.assert_close(state.models[k], (1 + PULL[state.label == k]).mean(0))
    assert (report.models_down, report.models_up, report.gradient_steps) == (4, 4, 4)
    new = (state.label < 0).nonzero().squeeze(1)
    after, report = algorithm.round(state, clients, toy_round(fed, new.tolist()))
    nearest = (1 + PULL[new] - state.models.T).abs().argmin(1)  # from their pre-trained models
    assert torch.equal(after.label[new], nearest)
    assert torch.equal(after.local.all()[new], state.models[nearest] + PULL[new])
    assert (report.models_down, report.models_up, report.gradient_steps) == (4, 4, 4)


def test_migration_assigns_shifted_clients_anew_by_the_same_criterion() -> None:
    fed, clients = toy()
    state, _ = fesem(migration=True).init(clients, toy_round(fed, [0]))
    rnd = toy_round(fed, [0, 1, 2])
    state, _ = fesem(migration=True).round(state, clients.at(rnd), rnd)
    # other labels for clients 1 and 5, of which 5 was never sampled; the simulator says nothing
    fed = toy_federation([[0], [2], [2], [0], [1], [0]])
    rnd = toy_round(fed, [0], t=1)
    stays, plain = fesem().round(replace(state, reference=None), clients.at(rnd), rnd)
    moves, report = fesem(migration=True).round(state, clients.at(rnd), rnd)
    assert moves.reference is not None
    assert moves.reference[1].tolist() == [0, 0, 1, 1]
    assert stays.label.tolist() == [0, 0, 0, -1, -1, -1]
    assert moves.label.tolist() == [0, 1, 0, -1, -1, -1], "5 is nearer to 10 than to -1"
    assert report.notes["migrated"] == 1
    assert plain.notes["migrated"] == 0
    assert torch.equal(moves.models, stays.models)
    assert (report.models_down, report.models_up) == (plain.models_down, plain.models_up)


def test_first_client_moves_a_cluster_by_one_update() -> None:
    fed, clients = toy()
    chosen = set()
    state, _ = fesem().init(clients, toy_round(fed, [0]))
    for seed in range(20):
        rnd = replace(toy_round(fed, [0, 1, 2]), seed=seed)
        after, _ = fesem(aggregation="first_client").round(state, clients.at(rnd), rnd)
        assert float(after.models[1]) == 10.0
        chosen.add(float(after.models[0]))
    assert chosen == {-5.0, 5.0, -3.0}
