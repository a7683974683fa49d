"""The ways to compute convolutions, measured in turn in one process.

python -m benchmarks.convolutions [jgl_cnn tf_cifar …] [--rounds 5]

Every shipped model that has convolutions, at the size its paper uses, trains four clients of 100
examples for one epoch: by compiled code, by PyTorch's convolutions
client by client, by products of unfolded images (what a GPU computes), by `torch.vmap` (grouped
convolutions), and by the plain engine with autograd.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import hydra
import torch
from omegaconf import OmegaConf
from rich.console import Console
from rich.table import Table

from benchmarks.workloads import shards, synthetic_pool
from fedclust.config.tree import CONF
from fedclust.core.calls import TrainCall
from fedclust.core.verbs import Engine
from fedclust.engines import make_engine
from fedclust.engines.fused import layers
from fedclust.helpers.rng import Stream
from fedclust.models.sequence import Model
from fedclust.runtime.memory import keep_freed_memory
from fedclust.solver import Solver

_CPU, _CLIENTS, _EXAMPLES, _CLASSES = torch.device("cpu"), 4, 100, 10
# model: shape of an image, examples of a batch
MODELS = {
    "jgl_cnn": ((1, 28, 28), 20),
    "flex_mnist_cnn": ((1, 28, 28), 10),
    "flex_femnist_cnn": ((1, 28, 28), 10),
    "cnn_femnist_tiny": ((1, 28, 28), 20),
    "cnn": ((1, 28, 28), 100),
    "cnn_cifar_small": ((3, 32, 32), 20),
    "tf_cifar": ((3, 24, 24), 20),
}
# where a model is used with other sizes: CLoVE's on MNIST, those of LeNet
SIZES = {"cnn": {"channels": [6, 16], "padding": 0, "hidden": []}}
# engine and precision
WAYS = {
    "compiled": ("fused", "highest"),
    "row by row": ("fused", "highest"),
    "stacked": ("fused", "highest"),
    "vmap": ("vmap", "highest"),
    "loop": ("loop", "highest"),
}


def training(name: str, engine: str, precision: str) -> tuple[Engine, int]:
    """A model's engine, and the local steps of a call of `train_once`."""
    shape, batch = MODELS[name]
    config = OmegaConf.load(CONF / "model" / f"{name}.yaml")
    sizes = SIZES.get(name, {})
    model = hydra.utils.instantiate(config, in_shape=shape, num_classes=_CLASSES, **sizes)
    assert isinstance(model, Model)
    engine = make_engine(engine, model, synthetic_pool(5000, shape, _CPU), precision=precision)
    return engine, _CLIENTS * -(-_EXAMPLES // batch)


def train_once(name: str, engine: Engine) -> float:
    """Seconds of one epoch of the clients."""
    solver = Solver(lr=0.01, batch_size=MODELS[name][1], epochs=1)
    start = engine.init(Stream.of(0, "init")).unsqueeze(0)
    label, data = torch.zeros(_CLIENTS, dtype=torch.int64), shards(_CLIENTS, _EXAMPLES, 5000, _CPU)
    begin = time.perf_counter()
    engine.answer(TrainCall(start, label, data, solver, solver.lr))
    return time.perf_counter() - begin


def measure(name: str, rounds: int) -> dict[str, float]:
    """Local steps per second of every way, medians of interleaved rounds; the first is not
    counted.
    """
    engines = {way: training(name, *how) for way, how in WAYS.items()}
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    usual = layers.convolving
    for _ in range(rounds + 1):
        for way, (engine, _) in engines.items():
            layers.convolving = usual if way.startswith("compiled") else lambda *_, way=way: way
            try:
                seconds[way].append(train_once(name, engine))
            finally:
                layers.convolving = usual
    return {way: engines[way][1] / median(taken[1:]) for way, taken in seconds.items()}


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.convolutions", description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS), help=f"of {', '.join(MODELS)}")
    parser.add_argument("--rounds", type=int, default=5, help="calls of every way that are counted")
    arguments = parser.parse_args()
    for name in arguments.models:
        if name not in MODELS:
            parser.error(f"{name} is not one of {', '.join(MODELS)}")
    keep_freed_memory()
    table = Table(
        "model", *WAYS, title=f"local steps per second, {torch.get_num_threads()} threads"
    )
    for name in arguments.models:
        rates = measure(name, arguments.rounds)
        table.add_row(name, *(f"{rate:,.0f}" for rate in rates.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
