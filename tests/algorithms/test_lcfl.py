"""LCFL: what the warm-up leaves, when it clusters, who trains afterwards."""

from __future__ import annotations

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
    softmax_gradient,
)

from fedclust.algorithms.lcfl import cluster_cohorts, shared_out
from fedclust.algorithms.warmup import Warmup
from fedclust.cluster_metrics.loss import Loss
from fedclust.core.front import Train
from fedclust.core.types import Federation, Round, Split
from fedclust.scenarios.static import Static
from fedclust.solver import Solver


def test_clustering_happens_at_the_start_of_the_round_after_the_warmup() -> None:
    fed = federation()
    states, reports = simulate(configured("lcfl"), rounds_of(fed))
    assert [state.local is None for state in states] == [False] * 5 + [True] * 2
    assert [set(report.arrays) for report in reports] == [set()] * 6 + [{"distance"}] + [set()]
    assert reports[6].notes["num_clusters_found"] == 3
    distance = reports[6].arrays["distance"]
    assert distance.shape == (CLIENTS, CLIENTS)
    assert torch.equal(distance, distance.T)
    assert (distance.diagonal() == 0).all()
    assert (states[4].label == -1).all()
    assert partition_of(states[5].label) == partition_of(fed.group)


def test_distance_is_that_of_the_last_local_models() -> None:
    fed = federation()
    rounds = rounds_of(fed, 3)
    algorithm: Any = configured("lcfl", "algorithm.warmup.rounds=2")
    states, reports = simulate(algorithm, rounds)
    clients = engine_for(fed)
    start, zero, everybody = (
        states[0].models,
        torch.zeros(CLIENTS, dtype=torch.int64),
        torch.arange(CLIENTS),
    )
    last = clients.at(rounds[1]).train(Train(start, zero, everybody, algorithm.solver)).params
    assert torch.equal(states[1].local.all(), last)
    table = clients.at(rounds[2]).loss(last, everybody)
    i, j = 2, 9
    expected = abs(table[i, i] - table[i, j]) + abs(table[j, i] - table[j, j])
    assert float(reports[3].arrays["distance"][i, j]) == pytest.approx(float(expected), rel=1e-5)


def test_clusters_start_from_the_servers_model() -> None:
    fed = federation()
    rounds = rounds_of(fed, 3)
    algorithm: Any = configured("lcfl", "algorithm.warmup.rounds=2")
    states, _ = simulate(algorithm, rounds)
    for label in range(3):
        members = (states[2].label == label).nonzero().squeeze(1)
        inside = replace(rounds[2], cohort=members)
        fedavg: Any = configured("fedavg")
        after, _ = fedavg.round(
            fedavg.State(model=states[1].models), engine_for(fed).at(inside), inside
        )
        assert torch.equal(after.model[0], states[2].models[label])


def cohort_of(algorithm: Any, fed: Federation, rnd: Round) -> torch.Tensor:
    share = rnd.share if algorithm.participation is None else algorithm.participation
    return cluster_cohorts(fed.group, torch.arange(CLIENTS), share, rnd)


def test_every_cluster_samples_its_share() -> None:
    fed = federation()
    for rate, expected in ((1.0, 4), (0.9, 4), (0.5, 2), (0.4, 2), (0.1, 1)):  # of four, rounded
        algorithm: Any = configured("lcfl", f"algorithm.participation={rate}")
        rnd = rounds_of(fed, 1)[0]
        cohort = cohort_of(algorithm, fed, rnd)
        assert cohort.tolist() == sorted(set(cohort.tolist()))
        assert fed.group[cohort].bincount().tolist() == [expected] * 3


def test_clusters_sample_as_the_run_does() -> None:
    fed = federation()
    for scenario in (Static(participation=0.5), Static(clients_per_round=6)):
        rnd = next(iter(scenario.rounds(fed, 0)))
        algorithm: Any = configured("lcfl")
        assert fed.group[cohort_of(algorithm, fed, rnd)].bincount().tolist() == [2] * 3


@pytest.mark.parametrize(
    ("total", "size", "expected"),
    [
        (10, [10, 10, 10, 10], [3, 3, 2, 2]),  # a quarter of each would be round(2.5) = 2
        (10, [13, 13, 14], [3, 3, 4]),  # 3.25, 3.25, 3.5
        (4, [17, 1, 0, 2], [2, 1, 0, 1]),  # a seat for all that have clients
        (2, [5, 5, 5], [1, 1, 1]),
        (7, [1, 6], [1, 6]),
    ],
)
def test_participants_are_shared_out_by_largest_remainder(
    total: int, size: list[int], expected: list[int]
) -> None:
    assert shared_out(total, size) == expected


