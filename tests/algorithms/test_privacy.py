"""Noisy means by hand, epsilon against closed forms, and who may be private."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, pairwise, permutations, product
from math import inf, lcm, prod, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from configs import composed
from digits_jobs import config_of
from planted import ALGORITHMS, CLIENTS, configured, federation, rounds_of
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_flow
from torch import Tensor
from toy_engine import ToyEngine, toy_federation, toy_round

from fedclust.config.build import build
from fedclust.core.server import Server, as_drawn
from fedclust.core.traits import traits_of
from fedclust.core.types import Federation, Round, Split
from fedclust.engines.lockstep import Lockstep
from fedclust.helpers.errors import ConfigError
from fedclust.runtime.simulation import SeedRound, Simulation
from fedclust.scenarios.static import Static
from fedclust.updates import privacy
from fedclust.updates.privacy import ClientDP, NoPrivacy, gaussian_epsilon, rebalanced
from fedclust.updates.servers import SGD

PRIVATE = {
    *("apfl", "ditto", "fedadagrad", "fedadam", "fedavg", "fedavgm", "fedper"),
    *("fedprox", "fedrep", "fedyogi", "finetune", "ifca", "ifca_flex", "oracle"),
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
    torch.testing.assert_close(found, torch.tensor([[0.3, 0.65], [10.0, -0.5]]))
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
    whole, everyone = federation(), torch.arange(CLIENTS)
    rows = [whole.train.of_client(i)[: 0 if i == 7 else None] for i in range(CLIENTS)]
    fed = replace(whole, train=Split.of(rows))
    who = {"share": 0.3, "present": everyone != 5, "dropped": everyone == 6, "fed": fed}
    rounds = [replace(rnd, **who) for rnd in rounds_of(whole, 200)]
    drawn = [as_drawn(rnd) for rnd in rounds]
    sizes = torch.tensor([0 if nobody else len(rnd.cohort) for rnd, nobody in drawn]).double()
    assert float(sizes.mean()) == pytest.approx(9 * 0.3, rel=0.1)
    assert float(sizes.var()) == pytest.approx(9 * 0.3 * 0.7, rel=0.3)
    stand_ins = {rnd.cohort[0].item() for rnd, nobody in drawn if nobody}
    assert len(stand_ins) > 2
    assert {len(rnd.cohort) for rnd, nobody in drawn if nobody} == {1}
    assert all(rnd.cohort.tolist() == sorted(rnd.cohort.tolist()) for rnd, _ in drawn)
    everybody, nobody = as_drawn(replace(rounds[0], share=1.0))
    # not who is away, has dropped out or has no example
    assert everybody.cohort.tolist() == [0, 1, 2, 3, 4, 8, 9, 10, 11]
    assert not nobody


def of_everybody(z: float, rounds: int) -> float:
    return gaussian_epsilon(sqrt(rounds) / z, 1e-5)


@pytest.mark.parametrize(("z", "rounds", "epsilon"), [(5.0, 10, 2.594383), (1.0, 1, 4.377178)])
def test_epsilon_of_everybody_is_exact(z: float, rounds: int, epsilon: float) -> None:
    assert of_everybody(z, rounds) == pytest.approx(epsilon, abs=2e-6)
    for several in ({(1.0, 3): rounds}, {(1.0, 1): 1, (1.0, 3): rounds - 1}):
        assert ClientDP(noise=z).epsilon(several) == pytest.approx(epsilon, abs=2e-6)
    assert gaussian_epsilon(1e-6, 0.5) == 0.0


@pytest.mark.full
@pytest.mark.parametrize(
    ("q", "z", "rounds", "delta", "epsilon"),
    [
        # dp-accounting's own, on a grid of 1e-4
        (0.1, 1.0, 100, 1e-3, 4.784353),
        (0.01, 1.0, 1000, 1e-5, 1.828244),
        (0.5, 0.3, 30, 1e-5, 156.22905),
        (0.5, 10.0, 5, 1e-5, 0.4008296),
    ],
)
def test_epsilon_of_sampled_clients(
    q: float, z: float, rounds: int, delta: float, epsilon: float
) -> None:
    from dp_accounting import dp_event  # the environment of scikit-learn-extra has none
    from dp_accounting.rdp import RdpAccountant

    found = ClientDP(noise=z, delta=delta).epsilon({(q, 1): rounds})
    assert found == pytest.approx(epsilon, rel=1e-4)
    assert found >= epsilon * (1 - 1e-5)
    assert found < gaussian_epsilon(sqrt(rounds) / z, delta)
    orders = RdpAccountant()
    one = dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(z))
    orders.compose(one, rounds)
    assert found < orders.get_epsilon(delta)


@pytest.mark.full
def test_epsilon_of_unequal_rounds_by_summing_over_outcomes() -> None:
    """Two rounds with shares of their own: delta is the part of one distribution of outcomes that
    lies above exp(epsilon) times the other, over a fine table of both outcomes.
    """
    z, shares, delta = 1.3, (0.5, 0.2), 1e-3
    x = np.linspace(-9, 10, 2400)

    def normal(mean: float) -> Any:
        return np.exp(-((x - mean) ** 2) / (2 * z * z)) / (z * sqrt(2 * np.pi)) * (x[1] - x[0])

    with_it = [(1 - q) * normal(0) + q * normal(1) for q in shares]
    one, other = np.outer(*with_it), np.outer(normal(0), normal(0))

    def above(epsilon: float) -> float:
        removed = np.clip(one - np.exp(epsilon) * other, 0, None).sum()
        added = np.clip(other - np.exp(epsilon) * one, 0, None).sum()
        return float(max(removed, added))

    found = ClientDP(noise=z, delta=delta).epsilon({(share, 1): 1 for share in shares})
    assert above(found * 0.999) > delta > above(found * 1.001)


@pytest.mark.full
@pytest.mark.parametrize(("seed", "z"), [(0, 1.0), (1, 3.0), (2, 0.05)])
def test_a_round_more_never_lowers_epsilon(seed: int, z: float) -> None:
    draw, dp = np.random.default_rng(seed), ClientDP(noise=z, min_members=2)
    rounds: dict[tuple[float, int], int] = {}
    found = [0.0]
    for _ in range(8):  # the grid grows with it
        kind = float(draw.choice([0.02, 0.3, 1.0])), int(draw.choice([1, 2]))
        rounds[kind] = rounds.get(kind, 0) + int(draw.integers(1, 4))
        found.append(dp.epsilon(dict(reversed(rounds.items()))))
        assert found[-1] == dp.epsilon(rounds)
    assert all(before < after for before, after in pairwise(found))
    privacy._epsilon.cache_clear()
    privacy._losses.cache_clear()
    assert dp.epsilon(rounds) == found[-1]


@pytest.mark.full
def test_epsilon_costs_no_more_with_little_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of the table are relative to epsilon, so that it has about as many."""
    grids, made = list[float](), privacy._losses

    def noted(share: float, noise: float, grid: float) -> Any:
        grids.append(grid)
        return made(share, noise, grid)

    monkeypatch.setattr(privacy, "_losses", noted)
    for z, rounds, epsilon in ((0.3, 30, 156.229), (0.1, 30, 1329.4), (0.05, 30, 5255.0)):
        found = ClientDP(noise=z).epsilon({(0.5, 1): rounds})
        assert found == pytest.approx(epsilon, rel=1e-3)
        assert 5e-5 < grids.pop() / found < 2e-4
    # with less noise not even those
    for z, epsilon in ((0.01, 152334.98), (1e-3, 1.5023e7), (1e-6, 1.5e13)):
        assert ClientDP(noise=z).epsilon({(0.5, 1): 30}) == pytest.approx(epsilon, rel=1e-4)
    assert ClientDP(noise=1e-9).epsilon({(0.5, 1): 30}) == inf
    assert ClientDP(noise=1e-300).epsilon({(1.0, 1): 1}) == inf
    assert ClientDP(noise=1e9).epsilon({(0.5, 1): 1}) == 0.0
    assert not grids


