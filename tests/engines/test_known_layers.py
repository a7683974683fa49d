"""Layers of people's networks in the fused engine: each as the loop computes it by autograd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from engine_toys import SOLVERS, assert_equals_the_loop, ragged_shards, toy_pool, training
from pasted import HarCNN, TabularNet
from torch import Tensor, nn
from torch.nn import functional as F

from fedclust.engines import make_engine
from fedclust.engines.fused import layers
from fedclust.engines.fused.network import obstacle
from fedclust.helpers.errors import ConfigError
from fedclust.models.foreign import adopt
from fedclust.solver import Adam

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
COUNTS = (3, 7, 0, 12)


class Calling(nn.Module):
    """A function behind a convolution and behind a dense layer, then dropout, which overwrites."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.conv, self.pool = nn.Conv2d(1, 3, 3), nn.MaxPool2d(2)
        self.inner, self.drop, self.last = nn.Linear(12, 8), nn.Dropout(0.3), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.function(self.conv(x))).flatten(1)
        return self.last(self.drop(self.function(self.inner(x))))


class Words(nn.Module):
    """Convolutions over the vectors of words, and the maximum of each over a text."""

    def __init__(self) -> None:
        super().__init__()
        self.vectors = nn.Embedding(20, 6, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(6, 4, k) for k in (2, 3))
        self.drop, self.last = nn.Dropout(0.2), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.vectors(x).permute(0, 2, 1)
        found = [F.relu(conv(x)) for conv in self.convolutions]
        found = [F.max_pool1d(x, x.shape[2]).squeeze(2) for x in found]
        return self.last(self.drop(torch.cat(found, 1)))


class BagOfWords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.vectors, self.last = nn.Embedding(20, 6), nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.vectors(x).mean(dim=1))


class Inception(nn.Module):
    """Parts with an input that moves: one has no layer, one is in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.narrow = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 2, 1)
        self.wide, self.last = nn.Conv2d(4, 3, 3, padding="same"), nn.Linear(13 * 36, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        parts = [self.narrow(x), x, F.relu(self.wide(x)), F.relu(x)]
        return self.last(torch.cat(parts, 1).flatten(1))


class Windows(nn.Module):
    """Signals with time first, as windows of sensors lie."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(3, 4, 3, stride=2), nn.LayerNorm([4, 5])
        self.last = nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.elu(self.norm(self.conv(x.transpose(1, 2)))).mean(-1))


