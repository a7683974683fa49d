"""FLUX's descriptor: projections read off losses, moments by hand, and the groups it finds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from fronts import Front
from torch import Tensor
from toys import federation_of, pool_of

from fedclust.cluster_methods.dbscan import Dbscan, knee
from fedclust.cluster_metrics.descriptor import Descriptor, moments, orthonormal, scaled
from fedclust.cluster_metrics.readout import last_width, projections
from fedclust.core.types import Federation
from fedclust.engines import make_engine
from fedclust.helpers.errors import ConfigError
from fedclust.helpers.rng import Stream
from fedclust.models.mlp import mlp
from fedclust.scenarios.static import Static

SIZES = (39, 60, 44, 52, 48, 55)


def federation() -> Federation:
    """Six clients; the odd ones see everything negated, and client 1 lacks class 0."""
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(sum(SIZES), 5, generator=draw) + 3
    y = torch.randint(0, 4, (len(x),), generator=draw)
    rows = torch.arange(len(x)).split(list(SIZES))
    y[rows[1]] = y[rows[1]].clamp(min=1)
    for odd in (1, 3, 5):
        x[rows[odd]] *= -1
    return federation_of(pool_of(x, y, 4), rows, group=torch.arange(6) % 2)


def clients_of(fed: Federation, engine: str, hidden: list[int]) -> Any:
    front = Front(make_engine(engine, mlp((5,), 4, hidden=hidden), fed.pool, None))
    return front.at(next(Static().rounds(fed, 0)))


@pytest.mark.parametrize("engine", ["loop", "vmap", "fused"])
@pytest.mark.parametrize("hidden", [[], [7]])
def test_losses_tell_what_reaches_the_last_layer(engine: str, hidden: list[int]) -> None:
    fed = federation()
    clients = clients_of(fed, engine, hidden)
    model, width = clients.init(Stream.of(0, "model"), 1), 7 if hidden else 5
    assert last_width(clients) == width
    directions, ids = orthonormal(width, 3), torch.tensor([1, 4])
    read = projections(model, directions, ids, clients, clients.rnd)
    assert read.shape == (2, 60, 3)
    for row, client in enumerate(ids.tolist()):
        h = fed.pool.x[fed.train.of_client(client)]
        if hidden:
            first, bias = clients.layout.names[:2]
            shape = clients.layout.shapes[0]
            weight = model[0, clients.layout[first]].view(shape)
            h = torch.relu(h @ weight.T + model[0, clients.layout[bias]])
        torch.testing.assert_close(read[row, : len(h)], h @ directions.T, rtol=0, atol=5e-5)


def test_directions_are_orthonormal_and_always_the_same() -> None:
    rows = orthonormal(8, 5)
    torch.testing.assert_close(rows @ rows.T, torch.eye(5), atol=1e-6, rtol=0)
    assert torch.equal(rows, orthonormal(8, 5))


def test_moments_by_hand() -> None:
    fed = federation()
    rnd, ids = next(Static().rounds(fed, 0)), torch.tensor([0, 1])
    latent = torch.randn(2, 60, 2, generator=torch.Generator().manual_seed(0))
    mean, deviation, means, deviations = moments(latent, ids, rnd)
    for row, client in enumerate(ids.tolist()):
        z, y = latent[row, : SIZES[client]], fed.pool.y[fed.train.of_client(client)]
        torch.testing.assert_close(mean[row], z.mean(0))
        torch.testing.assert_close(deviation[row], z.std(0, correction=0))
        for c in range(4):
            mine = z[y == c]
            at = slice(2 * c, 2 * c + 2)
            absent = -torch.ones(2)
            expected = mine.mean(0) if len(mine) else absent
            torch.testing.assert_close(means[row, at], expected)
            expected = mine.std(0, correction=0) if len(mine) else absent
            torch.testing.assert_close(deviations[row, at], expected, atol=1e-3, rtol=1e-4)
    assert means[1, :2].tolist() == [-1, -1]
    assert float(scaled(means).square().mean()) == pytest.approx(1)
    assert scaled(torch.ones(3, 2)).tolist() == [[0, 0]] * 3


def test_groups_lie_apart_and_permuted_clients_give_permuted_distances() -> None:
    clients = clients_of(federation(), "loop", [])
    model, order = clients.init(Stream.of(0, "model"), 1), torch.tensor([3, 0, 5, 1, 4, 2])
    metric = Descriptor(directions=5)

    def distance(ids: Tensor) -> Tensor:
        return metric(clients, model.repeat(6, 1), model, ids, clients.rnd)

    found = distance(torch.arange(6))
    assert torch.equal(found, found.T)
    assert not found.diagonal().any()
    assert found[0::2, 1::2].min() > 1.2 * found[0::2, 0::2].max()
    torch.testing.assert_close(distance(order), found[order][:, order], rtol=1e-3, atol=1e-3)


def test_what_it_sends_and_what_it_needs() -> None:
    assert Descriptor().transfers(7, 10) == (7, 0, 7 * 220)
    clients = clients_of(federation(), "loop", [])
    model = clients.init(Stream.of(0, "model"), 1)
    with pytest.raises(ConfigError, match=r"cluster_metric\.directions=6 .* at most the 5 inputs"):
        Descriptor(directions=6)(clients, model, model, torch.arange(6), clients.rnd)
    bare = replace(clients.engine.layout, names=("0.weight",), shapes=((4, 5),))
    clients.engine.layout = bare
    with pytest.raises(ConfigError, match=r"a linear layer with a bias"):
        last_width(clients)


def test_the_knee_of_the_nearest_distances_is_the_radius() -> None:
    """Nearest distances are five times 1, then 1.5, 27.5 and 50: the first knee is 1.5."""
    place = torch.tensor([0.0, 1.0, 2.0, 10.0, 11.0, 12.5, 40.0, 90.0])
    distance = (place.unsqueeze(1) - place).abs()
    stream = Stream.of(0, "clustering")
    found = Dbscan(num_clusters="auto", eps="knee", min_samples=2)(distance, stream)
    # the knee is 1.5; the last two clients belong nowhere, and so nowhere together
    assert found.tolist() == [0, 0, 0, 1, 1, 1, 2, 3]
    given = Dbscan(num_clusters="auto", eps=1.5, min_samples=2)(distance, stream)
    assert given.tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
    same = Dbscan(num_clusters="auto", eps="knee", min_samples=2)(torch.zeros(3, 3), stream)
    assert same.tolist() == [0, 0, 0]


def star(*nearest: float) -> Any:
    """Distances of clients that are as far from the first as given, and farther apart."""
    far = torch.full((len(nearest) + 1,) * 2, 1e3).double().fill_diagonal_(0)
    far[0, 1:] = far[1:, 0] = torch.tensor(nearest).double()
    return far.numpy()


@pytest.mark.parametrize(
    ("nearest", "first"),
    [
        # values of kneed 0.9.0; farthest below the chord are 3.1, 3.1, 1.2 and 4
        ((1, 1.2, 2, 2, 3.1, 3.1, 5, 9), 2.0),
        ((1, 1.2, 2, 3, 3.1, 5, 6, 8), 2.0),
        ((1, 1, 1.2, 5, 5, 5, 6, 8.1), 5.0),
        ((1, 2, 4, 10), 4.0),
        ((1, 2, 3, 4), 4.0),  # a straight line has no knee: nobody stands out
        ((2, 2, 2), 2.0),
    ],
)
def test_the_knee_is_the_first_confirmed_one(nearest: tuple[float, ...], first: float) -> None:
    assert knee(star(*nearest)) == pytest.approx(first)


def test_one_client_is_a_cluster_of_its_own() -> None:
    method = Dbscan(num_clusters="auto", eps="knee", min_samples=2)
    assert method(torch.zeros(1, 1), Stream.of(0, "clustering")).tolist() == [0]


def test_reading_costs_every_client_one_forward_pass() -> None:
    clients = clients_of(federation(), "loop", [])
    model = clients.init(Stream.of(0, "model"), 1)
    Descriptor(directions=5)(clients, model, model, torch.arange(6), clients.rnd)
    assert clients.passes.forward == 6


def test_far_inputs_are_read_as_well() -> None:
    """Of norms up to 2,000: without a shorter direction nothing below -100 can be read."""
    fed = federation()
    fed = replace(fed, pool=replace(fed.pool, x=200 * fed.pool.x))
    clients = clients_of(fed, "loop", [])
    model, directions = clients.init(Stream.of(0, "model"), 1), orthonormal(5, 3)
    read = projections(model, directions, torch.tensor([0, 1]), clients, clients.rnd)
    for row in (0, 1):
        wanted = fed.pool.x[fed.train.of_client(row)] @ directions.T
        torch.testing.assert_close(read[row, : len(wanted)], wanted, rtol=1e-4, atol=1e-2)
    assert float(read.min()) < -500
    assert clients.passes.forward == 2
