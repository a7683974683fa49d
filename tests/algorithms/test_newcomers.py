"""Clients that have never taken part: by labels, a few or none, and what leaves the base alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from planted import CLIENTS, configured, engine_for, federation, rounds_of, same, simulate
from test_flux import apart, unlabelled
from torch import Tensor

from fedclust.algorithms.layers.newcomers import Newcomers
from fedclust.core.types import Federation, Round, Split
from fedclust.helpers.errors import ConfigError
from fedclust.runtime.contract import fields_of
from fedclust.scenarios import newcomers as scenarios
from fedclust.scenarios.static import Static
from fedclust.scenarios.unavailable import Unavailable

LATE = (2, 9)


def method(assign: str, *more: str) -> Any:
    """IFCA whose newcomers are assigned in this way."""
    return configured("newcomers", f"algorithm.assign={assign}", *more)


def begun(algorithm: Any, fed: Federation, base: str = "oracle") -> tuple[Any, Round]:
    """The state after three rounds without two clients, who are there now, and their round."""
    rounds = rounds_of(fed, 3, absent=LATE)
    states, _ = simulate(algorithm, rounds)
    return states[-1], replace(rounds[-1], present=torch.ones(CLIENTS, dtype=torch.bool))


def with_base(name: str, assign: Any, **more: Any) -> Newcomers:
    plain: Any = method(assign)
    base: Any = configured(name)
    return Newcomers(base=base, descriptor=plain.descriptor, assign=assign, **more)


@pytest.mark.full
@pytest.mark.parametrize("assign", ["labels", "few", "unlabelled", "method"])
def test_the_base_trains_as_without(assign: str) -> None:
    rounds = rounds_of(federation(), 3, participation=0.5)
    states, reports = simulate(method(assign), rounds)
    alone, others = simulate(configured("ifca"), rounds)
    for mine, its in zip(states, alone, strict=True):
        assert all(
            torch.equal(getattr(mine, name), value) for name, value in fields_of(its).items()
        )
    for mine, its in zip(reports, others, strict=True):
        assert (mine.models_down, mine.scalars_up) == (its.models_down, its.scalars_up)
    seen = torch.zeros(CLIENTS, dtype=torch.bool)
    for rnd, state in zip(rounds, states, strict=True):
        seen[rnd.cohort] = True
        assert torch.equal(state.seen, seen)
    assert not same(states[0], states[1])


def test_by_labels_the_model_of_least_loss() -> None:
    """Models are in the wrong order, which only the two late clients notice."""
    fed = federation()
    algorithm = with_base("oracle", "labels")
    state, rnd = begun(algorithm, fed)
    state = replace(state, models=state.models.roll(1, 0))
    clients = engine_for(fed).at(rnd)
    served = algorithm.serve(state, clients, rnd)
    loss = clients.loss(state.models, torch.tensor(LATE))
    assert served.label[list(LATE)].tolist() == loss.argmin(1).tolist()
    seen = torch.ones(CLIENTS, dtype=torch.bool)
    seen[list(LATE)] = False
    assert torch.equal(served.label[seen], fed.group[seen])


def test_a_few_labels_are_as_many_and_always_the_same() -> None:
    fed = federation()
    algorithm = with_base("oracle", "few", examples=5)
    _, rnd = begun(algorithm, fed)
    new = torch.tensor(LATE)
    few = algorithm._few(new, rnd).fed.train
    assert few.count[new].tolist() == [5, 5]
    for client in range(CLIENTS):
        mine = few.of_client(client)
        assert bool(torch.isin(mine, fed.train.of_client(client)).all())
        assert len(mine) == len(mine.unique())
        if client not in LATE:
            assert torch.equal(mine, fed.train.of_client(client))
    later = algorithm._few(new, replace(rnd, t=9)).fed.train
    assert torch.equal(few.index, later.index)
    all_of_them = with_base("oracle", "few", examples=999)
    assert algorithm._few(new, rnd).fed.train.count[2] == 5
    assert torch.equal(all_of_them._few(new, rnd).fed.train.count, fed.train.count)


def test_a_few_labels_decide() -> None:
    """All labels but a few are of another group's; those few are drawn whatever the labels are."""
    fed = federation()
    algorithm = with_base("oracle", "few", examples=6)
    state, rnd = begun(algorithm, fed)
    few = algorithm._few(torch.tensor([2]), rnd).fed.train.of_client(2)
    wrong = replace(
        fed, train=Split.of([few if i == 2 else fed.train.of_client(i) for i in range(CLIENTS)])
    )
    clients = engine_for(fed)
    served = algorithm.serve(state, clients.at(rnd), rnd)
    there = replace(rnd, fed=wrong)
    loss = clients.at(there).loss(state.models, torch.tensor([2]))
    assert served.label[2] == loss.argmin()


