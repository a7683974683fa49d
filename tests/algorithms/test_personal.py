"""Personal models: Ditto's limits, and fine-tuning of any method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from planted import CLIENTS, STEPS, configured, engine_for, federation, rounds_of, same, simulate
from toy_engine import ToyEngine, toy_federation, toy_round

from fedclust.algorithms.layers.finetune import FineTune
from fedclust.algorithms.oracle import Oracle
from fedclust.core.calls import LocalResult
from fedclust.core.front import Gradient, Train
from fedclust.solver import Solver


@pytest.mark.full
@pytest.mark.parametrize("participation", [1.0, 0.5])
@pytest.mark.parametrize(
    ("name", "option"),
    [("ditto", "algorithm.personal.proximal=0"), ("apfl", "algorithm.alpha=1.0")],
)
def test_without_a_tie_it_is_fedavg_beside_local_training(
    name: str, option: str, participation: float
) -> None:
    rounds = rounds_of(federation(), 4, participation=participation)
    states, reports = simulate(configured(name, option), rounds)
    fedavg, averaged = simulate(configured("fedavg"), rounds)
    local, _ = simulate(configured("local", "algorithm.participants=cohort"), rounds)
    off = {"rtol": 0, "atol": 0} if name == "ditto" else {"rtol": 1e-5, "atol": 1e-6}
    for mine, common, alone in zip(states, fedavg, local, strict=True):
        assert torch.equal(mine.model, common.model)
        torch.testing.assert_close(mine.personal.all(), alone.models.all(), **off)
    assert [r.models_down for r in reports] == [r.models_down for r in averaged]
    assert reports[1].gradient_steps == 2 * averaged[1].gradient_steps


@pytest.mark.parametrize(("name", "own"), [("ditto", 1.0), ("apfl", 0.2)])
def test_the_common_model_is_served_to_who_never_took_part(name: str, own: float) -> None:
    fed = federation()
    rnd = rounds_of(fed, 1, participation=0.25)[0]
    algorithm = configured(name, *(["algorithm.alpha=0.2"] if name == "apfl" else []))
    (state,), _ = simulate(algorithm, [rnd])
    served = algorithm.serve(state, engine_for(fed).at(rnd), rnd)
    mixtures = own * state.personal.all() + (1 - own) * state.model
    for client in range(CLIENTS):
        expected = mixtures[client] if client in rnd.cohort.tolist() else state.model[0]
        assert torch.equal(served.models[served.label[client]], expected)


def test_ditto_in_one_step_by_hand() -> None:
    """v <- v - eta * (grad F(v) + lambda * (v - w)), w as the round found it."""
    fed = federation()
    one_step = [
        f"algorithm.{part}.{key}"
        for part in ("personal",)
        for key in ("batch_size=null", "epochs=1")
    ]
    algorithm: Any = configured("ditto", *one_step, "algorithm.personal.proximal=0.3")
    rounds, clients = rounds_of(fed, 3), engine_for(fed)
    states, _ = simulate(algorithm, rounds)
    v, w, everybody = states[1].personal.all(), states[1].model, torch.arange(CLIENTS)
    gradient = clients.at(rounds[2]).grad(Gradient(v, everybody, everybody))
    torch.testing.assert_close(states[2].personal.all(), v - 0.5 * (gradient + 0.3 * (v - w)))


@dataclass
class Passes(ToyEngine):
    """Every pass over a client's data adds its `pull`."""

    def train(self, asked: Train) -> LocalResult:
        assert asked.solver.steps is None
        assert asked.solver.epochs is not None
        whole = ToyEngine(pull=asked.solver.epochs * self.pull, start=self.start)
        return whole.train(asked)


@pytest.mark.parametrize("epochs", [1, 3])
def test_fine_tuning_takes_its_own_number_of_passes(epochs: int) -> None:
    """After a round of one pass the groups' models are 1 and 5; a client goes on from its own."""
    clients = Passes(pull=torch.tensor([[1.0], [5.0]]), start=torch.zeros(1, 1))
    base = Oracle(solver=Solver(lr=0.1, epochs=1))
    algorithm = FineTune(base=base, solver=Solver(lr=0.1, epochs=7), epochs=epochs)
    rnd = toy_round(replace(toy_federation([[0], [1]]), group=torch.tensor([0, 1])), [0, 1])
    state, _ = algorithm.init(clients.at(rnd), rnd)
    state, _ = algorithm.round(state, clients.at(rnd), rnd)
    served = algorithm.serve(state, clients.at(rnd), rnd)
    assert served.models[served.label].tolist() == [[1.0 + epochs], [5.0 + 5.0 * epochs]]


