"""Noisy means by hand, epsilon against closed forms, and who may be private."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from digits_jobs import config_of
from planted import ALGORITHMS, CLIENTS, configured, federation, rounds_of

from fedclust.config.build import build
from fedclust.core.server import Server
from fedclust.core.types import Federation
from fedclust.engines.lockstep import Lockstep
from fedclust.helpers.errors import ConfigError
from fedclust.runtime.folder import config_hash
from fedclust.runtime.simulation import Simulation
from fedclust.updates.privacy import ClientDP, NoPrivacy, as_drawn, gaussian_epsilon
from fedclust.updates.servers import SGD

PRIVATE = {
    *("apfl", "ditto", "fedadagrad", "fedadam", "fedavg", "fedavgm", "fedper"),
    *("fedprox", "fedrep", "fedyogi", "finetune", "ifca", "ifca_flex", "ifca_random", "oracle"),
    "pfedme",
}
ALWAYS = "participation=1", "common.aggregation=uniform", "privacy=client"


class Silent:
    """Draws no noise."""

    def standard_normal(self, shape: tuple[int, ...]) -> Any:
        return np.zeros(shape)


def server(privacy: Any, **more: Any) -> Server:
    return Server(privacy=privacy, num_drawn=4.0, draw=more.pop("draw", Silent()), **more)


MODELS = torch.tensor([[0.0, 0.0], [10.0, 0.0]])
PARAMS = torch.tensor([[3.0, 4.0], [0.0, 0.5], [10.0, -2.0]])
LABEL = torch.tensor([0, 0, 1])


def test_clipped_sums_over_a_fixed_number_by_hand() -> None:
    # 2 participants a model are expected; norms 5, 0.5 and 2 are shortened to 1
    found = server(ClientDP(clip=1.0)).combined(MODELS, PARAMS, MODELS, LABEL, None)
    expected = torch.tensor([[0.3, 0.65], [10.0, -0.5]])
    torch.testing.assert_close(found, expected)
    whole = server(ClientDP(clip=100.0)).combined(MODELS, PARAMS, MODELS, LABEL, None)
    torch.testing.assert_close(whole, torch.tensor([[1.5, 2.25], [10.0, -1.0]]))
    alike = server(NoPrivacy()).combined(MODELS, PARAMS, MODELS, LABEL, None)
    assert torch.equal(alike, whole)


def test_a_client_moves_the_sum_by_at_most_the_clip() -> None:
    draw = torch.Generator().manual_seed(0)
    updates = 10 * torch.randn(6, 8, generator=draw, dtype=torch.float64)
    label, dp = torch.tensor([0, 1, 0, 1, 0, 1]), ClientDP(clip=0.5)
    with_all = dp.noised(updates, label, 2, 1.0, Silent())  # type: ignore[arg-type]
    without = dp.noised(updates[1:], label[1:], 2, 1.0, Silent())  # type: ignore[arg-type]
    assert float((with_all - without).norm()) == pytest.approx(0.5)


def test_noise_is_that_of_the_sum_and_reaches_every_model() -> None:
    models = torch.zeros(2, 20_000)
    dp, nobody = ClientDP(clip=3.0, noise=2.0), {"draw": np.random.default_rng(0), "nobody": True}
    one = server(dp, **nobody)
    found = one.replaced(models, models[:1] + 7, models, torch.tensor([0]), None)
    for row in found:  # z S / 2 participants; the one who takes part was not drawn
        assert float(row.std()) == pytest.approx(3.0, rel=0.02)
        assert float(row.mean()) == pytest.approx(0.0, abs=0.1)
    with pytest.raises(AssertionError):
        one.replaced(models, models[:1], models, torch.tensor([0]), None)
    # the server's optimiser steps along it, in models without participants too
    more = {"draw": np.random.default_rng(0), "nobody": True, "step": SGD(rate=0.5, momentum=0)}
    stepped = server(dp, **more).replaced(models, models[:1], models, torch.tensor([0]), None)
    torch.testing.assert_close(stepped, found / 2)


def test_everybody_is_drawn_for_himself() -> None:
    fed = federation()
    rounds = [replace(rnd, share=0.3) for rnd in rounds_of(fed, 200)]
    rounds = [replace(rnd, present=torch.arange(CLIENTS) != 5) for rnd in rounds]
    drawn = [as_drawn(rnd) for rnd in rounds]
    sizes = torch.tensor([0 if nobody else len(rnd.cohort) for rnd, nobody in drawn]).double()
    assert float(sizes.mean()) == pytest.approx(11 * 0.3, rel=0.1)
    assert float(sizes.var()) == pytest.approx(11 * 0.3 * 0.7, rel=0.3)
    assert not any(5 in rnd.cohort.tolist() for rnd, _ in drawn)
    assert {len(rnd.cohort) for rnd, nobody in drawn if nobody} <= {1}
    assert all(rnd.cohort.tolist() == sorted(rnd.cohort.tolist()) for rnd, _ in drawn)
    everybody, nobody = as_drawn(replace(rounds[0], share=1.0))
    assert len(everybody.cohort) == 11
    assert not nobody


@pytest.mark.parametrize(("z", "rounds", "epsilon"), [(5.0, 10, 2.594383), (1.0, 1, 4.377178)])
def test_epsilon_of_everybody_is_exact(z: float, rounds: int, epsilon: float) -> None:
    assert gaussian_epsilon(z, rounds, 1e-5) == pytest.approx(epsilon, abs=2e-6)
    assert ClientDP(noise=z).epsilon(1.0, rounds) == gaussian_epsilon(z, rounds, 1e-5)
    assert gaussian_epsilon(1e6, 1, 0.5) == 0.0


@pytest.mark.parametrize(
    ("q", "z", "rounds", "delta", "epsilon"),
    [(0.1, 1.0, 100, 1e-3, 4.78435), (0.01, 1.0, 1000, 1e-5, 1.82824)],
)
def test_epsilon_of_sampled_clients(
    q: float, z: float, rounds: int, delta: float, epsilon: float
) -> None:
    found = ClientDP(noise=z, delta=delta).epsilon(q, rounds)
    assert found == pytest.approx(epsilon, rel=1e-3)
    assert found >= epsilon - 1e-5


def test_the_two_accounts_agree() -> None:
    almost = ClientDP(noise=5.0).epsilon(0.9999, 10)
    assert almost == pytest.approx(gaussian_epsilon(5.0, 10, 1e-5), rel=1e-3)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_who_may_be_private(name: str) -> None:
    algorithm = configured(name)
    averages = getattr(algorithm, "averages", False)
    assert (averages and getattr(algorithm, "unnoised", "?") == "") == (name in PRIVATE)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("lcfl", [], "none, since LCFL is not private: clients send models and losses"),
        ("scaffold", [], "none, since Scaffold is not private: clients send what is no mean"),
        ("fedem", [], "FedEM is not private: clients send a model for every component"),
        ("ifca", ["algorithm.start=kmeans++"], "IFCA is not private: clients send models for"),
        ("fedavg", ["common.aggregation=by_samples"], "common.aggregation=by_samples .* uniform"),
        ("fedavg", ["aggregation=median"], "aggregation=Median is not allowed: mean with privacy"),
        ("fedavg", ["clients_per_round=4"], "clients_per_round=4 is not allowed: null"),
        ("fedavg", ["privacy.delta=0.2"], "privacy.delta=0.2 is not allowed: below 1 / 8 clients"),
        ("fedavg", ["privacy.clip=null"], "privacy.clip=null is not allowed: expected a number"),
    ],
)
def test_what_would_leak_is_refused(name: str, given: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(config_of(name, *ALWAYS, *given))


def test_a_private_job_records_epsilon_and_continues() -> None:
    config = config_of("ifca", *ALWAYS, "privacy.noise=0.5", "seeds=1", "rounds=3")
    job = build(config)
    fed: Federation = job.federations[0]

    def steps(count: int, simulation: Simulation) -> list[Any]:
        return [simulation.step(True) for _ in range(count)]

    def simulation() -> Simulation:
        return Simulation.of(0, job, fed, Lockstep(job.engine))

    whole = simulation()
    found = steps(3, whole)
    spent = [
        cost.notes["epsilon"] for one in found for cost in one.costs if "epsilon" in cost.notes
    ]
    assert spent == [gaussian_epsilon(0.5, rounds, 1e-5) for rounds in (1, 2, 3)]
    first = simulation()
    steps(2, first)
    rest = simulation()
    rest.resume(1, {"models": first.state.models, "label": first.state.label})
    steps(1, rest)
    assert torch.equal(rest.state.models, whole.state.models)
    plain = config_of("ifca", "seeds=1", "rounds=3")
    older = {key: value for key, value in plain.items() if key != "privacy"}
    assert config_hash(plain) == config_hash(older) != config_hash(config)
