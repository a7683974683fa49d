"""Models that begin alike are refused where nothing else tells clusters apart, and only there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from planted import ALGORITHMS, configured, engine_for, federation, rounds_of

from fedclust.algorithms.parts.apart import check_apart
from fedclust.engines.fused import FusedEngine
from fedclust.helpers.errors import ConfigError
from fedclust.helpers.rng import Stream

REFUSED = (
    *("cfl_mgd", "fedem", "fedrc", "fesem", "fesem_mig", "ifca", "ifca_flex", "ifca_mig"),
    *("ifca_fedasync", "ifca_fedbuff"),
)


class OneFile(FusedEngine):
    """All models begin with the same numbers, as with `weights`."""

    def init(self, stream: Stream) -> torch.Tensor:
        return super().init(Stream.of(5, "file"))


class Adapted(FusedEngine):
    """All say the same, though not of the same numbers, as with `weights` and `lora`: what the
    logits get of one feature that is 0 everywhere differs.
    """

    def init(self, stream: Stream) -> torch.Tensor:
        row = super().init(Stream.of(5, "file"))
        row[0] = super().init(stream)[0]
        return row


def ended(name: str, *overrides: str) -> int:
    """How many models are in use after three rounds from equal ones."""
    fed = federation()
    method: Any = configured(name, *overrides)
    clients, state = engine_for(fed, method, OneFile), None
    for rnd in rounds_of(fed, 3):
        if state is None:
            state, _ = method.init(clients.at(rnd), rnd)
        state, _ = method.round(state, clients.at(rnd), rnd)
    served = method.serve(state, clients.at(rnd), rnd)
    return len(served.label.unique())


@pytest.mark.thinned
@pytest.mark.parametrize("name", ALGORITHMS)
def test_equal_starts_are_refused_or_do_no_harm(name: str) -> None:
    if getattr(configured(name), "num_clusters", 1) == 1:
        assert name not in REFUSED
        return
    if name in REFUSED:
        with pytest.raises(ConfigError, match="the 3 models of the clusters begin alike"):
            ended(name)
        ended(name, "num_clusters=1")  # one model needs no other
        return
    assert ended(name) > 1


@pytest.mark.parametrize(
    ("name", "offer"),
    [
        ("ifca", "algorithm.start=kmeans++"),
        ("cfl_mgd", "algorithm.start=kmeans++"),
        ("fesem", "algorithm.first_assignment=kmeans_pretrained"),
    ],
)
def test_what_is_offered_helps(name: str, offer: str) -> None:
    assert ended(name, offer) > 1


def test_shared_models_are_as_asked_for() -> None:
    assert ended("ifca", "algorithm.start=shared") < 3


@pytest.mark.parametrize("asked", ["null", "0.3"])
def test_equal_losses_of_other_numbers(asked: str) -> None:
    """Told before round 0 where models are drawn again, else when the first losses are there."""
    fed = federation()
    fed.pool.x[:, 0] = 0
    rnd = rounds_of(fed, 1)[0]
    method: Any = configured("ifca", f"algorithm.restart_fraction={asked}")
    clients = engine_for(fed, method, Adapted).at(rnd)
    offered = r"take algorithm\.start=kmeans\+\+, or weights="
    if asked == "null":
        state, _ = method.init(clients, rnd)
        with pytest.raises(ConfigError, match=offered):
            method.round(state, clients, rnd)
    else:
        with pytest.raises(ConfigError, match=offered):
            method.init(clients, rnd)


def test_alike_is_up_to_rounding() -> None:
    rows = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
    check_apart(rows[:1])
    check_apart(rows + torch.tensor([[0.0, 0.0], [0.0, 1e-3]]))
    check_apart(torch.cat([rows, rows + 1]))  # two of four differ
    check_apart(1e-3 * (rows + torch.tensor([[0.0, 0.0], [0.0, 1e-3]])))  # of the numbers' size
    for apart in (0.0, 1e-6):
        with pytest.raises(ConfigError, match="begin alike"):
            check_apart(rows + torch.tensor([[0.0, 0.0], [0.0, apart]]))
