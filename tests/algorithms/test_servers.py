"""Steps of the server by hand, what they are the same as, and where their memory goes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from digits_jobs import config_of
from planted import (
    ALGORITHMS,
    configured,
    copied,
    federation,
    rounds_of,
    same,
    simulate,
)

from fedclust.algorithms.layers.with_server import WithServer
from fedclust.config.build import build
from fedclust.core.server import Server, digests
from fedclust.core.traits import check_averages, traits_of
from fedclust.core.verbs import Method
from fedclust.helpers.errors import ConfigError
from fedclust.runtime.contract import fields_of
from fedclust.updates.servers import SGD, Adagrad, Adam, Yogi


def walked(step: Any, moves: list[float], start: float = 0.0) -> list[float]:
    """Where a model of one number is after every round, whose updates are `moves`."""
    at, memory, found = torch.tensor([[start]]), None, list[float]()
    for move in moves:
        if memory is None:
            memory = torch.tensor(step.first).view(1, -1, 1)
        at, memory = step(at, at + move, memory)
        found.append(float(at))
    return found


@pytest.mark.parametrize(
    ("step", "first"),
    [
        (Adam(rate=0.1), 0.0980202),
        (Yogi(rate=0.1, beta_1=0.9), 0.0980200),
        (Adagrad(rate=0.1), 0.0998002),
        (SGD(rate=0.1, momentum=0.9), 0.05),
    ],
)
def test_first_step_along_one_half(step: Any, first: float) -> None:
    assert walked(step, [0.5])[0] == pytest.approx(first, abs=2e-7)


def test_two_steps_by_hand() -> None:
    # Adam: m = 0.05, 0.045 - 0.1; v = 1e-6 * 0.99 + 0.01 * 0.25, then 0.99 v + 0.01
    v = 0.99e-6 + 0.0025
    one = 0.1 * 0.05 / (v**0.5 + 1e-3)
    two = one - 0.1 * 0.055 / ((0.99 * v + 0.01) ** 0.5 + 1e-3)
    assert walked(Adam(), [0.5, -1.0]) == pytest.approx([one, two], abs=1e-6)
    # Yogi: v falls by a part of a square that is smaller than it
    v = 1e-6 + 0.01 * 0.25
    m = 0.9 * 0.05 + 0.1 * 0.01
    one = 0.05 / (v**0.5 + 1e-3)
    two = one + m / ((v - 0.01 * 1e-4) ** 0.5 + 1e-3)
    assert walked(Yogi(rate=1.0), [0.5, 0.01]) == pytest.approx([one, two], abs=1e-5)
    # Adagrad adds squares up
    assert walked(Adagrad(rate=1.0), [3.0, 4.0])[1] == pytest.approx(
        3 / 3.001 + 4 / 5.001, abs=1e-5
    )
    # momentum: 1, then 0.5 + 2
    assert walked(SGD(momentum=0.5), [1.0, 2.0], start=3.0) == [4.0, 6.5]


def test_without_an_update_yogi_keeps_what_adam_forgets() -> None:
    model, memory = torch.zeros(1, 1), torch.tensor([[[0.0], [4.0]]])
    assert Yogi()(model, model, memory)[1].flatten().tolist() == [0.0, 4.0]
    assert Adam()(model, model, memory)[1].flatten().tolist() == pytest.approx([0.0, 3.96])


def test_a_cluster_without_participants_keeps_model_and_memory() -> None:
    server = Server(step=SGD(momentum=0.5))
    models, means = torch.tensor([[0.0], [5.0]]), torch.tensor([[1.0], [6.0]])
    first = server.stepped(models, means, torch.tensor([0, 1, 1]))
    assert first.tolist() == [[1.0], [6.0]]
    second = server.stepped(first, first + 1, torch.tensor([1]))
    assert second.tolist() == [[1.0], [7.5]]
    third = server.stepped(second, second + 1, torch.tensor([0, 1]))
    assert third.tolist() == [[2.5], [7.5 + 1 + 0.5 * 1.5]]


def test_halves_of_a_cluster_inherit_and_a_new_model_begins_anew() -> None:
    server = Server(step=SGD(momentum=0.5))
    (one,) = server.stepped(torch.zeros(1, 1), torch.ones(1, 1), torch.tensor([0]))
    halves = torch.stack([one, one, one + 7])  # the last one nobody has made
    after = server.stepped(halves, halves + 2, torch.tensor([0, 1, 2]))
    assert after.tolist() == [[3.5], [3.5], [10.0]]
    moved = server.passed_on(after, after * 2)
    assert server.stepped(moved, moved, torch.tensor([0, 1, 2])).tolist() == [
        [8.25],
        [8.25],
        [21.0],
    ]
    assert set(server.memories(after)) == set(digests(after))


def test_a_method_of_ones_own_is_told_how_it_says_that_it_averages() -> None:
    @dataclass(frozen=True)
    class Mine(Method):
        pass

    with pytest.raises(ConfigError, match=r"'; if it does, it says so by an option aggregation$"):
        check_averages("server", "adam", Mine(), "mine")
    with pytest.raises(ConfigError, match=r"by means of the participants'$"):
        check_averages("server", "adam", configured("scaffold"), "scaffold")


@pytest.mark.thinned
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_method_that_averages_takes_the_servers_steps(name: str) -> None:
    fed, base = federation(), configured(name, "participation=0.5")
    kind = type(base).__name__
    if not traits_of(base).averages:
        said = f"server=adam is not allowed: mean, since {kind} does not replace models"
        with pytest.raises(ConfigError, match=said):
            WithServer(base=base, server=Adam())
        return
    if traits_of(base).moments:
        with pytest.raises(ConfigError, match=r"server=adam is not .* has a server of its own"):
            WithServer(base=base, server=Adam())
        return
    rounds = rounds_of(fed, participation=0.5)
    plain, costs = simulate(base, rounds)
    # one whole step without momentum is the method itself, to the bit
    at_rest, others = simulate(WithServer(base=base, server=SGD(momentum=0.0)), rounds)
    for one, other in zip(plain, at_rest, strict=True):
        kept = fields_of(other)
        assert same(one, type(one)(**{name: kept[name] for name in fields_of(one)}))
    assert repr(costs) == repr(others)
    # with momentum the memory is used, it continues from a file, and the state before is left alone
    method = WithServer(base=base, server=SGD(momentum=0.5))
    whole, _ = simulate(method, rounds)
    assert not same(whole[-1], at_rest[-1])
    rest, _ = simulate(method, rounds[-1:], copied(whole[-2]))
    assert same(rest[-1], whole[-1])
    forgotten = replace(whole[-2], server_memory=0 * whole[-2].server_memory)
    others, _ = simulate(method, rounds[-1:], forgotten)
    assert not same(others[-1], whole[-1])
    # nothing is remembered of models that are gone
    width = whole[-1].server_memory.shape[2]
    rows = [v for v in fields_of(whole[-1]).values() if getattr(v, "ndim", 0) == 2]
    keys = {key for found in rows if found.shape[1] == width for key in digests(found)}
    assert {bytes(row.tolist()) for row in whole[-1].server_models} <= keys


def test_gradient_averaging_has_no_mean_of_models() -> None:
    config = config_of("ifca", "algorithm.averaging=gradient", "server=yogi", "solver.momentum=0")
    said = "server=yogi is not allowed: mean, since algorithm=ifca does not"
    with pytest.raises(ConfigError, match=said):
        build(config | {"choices": {"algorithm": "ifca", "server": "yogi"}})


def test_the_key_makes_the_server_of_any_method() -> None:
    plain = build(config_of("ifca")).algorithm
    job = build(config_of("ifca", "server=yogi", "server.rate=0.5"))
    assert job.algorithm == WithServer(base=plain, server=Yogi(rate=0.5))
    assert not isinstance(plain, WithServer)
