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


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_ditto_without_pull_is_fedavg_and_local_training_side_by_side(participation: float) -> None:
    rounds = rounds_of(federation(), 4, participation=participation)
    ditto, reports = simulate(configured("ditto", "algorithm.personal.proximal=0"), rounds)
    fedavg, averaged = simulate(configured("fedavg"), rounds)
    local, _ = simulate(configured("local", "algorithm.participants=cohort"), rounds)
    for mine, common, alone in zip(ditto, fedavg, local, strict=True):
        assert torch.equal(mine.model, common.model)
        assert torch.equal(mine.personal.all(), alone.models.all())
    assert [r.models_down for r in reports] == [r.models_down for r in averaged]
    assert reports[1].gradient_steps == 2 * averaged[1].gradient_steps


def test_ditto_with_a_strong_pull_ends_at_what_the_round_began_with() -> None:
    fed = federation()
    # lr * lambda = 1 forgets the personal model in every step: v = w - lr * gradient
    strong = ("algorithm.personal.proximal=200", "algorithm.personal.lr=0.005")
    states, _ = simulate(configured("ditto", *strong), rounds_of(fed, 3))
    distance = (states[2].personal.all() - states[1].model).norm(dim=1).max()
    assert float(distance) < 0.05 * float((states[2].model - states[0].model).norm())


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


def test_ditto_serves_the_common_model_to_who_never_took_part() -> None:
    fed = federation()
    rounds = rounds_of(fed, 1, participation=0.25)
    algorithm = configured("ditto")
    states, _ = simulate(algorithm, rounds)
    served = algorithm.serve(states[0], engine_for(fed).at(rounds[0]), rounds[0])
    own = served.models[served.label]
    for client in range(CLIENTS):
        taken_part = client in rounds[0].cohort.tolist()
        expected = states[0].personal.all()[client] if taken_part else states[0].model[0]
        assert torch.equal(own[client], expected)


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


def test_fine_tuning_fits_the_clients_better() -> None:
    fed = federation()
    rounds, clients = rounds_of(fed, 5), engine_for(fed)
    everybody = torch.arange(CLIENTS)

    def training_loss(name: str) -> float:
        algorithm = configured(name)
        states, _ = simulate(algorithm, rounds)
        served = algorithm.serve(states[-1], clients.at(rounds[-1]), rounds[-1])
        return float(
            clients.at(rounds[-1]).loss(served.models[served.label], everybody).diagonal().mean()
        )

    assert training_loss("finetune") < 0.8 * training_loss("fedavg")


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


def test_last_local_of_everybody_keeps_what_was_trained_without_a_copy() -> None:
    states, _ = simulate(
        configured("last_local", "algorithm@algorithm.base=local"), rounds_of(federation(), 2)
    )
    assert torch.equal(states[1].held.all(), states[1].models.all())
