"""What takes the place of some of a module's layers when it is adopted.

Only the class of a layer becomes one of ours. Dropout takes masks that are handed to it, from the
key of the row. A normalisation with running statistics looks at the real examples of a padded batch
only, and hands its new statistics back. Recurrent layers can go step by step.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from fedclust.helpers.errors import ConfigError
from fedclust.models.recurrent import InSteps

Features = tuple[int, ...]


@dataclass
class Tape:
    """What the exchanged layers of a module are handed in one pass; all of them hold it."""

    # by the number of a layer's call in the pass; None while places are found
    masks: Mapping[int, Tensor] | None = None
    batch: int = 0  # examples of the pass
    # features and rate of every call of a dropout layer, in the order of the calls
    places: list[tuple[Features, float]] = field(default_factory=list)
    calls: int = 0  # so many there were in this pass
    real: Tensor | None = None  # [B] bool which examples are no padding; None where all are
    # the new statistics by name, where there may be padding
    renewed: dict[str, Tensor] = field(default_factory=dict)

    def begin(
        self,
        batch: int,
        masks: Mapping[int, Tensor] | None,
        real: Tensor | None = None,
        renewed: dict[str, Tensor] | None = None,
    ) -> None:
        """A new pass; with what an earlier one has `renewed`, if that is still to be taken."""
        self.batch, self.masks, self.calls = batch, masks, 0
        self.real, self.renewed = real, renewed or {}

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


class _Normalising:
    """A normalisation with running statistics."""

    tape: Tape
    key: str
    by_example = False  # whether each example is normalised by itself

    def forward(self, x: Tensor) -> Tensor:
        """As the layer that it was; of the real examples where there may be others."""
        me, plain = cast(Any, self), nn.modules.batchnorm._BatchNorm.forward
        real = self.tape.real
        if real is None or not me.training:
            return cast(Tensor, super().forward(x) if self.by_example else plain(me, x))  # type: ignore[misc]
        return self._of_real(me, x, real)

    def _of_real(self, me: Any, x: Tensor, real: Tensor) -> Tensor:
        """x normalised by the statistics of the real examples, which the running ones follow."""
        within = tuple(range(2, x.ndim))
        dims = within if self.by_example else (0, *within)
        counts = real.view(-1, *[1] * (x.ndim - 1)).to(x.dtype)
        each = math.prod(x.shape[2:])
        number = x.new_tensor(each) if self.by_example else real.sum() * each
        weight = torch.ones_like(counts) if self.by_example else counts
        mean = (x * weight).sum(dims, keepdim=True) / number
        var = ((x - mean).square() * weight).sum(dims, keepdim=True) / number
        out = (x - mean) * torch.rsqrt(var + me.eps)
        if me.weight is not None:
            shape = (1, -1, *[1] * len(within))
            out = out * me.weight.view(shape) + me.bias.view(shape)
        with torch.no_grad():
            self._renew(me, mean, var * number / (number - 1), counts)
        return out

    def _renew(self, me: Any, mean: Tensor, var: Tensor, counts: Tensor) -> None:
        """Move the running statistics towards those of a batch."""
        renewed = self.tape.renewed
        at = {name: f"{self.key}{name}" for name in _RUNNING}
        now = {name: renewed.get(at[name], getattr(me, name)) for name in _RUNNING}
        count = now["num_batches_tracked"] + (0 if self.by_example else 1)
        factor = me.momentum
        if factor is None:
            factor = 0.0 if self.by_example else 1 / count
        if self.by_example:
            mean, var = ((v * counts).sum(0) / counts.sum() for v in (mean, var))
        for name, batch in (("running_mean", mean), ("running_var", var)):
            renewed[at[name]] = (1 - factor) * now[name] + factor * batch.detach().flatten()
        renewed[at["num_batches_tracked"]] = count


class _ByExample(_Normalising):
    by_example = True


class _OfClient(_Normalising):
    """Over the batch of the client, whatever ranks there are."""

    def _check_input_dim(self, x: Tensor) -> None:
        pass


def plain(layer: nn.Module) -> type[nn.Module]:
    """The class that a layer had before it was exchanged."""
    kind = type(layer)
    return kind.__bases__[1] if issubclass(kind, (_Keyed, _Normalising, InSteps)) else kind


def exchange(module: nn.Module) -> Tape:
    """Exchange the layers of a module in place; what they will be handed."""
    tape, ours = Tape(), _OURS | _of_torchvision()
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._NormBase):
            if part.running_mean is None:
                continue
            part.key = f"{name}." if name else ""  # type: ignore[assignment]
        whole = getattr(part, "mode", "row") != "batch"  # one draw for all examples stays
        if type(part) in ours and whole:
            part.__class__ = ours[type(part)]
            part.tape = tape
    return tape


_RUNNING = ("running_mean", "running_var", "num_batches_tracked")
_CHANGES: dict[type, tuple[type[nn.Module], ...]] = {
    _Keyed: (nn.Dropout,),
    _ByChannel: (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d),
    _Normalising: (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
    _ByExample: (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
    _OfClient: (nn.SyncBatchNorm,),
    InSteps: (nn.LSTM, nn.GRU),
}
# our class of each, under the name by which a user knows it
_OURS: dict[type, Any] = {
    kind: type(kind.__name__, (change, kind), {"__module__": __name__})
    for change, kinds in _CHANGES.items()
    for kind in kinds
}


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