@pytest.mark.full
@pytest.mark.filterwarnings("error")
def test_little_noise_has_its_epsilon_without_a_word_of_a_library() -> None:
    found = ClientDP(noise=0.05).epsilon({(0.5, 1): 2})
    everybody = of_everybody(0.05, 2)
    assert 0.5 * everybody < found < everybody


@pytest.mark.full
def test_the_two_accounts_agree() -> None:
    almost = ClientDP(noise=5.0).epsilon({(0.9999, 1): 10})
    assert almost == pytest.approx(of_everybody(5.0, 10), rel=1e-3)


@pytest.mark.full
def test_epsilon_is_rounded_up_but_not_beyond_that_of_everybody() -> None:
    assert ClientDP(noise=5.0).epsilon({(1 - 1e-9, 1): 10}) <= of_everybody(5.0, 10)


@pytest.mark.thinned
@pytest.mark.parametrize("name", ALGORITHMS)
def test_who_may_be_private(name: str) -> None:
    traits = traits_of(configured(name))
    assert (traits.averages and not traits.unnoised) == (name in PRIVATE)


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("lcfl", [], "none, since LCFL is not private: clients send models and losses"),
        ("scaffold", [], "none, since Scaffold is not private: clients send what is no mean"),
        ("fedem", [], "FedEM is not private: clients send a model for every component"),
        ("ifca", ["algorithm.start=kmeans++"], "IFCA is not private: clients send models for"),
        ("fedavg", ["common.aggregation=by_samples"], "common.aggregation=by_samples .* uniform"),
        ("fedavg", ["aggregation=median"], "aggregation=Median is not allowed: mean with privacy"),
        ("fedavg", ["clients_per_round=4"], "^clients_per_round=4 is not allowed: null"),
        ("fedavg", ["scenario.clients_per_round=4"], "^scenario.clients_per_round=4 is not allo"),
        ("fedavg", ["scenario.selection=round_robin_first"], "scenario.selection=.*: random with"),
        ("fedavg", ["privacy.delta=0.2"], "privacy.delta=0.2 is not allowed: below 1 / 8 clients"),
        ("fedavg", ["privacy.clip=null"], "privacy.clip=null is not allowed: expected a number"),
    ],
)
def test_what_would_leak_is_refused(name: str, given: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(config_of(name, *ALWAYS, *given))


@pytest.mark.full
@pytest.mark.parametrize(
    ("given", "typed", "why"),
    [
        (
            *("algorithm=lcfl privacy=client server=adam", "privacy=client"),
            "none, since algorithm=lcfl is not private: clients send models and losses of the "
            "warm-up, which are compared without noise",
        ),
        (
            *("algorithm=finetune algorithm@algorithm.base=fedem privacy=client", "privacy=client"),
            "none, since algorithm@algorithm.base=fedem is not private: clients send a model for "
            "every component without noise",
        ),
        *(
            (
                *(f"algorithm=scaffold {typed}", typed),
                "mean, since algorithm=scaffold does not replace models by means of the "
                "participants'",
            )
            for typed in ("server=adam", "aggregation=multi_krum")
        ),
        (
            *("algorithm=fedavg aggregation=multi_krum privacy=client", "aggregation=multi_krum"),
            "mean with privacy, whose sums are of clipped updates",
        ),
        (
            *("algorithm=feroma task=regression", "task=regression"),
            "algorithm=feroma reads the losses of a softmax without weights, as "
            "task=classification has them; take another",
        ),
    ],
)
def test_a_refusal_names_what_was_typed(given: str, typed: str, why: str) -> None:
    choices = dict(one.split("=") for one in given.split())
    config = composed(*given.split(), "partition.num_clients=8") | {"choices": choices}
    with pytest.raises(ConfigError) as refused:
        build(config)
    assert str(refused.value) == f"{typed} is not allowed: {why}"


class Arriving(Static):
    """Half of the clients are drawn in round 1, all in the others."""

    def share(self, rnd: Round) -> float:
        return 0.5 if rnd.t == 1 else 1.0


@pytest.mark.full
@pytest.mark.parametrize(("num_clusters", "noise"), [(1, 1.5), (2, 0.5)])
def test_a_private_job_records_epsilon_and_continues(num_clusters: int, noise: float) -> None:
    """Rounds have their own shares; with one model nobody is moved, a third of the noise."""
    given = f"num_clusters={num_clusters}", "privacy.noise=1.5", "privacy.min_members=1"
    config = config_of("ifca", *ALWAYS, *given, "seeds=1", "rounds=3")
    job = replace(build(config), scenario=Arriving())
    fed: Federation = job.federations[0]

    def simulation() -> Simulation:
        return Simulation.of(0, job, fed, Lockstep(job.engine))

    def spent(steps: Sequence[SeedRound]) -> list[float]:
        costs = (cost for one in steps for cost in one.costs)
        return [cost.notes["epsilon"] for cost in costs if "epsilon" in cost.notes]

    whole = simulation()
    found = spent([whole.step(True) for _ in range(3)])
    dp = ClientDP(noise=noise)
    rounds = [{(1.0, 1): 1}, {(1.0, 1): 1, (0.5, 1): 1}, {(1.0, 1): 2, (0.5, 1): 1}]
    assert found == [dp.epsilon(one) for one in rounds]
    assert found[0] < found[1] < found[2] < of_everybody(noise, 3)
    first = simulation()
    assert spent([first.step(False), first.step(False)]) == []
    rest, older = simulation(), simulation()
    state = {"models": first.state.models, "label": first.state.label}
    rest.resume(1, state, dict(first.private))
    assert spent([rest.step(True)]) == found[2:]
    assert torch.equal(rest.state.models, whole.state.models)
    older.resume(1, state, None)  # of a checkpoint that does not tell: never too little
    assert spent([older.step(True)])[0] >= found[2]


def test_the_share_that_is_checked_is_that_of_the_scenario(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(privacy.importlib.util, "find_spec", lambda name: None)
    build(config_of("fedavg", *ALWAYS))
    with pytest.raises(ConfigError, match="privacy=client is not allowed: participation=1"):
        build(config_of("fedavg", *ALWAYS, "scenario.participation=0.5"))
    with pytest.raises(ConfigError, match="at most 4, for 1 clusters share 4 participants"):
        ClientDP(min_members=5)._check_members(1, 0.5 * 8)


def settings_of(sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Labels of clusters of these sizes in a mixed order, and the participants' ids."""
    whole = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    mixed = whole[torch.randperm(len(whole), generator=torch.Generator().manual_seed(1))]
    return mixed, torch.arange(len(whole)) * 2 + 1


@pytest.mark.parametrize(
    ("sizes", "least", "after"),
    [
        ((6, 3, 1, 0), 2, None),
        ((9, 0, 0), 3, [3, 3, 3]),  # all are needed
        ((4, 3, 2), 2, [4, 3, 2]),
        ((5, 1, 1), 0, [5, 1, 1]),
        ((3, 1, 0), 2, [2, 2, 0]),  # there are too few for all
    ],
)
def test_small_clusters_are_filled_from_large_ones(
    sizes: Sequence[int], least: int, after: list[int] | None
) -> None:
    (label, ids), rounds = settings_of(sizes), rounds_of(federation(), 30)
    found = [rebalanced(label, len(sizes), least, ids, rnd) for rnd in rounds]
    small = torch.tensor(sizes) < least
    for one in found:
        size = one.bincount(minlength=len(sizes))
        assert size.tolist() == after if after else int(size.min()) == least
        assert not small[label[one != label]].any()  # nobody leaves a small cluster
        assert small[one[one != label]].all()  # or comes to a large one
    # by the seed, the round and the client alone
    again = rebalanced(label.flip(0), len(sizes), least, ids.flip(0), rounds[0])
    assert torch.equal(again.flip(0), found[0])
    assert len({tuple(one.tolist()) for one in found}) > 1 or after == list(sizes)


@pytest.mark.full
def test_who_is_moved_is_random() -> None:
    """One of ten is missing; five of two clusters may leave, each with the same chance."""
    label, ids = torch.tensor([0] * 6 + [1] * 3 + [2]), torch.arange(10)
    rnd, count = rounds_of(federation(), 1)[0], torch.zeros(10)
    for t in range(600):
        count += rebalanced(label, 3, 2, ids, replace(rnd, t=t)) != label
    assert float(count.sum()) == 600
    assert float(count[:6].sum()) == pytest.approx(600 * 4 / 5, rel=0.06)
    assert count[:6].tolist() == pytest.approx([80] * 6, rel=0.35)
    assert count[6:9].tolist() == pytest.approx([40] * 3, rel=0.45)


def outcomes(sizes: Sequence[int], least: int) -> dict[tuple[int, ...], Fraction]:
    """Every way in which random ones fill small clusters, with its probability."""
    label = [k for k, size in enumerate(sizes) for _ in range(size)]
    wanted = [k for k, size in enumerate(sizes) for _ in range(max(0, least - size))]
    members = [[i for i, k in enumerate(label) if k == own] for own in range(len(sizes))]
    pools = [list(combinations(mine, max(0, len(mine) - least))) for mine in members]
    found: dict[tuple[int, ...], Fraction] = {}
    for parts in product(*pools):
        pool = [i for part in parts for i in part]
        ways = list(permutations(pool, min(len(pool), len(wanted))))
        for way in ways:
            after = list(label)
            for client, k in zip(way, wanted, strict=False):
                after[client] = k
            share = Fraction(1, len(ways) * prod(len(one) for one in pools))
            found[tuple(after)] = found.get(tuple(after), Fraction(0)) + share
    return found


def apart(one: Sequence[int], other: Sequence[int], num_models: int) -> int:
    """The square of how far sums may lie apart, in units of the clip; in `one` there is one more
    client, the last of its cluster, whom `other` counts as -1.
    """
    come_and_gone = [0] * num_models
    for a, b in zip(one, other, strict=True):
        if a != b:
            come_and_gone[a] += 1
            if b >= 0:
                come_and_gone[b] += 1
    return sum(count**2 for count in come_and_gone)


@pytest.mark.parametrize("sizes", [(5, 1, 0), (4, 3, 1), (3, 3, 1), (2, 2, 0), (3, 1, 1)])
@pytest.mark.parametrize("joins", [0, 1, 2])
def test_one_client_more_moves_the_sums_by_at_most_three_clips(
    sizes: tuple[int, ...], joins: int
) -> None:
    """The two distributions go over into each other by changes of at most 3 clips: a flow."""
    larger = tuple(size + (k == joins) for k, size in enumerate(sizes))
    new = sum(larger[: joins + 1]) - 1  # the place of the new client
    with_it, without = outcomes(larger, 2), outcomes(sizes, 2)
    whole = lcm(*(p.denominator for p in (*with_it.values(), *without.values())))
    first, second = len(with_it), len(without)
    capacity = np.zeros((first + second + 2, first + second + 2), np.int32)
    for i, (one, p) in enumerate(with_it.items()):
        capacity[first + second, i] = int(p * whole)
        for j, other in enumerate(without):
            if apart(one, (*other[:new], -1, *other[new:]), len(sizes)) <= 9:
                capacity[i, first + j] = whole
    for j, p in enumerate(without.values()):
        capacity[first + j, -1] = int(p * whole)
    flow = maximum_flow(csr_matrix(capacity), first + second, first + second + 1).flow_value
    assert flow == whole


def test_the_moved_train_another_model_and_keep_their_choice() -> None:
    """Clients add 1 to a model: nobody chooses the second one, which two of the five train."""
    start = torch.tensor([[0.0], [100.0]])
    toys: Any = ToyEngine(pull=torch.ones(5, 1), start=start, target=torch.zeros(5, 1))
    fed = toy_federation([[0]] * 5)
    draw: Any = Silent()
    options = {"noise": 1e-9, "clip": 10.0, "min_members": 2}
    toys.server = Server(privacy=ClientDP(**options), num_drawn=5.0, draw=draw)
    method: Any = configured("ifca", "num_clusters=2", "common.aggregation=uniform")
    state = method.State(models=start, label=torch.full((5,), -1))
    after, _ = method.round(state, toys, toy_round(fed, range(5)))
    assert after.label.tolist() == [0] * 5
    # sums over 5 / 2 expected participants
    torch.testing.assert_close(after.models, start + torch.tensor([[3.0], [2.0]]) / 2.5)


def test_least_members_cost_privacy_and_must_be_there() -> None:
    plain, filled = ClientDP(noise=15.0), ClientDP(noise=15.0, min_members=1)
    exact, several = of_everybody(5.0, 10), {(1.0, 3): 10}
    assert filled.epsilon(several) == pytest.approx(exact)
    assert plain.epsilon(several) < exact / 2
    assert filled.epsilon({(1.0, 1): 10}) == plain.epsilon(several)  # one model, nobody is moved
    name = r"privacy\.min_members=3 is not allowed: at most 2, for 3 clusters share 8 participants"
    with pytest.raises(ConfigError, match=name):
        build(config_of("ifca", *ALWAYS, "num_clusters=3", "privacy.min_members=3"))
    rnd, too_many = rounds_of(federation(), 1)[0], ClientDP(min_members=3)
    with pytest.raises(ConfigError, match=name):
        too_many.assigned(LABEL, 3, LABEL, rnd, 8.0)
    build(config_of("fedavg", *ALWAYS, "privacy.min_members=8"))
