"""Identities between FedAvg, FedProx, Local, the oracle and LCFL's warm-up; averages by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from planted import (
    CLIENTS,
    GROUPS,
    configured,
    engine_for,
    federation,
    rounds_of,
    same,
    simulate,
)
from states import dense
from toy_engine import SOLVER, ToyEngine, toy_federation, toy_round

from fedclust.algorithms.ditto import Ditto
from fedclust.algorithms.fedavg import FedAvg
from fedclust.algorithms.ifca import IFCA
from fedclust.algorithms.lcfl import LCFL
from fedclust.algorithms.oracle import Oracle
from fedclust.algorithms.pacfl import PACFL
from fedclust.algorithms.steps import average, first_of_cluster
from fedclust.algorithms.warmup import Warmup
from fedclust.cluster_methods.kmeans import KMeans
from fedclust.cluster_metrics.param_norm import ParamNorm
from fedclust.core.calls import LocalResult
from fedclust.core.front import Train
from fedclust.core.server import Server
from fedclust.core.types import Federation
from fedclust.engines.fused import FusedEngine
from fedclust.engines.loop import LoopEngine
from fedclust.models.params import Layout
from fedclust.runtime.contract import fields_of


def test_average_by_hand() -> None:
    rnd = rounds_of(federation(equal=False), 1)[0]
    ids = torch.tensor([0, 2, 6])
    label = torch.tensor([0, 0, 1])
    params = torch.tensor([[0.0, 2.0], [7.0, 16.0], [3.0, 4.0]])
    loss, steps = torch.tensor([1.0, 2.0, 6.0]), torch.tensor([3, 4, 5])
    local = LocalResult(params=params, slots=None, loss=loss, first_loss=2 * loss, steps=steps)
    models = torch.full((3, 2), 9.0)
    clients: Any = SimpleNamespace(
        discrepancy=True, exact=True, server=Server(), layout=Layout(names=("w",), shapes=((2,),))
    )
    uniform, report = average(clients, local, models, label, ids, rnd, "uniform")
    assert uniform.tolist() == [[3.5, 9.0], [3.0, 4.0], [9.0, 9.0]]
    weighted, _ = average(clients, local, models, label, ids, rnd, "by_samples")
    assert weighted.tolist() == [[4.0, 10.0], [3.0, 4.0], [9.0, 9.0]]  # 12 and 16 examples
    assert (report.models_down, report.models_up, report.gradient_steps) == (3, 3, 12)
    assert report.train_loss == 3.0
    by_examples = (12 * 2.0 + 16 * 4.0 + 24 * 12.0) / (12 + 16 + 24)
    assert report.notes["train_loss_first_epoch"] == pytest.approx(by_examples)
    radius = (3.5**2 + 7**2) ** 0.5
    assert report.notes["discrepancy"] == pytest.approx(2 * radius / 3)
    clients.discrepancy = False
    again, unasked = average(clients, local, models, label, ids, rnd, "uniform")
    assert torch.equal(again, uniform)
    assert list(unasked.notes) == ["train_loss_first_epoch"]


LCFL_PARTS: dict[str, Any] = {"metric": ParamNorm(), "method": KMeans(num_clusters=1)}
BY_SAMPLES: dict[str, Any] = {
    "fedavg": FedAvg,
    "oracle": Oracle,
    "ifca": partial(IFCA, num_clusters=1),
    "lcfl in the warm-up": partial(LCFL, participation=1.0, warmup=Warmup(), **LCFL_PARTS),
    "ditto": partial(Ditto, personal=SOLVER),
    "pacfl": partial(PACFL, method=KMeans(num_clusters=1), num_vectors=1),
}


def one_and_three() -> tuple[Federation, ToyEngine]:
    """Two clients with one and three examples, who add 1 and 5 to a model that begins at 10."""
    pull, start = torch.tensor([[1.0], [5.0]]), torch.tensor([[10.0]])
    clients = ToyEngine(pull=pull, start=start, target=torch.zeros(2, 1))
    return toy_federation([[0], [0, 1, 2]]), clients


@pytest.mark.parametrize("name", BY_SAMPLES)
@pytest.mark.parametrize(("aggregation", "expected"), [("uniform", 13.0), ("by_samples", 14.0)])
def test_weights_by_samples_by_hand(name: str, aggregation: str, expected: float) -> None:
    """(1 + 5) / 2 = 3, and (1 * 1 + 3 * 5) / 4 = 4."""
    fed, clients = one_and_three()
    rnd = toy_round(fed, [0, 1])
    algorithm = BY_SAMPLES[name](solver=SOLVER, aggregation=aggregation)
    state, _ = algorithm.init(clients.at(rnd), rnd)
    after, _ = algorithm.round(state, clients.at(rnd), rnd)
    assert next(iter(dense(fields_of(after)).values())).tolist() == [[expected]]


# methods that are FedAvg with these options, to the bit but for some; hcfl and lcfed divide twice
AS_FEDAVG = {
    "by_attribute": "algorithm.attribute=size num_clusters=1",
    "cfl_gp": "num_clusters=1",
    "clove": "num_clusters=1",
    "clove_random": "num_clusters=1",
    "fedclust": "algorithm.method.threshold=1e3",
    "feddrift_eager": "",
    "fedem": "num_clusters=1",
    "fedgwc": "algorithm.davies_bouldin=0 algorithm.eps=1e9",
    "fedrc": "num_clusters=1",
    "feroma": "",
    "fesem": "num_clusters=1",
    "flux": "algorithm.warmup=1 algorithm.method.eps=1e6",
    "hcfl": "algorithm.warmup=1 num_clusters=1 algorithm.mu=0",
    "ifca": "num_clusters=1",
    "ifca_random": "num_clusters=1",
    "lcfed": "num_clusters=1 algorithm.mu=0 algorithm.lam=0",
    "lcfl": "num_clusters=1 algorithm.warmup.rounds=2",
    "pacfl": "num_clusters=1",
    "sattler_cfl": "algorithm.eps1=0",
    "stocfl": "algorithm.similarity=-1 algorithm.mu=0",
}
NOT_EXACT = ("hcfl", "lcfed")
BY_EXAMPLES = ("fedem", "fedrc")  # in any case


@pytest.mark.thinned
@pytest.mark.parametrize("aggregation", ["uniform", "by_samples"])
@pytest.mark.parametrize("name", AS_FEDAVG)
def test_with_one_cluster_a_method_is_fedavg(name: str, aggregation: str) -> None:
    rounds = rounds_of(federation(equal=False), 3, participation=0.5)
    how = [] if name in BY_EXAMPLES else [f"algorithm.aggregation={aggregation}"]
    plain = how or ["algorithm.aggregation=by_samples"]
    kind = LoopEngine if name == "fedgwc" else FusedEngine
    found, costs = simulate(configured(name, *AS_FEDAVG[name].split(), *how), rounds, kind=kind)
    fedavg, averaged = simulate(configured("fedavg", *plain), rounds, kind=kind)
    off = {} if name in NOT_EXACT else {"rtol": 0, "atol": 0}
    for mine, its in zip(found, fedavg, strict=True):
        own = mine.model if name == "feroma" else mine.models
        torch.testing.assert_close(own, its.model, **off)
        if name == "stocfl":
            torch.testing.assert_close(mine.common, its.model, **off)
    losses = [[cost.train_loss for cost in some[1:]] for some in (costs, averaged)]
    assert losses[0] == pytest.approx(losses[1])


@pytest.mark.parametrize(("aggregation", "expected"), [("uniform", 3.0), ("by_samples", 4.0)])
def test_weights_by_samples_inside_clusters_by_hand(aggregation: Any, expected: float) -> None:
    fed, clients = one_and_three()
    rnd, label = toy_round(fed, [0, 1]), torch.zeros(2, dtype=torch.int64)
    how = {"participation": 1.0, "aggregation": aggregation, "warmup": Warmup()}
    rounds = LCFL(solver=SOLVER, **how, **LCFL_PARTS)
    models, _, _ = rounds.train_clusters(torch.zeros(1, 1), label, clients.at(rnd), rnd)
    assert models.tolist() == [[expected]]


def test_every_cluster_has_one_first_client() -> None:
    fed = federation()
    label, ids = torch.tensor([0, 1, 0, 1, 2, 0]), torch.tensor([1, 2, 5, 7, 8, 11])
    chosen = torch.stack([first_of_cluster(label, ids, rnd) for rnd in rounds_of(fed, 40)])
    for cluster in range(3):
        assert (chosen[:, label == cluster].sum(1) == 1).all()
    assert (chosen.sum(0) > 5).all()


def test_fedavg_is_the_mean_of_the_local_models() -> None:
    fed = federation()
    rounds, algorithm = rounds_of(fed, 2, participation=0.5), configured("fedavg")
    clients = engine_for(fed)
    states, _ = simulate(algorithm, rounds)
    solver = algorithm.solver  # type: ignore[attr-defined]
    alone = [
        clients.at(rounds[1])
        .train(Train(states[0].model, torch.tensor([0]), rounds[1].cohort[i : i + 1], solver))
        .params
        for i in range(len(rounds[1].cohort))
    ]
    torch.testing.assert_close(
        states[1].model, torch.cat(alone).mean(0, keepdim=True), rtol=1e-6, atol=1e-7
    )


def test_fedprox_without_its_term_is_fedavg() -> None:
    rounds = rounds_of(federation(), 3)
    fedavg, _ = simulate(configured("fedavg"), rounds)
    without, _ = simulate(configured("fedprox", "algorithm.solver.proximal=0"), rounds)
    fedprox, _ = simulate(configured("fedprox"), rounds)
    assert all(same(a, b) for a, b in zip(fedavg, without, strict=True))
    assert not same(fedavg[0], fedprox[0])
    pulled = (fedprox[0].model - fedavg[0].model).norm()
    assert pulled > 1e-3


def test_fedprox_takes_the_other_solver_settings_of_the_run() -> None:
    algorithm = configured("fedprox", "solver=momentum", "solver.lr=0.7", "solver.batch_size=3")
    solver = algorithm.solver  # type: ignore[attr-defined]
    assert (solver.lr, solver.batch_size, solver.momentum, solver.proximal) == (0.7, 3, 0.9, 1.0)


@pytest.mark.parametrize("name", ["lcfl", "diffnorm", "gradcos"])
def test_lcfl_is_fedavg_bit_by_bit_through_the_warmup(name: str) -> None:
    rounds = rounds_of(federation(), 6, participation=0.5)
    fedavg, fedavg_reports = simulate(configured("fedavg"), rounds)
    lcfl, lcfl_reports = simulate(configured(name, "participation=0.5"), rounds)
    for t in range(5):
        assert torch.equal(fedavg[t].model, lcfl[t].models)
        assert fedavg_reports[t + 1] == lcfl_reports[t + 1]
    assert len(lcfl[5].models) == GROUPS


def test_oracle_is_fedavg_in_every_group() -> None:
    fed = federation()
    rounds = rounds_of(fed, 3, participation=0.75)
    oracle, _ = simulate(configured("oracle"), rounds)
    for group in range(GROUPS):
        inside = [replace(rnd, cohort=rnd.cohort[fed.group[rnd.cohort] == group]) for rnd in rounds]
        fedavg, _ = simulate(configured("fedavg"), inside)
        for together, alone in zip(oracle, fedavg, strict=True):
            assert torch.equal(together.models[group], alone.model[0])


def test_local_is_fedavg_with_a_federation_of_one() -> None:
    rounds = rounds_of(federation(), 3)
    local, _ = simulate(configured("local"), rounds)
    for client in (0, 7):
        alone = [replace(rnd, cohort=torch.tensor([client])) for rnd in rounds]
        fedavg, _ = simulate(configured("fedavg"), alone)
        assert torch.equal(local[-1].models.all()[client], fedavg[-1].model[0])


def test_local_trains_all_clients_or_the_cohort() -> None:
    rounds = rounds_of(federation(), 1, participation=0.25)
    everybody, _ = simulate(configured("local"), rounds)
    some, _ = simulate(configured("local", "algorithm.participants=cohort"), rounds)
    cohort, every, own = rounds[0].cohort, everybody[0].models.all(), some[0].models.all()
    moved = (own != own[_outside(cohort)[0]]).any(1)
    assert moved.nonzero().squeeze(1).tolist() == cohort.tolist()
    assert torch.equal(every[cohort], own[cohort])
    assert len(every.unique(dim=0)) == CLIENTS


def _outside(cohort: torch.Tensor) -> list[int]:
    return sorted(set(range(CLIENTS)) - set(cohort.tolist()))


def test_all_methods_start_from_the_same_model() -> None:
    fed = federation()
    rnd, clients = rounds_of(fed, 1)[0], engine_for(fed)
    first = {
        n: next(iter(dense(fields_of(configured(n).init(clients.at(rnd), rnd)[0])).values()))[0]
        for n in ("fedavg", "local", "ifca", "lcfl", "oracle")
    }
    assert all(torch.equal(model, first["fedavg"]) for model in first.values())
