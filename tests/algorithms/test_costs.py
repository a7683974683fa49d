"""Models that methods send, by formula; N clients, K in each of T rounds, C clusters."""

from __future__ import annotations

import pytest
from digits_jobs import ALGORITHMS
from planted import CLIENTS, GROUPS, configured, engine_for, federation, rounds_of, simulate

from fedclust.config.about import about
from fedclust.core.types import Cost
from fedclust.core.verbs import Algorithm
from fedclust.engines.lockstep import Lockstep
from fedclust.runtime.simulation import Simulation

N, K, T, C = CLIENTS, CLIENTS // 2, 7, GROUPS
W = 5  # rounds of FedAvg before the one-shot methods cluster


def sent(reports: list[Cost]) -> int:
    return sum(report.models_down + report.models_up for report in reports)


@pytest.mark.thinned
@pytest.mark.parametrize("name", [name for name in ALGORITHMS if "sends" in about(name)])
def test_models_sent_without_shifts(name: str) -> None:
    fed = federation()
    _, reports = simulate(
        configured(name, "participation=0.5"), rounds_of(fed, T, participation=0.5)
    )
    formula = about(name)["sends"]
    assert sent(reports) == eval(str(formula), {"N": N, "K": K, "T": T, "C": C, "W": W})


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("name", "numbers", "losses", "gradients"),
    [
        ("fedavg", 0, 0, 0),
        ("local", 0, 0, 0),
        ("ditto", 0, 0, 0),
        ("finetune", 0, 0, 0),
        ("fesem", 0, 0, 0),
        ("fedem", 0, K * C * T, 0),
        ("fedsoft", N * C * 4, N * C * 4, 0),  # in rounds 0, 2, 4 and 6
        ("pacfl", 0, 0, 0),
        ("flexcfl", 0, 0, 0),  # all twelve clients form the groups, so nobody has to look for one
        ("ifca", K * T, K * C * T, 0),
        ("cfl_mgd", K * T, K * C * T, 0),
        ("clove", K * C * T, K * C * T, 0),
        ("lcfl", N * (N - 1), N**2, 0),
        ("diffnorm", 0, 0, 0),
        ("gradcos", 0, 0, N),
    ],
)
def test_numbers_sent_and_passes(name: str, numbers: int, losses: int, gradients: int) -> None:
    counted = played(configured(name, "participation=0.5"), 0.5)
    assert sum(report.scalars_up for report in counted) == numbers
    assert sum(report.forward_passes for report in counted) == losses
    assert sum(report.backward_passes for report in counted) == gradients


@pytest.mark.parametrize("averaging", ["model", "gradient"])
def test_momentum_goes_both_ways_and_only_where_there_is_any(averaging: str) -> None:
    option = f"algorithm.averaging={averaging}"
    both = played(configured("cfl_mgd", "participation=0.5", option), 0.5)
    assert sent(both) == K * (C + 3) * T
    at_rest = ("participation=0.5", option, "algorithm.solver.momentum=0")
    assert sent(played(configured("cfl_mgd", *at_rest), 0.5)) == K * (C + 1) * T
    assert sent(played(configured("ifca", "participation=0.5", option), 0.5)) == K * (C + 1) * T


def test_passes_of_variants() -> None:
    step = played(configured("ifca", "algorithm.averaging=gradient"))
    # each is also the client's one step
    assert sum(report.backward_passes for report in step) == N * T
    by_loss = played(configured("jgl", "algorithm.gradient_weight=0"))
    assert sum(report.forward_passes for report in by_loss) == N * C * T
    assert sum(report.backward_passes for report in by_loss) == N * T
    by_both = played(configured("jgl", "algorithm.gradient_weight=0.5"))
    assert sum(report.forward_passes for report in by_both) == N * C * T
    # but in the first round, clusters have a last step to compare with: refilling leaves none
    # without
    assert sum(report.backward_passes for report in by_both) == N * T + N * C * (T - 1)
    landmarks = played(configured("lcfl", "cluster_metric.landmarks=6"))
    assert sum(report.forward_passes for report in landmarks) == 6 * N
    assert sum(report.scalars_up for report in landmarks) == 6 * N
    spread = played(configured("ifca", "algorithm.start=kmeans++"))
    assert sum(report.forward_passes for report in spread) == N * (C - 1) + N * C * T
    assert sum(report.scalars_up for report in spread) == N * (C - 1) + N * T


def test_clients_that_look_for_a_group_say_which_they_found() -> None:
    counted = played(configured("flexcfl", "algorithm.cold_start.scale=2"))
    assert sum(report.scalars_up for report in counted) == N - 2 * C
    at_random = played(configured("flexcfl_rac", "algorithm.cold_start.scale=2"))
    assert sum(report.scalars_up for report in at_random) == 0


def played(algorithm: Algorithm, participation: float = 1.0) -> list[Cost]:
    """What T rounds cost, as a run records them; every round is tested, which costs nothing."""
    fed = federation()
    rounds = rounds_of(fed, T, participation=participation)
    simulation = Simulation(0, algorithm, Lockstep(engine_for(fed, algorithm).engine), iter(rounds))
    return [report for _ in rounds for report in simulation.step(evaluated=True).costs]
