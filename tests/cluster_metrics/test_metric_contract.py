"""What every cluster metric promises, found by the files below conf/cluster_metric."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from configs import composed, names
from fronts import Front
from toys import federation_of, pool_of

from fedclust.config.objects import Objects
from fedclust.core.front import Train
from fedclust.core.types import Federation
from fedclust.engines.loop import LoopEngine
from fedclust.models.mlp import mlp
from fedclust.scenarios.static import Static
from fedclust.solver import Solver

# what the file's defaults ask for and five clients of so small a model do not have
SETTINGS = {
    "descriptor": ["cluster_metric.directions=3"],
    "edc": ["cluster_metric.num_components=2"],
}


def federation() -> Federation:
    """Six clients of unequal size and unequal classes."""
    draw = torch.Generator().manual_seed(0)
    sizes = [12, 15, 18, 21, 24, 27]
    x = torch.randn(sum(sizes), 6, generator=draw)
    y = torch.randint(0, 3, (len(x),), generator=draw)
    return federation_of(
        pool_of(x, y, 3), torch.arange(len(x)).split(sizes), group=torch.arange(6) % 2
    )


def made(name: str, *more: str) -> Any:
    """The metric as its file describes it."""
    node = composed(f"cluster_metric={name}", *SETTINGS.get(name, []), *more)["cluster_metric"]
    return Objects().make(node, "cluster_metric")


LOCAL = ("grad_cosine", "cluster_metric.gradient=local")


@pytest.mark.full
@pytest.mark.parametrize(
    "given", [*((name,) for name in names("cluster_metric")), LOCAL], ids=" ".join
)
def test_symmetric_with_zero_diagonal_and_equivariant(given: tuple[str, ...]) -> None:
    metric, fed, ids = made(*given), federation(), torch.tensor([0, 1, 3, 4, 5])
    rnd = next(Static().rounds(fed, 0))
    clients = Front(LoopEngine(mlp((6,), 3, hidden=[5]), fed.pool)).at(rnd)
    common = clients.init(rnd.stream("init"), 1)
    solver = Solver(lr=0.3, batch_size=6, epochs=2)
    models = clients.train(Train(common, torch.zeros_like(ids), ids, solver)).params
    distance = metric(clients, models, common, ids, rnd)
    assert distance.shape == (5, 5)
    assert torch.equal(distance, distance.T)
    assert not distance.diagonal().any()
    assert float((distance + torch.eye(5)).min()) > 0
    order = torch.tensor([3, 0, 4, 2, 1])
    again = metric(clients, models[order], common, ids[order], rnd)
    torch.testing.assert_close(again, distance[order][:, order], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", names("cluster_metric"))
def test_what_it_sends_is_counted_by_clients(name: str) -> None:
    metric = made(name)
    few, many = metric.transfers(7, 10), metric.transfers(14, 10)
    assert len(few) == 3
    assert all(isinstance(number, int) and number >= 0 for number in few)
    assert sum(many) >= 2 * sum(few) > 0
    assert metric.num_components is None or 1 <= metric.num_components <= 5
