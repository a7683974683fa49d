"""Models with running statistics: what training makes of them, and who looks at them."""

from __future__ import annotations

import pytest
import torch
import torchvision
from engine_toys import (
    SOLVERS,
    assert_equals_the_loop,
    labels,
    ragged_shards,
    starts,
    toy_pool,
)
from torch import Tensor, nn

from fedclust.core.calls import GradCall, LossCall, TrainCall
from fedclust.engines import make_engine
from fedclust.engines.loop import LoopEngine
from fedclust.engines.schedule import schedule
from fedclust.engines.vmap import VmapEngine
from fedclust.helpers.errors import ConfigError
from fedclust.models.mlp import mlp
from fedclust.models.params import layout, unflatten
from fedclust.solver import Solver

SHAPE = (1, 4, 4)
COUNTS = (3, 7, 0, 12)


def flat(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 6), norm, nn.ReLU(), nn.Linear(6, 10))


def images(norm: nn.Module) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), norm, nn.ReLU(), nn.Flatten(), nn.Linear(64, 10)
    )


NETWORKS = {
    "BatchNorm1d": flat(nn.BatchNorm1d(6)),
    "BatchNorm2d": images(nn.BatchNorm2d(4)),
    "cumulative": images(nn.BatchNorm2d(4, momentum=None, affine=False)),
    "SyncBatchNorm": images(nn.SyncBatchNorm(4)),
    "InstanceNorm2d": images(nn.InstanceNorm2d(4, affine=True, track_running_stats=True)),
}


@pytest.mark.full
@pytest.mark.parametrize("name", NETWORKS)
def test_vmap_equals_the_loop(name: str) -> None:
    """Rows of other lengths beside it, whose batches are padded."""
    pool, shards = toy_pool(SHAPE), ragged_shards(COUNTS)
    loop, fast = (make_engine(engine, NETWORKS[name], pool) for engine in ("loop", "vmap"))
    models, label = starts(loop), labels(len(shards))
    train, read = {"rtol": 1e-3, "atol": 1e-4}, {"rtol": 1e-3, "atol": 1e-5}
    trained = assert_equals_the_loop(fast, loop, shards, SOLVERS["everything"], train, read).params
    assert torch.equal(trained[2], models[label[2]])  # no examples, no statistics
    assert bool((trained[0] != models[label[0]])[~_trained(loop)].any())
    gradient = loop.answer(GradCall(models, label, shards))
    assert not gradient[:, ~_trained(loop)].any()


def _trained(engine: LoopEngine) -> Tensor:
    inside = engine.layout.trained
    assert inside is not None
    return inside


def test_the_loop_trains_as_pytorch_does_to_the_bit() -> None:
    """Parameters and statistics of a client after two epochs, and its loss in evaluation."""
    pool, shards = toy_pool(SHAPE), ragged_shards((7, 12))
    engine, how = LoopEngine(NETWORKS["BatchNorm2d"], pool), Solver(lr=0.1, batch_size=5, epochs=2)
    models = starts(engine, 1)
    trained = engine.answer(TrainCall(models, torch.zeros(2).long(), shards, how, 0.1)).params
    plan = schedule(shards, how)
    for row in range(2):
        net = images(nn.BatchNorm2d(4))
        values = unflatten(models[0], engine.layout)
        net.load_state_dict({k.removeprefix("module."): v for k, v in values.items()})
        sgd = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(int(plan.steps[row])):
            index = shards.index[row, plan.position[row, step, : int(plan.size[row, step])]]
            sgd.zero_grad()
            loss = nn.functional.cross_entropy(net(pool.inputs(index)), pool.y[index])
            loss.backward()  # type: ignore[no-untyped-call]
            sgd.step()
        for name, value in unflatten(trained[row], engine.layout).items():
            assert torch.equal(value, net.state_dict()[name.removeprefix("module.")].float())
        assert float(trained[row, -1]) == int(plan.steps[row])  # batches that it has met
        index = shards.index[row, : int(shards.count[row])]
        loss = nn.functional.cross_entropy(net.eval()(pool.inputs(index)), pool.y[index])
        got = engine.answer(LossCall(trained[row : row + 1], shards.take(torch.tensor([row]))))
        torch.testing.assert_close(got[0, 0], loss)


