"""FedAsync: weights of stale models, mixing in the order of arrivals, and what it equals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from planted import configured, engine_for, federation, rounds_of, simulate
from test_timing import devices, seconds, timed

from fedclust.algorithms.fedasync import FedAsync
from fedclust.core.front import Train
from fedclust.core.types import Round

SOLVER = configured("fedavg").solver
STALE = torch.tensor([0.0, 3.0, 4.0, 6.0])


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({"staleness": "constant"}, [0.5, 0.5, 0.5, 0.5]),
        ({"staleness": "polynomial", "a": 0.5}, [0.5, 0.25, 0.5 / 5**0.5, 0.5 / 7**0.5]),
        ({"staleness": "hinge", "a": 2.0, "b": 3.0}, [0.5, 0.5, 0.5 / 3, 0.5 / 7]),
    ],
)
def test_weights_by_hand(options: dict[str, Any], want: list[float]) -> None:
    method = FedAsync(solver=SOLVER, alpha=0.5, **options)
    assert method.share(STALE).tolist() == pytest.approx(want)


def trained(model: torch.Tensor, client: int, rnd: Round) -> torch.Tensor:
    """What a client makes of a model in a round, by itself."""
    clients, ids = engine_for(rnd.fed).at(rnd), torch.tensor([client])
    return clients.train(Train(model, torch.zeros_like(ids), ids, SOLVER)).params


def test_a_client_at_a_time_with_all_the_weight_is_fedavg() -> None:
    rounds = rounds_of(federation(), participation=1 / 12)
    method = FedAsync(solver=SOLVER, alpha=1.0, staleness="constant")
    states, _ = simulate(method, rounds)
    plain, _ = simulate(configured("fedavg"), rounds)
    for one, other in zip(plain, states, strict=True):
        torch.testing.assert_close(one.model, other.models, atol=1e-6, rtol=0)


def test_two_rounds_by_hand() -> None:
    """Two of twelve train at once, and the first round ends when the second has arrived."""
    rounds = rounds_of(federation(), 2, participation=1 / 6)
    speed = torch.full((12,), 4.8)  # ten seconds
    a, b = rounds[0].cohort.tolist()
    keys = rounds[0].stream("cohort").keys(torch.arange(12)) >> 1
    third = keys.argsort(stable=True).tolist()[2]
    speed[[a, third]] = 48.0  # one second
    method = timed("fedasync", devices(speed))
    states, costs = simulate(method, rounds[:1])
    first = states[0]
    # a after one second, then the third begins from the new model and is done at two
    start = engine_for(rounds[0].fed).at(rounds[0]).init(rounds[0].stream("init"), 1)
    once = 0.4 * start + 0.6 * trained(start, a, rounds[0])
    twice = 0.4 * once + 0.6 * trained(once, third, rounds[0])
    torch.testing.assert_close(first.models, twice, atol=1e-6, rtol=0)
    assert (first.made.tolist(), first.now, first.training.tolist()) == ([2], 2, [b])
    assert seconds(costs) == pytest.approx([2])
    assert (costs[1].models_down, costs[1].models_up) == (3, 2)
    # b, which began from the first model, is stale by how many have been made since
    states, _ = simulate(method, rounds[1:], first)
    assert states[-1].made.tolist() == [4]
    assert b not in states[-1].training.tolist() or states[-1].now < 10