@pytest.mark.full
@pytest.mark.parametrize("base", ["fedavg", "ifca", "lcfl"])
def test_fine_tuning_leaves_training_alone_and_none_is_the_base(base: str) -> None:
    fed = federation()
    rounds, clients = rounds_of(fed, 3, participation=0.5), engine_for(fed)
    plain = configured(base)
    states, reports = simulate(plain, rounds)
    for epochs in (0, 2):
        tuned: Any = configured(
            "finetune", f"algorithm@algorithm.base={base}", f"algorithm.epochs={epochs}"
        )
        again, costs = simulate(tuned, rounds)
        assert all(same(a, b) for a, b in zip(states, again, strict=True))
        assert [r.gradient_steps for r in costs] == [r.gradient_steps for r in reports]
    without: Any = configured("finetune", f"algorithm@algorithm.base={base}", "algorithm.epochs=0")
    expected = plain.serve(states[-1], clients.at(rounds[-1]), rounds[-1])
    got = without.serve(states[-1], clients.at(rounds[-1]), rounds[-1])
    assert torch.equal(got.models, expected.models)
    assert torch.equal(got.label, expected.label)


def test_fine_tuned_models_are_the_served_ones_trained_further() -> None:
    fed = federation()
    rounds, clients = rounds_of(fed, 2, absent=(4,)), engine_for(fed)
    algorithm: Any = configured("finetune", "algorithm.epochs=2")
    states, _ = simulate(algorithm, rounds)
    served = algorithm.serve(states[-1], clients.at(rounds[-1]), rounds[-1])
    here = rounds[-1].present.nonzero().squeeze(1)
    local = clients.at(rounds[-1]).train(
        Train(states[-1].model, torch.zeros_like(here), here, algorithm.solver, purpose="finetune")
    )
    assert int(local.steps.min()) == STEPS
    assert torch.equal(served.models[served.label[here]], local.params)
    assert served.label[4] == -1


def test_a_client_without_training_data_keeps_the_common_model() -> None:
    fed = federation()
    start = fed.train.start.clone()
    start[1:] -= start[1].clone()  # client 0 loses its examples
    train = replace(fed.train, start=start, index=fed.train.index[int(fed.train.start[1]) :])
    emptied = replace(fed, train=train)
    rounds, clients = rounds_of(emptied, 1), engine_for(emptied)
    algorithm = configured("finetune")
    states, _ = simulate(algorithm, rounds)
    served = algorithm.serve(states[0], clients.at(rounds[0]), rounds[0])
    assert torch.equal(served.models[served.label[0]], states[0].model[0])
    assert not torch.equal(served.models[served.label[1]], states[0].model[0])


@pytest.mark.full
def test_last_local_is_its_base_and_tests_participants_with_what_they_trained_before() -> None:
    fed = federation()
    rounds = rounds_of(fed, 3, participation=0.5)
    algorithm = configured("last_local", "algorithm@algorithm.base=ifca")
    states, costs = simulate(algorithm, rounds)
    base = configured("ifca")
    alone, base_costs = simulate(base, rounds)
    clients = engine_for(fed)
    held = clients.init(rounds[0].stream("init"), 1).repeat(CLIENTS, 1)
    for rnd, state, own, cost, plain in zip(
        rounds, states, alone, costs[1:], base_costs[1:], strict=True
    ):
        assert torch.equal(state.models, own.models)
        served = algorithm.serve(state, clients.at(rnd), rnd)
        expected = base.serve(own, clients.at(rnd), rnd)
        assert torch.equal(served.label, expected.label), "clusters, and so purity, are the base's"
        assert torch.equal(served.models, expected.models)
        hits = total = 0
        for client in rnd.cohort.tolist():
            rows = fed.test.of_client(client)
            weight, bias = held[client][:18].view(3, 6), held[client][18:]
            found = (fed.pool.x[rows] @ weight.T + bias).argmax(1)
            hits, total = hits + int((found == fed.pool.y[rows]).sum()), total + len(rows)
        assert cost.notes["accuracy_last_local"] == pytest.approx(hits / total)
        assert replace(cost, notes=plain.notes) == plain, "nothing else is counted"
        outside = torch.ones(CLIENTS, dtype=torch.bool).index_fill(0, rnd.cohort, False)
        assert torch.equal(state.held.all()[outside], held[outside])
        assert not (state.held.all()[rnd.cohort] == held[rnd.cohort]).all(1).any()
        held = state.held.all()


@pytest.mark.full
def test_last_local_of_everybody_keeps_what_was_trained_without_a_copy() -> None:
    states, _ = simulate(
        configured("last_local", "algorithm@algorithm.base=local"), rounds_of(federation(), 2)
    )
    assert torch.equal(states[1].held.all(), states[1].models.all())
