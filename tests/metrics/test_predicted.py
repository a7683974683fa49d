"""What is said of clients: theirs alone, however many are asked at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import federation_of, pool_of, round_of

from fedclust.core.types import Pool, Served
from fedclust.core.verbs import Engine
from fedclust.engines import clients as module
from fedclust.engines.clients import SeedClients
from fedclust.engines.fused import FusedEngine
from fedclust.engines.loop import LoopEngine
from fedclust.helpers.rng import Stream
from fedclust.models.mlp import mlp


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("most", [1, 1 << 22])
def test_every_client_has_its_own(
    monkeypatch: pytest.MonkeyPatch, most: int, weighted: bool
) -> None:
    """Clients 1 (not served) and 3 (no test examples) are left out; the others are scored as by a
    test of them alone.
    """
    monkeypatch.setattr(module, "_OUTPUTS", most)
    draw = torch.Generator().manual_seed(0)
    pool = pool_of(
        torch.randn(20, 3, generator=draw), torch.randint(0, 4, (20,), generator=draw), 4
    )
    rows = [range(5), range(5, 9), range(9, 12), [], range(12, 20)]
    rnd = round_of(federation_of(pool, rows))
    engine = LoopEngine(mlp((3,), 4, hidden=[]), pool)
    models = torch.stack([engine.init(Stream.of(0, "init", k)) for k in range(3)])
    share = torch.rand(5, 3, generator=draw) if weighted else None
    weight = None if share is None else share / share.sum(1, keepdim=True)
    label = torch.tensor([2, -1, 0, 1, 1])
    served = Served(models=models, label=label, weight=weight)
    said = SeedClients(engine, rnd).predict(served)
    assert said.client.tolist() == [0] * 5 + [2] * 3 + [4] * 8
    assert said.row.tolist() == [*range(5), *range(9, 20)]
    assert torch.equal(said.targets, pool.y[said.row])
    torch.testing.assert_close(said.predictions.sum(1), torch.ones(16, dtype=torch.float64))
    tested = SeedClients(engine, rnd).evaluate(served)
    for client in (0, 2, 4):
        own = said.client == client
        true = said.predictions[own].gather(1, said.targets[own].unsqueeze(1))
        torch.testing.assert_close(-true.log().sum(), tested.loss_sum[client], rtol=1e-6, atol=1e-6)
    nobody = Served(models=models, label=torch.full((5,), -1), weight=weight)
    assert SeedClients(engine, rnd).predict(nobody).predictions.shape == (0, 4)


@pytest.mark.parametrize("kind", [LoopEngine, FusedEngine])
def test_sure_predictions_are_told_apart(kind: Callable[[Any, Pool], Engine]) -> None:
    """Logits of 20 to 30 are probabilities of 1 in float32, and not in float64."""
    x = torch.arange(20.0, 28.0).unsqueeze(1)
    pool = pool_of(x, torch.ones(8).long())
    assert len(torch.stack([0 * x[:, 0], x[:, 0]], 1).softmax(1)[:, 1].unique()) == 1
    rnd = round_of(federation_of(pool, [range(8)]))
    engine = kind(mlp((1,), 2, hidden=[]), pool)
    models = torch.zeros(1, engine.layout.num_params)
    weight = engine.layout[next(iter(engine.layout.names))]
    models[0, weight.start + 1] = 1.0
    said = SeedClients(engine, rnd).predict(Served(models=models, label=torch.zeros(1).long()))
    assert len(said.predictions[:, 1].unique()) == 8
