"""CFL: when it splits, how, and what partial participation does to the decision."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from planted import CLIENTS, configured, engine_for, federation, partition_of, rounds_of, simulate
from toy_engine import SOLVER

from fedclust.algorithms.sattler_cfl import SattlerCFL, bipartition, norms

SPLITTING = ("algorithm.eps1=0.3", "algorithm.eps2=0.6")


def first(states: list[Any], clusters: int) -> Any:
    """The first state with so many models."""
    return next(state for state in states if len(state.models) >= clusters)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_two_splits_separate_three_groups(seed: int) -> None:
    fed = federation(seed)
    states, reports = simulate(configured("sattler_cfl", *SPLITTING), rounds_of(fed, 16, seed=seed))
    halves, thirds = first(states, 2), first(states, 3)
    for group in range(3):
        assert len(halves.label[fed.group == group].unique()) == 1, "no split goes through a group"
    assert partition_of(thirds.label) == partition_of(fed.group)
    for before, report in zip(states, reports[2:], strict=False):
        if report.notes["num_clusters_found"] > len(before.models):
            assert report.notes["mean_update_norm"] < 0.3
            assert report.notes["max_update_norm"] > 0.6


def test_both_norms_must_agree() -> None:
    rounds = rounds_of(federation(), 6)
    for overrides in (
        ("algorithm.eps1=1e-9", "algorithm.eps2=0"),
        ("algorithm.eps1=99", "algorithm.eps2=99"),
    ):
        states, _ = simulate(configured("sattler_cfl", *overrides), rounds)
        assert len(states[-1].models) == 1
    eager = ("algorithm.eps1=99", "algorithm.eps2=0")
    states, _ = simulate(configured("sattler_cfl", *eager, "algorithm.gamma_max=0"), rounds)
    assert len(states[-1].models) > 3
    states, _ = simulate(configured("sattler_cfl", *eager, "algorithm.gamma_max=0.999"), rounds)
    assert len(states[-1].models) == 1, "no split is that clear"


def test_children_begin_with_the_parents_model_and_their_own_mean() -> None:
    states, _ = simulate(configured("sattler_cfl", *SPLITTING), rounds_of(federation(), 16))
    t = next(t for t, state in enumerate(states) if len(state.models) == 2)
    for cluster in (0, 1):
        members = states[t].label == cluster
        expected = states[t - 1].models[0] + states[t].update.all()[members].mean(0)
        torch.testing.assert_close(states[t].models[cluster], expected)
    assert states[t].born.tolist() == [t, t]


def test_who_did_not_decide_joins_by_loss_and_absent_clients_wait() -> None:
    fed = federation()
    eager = (
        "algorithm.eps1=99",
        "algorithm.eps2=0",
        "algorithm.gamma_max=0.5",
        "algorithm.memory=1",
    )
    algorithm: Any = configured("sattler_cfl", *eager)
    rounds = rounds_of(fed, 8, participation=0.5)
    states, reports = simulate(algorithm, rounds)
    t = next(t for t, state in enumerate(states) if len(state.models) == 2)
    cohort = set(rounds[t].cohort.tolist())
    outside = [client for client in range(CLIENTS) if client not in cohort]
    assert (states[t].label >= 0).all()
    assert reports[t + 1].models_down == len(cohort) + 2 * len(outside), (
        "both models go to those who ask"
    )
    absent = (outside[0],)
    away = torch.ones(CLIENTS, dtype=torch.bool)
    away[list(absent)] = False
    gone, _ = simulate(algorithm, [replace(rnd, present=away) for rnd in rounds[: t + 1]])
    assert gone[t].label[absent[0]] == -1
    back, _ = simulate(algorithm, rounds[t + 1 :], gone[t])
    assert back[0].label[absent[0]] >= 0


def test_who_chooses_before_a_split_says_so_once() -> None:
    """A newcomer is sent two models; then one splits, and who lost its label is sent three."""
    fed = federation()
    eager = ("algorithm.eps1=99", "algorithm.eps2=0", "algorithm.gamma_max=0.5")
    algorithm: Any = configured("sattler_cfl", *eager, "algorithm.memory=1")
    rounds = rounds_of(fed, 8, participation=0.5)
    states, _ = simulate(algorithm, rounds)
    t = next(t for t, s in enumerate(states) if t and len(s.models) > len(states[t - 1].models) > 1)
    before, cohort = states[t - 1], rounds[t].cohort
    newcomer = next(client for client in range(CLIENTS) if client not in cohort.tolist())
    label = before.label.index_fill(0, torch.tensor([newcomer]), -1)
    after, reports = simulate(algorithm, [rounds[t]], replace(before, label=label))
    sent = reports[0].models_down - len(cohort) - len(before.models)
    lost, rest = divmod(sent, len(after[0].models))
    assert lost > 0
    assert rest == 0
    assert reports[0].scalars_up == 1 + lost


def test_updates_of_the_parent_and_old_ones_do_not_decide() -> None:
    fed = federation()
    eager = ("algorithm.eps1=99", "algorithm.eps2=0", "algorithm.gamma_max=0", "algorithm.memory=2")
    algorithm: Any = configured("sattler_cfl", *eager)
    state, _ = simulate(algorithm, rounds_of(fed, 1))
    rnd = rounds_of(fed, 3)[2]
    one = replace(
        state[0], models=state[0].models[:1], label=torch.zeros(CLIENTS, dtype=torch.int64)
    )
    born = torch.tensor([0])

    def decided(updated: list[int]) -> int:
        given = replace(one, born=born, updated=torch.tensor(updated))
        return len(algorithm._split(given, rnd)[0].models)

    assert decided([2, 1] + [0] * 10) == 2, "rounds 1 and 2 began with this cluster's model"
    assert decided([2] + [0] * 11) == 1, "one client alone cannot be split"
    younger = replace(one, born=torch.tensor([1]), updated=torch.tensor([2] + [1] * 11))
    assert len(algorithm._split(younger, rnd)[0].models) == 1, (
        "round 1 began with the parent's model"
    )
    late = replace(rnd, t=9)
    assert (
        len(
            algorithm._split(replace(one, born=born, updated=torch.full((CLIENTS,), 7)), late)[
                0
            ].models
        )
        == 1
    )


def test_a_child_copies_the_model_of_its_cluster() -> None:
    fed = federation()
    eager = ("algorithm.eps1=99", "algorithm.eps2=0", "algorithm.gamma_max=0")
    algorithm: Any = configured("sattler_cfl", *eager)
    (state,), _ = simulate(algorithm, rounds_of(fed, 1))
    two = replace(
        state,
        models=torch.stack([state.models[0] * 0, state.models[0]]),
        born=torch.tensor([-1, -1]),
        label=torch.ones(CLIENTS, dtype=torch.int64),
        updated=torch.zeros(CLIENTS, dtype=torch.int64),
    )
    after, _ = algorithm._split(two, rounds_of(fed, 1)[0])
    assert len(after.models) == 3
    assert torch.equal(after.models[2], state.models[0])


@pytest.mark.parametrize("aggregation", ["uniform", "by_samples"])
def test_the_norm_that_decides_is_that_of_the_weighted_mean(aggregation: str) -> None:
    fed = federation(equal=False)
    options = ("algorithm.eps1=0", f"algorithm.aggregation={aggregation}")
    (state,), reports = simulate(configured("sattler_cfl", *options), rounds_of(fed, 1))
    share = (
        fed.train.count.double() if aggregation == "by_samples" else torch.ones(CLIENTS).double()
    )
    mean = (state.update.all().double() * share.unsqueeze(1)).sum(0) / share.sum()
    assert reports[1].notes["mean_update_norm"] == pytest.approx(float(mean.norm()), rel=1e-4)


def test_who_did_not_decide_joins_by_the_new_models() -> None:
    fed = federation()
    eager = ("algorithm.eps1=99", "algorithm.eps2=0", "algorithm.memory=1")
    rounds = rounds_of(fed, 8, participation=0.5)
    states, _ = simulate(configured("sattler_cfl", *eager), rounds)
    t = next(t for t, state in enumerate(states) if len(state.models) == 2)
    outside = torch.tensor([i for i in range(CLIENTS) if i not in rounds[t].cohort.tolist()])
    loss = engine_for(fed).at(rounds[t]).loss(states[t].models, outside)
    assert torch.equal(states[t].label[outside], loss.argmin(1))
    assert len(loss.argmin(1).unique()) == 2


def test_norms_by_hand() -> None:
    """Of (3, 0) and (0, 4): the mean is (1.5, 2), and with weights 1 and 3 it is (0.75, 3)."""
    update = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    assert norms(update, None) == (2.5, 4.0)
    mean, largest = norms(update, torch.tensor([1, 3]))
    assert mean == pytest.approx(9.5625**0.5)
    assert largest == 4.0


def test_separation_is_the_root_of_half_of_one_minus_the_cosine() -> None:
    """At a right angle across: sqrt(1 / 2) = 0.707. Norms at the thresholds do not split."""
    update = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]])

    def side(gamma_max: float, mean: float = 0.1, largest: float = 2.0) -> Any:
        method = SattlerCFL(solver=SOLVER, eps1=0.4, eps2=1.6, gamma_max=gamma_max)
        found = method.sides(update, mean, largest)
        return None if found is None else found.tolist()

    assert side(0.70) == [False, True, True]
    assert side(0.71) is None
    assert side(0.70, mean=0.4) is None
    assert side(0.70, largest=1.6) is None


def test_optimal_bipartition_is_the_best_of_all() -> None:
    draw = torch.Generator().manual_seed(0)
    for _ in range(20):
        rows = torch.nn.functional.normalize(torch.randn(6, 3, generator=draw))
        similarity = rows @ rows.T
        best = min(
            float(similarity[list(side)][:, [j for j in range(6) if j not in side]].max())
            for size in (1, 2, 3)
            for side in itertools.combinations(range(6), size)
        )
        side, across = bipartition(similarity, "optimal")
        assert across == pytest.approx(best)
        assert 0 < int(side.sum()) < 6
        assert bipartition(similarity, "complete")[1] >= across


def test_equal_similarities_are_still_cut_in_two() -> None:
    for how in ("optimal", "complete"):
        side, across = bipartition(torch.full((4, 4), 0.25).fill_diagonal_(1), how)  # type: ignore[arg-type]
        assert 0 < int(side.sum()) < 4
        assert across == 0.25
        assert not side[0]
