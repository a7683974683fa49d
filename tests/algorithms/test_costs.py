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
    _, reports = simulate(
        configured(name, "participation=0.5"), rounds_of(federation(), T, participation=0.5)
    )
    formula = about(name)["sends"]
    assert sent(reports) == eval(str(formula), {"N": N, "K": K, "T": T, "C": C, "W": W})


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("name", "numbers", "losses", "gradients"),
    [
        *((name, 0, 0, 0) for name in ("fedavg", "local", "ditto", "finetune", "fesem", "pacfl")),
        ("fedem", 0, K * C * T, 0),
        ("fedsoft", N * C * 4, N * C * 4, 0),  # in rounds 0, 2, 4 and 6
        ("flexcfl", 0, 0, 0),  # all twelve clients form the groups, so nobody has to look for one
        *((name, K * T, K * C * T, 0) for name in ("ifca", "cfl_mgd")),
        ("clove", K * C * T, K * C * T, 0),
        ("lcfl", N * (N - 1), N**2, 0),
        ("diffnorm", 0, 0, 0),
        ("gradcos", 0, 0, N),
    ],
)
def test_numbers_sent_and_passes(name: str, numbers: int, losses: int, gradients: int) -> None:
    counted = played(configured(name, "participation=0.5"), 0.5)
    for passed, number in (
        *(("scalars_up", numbers), ("forward_passes", losses), ("backward_passes", gradients)),
    ):
        assert sum(getattr(report, passed) for report in counted) == number


@pytest.mark.full
@pytest.mark.parametrize("averaging", ["model", "gradient"])
def test_momentum_goes_both_ways_and_only_where_there_is_any(averaging: str) -> None:
    option = f"algorithm.averaging={averaging}"
    both = played(configured("cfl_mgd", "participation=0.5", option), 0.5)
    assert sent(both) == K * (C + 3) * T
    at_rest = ("participation=0.5", option, "algorithm.solver.momentum=0")
    assert sent(played(configured("cfl_mgd", *at_rest), 0.5)) == K * (C + 1) * T
    assert sent(played(configured("ifca", "participation=0.5", option), 0.5)) == K * (C + 1) * T


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("method", "counts"),
    [
        # each is also the client's one step
        ("ifca algorithm.averaging=gradient", {"backward_passes": N * T}),
        (
            "jgl algorithm.gradient_weight=0",
            {"forward_passes": N * C * T, "backward_passes": N * T},
        ),
        # but in the first round, clusters have a last step to compare with: refilling leaves none
        # without
        (
            "jgl algorithm.gradient_weight=0.5",
            {"forward_passes": N * C * T, "backward_passes": N * T + N * C * (T - 1)},
        ),
        ("lcfl cluster_metric.landmarks=6", {"forward_passes": 6 * N, "scalars_up": 6 * N}),
        (
            "ifca algorithm.start=kmeans++",
            {
                "forward_passes": N * (C - 1) + N * C * T,
                "scalars_up": N * (C - 1) + N * T,
            },
        ),
        ("flexcfl algorithm.cold_start.scale=2", {"scalars_up": N - 2 * C}),
        ("flexcfl_rac algorithm.cold_start.scale=2", {"scalars_up": 0}),
    ],
)
def test_passes_of_variants(method: str, counts: dict[str, int]) -> None:
    reports = played(configured(*method.split()))
    assert {key: sum(getattr(one, key) for one in reports) for key in counts} == counts


def played(algorithm: Algorithm, participation: float = 1.0) -> list[Cost]:
    """What T rounds cost, as a run records them; every round is tested, which costs nothing."""
    fed = federation()
    rounds = rounds_of(fed, T, participation=participation)
    simulation = Simulation(0, algorithm, Lockstep(engine_for(fed, algorithm).engine), iter(rounds))
    return [report for _ in rounds for report in simulation.step(evaluated=True).costs]
