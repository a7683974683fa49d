"""A user's own module: runs on the general engines, or is refused in one line."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from toys import pool_of

from fedclust.core.calls import LossCall, Shards, TrainCall
from fedclust.core.types import Pool
from fedclust.engines import make_engine
from fedclust.engines.loop import LoopEngine
from fedclust.engines.vmap import VmapEngine
from fedclust.helpers.errors import ConfigError
from fedclust.helpers.rng import Stream
from fedclust.models.foreign import Foreign, adopt, made_by
from fedclust.models.mlp import mlp
from fedclust.models.params import layout
from fedclust.solver import Solver


class Residual(nn.Module):
    """No sequence: a skip connection, layer norm and tanh."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.last = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(x + torch.tanh(self.norm(self.first(x))))
        return out


class Scaled(nn.Module):
    """Fixed initial weights, one that nothing draws, and a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.last = nn.Linear(6, 3)
        nn.init.zeros_(self.last.weight)
        self.factor = nn.Parameter(torch.full((3,), 2.0))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.frozen(x)) * self.factor
        return out


class Odd(nn.Module):
    """What must be refused, by name."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.calls = what, 0
        self.last = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(x)
        match self.what:
            case "softmax":
                return out.softmax(0)
            case "dropout":
                return nn.functional.dropout(out)
            case "counter":
                self.calls += 1
                return out * self.calls
            case "nan":
                return out * torch.nan
        return out


class Sequence(nn.Module):
    """A recurrent layer, a transformer's, or dropout that is a function."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what
        self.body: nn.Module = nn.Identity()
        if what == "rnn":
            self.body = nn.RNN(2, 4, batch_first=True)
        if what == "transformer":
            self.body = nn.TransformerEncoderLayer(2, 1, 8, dropout=0.3, batch_first=True)
        self.last = nn.Linear(4 if what == "rnn" else 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x.view(-1, 3, 2))
        x = x[0] if isinstance(x, tuple) else x
        if self.what == "function":
            x = nn.functional.dropout(x, 0.3, training=self.training)
        out: Tensor = self.last(x.mean(1))
        return out


def toy(num_classes: int = 3) -> tuple[Pool, Shards]:
    """Twenty examples of two clients."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20, 6, generator=generator)
    pool = pool_of(x, torch.randint(0, num_classes, (20,), generator=generator), num_classes)
    key = Stream.of(0, "train").keys(torch.arange(2))
    return pool, Shards(index=torch.arange(20).view(2, 10), count=torch.tensor([10, 7]), key=key)


def test_runs_on_both_general_engines_alike() -> None:
    pool, shards = toy()
    loop, fast = LoopEngine(Residual(), pool), VmapEngine(Residual(), pool)
    models, label = (
        torch.stack([loop.init(Stream.of(0, "init", j)) for j in range(2)]),
        torch.tensor([1, 0]),
    )
    assert torch.equal(models[0], fast.init(Stream.of(0, "init", 0)))
    solver = Solver(lr=0.1, batch_size=4, momentum=0.5, proximal=0.1)
    expected, got = (
        engine.answer(TrainCall(models, label, shards, solver, 0.1)) for engine in (loop, fast)
    )
    torch.testing.assert_close(got.params, expected.params, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        fast.answer(LossCall(models, shards)),
        loop.answer(LossCall(models, shards)),
        rtol=1e-5,
        atol=1e-6,
    )


