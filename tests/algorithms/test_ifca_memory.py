"""IFCA as FlexCFL compares with it: clients keep their last cluster, and IFCA-MIG."""

from __future__ import annotations

from typing import Any

import torch
from planted import configured, federation, rounds_of, simulate
from toy_engine import SOLVER, ToyEngine, toy_federation, toy_round

from fedclust.algorithms.ifca_memory import IFCAMemory


def ifca(k: int = 2, **options: Any) -> IFCAMemory:
    return IFCAMemory(solver=SOLVER, num_clusters=k, **options)


def toy(ids: int = 4) -> tuple[Any, ToyEngine]:
    """Models begin at 0 and 8 on a line; clients want 1, 7, 1, 7, … and go half of the way."""
    target = torch.tensor([[1.0], [7.0]]).repeat(ids // 2, 1)
    start = torch.tensor([[0.0], [8.0]])
    pull = (target - start.repeat(ids // 2, 1)) / 2
    return toy_federation([[0]] * ids), ToyEngine(pull=pull, start=start, target=target)


def swapped(clients: set[int], ids: int = 4) -> Any:
    """The toy's federation after these clients got examples of another class."""
    return toy_federation([[1] if i in clients else [0] for i in range(ids)])


def test_only_the_cohort_is_assigned_anew() -> None:
    fed, clients = toy()
    algorithm = ifca()
    state, _ = algorithm.init(clients, toy_round(fed, [0]))
    assert (algorithm.serve(state, clients, toy_round(fed, [0])).label == -1).all()
    state, _ = algorithm.round(state, clients, toy_round(fed, [0, 1]))
    assert state.label.tolist() == [0, 1, -1, -1]
    assert state.models.tolist() == [[0.5], [7.5]]
    assert clients.target is not None
    clients.target[0] = 7.0
    state, report = algorithm.round(
        state,
        clients,
        toy_round(fed, [1, 2], t=1, shifted=[0, 3]),
    )
    served = algorithm.serve(state, clients, toy_round(fed, [0]))
    assert served.label.tolist() == [0, 1, 0, -1], (
        "client 0 keeps its cluster though its data changed"
    )
    assert (report.models_down, report.models_up) == (4, 2)
    assert "migrated" not in report.notes


def test_migration_asks_shifted_clients_at_once() -> None:
    fed, clients = toy()
    algorithm = ifca(migration=True)
    state, _ = algorithm.init(clients, toy_round(fed, [0]))
    state, _ = algorithm.round(state, clients, toy_round(fed, [0, 1]))
    assert clients.target is not None
    clients.target[0] = 7.0
    rnd = toy_round(swapped({0, 1, 3}), [1, 2], t=1)  # client 3 has no cluster to leave
    after, report = algorithm.round(state, clients.at(rnd), rnd)
    assert after.label.tolist() == [1, 1, 0, -1]
    assert report.notes["migrated"] == 1, "client 1 was asked and stays"
    assert (report.models_down, report.models_up) == (2 * 2 + 2 * 2, 2)
    plain, _ = ifca().round(state, clients.at(rnd), rnd)
    assert torch.equal(plain.models, after.models), "the cohort does what it does anyway"


def test_memory_changes_what_is_served_and_not_what_is_trained() -> None:
    rounds = rounds_of(federation(), 4, participation=0.5)
    plain, _ = simulate(configured("ifca"), rounds)
    kept, _ = simulate(configured("ifca_flex"), rounds)
    moving, _ = simulate(configured("ifca_mig"), rounds)
    for a, b, c in zip(plain, kept, moving, strict=True):
        assert torch.equal(a.models, b.models)
        assert torch.equal(a.models, c.models)
