"""Networks as people write them, in every engine."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from engine_toys import (
    RESNETS,
    SOLVERS,
    assert_equals_the_loop,
    labels,
    ragged_shards,
    residual,
    shape_of,
    starts,
    toy_pool,
)
from pasted import NETWORKS, VGG9, DroppingCNN, FedAvgCNN, LeNet5, NormedMLP
from torch import nn

from fedclust.core.calls import PredictCall, TrainCall
from fedclust.engines import make_engine
from fedclust.engines.fused.native import convolution
from fedclust.helpers.errors import ConfigError

READ: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "fedavg_cnn": (FedAvgCNN(), (1, 28, 28)),
    "lenet5": (LeNet5(), (3, 32, 32)),
    "vgg9": (VGG9(width=2), (3, 32, 32)),
    "logs": (nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.LogSoftmax(dim=1)), (1, 8, 8)),
    "vgg9_bn": (VGG9(width=2, batch_norm=True), (3, 32, 32)),
    "mlp_bn": (NormedMLP(), (1, 8, 8)),
    "dropout": (DroppingCNN(), (1, 8, 8)),
    "no_bias": (nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=False)), (1, 8, 8)),
    "hidden_no_bias": (
        nn.Sequential(nn.Flatten(), nn.Linear(64, 9, bias=False), nn.ReLU(), nn.Linear(9, 10)),
        (1, 8, 8),
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("name", READ)
def test_auto_is_fused_and_equals_the_loop(name: str) -> None:
    module, shape = READ[name]
    pool, shards, how = toy_pool(shape), ragged_shards((3, 7, 0, 12)), SOLVERS["everything"]
    fast, loop = (make_engine(engine, module, pool) for engine in ("auto", "loop"))
    assert (fast.name, fast.remark) == ("fused", "")
    assert fast.layout == loop.layout
    close = {"rtol": 1e-4, "atol": 1e-5}
    assert_equals_the_loop(fast, loop, shards, how, close, close)
    call = PredictCall(starts(loop), labels(len(shards)), shards)
    got, want = (engine.answer(call).log_softmax(2) for engine in (fast, loop))
    torch.testing.assert_close(got, want, **close)


@pytest.mark.thinned
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_as_they_are_written_run_and_equal_the_loop(name: str) -> None:
    case = NETWORKS[name]
    some = toy_pool(case.small or case.shape)
    pool = replace(some, y=some.y % case.classes, num_classes=case.classes)
    if case.vocabulary is not None:
        pool = replace(pool, x=some.x % case.vocabulary, vocabulary=case.vocabulary)
    module, how = case.make(True), replace(SOLVERS["sgd"], epochs=1)
    fast, loop = (make_engine(engine, module, pool) for engine in ("auto", "loop"))
    models, label = starts(loop, 1), torch.zeros(2).long()
    call = TrainCall(models, label, ragged_shards((3, 5)), how, how.lr)
    got, want = (engine.answer(call) for engine in (fast, loop))
    torch.testing.assert_close(got.loss, want.loss, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(got.params, want.params, rtol=1e-3, atol=1e-3)


def test_a_frozen_part_goes_by_the_names_of_the_module() -> None:
    module, shape = READ["lenet5"]  # whose dense layers stand first
    pool, shards, how = toy_pool(shape), ragged_shards((3, 2)), SOLVERS["sgd"]
    fast, loop = (make_engine(engine, module, pool) for engine in ("fused", "loop"))
    mask = loop.layout.mask(["module.fc1.weight", "module.conv2.bias"])
    call = TrainCall(starts(loop), labels(2), shards, how, how.lr, frozen=mask)
    got, want = (engine.answer(call).params for engine in (fast, loop))
    assert torch.equal(got[:, mask], call.models[call.label][:, mask])
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_the_layer_that_prevents_the_faster_engine_is_said() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.RMSNorm(10))
    pool = toy_pool((1, 8, 8))
    said = make_engine("auto", module, pool).remark
    assert ": the fused engine does not know 2 (RMSNorm); steps per second here: " in said
    assert make_engine("vmap", module, pool).remark == ""


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
        assert make_engine("auto", residual(name), pool).name in ("vmap", "threads", "loop")
        with pytest.raises(ConfigError, match=r"^engine=fused .* compiled code .*=auto$"):
            make_engine("fused", residual(name), pool)