class Features(nn.Module):
    """A row of numbers as a signal of one channel."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(1, 4, 3, bias=False), nn.BatchNorm1d(4)
        self.pool, self.whole = nn.AvgPool1d(2, padding=1), nn.AdaptiveMaxPool1d(1)
        self.last = nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.norm(self.conv(x.unsqueeze(1)))))
        return self.last(self.whole(x).squeeze(-1))


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": nn.GELU("tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "leaky_relu": nn.LeakyReLU(0.2),
    "elu": nn.ELU(0.7, inplace=True),
    "relu6": F.relu6,
    "hardswish": F.hardswish,
}
IMAGE = (1, 6, 6)
READ: dict[str, tuple[nn.Module, tuple[int, ...], int | None]] = {
    **{name: (Calling(function), IMAGE, None) for name, function in FUNCTIONS.items()},
    "layer_norm": (
        nn.Sequential(
            nn.Conv2d(1, 3, 3),
            nn.LayerNorm([3, 4, 4]),
            nn.ReLU(),
            nn.Flatten(),
            nn.LayerNorm(48, elementwise_affine=False),
            nn.ReLU(),
            nn.Linear(48, 8),
            nn.LayerNorm(8, bias=False),
            nn.Linear(8, 10),
        ),
        IMAGE,
        None,
    ),
    "table": (TabularNet(num_classes=10), (16,), None),
    "signals": (HarCNN(samples=16, num_classes=10), (9, 16), None),
    "windows": (Windows(), (12, 3), None),
    "features": (Features(), (12,), None),
    "words": (Words(), (9,), 20),
    "bag_of_words": (BagOfWords(), (9,), 20),
    "inception": (Inception(), IMAGE, None),
}


def both(name: str) -> tuple[Any, Any]:
    """The engine that is taken, and the loop."""
    module, shape, vocabulary = READ[name]
    pool = toy_pool(shape)
    if vocabulary is not None:
        pool = replace(pool, x=pool.x % vocabulary, vocabulary=vocabulary)
    fast, loop = (make_engine(engine, module, pool) for engine in ("auto", "loop"))
    assert (fast.name, fast.remark) == ("fused", "")
    return fast, loop


@pytest.mark.thinned
@pytest.mark.parametrize("name", READ)
def test_training_and_reading_equal_the_loop(name: str) -> None:
    how = replace(SOLVERS["sgd"], epochs=1)
    assert_equals_the_loop(*both(name), ragged_shards(COUNTS), how, CLOSE, CLOSE)


@pytest.mark.full
@pytest.mark.parametrize("name", ["table", "words", "windows"])
@pytest.mark.parametrize("solver", ["everything", "adam"])
def test_what_is_looked_up_moves_by_every_rule(name: str, solver: str) -> None:
    fast, loop = both(name)
    how = SOLVERS.get(solver) or Adam(lr=0.01, batch_size=5, epochs=1)
    call = training(loop, ragged_shards(COUNTS), how)
    got, want = (engine.answer(call) for engine in (fast, loop))
    torch.testing.assert_close(got.params, want.params, rtol=1e-3, atol=5e-5)


def test_what_is_frozen_among_parts_stays() -> None:
    fast, loop = both("table")
    names = ["module.embeddings.0.weight", "module.norm.weight", "module.fc1.bias"]
    mask = loop.layout.mask(names)
    call = training(loop, ragged_shards(COUNTS), SOLVERS["weight_decay"], frozen=mask)
    got, want = (engine.answer(call).params for engine in (fast, loop))
    assert torch.equal(got[:, mask], call.models[call.label][:, mask])
    torch.testing.assert_close(got, want, **CLOSE)


@pytest.mark.full
@pytest.mark.parametrize("name", ["signals", "inception", "windows", "tanh"])
@pytest.mark.parametrize("way", ["row by row", "stacked"])
def test_without_compiled_code_they_are_the_same(
    name: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "convolving", lambda *_: way)
    fast, loop = both(name)
    call = training(loop, ragged_shards(COUNTS), SOLVERS["steps"])
    got, want = (engine.answer(call).params for engine in (fast, loop))
    torch.testing.assert_close(got, want, **CLOSE)


def test_what_a_graphics_card_is_given() -> None:
    """Sums of what is looked up twice would depend on the order of its threads."""
    known = adopt(Calling(F.gelu), IMAGE)
    assert obstacle(known, device="cuda") == ""
    words = adopt(BagOfWords(), (9,), torch.zeros(2, 9, dtype=torch.int64))
    assert "layer vectors (Embedding) here" in obstacle(words, device="cuda")


class Columns(nn.Module):
    """The first column of a table as ids."""

    def __init__(self) -> None:
        super().__init__()
        self.vectors, self.last = nn.Embedding(10, 3), nn.Linear(3 + 2, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.cat([self.vectors(x[:, 0].long()), x[:, 1:]], 1))


@pytest.mark.thinned
@pytest.mark.parametrize("engine", ["loop", "vmap", "fused", "auto"])
@pytest.mark.parametrize("odd", [-1, 10])
def test_an_id_without_a_vector_is_refused(engine: str, odd: int) -> None:
    """In fused it would be a vector of another client's model."""
    x = torch.arange(60).remainder(10).float()[:, None].repeat(1, 3)
    plain = toy_pool((3,))
    pool = replace(plain, x=x, scale=torch.tensor(1.0), shift=torch.tensor(0.0))
    assert make_engine(engine, Columns(), pool).name in (engine, "fused")
    x[31, 0] = odd
    with pytest.raises(ConfigError, match=f"the id {odd}, and vectors .* the ids 0 to 9"):
        make_engine(engine, Columns(), replace(pool, x=x))
