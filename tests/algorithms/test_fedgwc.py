"""FedGWC: rewards, affinities and communities in closed form, its limit FedAvg, splits, costs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from planted import (
    CLIENTS,
    STEPS,
    configured,
    engine_for,
    federation,
    partition_of,
    rounds_of,
    simulate,
)

from fedclust.algorithms.fedgwc import affinity, communities, rewards
from fedclust.core.calls import LocalWork
from fedclust.core.front import Train
from fedclust.engines.loop import LoopEngine
from fedclust.helpers.rng import Stream
from fedclust.scenarios.static import Static

BLOCKS = torch.arange(8) % 2


def blocks(far: float = 0.01) -> torch.Tensor:
    """Affinities of two communities, the even and the odd ones."""
    seen = torch.where(BLOCKS.unsqueeze(1) == BLOCKS, 1.0, far).double()
    return seen.fill_diagonal_(0)


def test_rewards_by_hand() -> None:
    """Mean 2 and variance 2/3: exp(-1 / (2 * 2/3)) = 0.4724."""
    found = rewards(torch.tensor([[1.0], [2.0], [3.0]]), torch.ones(3))
    assert found.tolist() == pytest.approx([math.exp(-0.75), 1.0, math.exp(-0.75)])
    assert (found / found.sum()).tolist() == pytest.approx([0.2429, 0.5142, 0.2429], abs=1e-4)
    weighted = rewards(torch.tensor([[0.0], [1.0]]), torch.tensor([3, 1]))
    # mean 1/4, variance 3/16
    assert weighted.tolist() == pytest.approx([math.exp(-1 / 6), math.exp(-3 / 2)])


def test_steps_count_alike_and_those_not_taken_do_not() -> None:
    one, other = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[5.0], [5.0], [2.0]])
    both = rewards(torch.cat([one, other], 1), torch.ones(3))
    mean = (rewards(one, torch.ones(3)) + rewards(other, torch.ones(3))) / 2
    torch.testing.assert_close(both, mean)
    short = torch.tensor([[1.0, 5.0], [2.0, 5.0], [3.0, torch.nan]])
    expected = [(math.exp(-0.75) + 1) / 2, 1.0, math.exp(-0.75)]
    assert rewards(short, torch.ones(3)).tolist() == pytest.approx(expected)


def test_neither_the_scale_of_losses_nor_equal_losses_matter() -> None:
    loss = torch.rand(5, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(rewards(7 * loss, torch.ones(5)), rewards(loss, torch.ones(5)))
    assert rewards(torch.full((4, 2), 1.3), torch.ones(4)).tolist() == [1.0] * 4


def test_affinities_by_hand_leave_out_the_two_themselves() -> None:
    weight = torch.rand(5, 5, generator=torch.Generator().manual_seed(1)).double()
    x = ((weight - weight.min()) / (weight.max() - weight.min())).T
    found = affinity(weight, 2.0)
    for i in range(5):
        for j in range(5):
            others = [m for m in range(5) if m not in (i, j)]
            far = sum(float((x[i, m] - x[j, m]) ** 2) for m in others)
            assert float(found[i, j]) == pytest.approx(0 if i == j else math.exp(-2 * far))


def test_communities_are_found_where_there_are_enough_turns() -> None:
    stream = Stream.of(0, "split")
    assert partition_of(communities(blocks(), 4.0, 1.0, stream)) == partition_of(BLOCKS)
    assert communities(blocks(), 1.9, 1.0, stream).tolist() == [0] * 8  # no two parts to try
    assert communities(blocks(), 4.0, 0.0, stream).tolist() == [0] * 8  # none is good enough


def test_a_step_that_none_of_a_cluster_takes_counts_for_nobody() -> None:
    one, none = torch.tensor([[1.0], [2.0], [3.0]]), torch.full((3, 1), torch.nan)
    both = rewards(torch.cat([one, none], 1), torch.ones(3))
    torch.testing.assert_close(both, rewards(one, torch.ones(3)))


def test_with_everybody_the_weights_are_the_shares_of_the_last_rewards() -> None:
    fed = federation()
    rounds = rounds_of(fed, 2)
    algorithm: Any = configured("fedgwc")
    states, _ = simulate(algorithm, rounds)
    zero = torch.zeros(CLIENTS, dtype=torch.int64)
    clients = engine_for(fed).at(rounds[1])
    work = LocalWork(each_step=True)
    local = clients.train(Train(states[0].models, zero, rounds[1].cohort, algorithm.solver, work))
    reward = rewards(local.step_loss, fed.train.count)
    expected = (reward / reward.sum()).unsqueeze(1).expand(-1, CLIENTS)
    torch.testing.assert_close(states[1].weight, expected)
    torch.testing.assert_close(
        states[1].change, (states[1].weight - states[0].weight).square().mean().view(1)
    )


def test_rewards_inside_one_of_two_clusters_by_hand() -> None:
    """Three of the six members take part: it takes two rounds until all did, so alpha is 1/2."""
    fed = federation(equal=False)
    algorithm: Any = configured("fedgwc")
    rnd, ids = rounds_of(fed, 1)[0], torch.tensor([4, 6, 10])
    weight = torch.rand(CLIENTS, CLIENTS, generator=torch.Generator().manual_seed(0)).double()
    state = algorithm.State(
        models=torch.zeros(2, 21),
        label=torch.arange(CLIENTS) % 2,
        weight=weight,
        change=torch.tensor([0.5, 0.5]).double(),
        calm=torch.tensor([3, 3]),
    )
    loss = torch.tensor([[1.0, 2.0], [2.0, 2.5], [4.0, 1.0]])
    after = algorithm._rewarded(state, 0, ids, loss, rnd)
    reward = rewards(loss, fed.train.count[ids])
    share, expected = reward / reward.sum(), weight.clone()
    for row, i in enumerate(ids.tolist()):
        for j in ids.tolist():
            expected[i, j] = (weight[i, j] + share[row]) / 2
    torch.testing.assert_close(after.weight, expected)
    square = (expected - weight)[ids][:, ids].square().mean()
    torch.testing.assert_close(after.change, torch.stack([(0.5 + square) / 2, square * 0 + 0.5]))
    assert after.calm.tolist() == [0, 3]


def test_clients_with_hard_data_get_a_cluster_of_their_own() -> None:
    """Four of twelve clients in a round; every other one has losses of 3 instead of 1."""
    fed = federation()
    algorithm: Any = configured("fedgwc", "algorithm.eps=3e-4", "algorithm.gamma=4.0")
    rnd = rounds_of(fed, 1)[0]
    state, _ = algorithm.init(engine_for(fed).at(rnd), rnd)
    state = replace(state, label=torch.zeros(CLIENTS, dtype=torch.int64))
    draw, hard = torch.Generator().manual_seed(1), torch.arange(CLIENTS) % 2
    for _ in range(200):
        ids = torch.randperm(CLIENTS, generator=draw)[:4].sort().values
        loss = 1 + 2 * hard[ids].unsqueeze(1) + 0.1 * torch.rand(4, 3, generator=draw)
        before, state = state, algorithm._rewarded(state, 0, ids, loss, rnd)
        if len(state.models) > 1:
            break
    assert partition_of(state.label) == partition_of(hard)
    assert torch.equal(state.models, before.models.repeat(2, 1))
    assert state.calm.tolist() == [0, 0]
    assert state.change.tolist() == [1, 1]
    assert int(before.calm[0]) == CLIENTS // 4 - 1


@pytest.mark.full
@pytest.mark.parametrize(("participation", "told"), [(1.0, True), (0.6, True), (0.5, False)])
def test_more_than_half_of_the_clients_in_a_round_is_fedavg(
    participation: float, told: bool
) -> None:
    fed = federation()
    eager: Any = configured("fedgwc", "algorithm.eps=1e9", "algorithm.davies_bouldin=1e9")
    said = eager.beside(Static(participation=participation), CLIENTS)
    assert ("no cluster splits: this is FedAvg; take participation=0.5" in said) == told
    states, _ = simulate(eager, rounds_of(fed, 8, participation=participation), kind=LoopEngine)
    assert (len(states[-1].models) == 1) == told


def test_costs_and_latecomers() -> None:
    fed, late = federation(), (2, 9)
    states, reports = simulate(configured("fedgwc"), rounds_of(fed, 3, absent=late, until=2))
    for report, present in zip(reports[1:], (10, 10, 12), strict=True):
        assert (report.models_down, report.models_up) == (present, present)
        assert report.scalars_up == present * STEPS == report.gradient_steps
    assert states[1].label[list(late)].tolist() == [-1, -1]
    assert states[2].label.tolist() == [0] * CLIENTS
