"""Clusters by a known attribute: the label of every client by hand, identities, tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from planted import CLIENTS, configured, engine_for, federation, rounds_of, simulate
from toy_engine import SOLVER, ToyEngine, toy_federation, toy_round

from fedclust.algorithms.by_attribute import ByAttribute, parts, read
from fedclust.core.types import Names
from fedclust.helpers.errors import ConfigError, DataError


def served(method: Any, fed: Any, rnd: Any = None) -> list[int]:
    """The labels before round 0."""
    rnd = rnd or toy_round(fed, [0])
    clients = ToyEngine(pull=torch.zeros(fed.num_clients, 1), start=torch.zeros(1, 1))
    state, _ = method.init(clients, rnd)
    label: list[int] = method.serve(state, clients, rnd).label.tolist()
    return label


def test_the_commonest_class_is_the_cluster() -> None:
    method = ByAttribute(solver=SOLVER, num_clusters=2)
    fed = toy_federation([[2, 2, 0], [1], [0, 1], [2, 1, 1, 2], [0, 0, 0]])
    assert served(method, fed) == [2, 1, 0, 1, 0]  # the first of equals
    away = replace(toy_round(fed, [0]), present=torch.tensor([True, False, True, True, True]))
    assert served(method, fed, away) == [2, -1, 0, 1, 0]


def test_sizes_are_cut_into_equal_parts() -> None:
    assert parts(torch.tensor([5, 1, 9, 7, 2, 8]), 3).tolist() == [2, 7]
    assert parts(torch.tensor([5, 1, 9]), 1).tolist() == []
    method = ByAttribute(solver=SOLVER, num_clusters=3, attribute="size")
    fed = toy_federation([[0] * n for n in (5, 1, 9, 7, 2, 8)])
    assert served(method, fed) == [1, 0, 2, 1, 0, 2]
    same = toy_federation([[0] * 4] * 3)
    assert served(method, same) == [0, 0, 0]
    with pytest.raises(ConfigError, match=r"num_clusters=3 .* at most the 2 clients"):
        served(method, toy_federation([[0]] * 2))


@pytest.mark.parametrize("names", [(), ("a", "b", "c")])
def test_a_table_tells_the_cluster(tmp_path: Path, names: tuple[str, ...]) -> None:
    fed = replace(toy_federation([[0]] * 3), names=Names(clients=names))
    file = tmp_path / "countries.csv"
    lines = zip(names or ("0", "1", "2"), ("NO", "DE", "NO"), strict=True)
    file.write_text("client,attribute\n" + "".join(f"{a},{b}\n" for a, b in lines))
    method = ByAttribute(solver=SOLVER, num_clusters=2, attribute="table", table=str(file))
    assert served(method, fed) == [1, 0, 1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("client,attribute\n0,a\n", "has no row of client 1 \\(2 such clients\\)"),
        ("client,attribute\n0,a\n0,b\n1,a\n2,a\n", "names client 0 twice"),
        ("client,attribute\n7,a\n", "names client 7, whom none of the 3 is"),
        ("who,attribute\n0,a\n", "cannot read .* the columns client and attribute"),
    ],
)
def test_a_table_that_does_not_tell_is_refused(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "a.csv"
    file.write_text(content)
    with pytest.raises(DataError, match=said):
        read(file, toy_federation([[0]] * 3))
    with pytest.raises(DataError, match=r"none\.csv not found: algorithm\.table is a CSV"):
        read(tmp_path / "none.csv", toy_federation([[0]] * 3))


def test_a_table_without_a_file_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.table=.* a CSV file"):
        ByAttribute(solver=SOLVER, num_clusters=2, attribute="table")


def test_one_value_is_fedavg_and_true_groups_are_the_oracle(tmp_path: Path) -> None:
    fed = federation(equal=False)
    rounds = rounds_of(fed, 3, participation=0.5)
    one = configured("by_attribute", "algorithm.attribute=size", "num_clusters=1")
    states, reports = simulate(one, rounds)
    fedavg, _ = simulate(configured("fedavg"), rounds)
    assert torch.equal(states[-1].models, fedavg[-1].model)
    assert (reports[1].models_down, reports[1].models_up) == (6, 6)
    file = tmp_path / "groups.csv"
    rows = [f"{client},{int(fed.group[client])}\n" for client in range(CLIENTS)]
    file.write_text("client,attribute\n" + "".join(rows))
    told = configured("by_attribute", "algorithm.attribute=table", f"algorithm.table={file}")
    states, _ = simulate(told, rounds)
    oracle, _ = simulate(configured("oracle"), rounds)
    assert torch.equal(states[-1].models, oracle[-1].models)


def test_a_client_moves_with_its_data() -> None:
    fed = federation()
    method: Any = configured("by_attribute")
    rnd = rounds_of(fed, 1)[0]
    state, _ = method.init(engine_for(fed).at(rnd), rnd)
    other = replace(fed, pool=replace(fed.pool, y=(fed.pool.y + 1) % 3))
    for now in (fed, other):
        label = method.serve(state, engine_for(fed).at(rnd), replace(rnd, fed=now)).label
        counted = [now.pool.y[now.train.of_client(i)].bincount() for i in range(CLIENTS)]
        assert label.tolist() == [int(count.argmax()) for count in counted]
    assert other.pool.y[0] != fed.pool.y[0]
