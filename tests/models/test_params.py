"""Flat parameters: views, order, round trip."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedclust.models.mlp import mlp
from fedclust.models.params import flatten, layout, unflatten


def test_order_is_that_of_parameters() -> None:
    model = mlp((1, 2, 3), 4, hidden=[5])
    where = layout(model)
    flat = torch.arange(float(where.num_params))
    nn.utils.vector_to_parameters(flat, model.parameters())
    views = unflatten(flat, where)
    assert list(views) == [name for name, _ in model.named_parameters()]
    for name, value in model.named_parameters():
        assert torch.equal(views[name], value)


def test_named_tensors_are_views_and_flatten_is_the_inverse() -> None:
    where = layout(mlp((6,), 4, hidden=[5]))
    flat = torch.randn(2, 3, where.num_params)
    views = unflatten(flat, where)
    assert {name: tuple(value.shape[2:]) for name, value in views.items()} == dict(
        zip(where.names, where.shapes, strict=True)
    )
    assert torch.equal(flatten(views, where, batch_dims=2), flat)
    views["0.bias"].zero_()
    assert int((flat == 0).sum()) == 2 * 3 * 5


def test_wrong_number_of_parameters() -> None:
    with pytest.raises(ValueError, match="got 3 parameters, the model has 8"):
        unflatten(torch.zeros(3), layout(mlp((3,), 2, hidden=[])))