@pytest.mark.parametrize("name", ["BatchNorm1d", "BatchNorm2d"])
def test_statistics_are_of_the_clients_own_batches(name: str) -> None:
    """Also where another client of the call diverges."""
    pool, shards, how = toy_pool(SHAPE), ragged_shards(COUNTS), SOLVERS["momentum"]
    for engine in (LoopEngine(NETWORKS[name], pool), VmapEngine(NETWORKS[name], pool)):
        models = starts(engine, 2)
        models[1] = torch.nan
        two = shards.take(torch.tensor([0, 3]))
        both = engine.answer(TrainCall(models, torch.tensor([0, 1]), two, how, 0.1)).params
        alone = engine.answer(
            TrainCall(models[:1], torch.tensor([0]), shards.take(torch.tensor([0])), how, 0.1)
        ).params
        torch.testing.assert_close(both[0], alone[0], rtol=1e-5, atol=1e-6)
        assert bool(both[1].isnan().any())


@pytest.mark.full
@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("name", ["loop", "vmap", "fused"])
def test_a_mean_of_counts_is_rounded_where_it_is_used(name: str, momentum: float | None) -> None:
    """Clients with other numbers of batches: the next round begins at 3 where their mean is 3.3."""
    pool, shards = toy_pool(SHAPE), ragged_shards((5, 7, 12))
    net = flat(nn.BatchNorm1d(6, momentum=momentum))
    engine, loop = make_engine(name, net, pool), LoopEngine(net, pool)
    models, how = starts(loop, 1), Solver(lr=0.1, batch_size=5, drop_last=True)
    for count, whole in ((2.9999998, 3), (3.26, 3), (3.51, 4)):
        models[0, -1] = count
        call = TrainCall(models, torch.zeros(3).long(), shards, how, 0.1)
        got, want = (one.answer(call).params for one in (engine, loop))
        assert got[:, -1].tolist() == [whole + 1, whole + 1, whole + 2]
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["loop", "vmap"])
def test_frozen_statistics_stay(name: str) -> None:
    pool, shards = toy_pool(SHAPE), ragged_shards((5, 7))
    engine = make_engine(name, NETWORKS["BatchNorm2d"], pool)
    frozen = ~engine.layout.mask(engine.layout.last_layers())
    assert engine.layout.last_layers() == ("module.4.weight", "module.4.bias")
    models, label = starts(engine, 1), torch.zeros(2).long()
    how = Solver(lr=0.1, batch_size=5)
    call = TrainCall(models, label, shards, how, 0.1, frozen=frozen)
    moved = engine.answer(call).params != models
    assert not moved[:, frozen].any()
    assert moved[:, ~frozen].any()


def test_a_batch_of_one_example_is_refused_where_pytorch_cannot_take_it() -> None:
    pool, shards, how = toy_pool(SHAPE), ragged_shards((6,)), Solver(lr=0.1, batch_size=5)
    for name in ("loop", "vmap"):
        engine = make_engine(name, NETWORKS["BatchNorm1d"], pool)
        call = TrainCall(starts(engine, 1), torch.zeros(1).long(), shards, how, 0.1)
        with pytest.raises(ConfigError, match="leaves no client a batch of one example"):
            engine.answer(call)
    engine = make_engine("vmap", NETWORKS["BatchNorm2d"], pool)
    call = TrainCall(starts(engine, 1), torch.zeros(1).long(), shards, how, 0.1)
    assert engine.answer(call).params.isfinite().all()


