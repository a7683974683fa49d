"""Residual networks in the general engines."""

from __future__ import annotations

import pytest
import torch
from engine_toys import (
    RESNETS,
    SOLVERS,
    labels,
    ragged_shards,
    residual,
    shape_of,
    starts,
    toy_pool,
)

from fedclust.core.calls import GradCall, LossCall, TestCall, TrainCall
from fedclust.engines import make_engine
from fedclust.engines.fused.native import convolution
from fedclust.engines.loop import LoopEngine
from fedclust.helpers.errors import ConfigError

SHAPE = shape_of(RESNETS[0])


@pytest.mark.full
@pytest.mark.parametrize("engine", ["vmap", "fused"])
@pytest.mark.parametrize("name", RESNETS)
def test_the_fast_engines_equal_the_loop(name: str, engine: str) -> None:
    pool, shards, how = toy_pool(SHAPE), ragged_shards((3, 0, 6)), SOLVERS["everything"]
    loop, fast = LoopEngine(residual(name), pool), make_engine(engine, residual(name), pool)
    models, label = starts(loop), labels(len(shards))
    assert torch.equal(starts(fast), models)
    want, got = (
        engine.answer(TrainCall(models, label, shards, how, how.lr)) for engine in (loop, fast)
    )
    assert (want.params - models[label]).abs().amax(1)[shards.count > 0].min() > 1e-3
    torch.testing.assert_close(got.params, want.params, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(got.loss, want.loss, rtol=1e-4, atol=1e-5)
    for call in (LossCall(models, shards), GradCall(models, label, shards)):
        read = [engine.answer(call) for engine in (fast, loop)]
        torch.testing.assert_close(*read, rtol=1e-3, atol=1e-5)
    tests = [engine.answer(TestCall(models, label, shards)) for engine in (fast, loop)]
    torch.testing.assert_close(tests[0].loss_sum, tests[1].loss_sum, rtol=1e-5, atol=1e-5)
    assert torch.equal(tests[0].sums, tests[1].sums)


@pytest.mark.full
@pytest.mark.parametrize("name", RESNETS)
def test_auto_is_fused_where_there_is_compiled_code(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = toy_pool(SHAPE)
    assert make_engine("auto", residual(name), pool).name == "fused"
    if name == "resnet18":
        monkeypatch.setattr(convolution, "compiled", lambda: None)
        assert make_engine("auto", residual(name), pool).name in ("vmap", "loop")
        with pytest.raises(ConfigError, match=r"^engine=fused .* compiled code .*=auto$"):
            make_engine("fused", residual(name), pool)
