"""Small federations and every shipped model, for the tests of the engines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from fedclust.core.calls import GradCall, LocalResult, LossCall, Shards, TestCall, TrainCall
from fedclust.core.types import Pool, Split
from fedclust.core.verbs import Engine
from fedclust.engines.fused import FusedEngine
from fedclust.engines.loop import LoopEngine
from fedclust.engines.vmap import VmapEngine
from fedclust.helpers.rng import Stream
from fedclust.models.sequence import Model
from fedclust.solver import Solver

CONF = Path(__file__).parents[2] / "conf"
# no sequences of known layers, tested in test_pasted.py
RESNETS = ("resnet18", "resnet9")
OF_TOKENS = ("gru", "lstm", "text_cnn", "transformer")  # tested in datasets/test_tokens.py
BY_NAME = ("torchvision", "timm")  # tested in models/test_named.py
MODELS = sorted(
    {path.stem for path in (CONF / "model").glob("*.yaml")} - {*RESNETS, *OF_TOKENS, *BY_NAME}
)
DIFFERENT_KINDS = ["linear", "mlp128", "cnn_femnist_tiny", "flex_mnist_cnn"]
# smallest images where 8 x 8 does not fit, and colour where the model is meant for it
SHAPES = {
    "cnn_cifar_small": (3, 16, 16),
    "tf_cifar": (3, 8, 8),
    "flex_femnist_cnn": (1, 13, 13),
    **dict.fromkeys(RESNETS, (3, 8, 8)),
}
ENGINES: dict[str, Callable[..., Engine]] = {
    "loop": LoopEngine,
    "vmap": VmapEngine,
    "fused": FusedEngine,
}
FAST = ["vmap", "fused"]
NUM_CLASSES = 10
RAGGED = (3, 7, 0, 1, 12)

SOLVERS = {
    "sgd": Solver(lr=0.05, batch_size=5, epochs=2),
    "momentum": Solver(lr=0.05, batch_size=5, epochs=2, momentum=0.9),
    "proximal": Solver(lr=0.05, batch_size=5, epochs=2, proximal=1.0),
    "weight_decay": Solver(lr=0.05, batch_size=5, epochs=2, weight_decay=0.1),
    "full_batch": Solver(lr=0.05, batch_size=None, epochs=2),
    "steps": Solver(lr=0.05, batch_size=5, epochs=None, steps=4),
    "everything": Solver(
        lr=0.05, batch_size=5, epochs=None, steps=3, momentum=0.8, proximal=0.5, weight_decay=0.01
    ),
}


def shape_of(name: str) -> tuple[int, ...]:
    return SHAPES.get(name, (1, 8, 8))


def shipped(name: str, shape: tuple[int, ...] | None = None) -> Model:
    """The model of conf/model/<name>.yaml."""
    config = OmegaConf.load(CONF / "model" / f"{name}.yaml")
    model = hydra.utils.instantiate(
        config, in_shape=shape or shape_of(name), num_classes=NUM_CLASSES
    )
    assert isinstance(model, Model)
    return model


def residual(name: str, norm_layer: str = "group") -> nn.Module:
    """A residual network of conf/model/<name>.yaml with few channels."""
    config = OmegaConf.load(CONF / "model" / f"{name}.yaml")
    config.channels, config.norm_layer = [4, 6, 8, 10], norm_layer
    model: nn.Module = hydra.utils.instantiate(
        config, in_shape=shape_of(name), num_classes=NUM_CLASSES
    )
    return model


def toy_pool(shape: tuple[int, ...], num_examples: int = 60, seed: int = 0) -> Pool:
    """Random bytes and classes."""
    generator = torch.Generator().manual_seed(seed)
    return Pool(
        x=torch.randint(0, 256, (num_examples, *shape), generator=generator, dtype=torch.uint8),
        y=torch.randint(0, NUM_CLASSES, (num_examples,), generator=generator),
        scale=torch.tensor(1 / 128),
        shift=torch.tensor(-0.7),
        num_classes=NUM_CLASSES,
    )


def made(kind: str, name: str, **options: Any) -> Any:
    """An engine of this kind with the model of conf/model/<name>.yaml, on random examples."""
    return ENGINES[kind](shipped(name), toy_pool(shape_of(name)), **options)


def ragged_shards(counts: tuple[int, ...] = RAGGED) -> Shards:
    """Rows of the given sizes over consecutive pool examples."""
    ends = torch.tensor(counts).cumsum(0).tolist()
    split = Split.of(
        [torch.arange(end - count, end) for count, end in zip(counts, ends, strict=True)]
    )
    clients = torch.arange(len(counts))
    index, count = split.take(clients)
    return Shards(index=index, count=count, key=Stream.of(3, "train", 1).keys(clients))


def row_of(shards: Shards, row: int) -> Shards:
    """One row alone, without padding."""
    count = int(shards.count[row])
    part = slice(row, row + 1)
    return Shards(index=shards.index[part, :count], count=shards.count[part], key=shards.key[part])


def starts(engine: Engine, count: int = 3) -> Tensor:
    """`count` different models, [count, P]."""
    return torch.stack([engine.init(Stream.of(0, "init", j)) for j in range(count)])


def terms(engine: Engine, shards: Shards) -> dict[str, Tensor]:
    """A linear term and weights of examples for every row, some of them 0."""
    draw = torch.Generator().manual_seed(6)
    weight = 2 * torch.rand(shards.index.shape, generator=draw)
    num_params = engine.layout.num_params
    return {
        "linear": 0.1 * torch.randn(len(shards), num_params, generator=draw),
        "example_weight": torch.where(weight < 0.5, 0, weight),
    }


def labels(num_rows: int, num_models: int = 3) -> Tensor:
    """A start for every row, not in order."""
    return (torch.arange(num_rows) * 2 + 1) % num_models


def training(engine: Engine, shards: Shards, solver: Any, **more: Any) -> TrainCall:
    """Training of every row at the solver's rate, from one of three starts if none are given."""
    models = more.pop("models", None)
    start = {"models": starts(engine) if models is None else models, "label": labels(len(shards))}
    return TrainCall(shards=shards, solver=solver, **(start | {"lr": solver.lr} | more))


def reading(models: Tensor, label: Tensor, shards: Shards) -> list[Any]:
    """All calls that look at models without training them."""
    looked = models, label, shards
    return [LossCall(models, shards), GradCall(*looked), TestCall(*looked)]


def assert_equals_the_loop(
    fast: Engine, loop: Engine, shards: Shards, solver: Any, train: Any, read: Any
) -> LocalResult:
    """Two engines begin, train and read alike within rtol and atol; what the loop has trained.

    Every row with examples has to move by more than 1e-3.
    """
    call = training(loop, shards, solver)
    assert torch.equal(starts(fast), call.models)
    got, want = fast.answer(call), loop.answer(call)
    moved = (want.params - call.models[call.label]).abs().amax(1)
    assert moved[shards.count > 0].min() > 1e-3
    torch.testing.assert_close(got.params, want.params, **train)
    torch.testing.assert_close(got.loss, want.loss, rtol=1e-4, atol=1e-5)
    for one in reading(call.models, call.label, shards):
        torch.testing.assert_close(fast.answer(one), loop.answer(one), **read)
    return want
