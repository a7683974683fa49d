"""Closed forms of the dissimilarities; test_metric_contract.py has what every one promises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from fronts import AllTrained
from torch import Tensor

from fedclust.cluster_metrics.edc import EDC
from fedclust.cluster_metrics.grad_cosine import GradCosine
from fedclust.cluster_metrics.loss import Loss
from fedclust.cluster_metrics.loss_cross import LossCross
from fedclust.cluster_metrics.madc import MADC
from fedclust.cluster_metrics.param_norm import ParamNorm
from fedclust.core.front import Gradient
from fedclust.helpers.errors import ConfigError
from fedclust.models.params import Layout


@dataclass
class LeastSquares:
    """An engine whose clients have squared loss: x [M, n, d], y [M, n]."""

    x: Tensor
    y: Tensor
    layout: ClassVar[Layout] = AllTrained.layout

    def at(self, rnd: Any) -> Any:
        return self

    def loss(self, models: Tensor, ids: Tensor) -> Tensor:
        residual = self.x[ids] @ models.T - self.y[ids].unsqueeze(2)  # [C, n, K]
        return residual.square().mean(1)

    def grad(self, asked: Gradient) -> Tensor:
        x, y = self.x[asked.ids, : asked.batch_size], self.y[asked.ids, : asked.batch_size]
        residual = (x @ asked.begun.unsqueeze(2)).squeeze(2) - y
        return 2 * (residual.unsqueeze(2) * x).mean(1)

    def minimisers(self) -> Tensor:
        return torch.linalg.lstsq(self.x, self.y.unsqueeze(2)).solution.squeeze(2)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def least_squares(ids: int = 5, n: int = 40, d: int = 4) -> LeastSquares:
    return LeastSquares(drawn(ids, n, d), drawn(ids, n, seed=1))


def call(metric: Any, clients: Any, models: Tensor, common: Tensor | None = None) -> Tensor:
    ids = torch.arange(len(models))
    shared = torch.zeros(1, models.shape[1], dtype=models.dtype) if common is None else common
    distance: Tensor = metric(clients, models, shared, ids, None)
    return distance


def test_linear_regression_in_closed_form() -> None:
    """With equal Sxx d = 2 (S^xy - Sxy)' Sxx^-1 (S^xy - Sxy) (paper, III)."""
    n, d = 60, 4
    root = torch.linalg.cholesky(torch.cov(drawn(d, 30, seed=5)))
    white = torch.linalg.qr(drawn(2, n, d)).Q * n**0.5
    x = white @ root.T
    clients = LeastSquares(x, drawn(2, n, seed=1))
    covariance = x.transpose(1, 2) @ x / n
    torch.testing.assert_close(covariance[0], covariance[1])
    cross = (x.transpose(1, 2) @ clients.y.unsqueeze(2)).squeeze(2) / n
    gap = cross[0] - cross[1]
    excess = gap @ torch.linalg.solve(covariance[0], gap)
    distance = call(Loss(), clients, clients.minimisers())
    torch.testing.assert_close(distance[0, 1], 2 * excess)


def test_the_triangle_inequality_does_not_hold() -> None:
    """Squared loss around 0, 1 and 2: the distances are 2, 2 and 8 (the paper's II-A says no)."""
    clients = LeastSquares(torch.ones(3, 1, 1).double(), torch.arange(3.0).double().unsqueeze(1))
    distance = call(Loss(), clients, clients.minimisers())
    assert distance[0, 1] == distance[1, 2] == 2
    assert distance[0, 2] == 8


