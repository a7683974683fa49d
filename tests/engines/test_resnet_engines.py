"""Residual networks in the general engines."""

from __future__ import annotations

import pytest
from engine_toys import (
    RESNETS,
    SOLVERS,
    assert_equals_the_loop,
    ragged_shards,
    residual,
    shape_of,
    toy_pool,
)

from fedclust.engines import make_engine
from fedclust.engines.fused.native import convolution
from fedclust.helpers.errors import ConfigError

SHAPE = shape_of(RESNETS[0])


@pytest.mark.full
@pytest.mark.parametrize("engine", ["vmap", "fused"])
@pytest.mark.parametrize("name", RESNETS)
def test_the_fast_engines_equal_the_loop(name: str, engine: str) -> None:
    loop, fast = (make_engine(one, residual(name), toy_pool(SHAPE)) for one in ("loop", engine))
    how, close = SOLVERS["everything"], {"rtol": 1e-3, "atol": 1e-5}
    train = {"rtol": 1e-3, "atol": 1e-4}
    assert_equals_the_loop(fast, loop, ragged_shards((3, 0, 6)), how, train, close)


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
