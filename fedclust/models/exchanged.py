"""What takes the place of a module's dropout layers when it is adopted: masks from the row's key.

A layer stays what it was, with its name and parameters; only its class becomes one of ours, which
does what the old one did, by masks that are handed to it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fedclust.helpers.errors import ConfigError

Features = tuple[int, ...]


@dataclass
class Tape:
    """What the exchanged layers of a module are handed in one pass; all of them hold it.

    Attributes:
        masks: by the number of a layer's call in the pass; None while places are found.
        batch: examples of the pass.
        places: features and rate of every call of a dropout layer, in the order of the calls.
        calls: so many there were in this pass.
    """

    masks: Mapping[int, Tensor] | None = None
    batch: int = 0
    places: list[tuple[Features, float]] = field(default_factory=list)
    calls: int = 0

    def begin(self, batch: int, masks: Mapping[int, Tensor] | None) -> None:
        """A new pass."""
        self.batch, self.masks, self.calls = batch, masks, 0

    def drop(self, layer: Any, x: Tensor, features: Features) -> Tensor:
        """x without what the mask of this call leaves out."""
        place, self.calls = self.calls, self.calls + 1
        if self.masks is not None:
            return x * self.masks[place]
        if self.batch and len(x) != self.batch:
            raise ConfigError(
                f"model: the input {tuple(x.shape)} of a {type(layer).__bases__[1].__name__} is "
                f"not allowed: its first dimension must be that of the {self.batch} examples"
            )
        self.places.append((features, float(layer.p)))
        return x


class _Keyed:
    """A dropout layer that is handed its masks."""

    tape: Tape
    p: float
    training: bool

    def features(self, x: Tensor) -> Features:
        """Shape of an example's mask."""
        return tuple(x.shape[1:])

    def forward(self, x: Tensor) -> Tensor:
        """As the layer that it was."""
        if not self.training or not self.p:
            return x
        return self.tape.drop(self, x, self.features(x))


class _ByChannel(_Keyed):
    def features(self, x: Tensor) -> Features:
        return (x.shape[1], *[1] * (x.ndim - 2))


class _Dropout(_Keyed, nn.Dropout):
    pass


class _Dropout1d(_ByChannel, nn.Dropout1d):
    pass


class _Dropout2d(_ByChannel, nn.Dropout2d):
    pass


class _Dropout3d(_ByChannel, nn.Dropout3d):
    pass


def exchange(module: nn.Module) -> Tape:
    """Exchange the layers of a module in place; what they will be handed."""
    tape, ours = Tape(), {kind.__bases__[1]: kind for kind in _KINDS}
    ours |= _of_torchvision()
    for part in module.modules():
        whole = getattr(part, "mode", "row") != "batch"  # one draw for all examples stays
        if type(part) in ours and whole:
            part.__class__ = ours[type(part)]
            part.tape = tape  # type: ignore[assignment]
    return tape


_KINDS: tuple[Any, ...] = (_Dropout, _Dropout1d, _Dropout2d, _Dropout3d)


def _of_torchvision() -> dict[type, Any]:
    """Its layer that leaves out whole branches of some examples, where torchvision is in use."""
    ops = sys.modules.get("torchvision.ops")
    if ops is None:
        return {}

    class StochasticDepth(_Keyed, ops.StochasticDepth):  # type: ignore[name-defined, misc]
        def features(self, x: Tensor) -> Features:
            return (1,) * (x.ndim - 1)

    return {ops.StochasticDepth: StochasticDepth}


def seeded(seed: int, function: Callable[[], Any], device: torch.device | None = None) -> Any:
    """What a function returns while the global generators begin at a seed; they are put back."""
    devices = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        return function()
