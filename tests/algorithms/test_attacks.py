"""Forged updates by hand, who is hostile, and that every method sees them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from digits_jobs import config_of
from planted import (
    ALGORITHMS,
    CLIENTS,
    configured,
    engine_for,
    federation,
    rounds_of,
    same,
    simulate,
)
from torch import Tensor

from fedclust.algorithms.layers.finetune import FineTune
from fedclust.config.build import build
from fedclust.core.attack import forged, under_attack
from fedclust.core.front import Gradient, Train
from fedclust.core.optimizers import SGD
from fedclust.core.traits import traits_of
from fedclust.core.types import Evaluation, Served
from fedclust.engines.lockstep import Lockstep
from fedclust.helpers.errors import ConfigError
from fedclust.metrics.recovery import apart, recovery
from fedclust.runtime.client_table import client_rows
from fedclust.runtime.run import remarks_of_method
from fedclust.runtime.simulation import Simulation
from fedclust.updates.attacks import ALIE, IPM, LabelFlip, MinMax, NoAttack, Noise, SignFlip, hidden

HONEST = torch.tensor([[0.0, 2.0], [2.0, 2.0], [4.0, -1.0]], dtype=torch.float64)
OWN = torch.tensor([[1.0, 5.0], [3.0, -3.0]], dtype=torch.float64)


def sent(attack: Any, honest: Tensor = HONEST, own: Tensor = OWN) -> Tensor:
    found: Tensor = attack.updates(honest, own, [np.random.default_rng(i) for i in range(len(own))])
    return found


def test_forged_updates_by_hand() -> None:
    assert sent(SignFlip(scale=2.0)).tolist() == [[-2.0, -10.0], [-6.0, 6.0]]
    assert sent(IPM(epsilon=0.5)).tolist() == [[-1.0, -0.5]] * 2  # the mean is (2, 1)
    deviation = 3**0.5
    torch.testing.assert_close(sent(ALIE(z=2.0))[1].tolist(), [2.0 - 4, 1 - 2 * deviation])
    assert torch.equal(sent(NoAttack()), OWN)
    noise = sent(Noise(scale=2.0), own=torch.zeros(1, 40_000).double(), honest=HONEST)
    assert float(noise.mean()) == pytest.approx(0.0, abs=0.1)
    assert float(noise.std()) == pytest.approx(2 * (29 / 6) ** 0.5, rel=0.02)


@pytest.mark.parametrize(
    ("n", "m", "z"),
    [(50, 24, 1.4261), (50, 12, 0.3360), (20, 4, 0.1573), (10, 2, 0), (4, 3, 1.5), (4, 2, 0)],
)
def test_what_hides_behind_a_majority(n: int, m: int, z: float) -> None:
    assert hidden(n, m) == pytest.approx(z, abs=5e-5)


@pytest.mark.parametrize("direction", ["std", "unit", "sign"])
def test_min_max_goes_as_far_as_the_honest_lie_apart(direction: Any) -> None:
    draw = torch.Generator().manual_seed(5)
    honest = torch.randn(6, 4, generator=draw, dtype=torch.float64)
    forged = sent(MinMax(direction=direction), honest, honest[:2])[0]
    widest = float(torch.cdist(honest, honest).max())
    assert float((honest - forged).norm(dim=1).max()) == pytest.approx(widest)
    # nothing to hide behind
    assert torch.equal(sent(MinMax(), honest[:1], honest[:2])[0], honest[0])


def test_turning_the_mean_round_takes_more_than_the_honest_outnumber() -> None:
    for epsilon, turned in ((1.4, False), (1.6, True)):
        rows = torch.cat([HONEST, sent(IPM(epsilon=epsilon))])
        assert bool((rows.mean(0) @ HONEST.mean(0)) < 0) == turned


def test_the_hostile_are_spread_over_groups_or_are_one() -> None:
    fed = federation()  # four clients in each of three groups
    for seed in range(3):
        even = SignFlip(share=0.5).hostile(fed, seed)
        assert fed.group[even].bincount().tolist() == [2, 2, 2]
        one = SignFlip(share=1 / 3, spread="one_group").hostile(fed, seed)
        assert sorted(fed.group[one].bincount(minlength=3).tolist()) == [0, 0, 4]
        assert int(SignFlip(share=0.01).hostile(fed, seed).sum()) == 1
        whole = SignFlip(share=0.5, spread="one_group").hostile(fed, seed)
        assert int(whole.sum()) == 4  # no more than there are
    assert not torch.equal(SignFlip().hostile(fed, 0), SignFlip().hostile(fed, 1))
    nowhere = replace(fed, group=torch.full_like(fed.group, -1))
    with pytest.raises(ConfigError, match=r"attack.spread=one_group is not allowed: evenly, since"):
        SignFlip(spread="one_group").hostile(nowhere, 0)
    with pytest.raises(ConfigError, match=r"attack.share=0.6 is not .* at most 0.5"):
        SignFlip(share=0.6)


def test_flipped_labels_are_those_of_hostile_training_alone() -> None:
    fed = federation()
    found = under_attack({0: fed, 1: fed}, LabelFlip(share=0.25))
    assert found[0].pool is found[1].pool
    hostile, train = found[0].hostile, found[0].train
    assert hostile is not None
    for client in range(CLIENTS):
        before, after = fed.train.of_client(client), train.of_client(client)
        x = found[0].pool.inputs(after)
        torch.testing.assert_close(x, fed.pool.inputs(before), rtol=0, atol=0)
        true = fed.pool.y[before]
        given = 2 - true if hostile[client] else true
        assert torch.equal(found[0].pool.y[after], given)
        assert torch.equal(found[0].pool.row(after), before)
    assert torch.equal(found[0].test.index, fed.test.index)


def test_who_knows_what() -> None:
    fed = replace(federation(), hostile=torch.arange(CLIENTS) < 2)
    rnd = replace(rounds_of(fed, 1)[0], fed=fed)
    moves = torch.tensor([[1.0, 9.0], [2.0, 9.0], [4.0, 9.0], [8.0, 9.0]])
    ids = torch.tensor([0, 1, 2, 3])
    attack = IPM(epsilon=1.0)
    # client 0 and an honest one; client 1 alone with its model: the mean of all honest ones
    found = forged(attack, moves, torch.tensor([0, 1, 0, 2]), ids, rnd, 1)
    assert found.tolist() == [[-4.0, 9.0], [-6.0, 9.0], [4.0, 9.0], [8.0, 9.0]]
    # nobody honest takes part
    assert forged(attack, moves[:2], ids[:2] * 0, ids[:2], rnd, 2).tolist() == [[-1.5, -9.0]] * 2
    assert forged(attack, moves[2:], ids[:2], ids[2:], rnd, 2) is not None
    assert torch.equal(forged(LabelFlip(), moves, ids, ids, rnd, 2), moves)


@pytest.mark.thinned
@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - {"local"}))
def test_every_method_sees_forged_updates(name: str) -> None:
    fed = federation()
    (besieged,) = under_attack({0: fed}, SignFlip(share=0.25)).values()
    algorithm = configured(name)

    rounds = [replace(rnd, fed=besieged) for rnd in rounds_of(fed, 2)]

    def last(attack: Any) -> Any:
        return simulate(algorithm, rounds, attack=attack)[0][-1]

    assert not same(last(None), last(SignFlip()))


def test_the_honest_send_what_they_trained_to_the_bit() -> None:
    fed = federation()
    (fed,) = under_attack({0: fed}, SignFlip(share=0.25)).values()
    assert fed.hostile is not None
    rnd = replace(rounds_of(fed, 1)[0], fed=fed)
    clients, ids = engine_for(fed), torch.arange(CLIENTS)
    models = clients.init(rnd.stream("init"), 1)
    plain = clients.at(rnd).train(Train(models, 0 * ids, ids, SGD(lr=0.5))).params
    clients.attack = SignFlip(share=0.25, scale=2.0)
    besieged = clients.at(rnd)
    found = besieged.train(Train(models, 0 * ids, ids, SGD(lr=0.5))).params
    assert torch.equal(found[~fed.hostile], plain[~fed.hostile])
    torch.testing.assert_close((found - models)[fed.hostile], -2 * (plain - models)[fed.hostile])
    mean = besieged.train_mean(Train(models, 0 * ids, ids, SGD(lr=0.5))).models
    torch.testing.assert_close(mean[0], found.mean(0))
    gradients = besieged.grad(Gradient(models, 0 * ids, ids))
    clients.attack = None
    true = clients.at(rnd).grad(Gradient(models, 0 * ids, ids))
    assert torch.equal(gradients[fed.hostile], -2 * true[fed.hostile])
    torch.testing.assert_close(
        besieged.grad_sum(Gradient(models, 0 * ids, ids))[0], gradients.sum(0)
    )
    # a model that is adapted before use is sent to nobody
    own = besieged.train(Train(models, 0 * ids, ids, SGD(lr=0.5), purpose="finetune")).params
    assert torch.equal(
        own,
        clients.at(rnd).train(Train(models, 0 * ids, ids, SGD(lr=0.5), purpose="finetune")).params,
    )


def test_one_hostile_client_is_told_as_one() -> None:
    (one,) = under_attack({0: federation()}, SignFlip(share=1 / CLIENTS)).values()
    assert one.remarks[-1].startswith("1 of 12 clients is hostile (SignFlip); what is tested are")


def test_only_the_honest_are_scored() -> None:
    fed = federation()
    (fed,) = under_attack({0: fed}, SignFlip(share=0.25)).values()
    hostile = fed.hostile
    assert hostile is not None
    assert fed.remarks[-1].startswith("3 of 12 clients are hostile (SignFlip); what is tested are")
    rnd = replace(rounds_of(fed, 1)[0], fed=fed)
    clients = engine_for(fed).at(rnd)
    label = fed.group.where(~hostile, 3)
    served = Served(models=clients.init(rnd.stream("init"), 4), label=label)
    found = clients.evaluate(served)
    assert torch.equal(found.count == 0, hostile)
    assert set(clients.predict(served).client.tolist()) == set((~hostile).nonzero()[:, 0].tolist())
    assert recovery(found, rnd)["purity"] == 1.0
    assert apart(found, rnd) == {"attackers_apart": 1.0}
    mixed = Evaluation(
        served=Served(models=served.models, label=0 * label),
        loss_sum=found.loss_sum,
        sums=found.sums,
        count=found.count,
    )
    assert apart(mixed, rnd) == {"attackers_apart": 0.0}
    assert recovery(mixed, rnd)["purity"] == 1 / 3
    assert client_rows(rnd, found).column("hostile").to_pylist() == hostile.tolist()
    honest = replace(rnd, fed=replace(fed, hostile=None))
    assert apart(mixed, honest) == {}
    assert "hostile" not in client_rows(honest, found).column_names


def test_a_job_under_attack() -> None:
    given = "attack=ipm", "attack.share=0.25", "seeds=2", "rounds=1", "aggregation=median"
    job = build(config_of("ifca", *given))
    assert job.attack == IPM(share=0.25)
    hostile = [fed.hostile for fed in job.federations.values()]
    assert [int(h.sum()) for h in hostile if h is not None] == [2, 2]
    simulation = Simulation.of(0, job, job.federations[0], Lockstep(job.engine))
    assert simulation.attack is job.attack
    with pytest.raises(ConfigError, match=r"attack.share=0.7 is not allowed"):
        build(config_of("ifca", "attack=alie", "attack.share=0.7"))


@pytest.mark.full
@pytest.mark.parametrize("attack", ["sign_flip", "label_flip"])
def test_where_nothing_is_sent_an_attack_only_takes_clients_out_of_the_test(attack: str) -> None:
    told = "nothing is sent, so the attack only takes clients out of the test"
    alone, sending = (build(config_of(name, f"attack={attack}")) for name in ("local", "ifca"))
    assert (remarks_of_method(alone), remarks_of_method(sending)) == ([told], [])
    assert remarks_of_method(build(config_of("local"))) == []
    assert traits_of(FineTune(base=alone.algorithm, solver=SGD(lr=0.1))).sends is False


def test_alie_says_what_it_takes_where_the_hostile_are_the_majority() -> None:
    fed = federation()
    told = [
        under_attack({0: fed}, ALIE(share=0.25, z=z), "alie")[0].remarks[-1] for z in (None, 1.5)
    ]
    plain = "3 of 12 clients are hostile (alie); what is tested are the others"
    assert told == [
        f"{plain}; attack.z=null hides behind a majority, and takes 1.5 in a cluster whose "
        "participants are mostly hostile",
        plain,
    ]
