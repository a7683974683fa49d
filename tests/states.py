"""States of methods, in memory and in checkpoints, as tests compare them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from fedclust.core.client_models import ClientModels


def dense(state: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a state; models of clients, also as a checkpoint keeps them, as one tensor
    [M, P].
    """
    return {name: _dense(value) for name, value in state.items()}


def _dense(value: Any) -> Any:
    if isinstance(value, ClientModels):
        return value.all()
    return value["rows"][value["places"]] if isinstance(value, Mapping) else value


def assert_same_bits(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """Equal bits in every tensor, equal values elsewhere."""
    assert one.keys() == other.keys()
    mine, its = dense(one), dense(other)
    for name, value in mine.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, its[name]), name
        else:
            assert value == its[name], name
