"""Recurrent layers in steps give what PyTorch's own operations give, and the same gradients."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedclust.models.exchanged import exchange, plain
from fedclust.models.recurrent import InSteps


def both(layer: nn.Module) -> tuple[nn.Module, nn.Module]:
    """A layer in float64 as it is, and the same in steps."""
    own = layer.double()
    stepping: Any = copy.deepcopy(own)
    exchange(stepping)
    assert isinstance(stepping, InSteps)
    assert plain(stepping) is type(own)
    stepping.in_steps = True
    return own, stepping


def flat(result: Any) -> list[Tensor]:
    """All tensors of a result."""
    return [result] if isinstance(result, Tensor) else [y for part in result for y in flat(part)]


@pytest.mark.thinned
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("begun", [True, False])
def test_steps_are_the_layer(kind: Any, batch_first: bool, bias: bool, begun: bool) -> None:
    torch.manual_seed(0)
    own, stepping = both(kind(3, 4, 2, batch_first=batch_first, bias=bias))
    x = torch.randn(5, 6, 3, dtype=torch.float64, requires_grad=True)
    state: Any = torch.randn(2, 5 if batch_first else 6, 4, dtype=torch.float64)
    state = (state, state.flip(2)) if kind is nn.LSTM else state
    found = []
    for layer in (own, stepping):
        outs = flat(layer(x, state) if begun else layer(x))
        total = sum((place + 1) * out.square().sum() for place, out in enumerate(outs))
        found.append([*outs, *torch.autograd.grad(total, [x, *layer.parameters()])])  # type: ignore[arg-type]
    for got, want in zip(*found, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize(
    "options", [{"bidirectional": True}, {"proj_size": 2}, {"num_layers": 2, "dropout": 0.5}]
)
def test_what_is_not_known_is_left_to_the_layer(options: dict[str, Any]) -> None:
    own, stepping = both(nn.LSTM(3, 4, **options))
    x = torch.randn(6, 5, 3, dtype=torch.float64)
    found = []
    for layer in (own, stepping):
        torch.manual_seed(1)
        found.append(flat(layer(x)))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_one_sequence_alone_is_left_to_the_layer() -> None:
    own, stepping = both(nn.GRU(3, 4))
    x = torch.randn(6, 3, dtype=torch.float64)
    assert all(torch.equal(a, b) for a, b in zip(flat(own(x)), flat(stepping(x)), strict=True))
