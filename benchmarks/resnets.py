"""Residual networks: `torch.vmap` against the plain loop, in turn in one process.

python -m benchmarks.resnets [resnet9 resnet18] [--rounds 3] [--max-rows N]

Two clients of 20 images 3 x 32 x 32 take one step of 20 each.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import hydra
import torch
from omegaconf import OmegaConf
from torch import nn

from benchmarks import plain
from benchmarks.workloads import shards, synthetic_pool
from fedclust.config.tree import CONF
from fedclust.core.calls import TrainCall
from fedclust.engines import make_engine
from fedclust.helpers.rng import Stream
from fedclust.runtime.memory import keep_freed_memory
from fedclust.solver import Solver

_CPU, _SHAPE, _CLASSES = torch.device("cpu"), (3, 32, 32), 10
_CLIENTS, _BATCH = 2, 20


def measure(
    name: str, rounds: int, max_rows: int | None = None, shape: tuple[int, ...] = _SHAPE
) -> tuple[float, float]:
    """Local steps per second of vmap and of the plain loop, medians of interleaved rounds; the
    first is not counted.
    """
    node = OmegaConf.load(CONF / "model" / f"{name}.yaml")
    model: nn.Module = hydra.utils.instantiate(node, in_shape=shape, num_classes=_CLASSES)
    pool, solver = synthetic_pool(500, shape, _CPU), Solver(lr=0.01, batch_size=_BATCH)
    engine = make_engine("vmap", model, pool, max_rows)
    data, label = shards(_CLIENTS, _BATCH, 500, _CPU), torch.zeros(_CLIENTS, dtype=torch.int64)
    start = engine.init(Stream.of(0, "init")).unsqueeze(0)
    seconds: list[list[float]] = [[], []]
    for _ in range(rounds + 1):
        for way in range(2):
            begin = time.perf_counter()
            if way == 0:
                engine.answer(TrainCall(start, label, data, solver, solver.lr))
            else:
                plain.train(model, pool, data.index, 1, _BATCH, solver.lr)
            seconds[way].append(time.perf_counter() - begin)
    fast, slow = (_CLIENTS / median(taken[1:]) for taken in seconds)
    return fast, slow


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resnets", description=__doc__)
    parser.add_argument("models", nargs="*", default=["resnet9", "resnet18"])
    parser.add_argument("--rounds", type=int, default=3, help="calls of both that are counted")
    parser.add_argument("--max-rows", type=int, help="rows that vmap computes at once")
    given = parser.parse_args()
    keep_freed_memory()
    for name in given.models:
        fast, slow = measure(name, given.rounds, given.max_rows)
        print(f"{name}: vmap {fast:.2f} steps/s, plain loop {slow:.2f}, ratio {fast / slow:.2f}")


if __name__ == "__main__":
    main()
