"""Where the proximal term pulls to: the start, or an anchor of each row; and each parameter with a
weight of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from engine_toys import SOLVERS, labels, ragged_shards, row_of, shape_of, shipped, starts, toy_pool
from torch import Tensor

from fedclust.core.calls import GradCall, TrainCall
from fedclust.core.types import Pool
from fedclust.core.verbs import Engine
from fedclust.engines.fused import FusedEngine
from fedclust.engines.lockstep import Lockstep
from fedclust.engines.loop import LoopEngine
from fedclust.engines.vmap import VmapEngine
from fedclust.helpers.errors import ConfigError
from fedclust.models.sequence import Model
from fedclust.solver import Adam, Solver

ENGINES: dict[str, Callable[[Model, Pool], Engine]] = {
    "loop": LoopEngine,
    "vmap": VmapEngine,
    "fused": FusedEngine,
}


def made(kind: str, model: str = "mlp") -> Engine:
    return ENGINES[kind](shipped(model), toy_pool(shape_of(model)))


def factors(engine: Engine) -> Tensor:
    """0, 0.5, 1, 1.5, … for one parameter after the other."""
    sizes = torch.tensor(engine.layout.sizes)
    return torch.arange(len(sizes)).mul(0.5).repeat_interleave(sizes)


def trained(engine: Engine, solver: Solver, anchor: Tensor | None) -> Tensor:
    shards = ragged_shards()
    return engine.answer(
        TrainCall(starts(engine), labels(len(shards)), shards, solver, 0.05, anchor=anchor)
    ).params


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("solver", ["proximal", "everything"])
def test_the_start_as_anchor_changes_nothing(engine: str, solver: str) -> None:
    own = made(engine)
    models = starts(own)
    anchor = models[labels(len(ragged_shards()))]
    given, absent = trained(own, SOLVERS[solver], anchor), trained(own, SOLVERS[solver], None)
    if engine == "fused":  # adds the same terms one by one or together
        torch.testing.assert_close(given, absent, rtol=1e-5, atol=1e-6)
    else:
        assert torch.equal(given, absent)


@pytest.mark.parametrize("engine", ["vmap", "fused"])
@pytest.mark.parametrize("solver", ["proximal", "everything"])
def test_fast_engines_equal_the_loop(engine: str, solver: str) -> None:
    loop = made("loop")
    anchor = starts(loop, 7)[:5] * 0.5  # a row each, none of them a start
    expected = trained(loop, SOLVERS[solver], anchor)
    assert float((expected - trained(loop, SOLVERS[solver], None)).abs().max()) > 1e-3
    torch.testing.assert_close(
        trained(made(engine), SOLVERS[solver], anchor), expected, rtol=1e-4, atol=2e-5
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_one_step_by_hand(engine: str) -> None:
    """w1 = w0 - lr * (g(w0) + mu * (w0 - a)), with an anchor that is a view of one row for all."""
    own, shards, solver = (
        made(engine),
        ragged_shards(),
        Solver(lr=0.05, batch_size=None, proximal=0.7),
    )
    models, label = starts(own), labels(len(shards))
    anchor = (starts(own, 4)[3:] + 0.1).expand(len(shards), -1)
    start = models[label]
    step = own.answer(GradCall(models, label, shards)) + 0.7 * (start - anchor)
    expected = torch.where(shards.count.unsqueeze(1) > 0, start - 0.05 * step, start)
    got = own.answer(TrainCall(models, label, shards, solver, 0.05, anchor=anchor)).params
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_row_alone_meets_its_own_anchor(engine: str) -> None:
    own, shards, solver = made(engine), ragged_shards(), SOLVERS["proximal"]
    models, label, anchor = starts(own), labels(len(shards)), starts(own, 5) * 0.5
    together = own.answer(TrainCall(models, label, shards, solver, 0.05, anchor=anchor)).params
    for row in (0, 4):
        alone = own.answer(
            TrainCall(
                models,
                label[row : row + 1],
                row_of(shards, row),
                solver,
                0.05,
                anchor=anchor[row : row + 1],
            )
        )
        torch.testing.assert_close(alone.params[0], together[row], rtol=1e-5, atol=1e-6)


def test_seeds_in_lockstep_keep_their_anchors() -> None:
    own, shards = made("loop"), ragged_shards()
    lockstep, solver = Lockstep(own), replace(SOLVERS["proximal"], epochs=1)
    models, label = starts(own), labels(len(shards))
    anchors: dict[int, Tensor | None] = {0: models[label] * 0.5, 1: models[label] * 0.2, 2: None}

    def work(seed: int) -> Tensor:
        return lockstep.answer(
            TrainCall(models, label, shards, solver, 0.05, anchor=anchors[seed])
        ).params

    found = lockstep.map({seed: lambda seed=seed: work(seed) for seed in anchors})  # type: ignore[misc]
    for seed, anchor in anchors.items():
        alone = own.answer(TrainCall(models, label, shards, solver, 0.05, anchor=anchor)).params
        assert torch.equal(found[seed].outcome, alone)  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_step_with_a_weight_for_every_parameter_by_hand(engine: str) -> None:
    """w1 = w0 - lr * (g(w0) + mu * f * (w0 - a)), where a may be what the row started from."""
    own, shards = made(engine), ragged_shards()
    solver = Solver(lr=0.05, batch_size=None, proximal=0.7)
    models, label, pull = starts(own), labels(len(shards)), factors(made(engine))
    start, anchor = models[label], starts(own, 7)[: len(shards)] * 0.5
    step = own.answer(GradCall(models, label, shards)) + 0.7 * pull * (start - anchor)
    expected = torch.where(shards.count.unsqueeze(1) > 0, start - 0.05 * step, start)
    call = TrainCall(models, label, shards, solver, 0.05, anchor=anchor, pull=pull)
    torch.testing.assert_close(own.answer(call).params, expected, rtol=1e-5, atol=1e-6)
    still = replace(call, solver=replace(solver, proximal=0.0))
    plain = own.answer(replace(still, anchor=None, pull=None)).params
    assert torch.equal(own.answer(still).params, plain)  # a factor of nothing


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
    how, shards = SOLVERS.get(solver, adam), ragged_shards()
    loop = made("loop", model)
    call = TrainCall(
        starts(loop),
        labels(len(shards)),
        shards,
        how,
        0.05,
        anchor=starts(loop, 7)[: len(shards)] * 0.5 if own_anchor else None,
        linear=torch.full((len(shards), loop.layout.num_params), 0.01),
        pull=factors(loop),
        each_step=each_step,
    )
    wanted = loop.answer(call).params
    assert float((wanted - loop.answer(replace(call, pull=None)).params).abs().max()) > 1e-4
    for fast in ("vmap", "fused"):
        found = made(fast, model).answer(call).params
        # adam divides what is nearly 0 by what is nearly 0
        torch.testing.assert_close(
            found, wanted, rtol=1e-4, atol=2e-3 if solver == "adam" else 2e-5
        )


def test_calls_with_other_weights_are_computed_apart() -> None:
    own, shards, solver = made("fused"), ragged_shards(), SOLVERS["proximal"]
    call = TrainCall(starts(own), labels(len(shards)), shards, solver, 0.05, pull=factors(own))
    other = replace(call, pull=factors(own) + 1)
    kinds = {call.kind, other.kind, replace(call, pull=None).kind}
    assert len(kinds) == 3
    # the room of the one is not that of the other
    first, second = own.answer(call).params, own.answer(other).params
    assert not torch.allclose(first, second, atol=1e-4)
    assert torch.equal(own.answer(call).params, first)
    torch.testing.assert_close(second, made("loop").answer(other).params, rtol=1e-4, atol=2e-5)
    half = factors(own)
    half[0] = 2
    with pytest.raises(ConfigError, match=r"pull differs within the parameter 1\.weight"):
        own.answer(replace(call, pull=half))