def test_a_normalisation_of_ones_own_goes_row_by_row() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(16))
            self.mean: Tensor
            self.last = nn.Linear(16, 10)

        def forward(self, x: Tensor) -> Tensor:
            x = x.flatten(1)
            if self.training:
                self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
                x = x - x.mean(0)
            else:
                x = x - self.mean
            out: Tensor = self.last(x)
            return out

    pool, shards = toy_pool(SHAPE), ragged_shards((5,))
    engine = make_engine("auto", Own(), pool)
    assert engine.name == "loop"
    assert engine.layout.buffers == ("module.mean",)
    models = starts(engine, 1)
    call = TrainCall(models, torch.zeros(1).long(), shards, Solver(lr=0.1, batch_size=5), 0.1)
    mean = engine.answer(call).params[0, engine.layout["module.mean"]]
    torch.testing.assert_close(mean, 0.1 * pool.inputs(shards.index[0]).flatten(1).mean(0))


def test_a_layout_knows_what_is_trained() -> None:
    engine = LoopEngine(NETWORKS["BatchNorm1d"], toy_pool(SHAPE))
    where, rows = engine.layout, torch.arange(2.0 * engine.layout.num_params).view(2, -1)
    assert where.num_params - where.num_trained == 6 + 6 + 1
    assert torch.equal(where.of_trained(rows), rows[:, _trained(engine)])
    assert where.num_layers == 3
    plain = layout(nn.Linear(3, 2))
    assert plain.trained is None
    assert plain.of_trained(rows) is rows


@pytest.mark.full
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "efficientnet_b0"])
def test_torchvisions_networks_run_from_their_constructors(name: str) -> None:
    """Dropout and StochasticDepth within are drawn by the key of the client."""
    model = getattr(torchvision.models, name)(num_classes=10)
    engine = LoopEngine(model, toy_pool((3, 32, 32), 8))
    places = {"resnet18": 0, "mobilenet_v3_small": 1, "efficientnet_b0": 10}
    assert len(engine.model.dropout) == places[name]
    assert not engine.model.draws
    models, how = starts(engine, 1), Solver(lr=0.01, batch_size=4)
    call = TrainCall(models, torch.zeros(1).long(), ragged_shards((4,)), how, 0.01)
    moved = engine.answer(call).params != models
    assert moved[:, ~_trained(engine)].any()
    assert moved[:, _trained(engine)].any()


def test_a_short_last_batch_is_left_out_where_asked() -> None:
    """Two whole batches of 12 examples, one of 7, and the only one of 3; alike in all engines."""
    pool, shards = toy_pool(SHAPE), ragged_shards((3, 7, 0, 12))
    how = Solver(lr=0.1, batch_size=5, epochs=2, drop_last=True)
    plan = schedule(shards, how)
    assert plan.steps.tolist() == [2, 2, 0, 4]
    assert plan.size.tolist() == [[3, 3, 0, 0], [5, 5, 0, 0], [0] * 4, [5] * 4]
    first, second = plan.position[3].view(2, 10)
    assert len(first.unique()) == len(second.unique()) == 10  # of one pass each
    assert not torch.equal(first, second)
    results = []
    for name in ("loop", "vmap", "fused"):
        engine = make_engine(name, mlp(SHAPE, 10, hidden=[4]), pool)
        call = TrainCall(starts(engine, 1), torch.zeros(4).long(), shards, how, 0.1)
        results.append(engine.answer(call).params)
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(results[2], results[0], rtol=1e-4, atol=1e-5)
    engine = make_engine("vmap", NETWORKS["BatchNorm1d"], pool)
    call = TrainCall(starts(engine, 1), torch.zeros(1).long(), ragged_shards((6,)), how, 0.1)
    assert engine.answer(call).params.isfinite().all()
    with pytest.raises(ConfigError, match="drop_last=true is not allowed: false where no batch"):
        Solver(lr=0.1, epochs=None, steps=3, drop_last=True)