def test_clusters_sample_as_many_as_the_run_does() -> None:
    """Of three clusters of four: 3 and 4, where rounded shares of 0.375 take 6."""
    fed = federation()
    everybody = torch.arange(CLIENTS)
    for part, number, rounded in ((0.25, [1, 1, 1], 3), (0.375, [2, 1, 1], 6)):
        rnd = next(iter(Static(participation=part).rounds(fed, 0)))
        cohort = cluster_cohorts(fed.group, everybody, rnd.share, rnd, in_total=True)
        assert fed.group[cohort].bincount().tolist() == number
        assert len(cohort) == len(rnd.cohort)
        assert len(cluster_cohorts(fed.group, everybody, rnd.share, rnd)) == rounded
    total: Any = configured("lcfl", "common.cluster_participation=total")
    rounds = rounds_of(fed, 7, participation=0.375)
    _, reports = simulate(total, rounds)
    assert reports[-1].models_up == len(rounds[-1].cohort) == 4


def test_clients_the_warmup_missed_train_once() -> None:
    rounds = rounds_of(federation(), 2, participation=0.25)
    everybody = ("lcfl", "algorithm.warmup.rounds=1", "algorithm.participation=1.0")
    covering: Any = configured(*everybody)
    plain: Any = configured(*everybody, "algorithm.warmup.cover_all=false")
    _, with_cover = simulate(covering, rounds)
    _, without = simulate(plain, rounds)
    missed = CLIENTS - len(rounds[0].cohort)
    assert with_cover[2].models_down - without[2].models_down == missed
    assert with_cover[2].gradient_steps - without[2].gradient_steps == missed * STEPS
    assert with_cover[2].models_up == without[2].models_up
    # the initial model of those who never trained is one and the same
    still = without[2].arrays["distance"]
    outside = [i for i in range(CLIENTS) if i not in rounds[0].cohort.tolist()]
    assert still[outside][:, outside].max() < 1e-6
    assert with_cover[2].arrays["distance"][outside][:, outside].max() > 0.1


def test_warmup_has_a_participation_of_its_own() -> None:
    rounds = rounds_of(federation(), 1, participation=0.25)
    states, reports = simulate(configured("lcfl", "algorithm.warmup.participation=0.75"), rounds)
    assert reports[1].models_up == 9
    assert int(states[0].trained.sum()) == 9
    assert states[0].trained[rounds[0].cohort].all(), "a larger sample holds the smaller one"


def test_warmup_cohorts_are_rounded() -> None:
    rnd = rounds_of(federation(), 1)[0]
    sizes = [len(Warmup(participation=part).cohort(rnd)) for part in (0.01, 0.4, 0.6, 1.0)]
    assert sizes == [1, 5, 7, 12]  # of 0.12, 4.8, 7.2 and 12 clients


def test_local_warmup_takes_full_gradient_steps_by_hand() -> None:
    """Whatever the batches and epochs of the run: w - lr * gradient of all examples, twice."""
    fed = federation()
    rnd, clients = rounds_of(fed, 1)[0], engine_for(fed)
    start = clients.init(rnd.stream("init"), 1)
    batches = Solver(lr=0.5, batch_size=7, epochs=3)
    warmup = Warmup(mode="local", steps=2, own_start=False)
    ids, params, cost = warmup.alone(start, batches, clients.at(rnd), rnd)
    assert ids.tolist() == list(range(CLIENTS))
    assert cost.gradient_steps == 2 * CLIENTS
    for client in (0, 7):
        model = start[0].double()
        for _ in range(2):
            model = model - 0.5 * softmax_gradient(model, fed, client)[1]
        torch.testing.assert_close(params[client].double(), model, rtol=1e-5, atol=1e-6)


def test_local_warmup_starts_from_own_models_or_from_the_servers() -> None:
    """With steps of no length the models are where they began."""
    fed = federation()
    rnd, clients = rounds_of(fed, 1)[0], engine_for(fed)
    start, still = clients.init(rnd.stream("init"), 1), Solver(lr=1e-12)
    own = Warmup(mode="local").alone(start, still, clients.at(rnd), rnd)[1]
    assert len(own.unique(dim=0)) == CLIENTS
    assert float((own - start).norm(dim=1).min()) > 0.1
    common = Warmup(mode="local", own_start=False).alone(start, still, clients.at(rnd), rnd)[1]
    torch.testing.assert_close(common, start.expand(CLIENTS, -1))


@pytest.mark.parametrize("own_start", ["true", "false"])
def test_local_warmup_clusters_before_the_first_round(own_start: str) -> None:
    fed = federation()
    overrides = (
        "algorithm.warmup.mode=local",
        "algorithm.warmup.steps=60",
        f"algorithm.warmup.own_start={own_start}",
    )
    states, reports = simulate(configured("lcfl", *overrides), rounds_of(fed, 1))
    assert partition_of(states[0].label) == partition_of(fed.group)
    assert reports[0].gradient_steps == 60 * CLIENTS
    start = 0 if own_start == "true" else CLIENTS  # the server's goes to everybody
    exchanged = CLIENTS * (CLIENTS - 1)
    assert (reports[0].models_up, reports[0].models_down) == (CLIENTS, start + exchanged)
    assert "distance" in reports[0].arrays
    assert (reports[1].models_up, reports[1].models_down) == (CLIENTS, CLIENTS)


