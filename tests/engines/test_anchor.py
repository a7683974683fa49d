"""Where the proximal term pulls to: the start, or an anchor of each row."""

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
from fedclust.models.sequence import Model
from fedclust.solver import Solver

ENGINES: dict[str, Callable[[Model, Pool], Engine]] = {
    "loop": LoopEngine,
    "vmap": VmapEngine,
    "fused": FusedEngine,
}


def made(kind: str) -> Engine:
    return ENGINES[kind](shipped("mlp"), toy_pool(shape_of("mlp")))


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
