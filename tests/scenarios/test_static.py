"""Nothing changes but the cohort."""

from __future__ import annotations

from itertools import islice

import pytest
from scenario_toys import federation

from fedclust.helpers.errors import ConfigError
from fedclust.scenarios.static import Static


def test_full_participation_is_everybody_in_every_round() -> None:
    rounds = list(islice(Static().rounds(federation(), 0), 3))
    assert [r.t for r in rounds] == [0, 1, 2]
    assert all(r.cohort.tolist() == list(range(20)) for r in rounds)
    assert all(bool(r.present.all()) for r in rounds)


@pytest.mark.parametrize(
    ("scenario", "size"),
    [
        (Static(participation=0.3), 6),
        (Static(participation=0.01), 1),
        (Static(clients_per_round=7), 7),
    ],
)
def test_cohorts_have_their_size_and_change(scenario: Static, size: int) -> None:
    cohorts = [r.cohort.tolist() for r in islice(scenario.rounds(federation(), 0), 12)]
    assert {len(c) for c in cohorts} == {size}
    assert len({tuple(c) for c in cohorts}) > 6


def test_clients_without_training_data_are_never_sampled() -> None:
    fed = federation(empty=(0, 7))
    for rnd in islice(Static(participation=0.5).rounds(fed, 3), 10):
        assert not {0, 7} & set(rnd.cohort.tolist())
        assert len(rnd.cohort) == 9
    assert next(Static().rounds(fed, 3)).cohort.tolist() == [
        i for i in range(20) if i not in (0, 7)
    ]


def test_a_cohort_larger_than_the_federation_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="clients_per_round=21"):
        Static(clients_per_round=21).rounds(federation(), 0)


def test_seeds_have_cohorts_of_their_own() -> None:
    first = [
        next(Static(participation=0.5).rounds(federation(), s)).cohort.tolist() for s in range(3)
    ]
    assert first[0] != first[1] != first[2]