def test_without_labels_the_clients_with_such_inputs() -> None:
    fed = unlabelled(unlabelled(apart(), 2), 9)
    algorithm = with_base("oracle", "unlabelled")
    state, rnd = begun(algorithm, fed)
    clients = engine_for(fed).at(rnd)
    blind = replace(rnd, fed=replace(fed, group=fed.group.clone()))
    served = algorithm.serve(state, clients, blind)
    assert torch.equal(served.label, fed.group)
    # the true groups of the two are not what tells
    moved = fed.group.index_copy(0, torch.tensor(LATE), torch.tensor([0, 1]))
    there = replace(rnd, fed=replace(fed, group=moved))
    assert torch.equal(algorithm.serve(state, clients, there).label, fed.group)


def test_what_describes_inputs_is_the_model_that_most_use() -> None:
    fed = unlabelled(unlabelled(apart(), 2), 9)
    algorithm = with_base("oracle", "unlabelled")
    state, rnd = begun(algorithm, fed)
    encoders = list[Tensor]()

    class Recording:
        def blocks(self, encoder: Tensor, *given: Any) -> Any:
            encoders.append(encoder)
            return algorithm.descriptor.blocks(encoder, *given)

    clients = engine_for(fed).at(rnd)
    served = algorithm.base.serve(state, clients, rnd)
    old = torch.tensor([0, 1, 4, 7, 10])  # of the groups 0, 1, 1, 1, 1
    watched = replace(algorithm, descriptor=cast(Any, Recording()))
    watched._by_inputs(served, old, torch.tensor(LATE), clients, rnd)
    assert served.label[old].tolist() == [0, 1, 1, 1, 1]
    assert [torch.equal(one, served.models[1:2]) for one in encoders] == [True, True]


def test_newcomers_are_tested_apart() -> None:
    fed = apart()
    algorithm = with_base("oracle", "unlabelled")
    _, reports = simulate(algorithm, rounds_of(fed, 3, absent=LATE))
    assert all("accuracy_newcomers" not in report.notes for report in reports)
    state, rnd = begun(algorithm, fed)
    away = replace(rnd, cohort=rnd.cohort[:4])
    clients = engine_for(fed).at(away)
    after, cost = algorithm.round(state, clients, away)
    result = clients.evaluate(algorithm.serve(after, clients, away))
    right, count = result.sums[list(LATE), 0].sum(), result.count[list(LATE)].sum()
    assert cost.notes["accuracy_newcomers"] == pytest.approx(float(right / count))
    assert cost.notes["newcomers_served"] == 1


@pytest.mark.parametrize("without", [(2,), (2, 9)])
def test_newcomers_without_a_model_are_counted_and_no_accuracy_is_recorded(
    without: tuple[int, ...],
) -> None:
    """FeSEM serves nobody before it takes part; one may have a model from an earlier round."""
    fed = federation()
    algorithm = with_base("fesem", "method")
    state, rnd = begun(algorithm, fed)
    if len(without) == 1:
        state = replace(state, label=state.label.index_fill(0, torch.tensor([9]), 0))
    away = replace(rnd, cohort=rnd.cohort[:4])
    _, cost = algorithm.round(state, engine_for(fed).at(away), away)
    assert cost.notes["newcomers_served"] == 1 - len(without) / 2
    assert "accuracy_newcomers" not in cost.notes


@pytest.mark.parametrize(
    ("scenario", "told"),
    [
        (Static(), True),
        (Static(participation=0.5), False),
        (Static(clients_per_round=CLIENTS), True),
        (Static(clients_per_round=CLIENTS - 1), False),
        (scenarios.Newcomers(), True),
        (Unavailable(dropout=0.1), False),
        (Unavailable(dropout=0, stragglers=0.5), True),
    ],
)
def test_where_nobody_is_ever_new_it_says_so(scenario: Any, told: bool) -> None:
    line = (
        "every client is sampled in the round in which it arrives, so no client is new and no test "
        "of newcomers is recorded; lower participation"
    )
    assert method("labels").beside(scenario, CLIENTS) == (line if told else "")


def test_one_inside_another_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.base=Newcomers is not allowed"):
        replace(method("labels"), base=method("few"))


def test_before_anybody_has_taken_part_the_base_decides() -> None:
    fed = federation()
    algorithm = with_base("fedavg", "unlabelled")
    rnd = rounds_of(fed, 1)[0]
    clients = engine_for(fed).at(rnd)
    state, _ = algorithm.init(clients, rnd)
    assert algorithm.serve(state, clients, rnd).label.tolist() == [0] * CLIENTS
