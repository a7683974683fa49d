"""Low-rank adapters: what they compute, and what is a row."""

from __future__ import annotations

import pytest
import torch
from configs import composed
from torch import nn
from toys import pool_of

from fedclust.config.build import build
from fedclust.core.calls import Shards, TrainCall
from fedclust.engines import make_engine
from fedclust.engines.loop import LoopEngine
from fedclust.helpers.errors import ConfigError
from fedclust.helpers.rng import Stream
from fedclust.models.foreign import adopt
from fedclust.models.lora import Lora
from fedclust.models.mlp import mlp
from fedclust.models.params import layout, unflatten
from fedclust.models.sequence import Model
from fedclust.models.weights import beginning
from fedclust.solver import Solver


def network() -> Model:
    return mlp((4,), 3, hidden=[5, 6])


def test_adapters_and_the_last_layer_are_the_row() -> None:
    model = adopt(beginning(network, lora=Lora(rank=2, alpha=6)), (4,))
    where = layout(model)
    shapes = dict(zip(where.names, where.shapes, strict=True))
    assert {name.removeprefix("module."): shape for name, shape in shapes.items()} == {
        "0.parametrizations.weight.0.a": (2, 4),
        "0.parametrizations.weight.0.b": (5, 2),
        "2.parametrizations.weight.0.a": (2, 5),
        "2.parametrizations.weight.0.b": (6, 2),
        "4.weight": (3, 6),
        "4.bias": (3,),
    }
    row = unflatten(model.draw(torch.Generator().manual_seed(1)), where)
    assert all(bool((value == 0).all()) == name.endswith(".b") for name, value in row.items())


def test_what_an_adapted_layer_computes() -> None:
    """x W' with W' = W + alpha / r B A, by hand; nothing changes as long as B is zero."""
    whole = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    x, weight = torch.randn(2, 4), whole[0].weight.detach().clone()
    before = whole(x)
    Lora(rank=2, alpha=6, layers=["0"]).adapt(whole)
    assert torch.equal(whole(x), before)
    low = whole[0].parametrizations.weight[0]
    low.b.data = torch.randn(5, 2)
    expected = x @ (weight + 3 * low.b @ low.a).T + whole[0].bias
    torch.testing.assert_close(whole[0](x), expected)
    assert [name for name, value in whole.named_parameters() if value.requires_grad] == [
        "0.parametrizations.weight.0.a",
        "0.parametrizations.weight.0.b",
        "2.weight",
        "2.bias",
    ]


def test_engines_train_them_alike() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(12, 4, generator=draw)
    pool = pool_of(x, torch.randint(0, 3, (12,), generator=draw), 3)
    fast = make_engine("vmap", beginning(network, lora=Lora(rank=2)), pool)
    loop = LoopEngine(beginning(network, lora=Lora(rank=2)), pool)
    key = Stream.of(0, "train").keys(torch.arange(2))
    shards = Shards(index=torch.arange(12).view(2, 6), count=torch.tensor([6, 5]), key=key)
    start = loop.init(Stream.of(0, "init")).unsqueeze(0)
    label, solver = torch.zeros(2, dtype=torch.int64), Solver(lr=0.3, batch_size=4)
    call = TrainCall(start, label, shards, solver, 0.3)
    got, expected = fast.answer(call), loop.answer(call)
    torch.testing.assert_close(got.params, expected.params, rtol=1e-5, atol=1e-6)
    moved = unflatten(expected.params[0] - start[0], loop.layout)
    assert all(bool((value != 0).any()) for value in moved.values())


def test_what_does_not_fit_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"lora\.layers=5 .* linear layers: there are 0, 2, 4"):
        beginning(network, lora=Lora(layers=["5"]))
    with pytest.raises(ConfigError, match=r"lora\.layers=null .* there is none"):
        beginning(lambda: mlp((4,), 3, hidden=[]), lora=Lora())
    with pytest.raises(ConfigError, match=r"lora\.rank=0 is not allowed: expected an integer in"):
        build(composed("algorithm=fedavg", "lora={rank: 0}"))
    with pytest.raises(ConfigError, match=r"lora\.r=4 .* keys rank, alpha, layers"):
        build(composed("algorithm=fedavg", "lora={r: 4}"))


def test_a_job_sends_its_adapters() -> None:
    job = build(composed("algorithm=ifca", "model=mlp", "model.hidden=[8]", "lora={rank: 2}"))
    assert job.engine.layout.num_params == 2 * (64 + 8) + 8 * 10 + 10