def test_one_vector_for_all_classes_moves_parameters_only() -> None:
    """Softmax regression: losses, and so eq. (2), do not see it; distances of parameters do."""
    x, classes = drawn(4, 30, 5), 3
    label = drawn(4, 30, classes, seed=1).argmax(2)

    @dataclass
    class Softmax(LeastSquares):
        def loss(self, models: Tensor, ids: Tensor) -> Tensor:
            weight = models.view(-1, 5, classes)
            score = torch.einsum("cnd,kdy->cnky", self.x[ids], weight).log_softmax(3)
            place = self.y[ids, :, None, None].expand(-1, -1, len(models), 1)
            return -score.gather(3, place).squeeze(3).mean(1)

    clients, models = Softmax(x, label), drawn(4, 5 * classes, seed=2)
    moved = models.clone().view(4, 5, classes)
    moved[0] += drawn(5, 1, seed=3)
    shifted = moved.view(4, -1)
    assert torch.allclose(call(Loss(), clients, shifted), call(Loss(), clients, models))
    change = call(ParamNorm(), clients, shifted) - call(ParamNorm(), clients, models)
    assert change[0, 1:].abs().min() > 0.05
    assert change[1:, 1:].abs().max() == 0


def test_entries_equal_their_definitions() -> None:
    clients = least_squares()
    models = drawn(5, 4, seed=2)
    table = clients.loss(models, torch.arange(5))
    own, cross = call(Loss(), clients, models), call(LossCross(), clients, models)
    for i, j in ((0, 1), (2, 4)):
        ii, ij, ji, jj = (float(table[a, b]) for a, b in ((i, i), (i, j), (j, i), (j, j)))
        assert float(own[i, j]) == pytest.approx(abs(ii - ij) + abs(ji - jj))
        assert float(cross[i, j]) == pytest.approx(abs(ii - ji) + abs(ij - jj))


def test_param_norm_is_the_euclidean_distance() -> None:
    models = drawn(6, 50).float()
    expected = (models.unsqueeze(1) - models).norm(dim=2)
    torch.testing.assert_close(call(ParamNorm(), AllTrained(), models), expected)


def test_grad_cosine_is_one_minus_the_cosine_there() -> None:
    clients = least_squares()
    models, common = drawn(5, 4, seed=2), drawn(1, 4, seed=3)
    for where, start in (("common", common.expand(5, 4)), ("local", models)):
        gradient = clients.grad(Gradient(start, torch.arange(5), torch.arange(5)))
        expected = 1 - torch.nn.functional.cosine_similarity(gradient.unsqueeze(1), gradient, dim=2)
        distance = call(GradCosine(gradient=where), clients, models, common)
        torch.testing.assert_close(
            distance, expected.float().fill_diagonal_(0), rtol=1e-5, atol=1e-6
        )


def test_grad_cosine_of_a_batch_looks_at_that_many_examples_of_each_client() -> None:
    clients, models = least_squares(), drawn(5, 4, seed=2)
    few = LeastSquares(clients.x[:, :2], clients.y[:, :2])
    batch = call(GradCosine(gradient="last_batch", batch_size=2), clients, models)
    torch.testing.assert_close(batch, call(GradCosine(gradient="local"), few, models))
    everything = call(GradCosine(gradient="local", batch_size=2), clients, models)
    torch.testing.assert_close(call(GradCosine(gradient="last_batch"), clients, models), everything)
    assert not torch.allclose(batch, everything)
    with pytest.raises(ConfigError, match=r"GradCosine\.batch_size=0 is not allowed"):
        GradCosine(gradient="last_batch", batch_size=0)


def test_a_client_without_gradient_is_at_distance_one() -> None:
    clients = least_squares(3)
    clients.y[1] = 0
    assert call(GradCosine(), clients, drawn(3, 4))[1].tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    "metric",
    [
        *(Loss(), LossCross(), ParamNorm(), GradCosine(), GradCosine(gradient="local")),
        *(EDC(num_components=3), MADC()),
    ],
    ids=repr,
)
def test_transfers(metric: Any) -> None:
    exchange = isinstance(metric, Loss | LossCross)
    common = metric == GradCosine()  # the gradients are of the server's model, which all are sent
    *models, numbers = metric.transfers(7, 10)
    assert models == ([42, 7] if exchange else [7 * common, 7])
    # halves of the distances to all others, or all losses
    assert numbers == {Loss: 7 * 6, LossCross: 7 * 7}.get(type(metric), 0)
    assert sum(metric.transfers(1200, 10)[:2]) == (1200**2 if exchange else 1200 * (1 + common))
