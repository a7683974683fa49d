"""Small federations and every shipped model, for the tests of the engines."""

from __future__ import annotations

from pathlib import Path

import hydra
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from fedclust.core.calls import Shards
from fedclust.core.types import Pool, Split
from fedclust.core.verbs import Engine
from fedclust.helpers.rng import Stream
from fedclust.models.sequence import Model
from fedclust.solver import Solver

CONF = Path(__file__).parents[2] / "conf"
# no sequences of known layers, tested in test_resnet_engines.py
RESNETS = ("resnet18", "resnet9")
OF_TOKENS = ("gru", "lstm", "text_cnn", "transformer")  # tested in datasets/test_tokens.py
MODELS = sorted({path.stem for path in (CONF / "model").glob("*.yaml")} - {*RESNETS, *OF_TOKENS})
DIFFERENT_KINDS = ["linear", "mlp128", "cnn_femnist_tiny", "flex_mnist_cnn"]
# smallest images where 8 x 8 does not fit, and colour where the model is meant for it
SHAPES = {
    "cnn_cifar_small": (3, 16, 16),
    "tf_cifar": (3, 8, 8),
    "flex_femnist_cnn": (1, 13, 13),
    **dict.fromkeys(RESNETS, (3, 8, 8)),
}
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