def test_newcomers_join_the_cluster_that_fits_them() -> None:
    fed = federation()
    late = (2, 9)  # groups 2 and 0
    rounds = rounds_of(fed, 9, absent=late, until=7)
    algorithm = configured("lcfl")
    states, reports = simulate(algorithm, rounds)
    assert (states[6].label[list(late)] == -1).all()
    assert partition_of(states[7].label) == partition_of(fed.group)
    assert reports[8].models_down == CLIENTS + 2 * 3
    assert reports[9].models_down == CLIENTS
    served = algorithm.serve(states[6], engine_for(fed).at(rounds[6]), rounds[6])
    assert (served.label[list(late)] == -1).all()


def test_a_planned_divisor_stretches_the_step_of_small_clusters() -> None:
    """Twelve clients in clusters of four, 0.3 of each: one participant where 1.2 were planned."""
    rounds = rounds_of(federation(), 3)
    asked = ("lcfl", "algorithm.warmup.rounds=1", "algorithm.participation=0.3")
    plain, _ = simulate(configured(*asked), rounds[:2])
    planned, _ = simulate(configured(*asked, "algorithm.divisor=planned"), rounds[:2])
    start = simulate(configured(*asked), rounds[:1])[0][-1].models
    actual = plain[-1].models - start
    torch.testing.assert_close(planned[-1].models - start, actual / 1.2, rtol=1e-4, atol=1e-6)


def test_the_metric_can_look_at_test_data_as_the_released_code_does() -> None:
    """Losses are then means over both, which changes nothing where both are the same."""
    fed = federation()
    clients, rnd = engine_for(fed), rounds_of(fed, 1)[0]
    ids = torch.arange(CLIENTS)
    models = clients.init(rnd.stream("init"), CLIENTS)
    both = Loss(data="train_and_test")(clients.at(rnd), models, models[:1], ids, rnd)
    only = Loss()(clients.at(rnd), models, models[:1], ids, rnd)
    assert float((both - only).abs().max()) > 1e-3
    twice = replace(rnd, fed=replace(fed, test=fed.train))
    same = Loss(data="train_and_test")(clients.at(twice), models, models[:1], ids, twice)
    torch.testing.assert_close(same, only, rtol=1e-4, atol=1e-5)
    joined = [torch.cat([fed.train.of_client(i), fed.test.of_client(i)]) for i in range(CLIENTS)]
    owned = replace(rnd, fed=replace(fed, train=Split.of(joined)))
    again = Loss()(clients.at(owned), models, models[:1], ids, owned)
    torch.testing.assert_close(both, again)


def test_a_run_that_ends_in_the_warmup_is_remarked_on() -> None:
    algorithm: Any = configured("lcfl")
    assert "after 5 rounds of warm-up, and the run has 5; take rounds=6" in algorithm.remark(5)
    assert "with algorithm.warmup.rounds=4" in algorithm.remark(5)
    assert "algorithm.warmup" not in algorithm.remark(1), "there is no shorter one"
    assert algorithm.remark(6) == ""
    alone: Any = configured("lcfl", "algorithm.warmup.mode=local")
    assert alone.remark(1) == ""
    assert configured("last_local").remark(5) == algorithm.remark(5), "wrappers say what it says"
    assert configured("finetune").remark(5) == ""


@pytest.mark.parametrize(
    ("metric", "options"),
    [
        ("descriptor", ("cluster_metric.directions=2",)),
        ("grad_cosine", ()),
        ("loss", ("cluster_metric.landmarks=3",)),
        ("loss", ()),
    ],
)
def test_nobody_trains_for_a_metric_that_does_not_read_it(
    metric: str, options: tuple[str, ...]
) -> None:
    """Two rounds of warm-up with a quarter of the clients leave six or more that never trained."""
    fed = federation()
    rounds = rounds_of(fed, 3, participation=0.25)
    few = (f"cluster_metric={metric}", "algorithm.warmup.rounds=2", *options)
    algorithm: Any = configured("lcfl", *few)
    states, _ = simulate(algorithm, rounds[:2])
    missed = (~states[1].trained).nonzero().squeeze(1)
    assert len(missed) >= 6
    _, cost = algorithm._cluster(states[1], engine_for(fed).at(rounds[2]), rounds[2])
    read = missed[:0]
    if metric == "loss":
        read = missed
        if options:
            among = algorithm.metric.reads(torch.arange(CLIENTS), rounds[2])
            assert len(among) == 3
            read = missed[torch.isin(missed, among)]
    assert cost.gradient_steps == len(read) * STEPS