def test_draws_anew_without_touching_the_global_generator() -> None:
    model = adopt(Residual(), (6,))
    state = torch.get_rng_state()
    one, two, other = (model.draw(torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_our_own_models_stay_what_they_are() -> None:
    model = mlp((6,), 3, hidden=[])
    adopted = adopt(model, (6,))
    assert type(adopted) is type(model)
    assert adopted is not model
    assert adopt(Foreign(Residual(), (6,)), (6,)).shapes == ((6,), (6,), (6,), (3,), (3,))


@pytest.mark.parametrize(
    ("module", "says"),
    [
        (nn.Linear(6, 3).requires_grad_(False), "no parameter of it is to be trained"),
        (nn.Linear(5, 3), r"cannot take examples of shape \(6,\)"),
        (nn.Sequential(nn.Linear(6, 3), nn.Flatten(0)), r"returns \(6,\) for two examples"),
        (nn.Linear(6, 9), "returns 9 numbers for an example, and these data need 3"),
        (nn.Linear(6, 13), "returns 13 numbers for an example, and these data need 3"),
        (nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), "its lazy layers have no parameters yet"),
        (Odd("softmax"), "depends on the other examples of the batch, first in Odd"),
        (nn.Sequential(nn.Linear(6, 6), nn.Softmax(0), nn.Linear(6, 3)), r"first in 1 \(Softmax\)"),
        (
            nn.Sequential(
                nn.Linear(6, 3), nn.BatchNorm1d(3, affine=False, track_running_stats=False)
            ),
            "where it takes two of them together",
        ),
        (Odd("dropout"), "draws random numbers in evaluation"),
        (Odd("nan"), "returns numbers that are not finite"),
        (Odd("counter"), "a pass changes its attribute calls"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(module: nn.Module, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as error:
        adopt(module, (6,), width=3)
    assert "\n" not in str(error.value)


def test_weights_are_what_the_constructor_makes_of_them() -> None:
    """A fixed weight stays in every draw, another is drawn, a frozen one is in no row."""
    model = adopt(made_by(Scaled), (6,))
    where = layout(model)
    assert where.names == ("module.factor", "module.last.weight", "module.last.bias")
    one, two = (model.draw(torch.Generator().manual_seed(seed)) for seed in (1, 2))
    for row in (one, two):
        assert torch.equal(row[where["module.factor"]], torch.full((3,), 2.0))
        assert not row[where["module.last.weight"]].any()
    assert not torch.equal(one[where["module.last.bias"]], two[where["module.last.bias"]])
    plain = adopt(made_by(Residual), (6,)), adopt(Residual(), (6,))
    drawn = [each.draw(torch.Generator().manual_seed(3)) for each in plain]
    assert torch.equal(*drawn)  # layers as they come are drawn alike either way


def test_frozen_weights_are_those_of_the_constructor_and_stay() -> None:
    pool, shards = toy()
    module = made_by(Scaled)
    assert isinstance(module, Scaled)
    weight = module.frozen.weight.clone()
    for engine in (LoopEngine(module, pool), VmapEngine(module, pool)):
        models, label = engine.init(Stream.of(0, "init")).unsqueeze(0), torch.zeros(2).long()
        call = TrainCall(models, label, shards, Solver(lr=0.1, batch_size=4), 0.1)
        assert (engine.answer(call).params != models).any(1).all()
        assert torch.equal(dict(engine.model.named_parameters())["module.frozen.weight"], weight)
    assert torch.equal(made_by(Scaled).frozen.weight, weight)  # type: ignore[union-attr]


def test_dropout_within_is_keyed_by_row_and_step() -> None:
    """Both engines draw the same masks, and a row has the same bits alone."""
    pool, shards = toy()
    module = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    loop, fast = LoopEngine(module, pool), VmapEngine(module, pool)
    models, label = loop.init(Stream.of(0, "init")).unsqueeze(0), torch.zeros(2).long()
    solver = Solver(lr=0.1, batch_size=4)
    call = TrainCall(models, label, shards, solver, 0.1)
    want = loop.answer(call)
    torch.testing.assert_close(fast.answer(call).params, want.params, rtol=1e-5, atol=1e-6)
    alone = loop.answer(TrainCall(models, label[1:], shards.take(torch.tensor([1])), solver, 0.1))
    assert torch.equal(alone.params[0], want.params[1])
    mask = loop.model.masks(shards.key, 0, 4)[0]
    assert mask.shape == (2, 4, 8)
    assert not torch.equal(mask, loop.model.masks(shards.key, 1, 4)[0])
    assert set(mask.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(loop.answer(LossCall(models, shards)), loop.answer(LossCall(models, shards)))


@pytest.mark.full
@pytest.mark.parametrize("what", ["rnn", "transformer", "function"])
def test_what_vmap_cannot_run_is_run_row_by_row(what: str) -> None:
    """Also where it draws from the global generator: by the key of the row."""
    pool, shards = toy()
    engine = make_engine("auto", Sequence(what), pool)
    assert engine.name == "loop"
    with pytest.raises(ConfigError, match=r"^engine=vmap is not allowed: Sequence .*engine=auto$"):
        make_engine("vmap", Sequence(what), pool)
    models, label = engine.init(Stream.of(0, "init")).unsqueeze(0), torch.zeros(2).long()
    solver = Solver(lr=0.1, batch_size=4)
    state = torch.get_rng_state()
    one, two = (
        engine.answer(TrainCall(models, label[:n], shards.take(torch.arange(n)), solver, 0.1))
        for n in (1, 2)
    )
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(one.params[0], two.params[0])
    assert not torch.equal(two.params[0], models[0])


def test_a_module_by_examples_alone_runs_at_once() -> None:
    assert make_engine("vmap", Residual(), toy()[0]).name == "vmap"
