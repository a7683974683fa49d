"""Rows that share an image are what rows with a copy of their own are, for every engine."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from toys import pool_of

from fedclust.core.front import Gradient, Train
from fedclust.core.types import Federation, Pool, Split
from fedclust.datasets.view import ImageToInput
from fedclust.engines import make_engine
from fedclust.engines.clients import SeedClients
from fedclust.models.mlp import mlp
from fedclust.scenarios.static import Static
from fedclust.solver import Solver

ROWS = 60


def pools(view: ImageToInput | None = None, side: int = 4) -> tuple[Pool, Pool]:
    """Twenty images under three concepts: shared, and copied row by row."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (20, 1, side, side), generator=generator, dtype=torch.uint8)
    image = torch.arange(20).repeat_interleave(3)
    labels = torch.arange(ROWS) % 4
    shared = pool_of(x, labels, 4, 1 / 255, -0.5, view=view, image=image, concepts=3)
    return shared, replace(shared, x=x[image], image=None)


def test_the_inputs_are_the_same() -> None:
    crop = ImageToInput(crop=3, standardise=True, augment="crop_flip_contrast")
    index = torch.tensor([[0, 1, 59], [7, 7, 30]])
    key = torch.tensor([5, 6])
    for view in (None, crop):
        shared, copied = pools(view)
        assert torch.equal(shared.inputs(index), copied.inputs(index))
        assert torch.equal(
            shared.training_inputs(index, key, 2), copied.training_inputs(index, key, 2)
        )
        assert torch.equal(shared.to(torch.device("cpu")).inputs(index), copied.inputs(index))
        assert shared.digest != copied.digest


@pytest.mark.parametrize("name", ["loop", "vmap", "fused"])
def test_every_engine_trains_and_tests_to_the_same_bits(name: str) -> None:
    results = []
    split = Split.of([torch.arange(i, ROWS, 5) for i in range(5)])
    for pool in pools():
        fed = Federation(pool=pool, train=split, test=split, group=torch.arange(5))
        rnd = next(Static().rounds(fed, 0))
        engine = make_engine(name, mlp(pool.shape, 4, hidden=[6]), pool, None)
        clients = SeedClients(engine, rnd)
        models = clients.init(rnd.stream("init"), 2)
        label = torch.arange(5) % 2
        solver = Solver(lr=0.1, batch_size=4, epochs=2)
        trained = clients.train(Train(models, label, rnd.cohort, solver))
        results.append([trained.params, trained.loss, clients.loss(models, rnd.cohort)])
        results[-1].append(clients.grad(Gradient(models, label, rnd.cohort)))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)
