"""FedBuff: it is FedAvg where all devices are alike; the order of arrivals and their weights by
hand.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from digits_jobs import config_of
from planted import configured, copied, engine_for, federation, rounds_of, same, simulate
from run_folders import assert_pieces_make_the_whole
from test_timing import devices, seconds, timed

from fedclust.algorithms.fedbuff import FedBuff
from fedclust.algorithms.parts.arrivals import Order
from fedclust.core.clock import Pace
from fedclust.core.front import Train
from fedclust.engines.loop import LoopEngine


@pytest.mark.thinned
@pytest.mark.parametrize("participation", [1.0, 0.5, 0.25])
@pytest.mark.parametrize("aggregation", ["by_samples", "uniform"])
def test_with_equal_devices_and_a_buffer_of_the_cohort_it_is_fedavg(
    participation: float, aggregation: str
) -> None:
    rounds = rounds_of(federation(equal=False), participation=participation)
    key = f"common.aggregation={aggregation}"
    plain, _ = simulate(configured("fedavg", key), rounds, kind=LoopEngine)
    states, costs = simulate(configured("fedbuff", key), rounds, kind=LoopEngine)
    for one, other in zip(plain, states, strict=True):
        torch.testing.assert_close(one.model, other.models, atol=1e-6, rtol=0)
    cohort = len(rounds[0].cohort)
    assert [(cost.models_down, cost.models_up) for cost in costs[1:]] == [(cohort, cohort)] * 7
    assert states[-1].made.tolist() == [7]


def test_equal_devices_last_as_fedavg() -> None:
    rounds = rounds_of(federation(), participation=0.5)
    own = devices(7.0, down=100.0, up=50.0)
    states, costs = simulate(timed("fedbuff", own), rounds)
    plain, others = simulate(timed("fedavg", own), rounds)
    assert seconds(costs) == pytest.approx(seconds(others))
    torch.testing.assert_close(states[-1].models, plain[-1].model, atol=1e-6, rtol=0)


def order_of(busy: list[float], count: int, *, at_once: int, rnd: Any, now: float = 0.0) -> Order:
    """Who arrives first, of clients that are busy for so many seconds."""
    pace = Pace(devices=devices(1.0), now=now, busy=torch.tensor(busy).double())
    order = Order([], now)
    order.run(count, at_once, replace(rnd, pace=pace))
    return order


def test_the_order_of_arrivals_by_hand() -> None:
    """Three train at once. The round draws clients in the order of `drawn`."""
    rnd = rounds_of(federation(), 1)[0]
    keys = rnd.stream("cohort").keys(torch.arange(12)) >> 1
    drawn = keys.argsort(stable=True).tolist()
    a, b, c, d, e = drawn[:5]
    busy = [100.0] * 12
    for client, time in zip((a, b, c, d, e), (4.0, 1.0, 9.0, 2.0, 50.0), strict=True):
        busy[client] = time
    order = order_of(busy, 3, at_once=3, rnd=rnd)
    # b at 1, then d begins and arrives at 3, then e begins; a at 4, and nobody begins any more
    assert [(one.client, one.done) for one in order.arrivals] == [(b, 1), (d, 3), (a, 4)]
    assert [(one.client, one.done) for one in order.training] == [(c, 9), (e, 53)]
    assert (order.now, order.num_begun) == (4, 5)
    begun = [[one.client for one in moment.begun] for moment in order.moments]
    assert begun == [sorted([a, b, c]), [d], [e]]
    assert sorted(one.place for one in (*order.arrivals, *order.training)) == [0, 1, 2, 3, 4]


def test_what_arrives_together_is_received_before_anything_is_sent() -> None:
    rnd = rounds_of(federation(), 1)[0]
    order = order_of([2.0] * 12, 4, at_once=4, rnd=rnd, now=5.0)
    assert (order.now, order.num_begun, order.training) == (7, 4, [])


def test_a_client_that_drops_out_does_not_begin() -> None:
    rnd = rounds_of(federation(), 1)[0]
    some = torch.arange(12) < 10
    order = order_of([2.0] * 12, 4, at_once=4, rnd=replace(rnd, dropped=some))
    assert {one.client for one in order.arrivals} == {10, 11}
    everybody = replace(rnd, dropped=some | True)
    assert (
        len({one.client for one in order_of([1.0] * 12, 2, at_once=2, rnd=everybody).arrivals}) > 0
    )


def test_a_stale_update_counts_less() -> None:
    """By hand: half of the update of a client that is three models behind."""
    method = FedBuff(solver=configured("fedavg").solver, aggregation="uniform", buffer=2)
    rnd = rounds_of(federation(), 1)[0]
    clients = engine_for(rnd.fed).at(rnd)
    old, new = clients.init(rnd.stream("init"), 2).split(1)
    ids = torch.tensor([3, 7])
    start = torch.cat([old, new])
    local = clients.train(Train(start, torch.arange(2), ids, method.solver))
    stale = torch.tensor([3.0, 0.0])
    label = torch.zeros_like(ids)
    found, cost = method.updated(new, local, start, stale, label, ids, clients)
    want = new + ((local.params[0] - old) / 2 + local.params[1] - new) / 2
    torch.testing.assert_close(found, want)
    assert cost.gradient_steps == 8


def test_staleness_is_counted_in_models() -> None:
    """One slow client: it has begun from the first model, and arrives behind all others."""
    speed = torch.full((12,), 48.0)
    speed[0] = 48 / 4.5
    seen = list[tuple[list[int], list[float]]]()

    class Watched(FedBuff):
        def updated(self, *given: Any) -> Any:
            seen.append((given[5].tolist(), given[3].tolist()))
            return super().updated(*given)

    method = Watched(solver=configured("fedavg").solver, buffer=11)
    whole = replace(timed("fedbuff", devices(speed)), base=method)
    simulate(whole, rounds_of(federation(), 5))
    assert [ids for ids, _ in seen[:4]] == [list(range(1, 12))] * 4
    assert [set(stale) for _, stale in seen[:4]] == [{0.0}] * 4
    assert (seen[4][0][0], seen[4][1][0]) == (0, 4.0)  # at 4.5 seconds, before those of second 5


def test_it_continues_from_a_file() -> None:
    own = devices(torch.arange(1, 13).double())
    rounds = rounds_of(federation(), participation=0.5)
    states, _ = simulate(timed("fedbuff", own), rounds)
    rest, _ = simulate(timed("fedbuff", own), rounds[-1:], copied(states[-2]))
    assert same(rest[-1], states[-1])
    assert len(states[-1].training) == 5  # one has arrived last, and nobody has begun since


@pytest.mark.full
@pytest.mark.parametrize("algorithm", ["fedbuff", "fedasync"])
def test_an_interrupted_run_ends_with_the_same_bits(algorithm: str, tmp_path: Path) -> None:
    config = config_of(algorithm, "clock=devices", "clock.speed_spread=1", "compression=top_k")
    assert_pieces_make_the_whole(config, tmp_path)
