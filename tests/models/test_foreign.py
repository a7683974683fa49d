"""A user's own module: runs on the general engines, or is refused in one line."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedclust.core.calls import LossCall, Shards, TrainCall
from fedclust.core.solver import Solver
from fedclust.core.types import Pool
from fedclust.engines.loop import LoopEngine
from fedclust.engines.vmap import VmapEngine
from fedclust.helpers.errors import ConfigError
from fedclust.helpers.rng import Stream
from fedclust.models.foreign import Foreign, adopt
from fedclust.models.mlp import mlp


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
    """A parameter of its own that nothing draws."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 3)
        self.factor = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(x) * self.factor
        return out


def test_runs_on_both_general_engines_alike() -> None:
    generator = torch.Generator().manual_seed(0)
    pool = Pool(
        x=torch.randn(20, 6, generator=generator),
        y=torch.randint(0, 3, (20,), generator=generator),
        scale=torch.tensor(1.0),
        shift=torch.tensor(0.0),
        num_classes=3,
    )
    key = Stream.of(0, "train").keys(torch.arange(2))
    shards = Shards(index=torch.arange(20).view(2, 10), count=torch.tensor([10, 7]), key=key)
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
        (nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)), "buffers"),
        (nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5)), "seeded per client"),
        (Scaled(), r"give Scaled a method reset_parameters\(\)"),
        (nn.Linear(5, 3), r"cannot take examples of shape \(6,\)"),
        (nn.Sequential(nn.Linear(6, 3), nn.Flatten(0)), r"returns \(6,\) for two examples"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(module: nn.Module, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as error:
        adopt(module, (6,))
    assert "\n" not in str(error.value)
