"""Where the proximal term pulls to, the start or an anchor of each row, and with which weights."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from engine_toys import ENGINES, SOLVERS, labels, made, ragged_shards, starts, training
from torch import Tensor

from fedclust.core.calls import GradCall
from fedclust.core.verbs import Engine
from fedclust.engines.lockstep import Lockstep
from fedclust.helpers.errors import ConfigError
from fedclust.solver import Adam, Solver


def factors(engine: Engine) -> Tensor:
    """0, 0.5, 1, 1.5, … for one parameter after the other."""
    sizes = torch.tensor(engine.layout.sizes)
    return torch.arange(len(sizes)).mul(0.5).repeat_interleave(sizes)


def trained(engine: Engine, solver: Solver, anchor: Tensor | None) -> Tensor:
    params: Tensor = engine.answer(training(engine, ragged_shards(), solver, anchor=anchor)).params
    return params


def stepped(start: Tensor, step: Tensor) -> Tensor:
    """Where one step at rate 0.05 leads the rows of ragged shards, of which one has no example."""
    moves = ragged_shards().count.unsqueeze(1) > 0
    return torch.where(moves, start - 0.05 * step, start)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("solver", ["proximal", "everything"])
def test_the_start_as_anchor_changes_nothing(engine: str, solver: str) -> None:
    own = made(engine, "mlp")
    anchor = starts(own)[labels(len(ragged_shards()))]
    given, absent = trained(own, SOLVERS[solver], anchor), trained(own, SOLVERS[solver], None)
    if engine == "fused":  # adds the same terms one by one or together
        torch.testing.assert_close(given, absent, rtol=1e-5, atol=1e-6)
    else:
        assert torch.equal(given, absent)


@pytest.mark.parametrize("engine", ["vmap", "fused"])
@pytest.mark.parametrize("solver", ["proximal", "everything"])
def test_fast_engines_equal_the_loop(engine: str, solver: str) -> None:
    loop = made("loop", "mlp")
    anchor = starts(loop, 7)[:5] * 0.5  # a row each, none of them a start
    expected = trained(loop, SOLVERS[solver], anchor)
    assert float((expected - trained(loop, SOLVERS[solver], None)).abs().max()) > 1e-3
    torch.testing.assert_close(
        trained(made(engine, "mlp"), SOLVERS[solver], anchor), expected, rtol=1e-4, atol=2e-5
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
def test_one_step_by_hand(engine: str, weighted: bool) -> None:
    """w1 = w0 - lr * (g(w0) + mu * f * (w0 - a)), with f = 1 or one factor for each parameter."""
    own, shards = made(engine, "mlp"), ragged_shards()
    solver = Solver(lr=0.05, batch_size=None, proximal=0.7)
    anchor = (starts(own, 4)[3:] + 0.1).expand(len(shards), -1)
    pull = factors(own) if weighted else None
    if weighted:
        anchor = starts(own, 7)[: len(shards)] * 0.5
    call = training(own, shards, solver, anchor=anchor, pull=pull)
    start = call.models[call.label]
    step = own.answer(GradCall(call.models, call.label, shards))
    step = step + 0.7 * (1 if pull is None else pull) * (start - anchor)
    params = own.answer(call).params
    torch.testing.assert_close(params, stepped(start, step), rtol=1e-5, atol=1e-6)
    still = replace(call, solver=replace(solver, proximal=0.0))
    plain = own.answer(replace(still, anchor=None, pull=None)).params
    assert torch.equal(own.answer(still).params, plain)  # a factor of nothing


@pytest.mark.parametrize("engine", ENGINES)
def test_a_row_alone_meets_its_own_anchor(engine: str) -> None:
    own, shards = made(engine, "mlp"), ragged_shards()
    call = training(own, shards, SOLVERS["proximal"], anchor=starts(own, 5) * 0.5)
    together = own.answer(call).params
    for row in (0, 4):
        alone = own.answer(call.take(torch.tensor([row])))
        torch.testing.assert_close(alone.params[0], together[row], rtol=1e-5, atol=1e-6)


def test_seeds_in_lockstep_keep_their_anchors() -> None:
    own, shards = made("loop", "mlp"), ragged_shards()
    lockstep, solver = Lockstep(own), replace(SOLVERS["proximal"], epochs=1)
    start = starts(own)[labels(len(shards))]
    calls = [training(own, shards, solver, anchor=a) for a in (start * 0.5, start * 0.2, None)]
    found = lockstep.map({i: partial(lockstep.answer, call) for i, call in enumerate(calls)})
    for i, call in enumerate(calls):
        assert torch.equal(found[i].outcome.params, own.answer(call).params)  # type: ignore[union-attr]


@pytest.mark.thinned
@pytest.mark.parametrize("each_step", [False, True])
@pytest.mark.parametrize("own_anchor", [False, True])
@pytest.mark.parametrize("solver", ["proximal", "everything", "adam"])
@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_own_weights_are_the_same_on_every_path(
    model: str, solver: str, own_anchor: bool, each_step: bool
) -> None:
    """In compiled code, in the span of the examples and layer by layer."""
    adam = Adam(lr=0.05, batch_size=5, epochs=2, proximal=1.0)
    shards, loop = ragged_shards(), made("loop", model)
    more = {
        "anchor": starts(loop, 7)[: len(shards)] * 0.5 if own_anchor else None,
        "linear": torch.full((len(shards), loop.layout.num_params), 0.01),
    }
    call = training(loop, shards, SOLVERS.get(solver, adam), pull=factors(loop), **more)
    call = replace(call, each_step=each_step)
    wanted = loop.answer(call).params
    assert float((wanted - loop.answer(replace(call, pull=None)).params).abs().max()) > 1e-4
    atol = 2e-3 if solver == "adam" else 2e-5  # adam divides what is nearly 0 by what is nearly 0
    for fast in ("vmap", "fused"):
        found = made(fast, model).answer(call).params
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=atol)


def test_calls_with_other_weights_are_computed_apart() -> None:
    own = made("fused", "mlp")
    call = training(own, ragged_shards(), SOLVERS["proximal"], pull=factors(own))
    other = replace(call, pull=factors(own) + 1)
    assert len({call.kind, other.kind, replace(call, pull=None).kind}) == 3
    # the room of the one is not that of the other
    first, second = own.answer(call).params, own.answer(other).params
    assert not torch.allclose(first, second, atol=1e-4)
    assert torch.equal(own.answer(call).params, first)
    expected = made("loop", "mlp").answer(other).params
    torch.testing.assert_close(second, expected, rtol=1e-4, atol=2e-5)
    half = factors(own)
    half[0] = 2
    with pytest.raises(ConfigError, match=r"pull differs within the parameter 1\.weight"):
        own.answer(replace(call, pull=half))
