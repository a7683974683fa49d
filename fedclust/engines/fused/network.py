"""A model as layers and as fields of a flat row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor, nn

from fedclust.engines.fused.branches import BRANCHING, OVERWRITING, PARTING
from fedclust.engines.fused.native import convolution
from fedclust.engines.fused.normal import NORMS, STATISTICS
from fedclust.engines.fused.weights import Field
from fedclust.helpers.errors import ConfigError
from fedclust.models.foreign import Runnable
from fedclust.models.params import layout
from fedclust.models.reading import UnreadableError
from fedclust.models.sequence import ACTIVATIONS, INPUTS, KNOWN, Join, Next, Shaped, Split, Turn

WEIGHTED = (nn.Linear, nn.Conv2d)
Pulls = tuple[tuple[str, float], ...]  # factors of the proximal weight by parameter
_ANYWHERE = (*ACTIVATIONS, *INPUTS, *PARTING, Shaped, Turn, nn.LayerNorm)
IMAGES_ONLY = (
    nn.Conv2d,
    nn.MaxPool2d,
    nn.LocalResponseNorm,
    nn.ZeroPad2d,
    nn.BatchNorm2d,
    nn.AvgPool2d,
)


def obstacle(model: Runnable, *, softmax: bool = True, device: str = "cpu") -> str:
    """Why the fused engine cannot run a model, in words; empty where it can.

    Args:
        softmax: whether the loss is the plain cross entropy of a softmax.
        device: the kind of device that is to run it.
    """
    try:
        reading = model.reading()
    except UnreadableError as error:
        return f"the fused engine does not know {error}"
    if reading.logs and not softmax:
        return "the fused engine does not know a log-softmax under this task's loss"
    weighted = flat = False
    parted: list[bool] = []  # whether what stands before parts is flat
    for number, layer in enumerate(reading.layers):
        own = reading.owners[number].removeprefix("module.") or number
        name = f"layer {own} ({type(layer).__name__})"
        if isinstance(layer, Split):
            parted.append(flat)
        flat = parted[-1] if isinstance(layer, Next) else flat or isinstance(layer, nn.Flatten)
        if isinstance(layer, Join):
            parted.pop()
        weighted = weighted or isinstance(layer, WEIGHTED)
        if isinstance(layer, (*BRANCHING, nn.AvgPool2d, nn.GroupNorm, nn.Embedding)):
            if device != "cpu":
                return f"the fused engine does not know {name} here"
        elif isinstance(layer, NORMS):
            kept = [f"{reading.owners[number]}.{part}" for part in STATISTICS]
            if device != "cpu" or not set(kept) <= set(layout(model).buffers):
                return f"the fused engine does not know {name} here"
        elif type(layer) not in (*KNOWN, *_ANYWHERE):
            return f"the fused engine does not know {name}"
        if isinstance(layer, OVERWRITING) and not weighted:
            return f"the fused engine needs a layer with parameters before {name}"
        if isinstance(layer, IMAGES_ONLY) and flat:
            return f"the fused engine cannot run {name} after Flatten"
        if isinstance(layer, nn.Linear) and not flat and len(reading.shapes[number]) > 1:
            return f"the fused engine needs Flatten before {name}"
        strides_over = isinstance(layer, nn.Conv2d) and convolution.strides_over(layer)
        if strides_over and not convolution.compiled():
            # oneDNN's gradient of it writes where it must not, channels last
            return f"the fused engine needs compiled code for {name}"
        if isinstance(layer, nn.Conv2d) and (
            layer.groups != 1 or layer.padding_mode != "zeros" or isinstance(layer.padding, str)
        ):
            return f"the fused engine needs groups=1 and padding by a number of zeros in {name}"
    return "" if weighted else "the fused engine needs a layer with parameters"


@dataclass(frozen=True)
class Network:
    """The parameters of a model by layer number and name, e.g. "3.weight", and its layers.

    Attributes:
        shapes: input shape of every layer, then the output's.
        places: of every dropout layer, by its number, the place that its masks are drawn for.
        fields: where every parameter lies in a flat row, in order.
        num_params: P.
        softmax: whether the loss is the plain cross entropy of a softmax.
    """

    layers: tuple[nn.Module, ...]
    shapes: tuple[tuple[int, ...], ...]
    places: Mapping[int, int]
    fields: dict[str, Field]
    num_params: int
    softmax: bool = True

    @classmethod
    def of(cls, model: Runnable, *, softmax: bool = True) -> Network:
        """The network of a model without `obstacle`."""
        reading, where = model.reading(), layout(model)
        fields = {}
        for number, (owner, layer) in enumerate(zip(reading.owners, reading.layers, strict=True)):
            parameters = dict(layer.named_parameters())
            for name, value in {**parameters, **dict(layer.named_buffers())}.items():
                own = f"{owner}.{name}"
                fields[f"{number}.{name}"] = Field(
                    offset=where[own].start,
                    shape=tuple(value.shape),
                    l2=model.l2.get(own, 0.0),
                    moves=name in parameters,
                )
        size = where.num_params
        return cls(reading.layers, reading.shapes, reading.places, fields, size, softmax)

    def covered(self, mask: Tensor | None) -> frozenset[str]:
        """Names of the parameters that a mask [P] covers; ConfigError if it cuts through one."""
        values = self._by_name(mask, "frozen covers a part of", "freezes")
        return frozenset(name for name, covered in values.items() if covered)

    def factors(self, pull: Tensor | None) -> Pulls:
        """Factors of `LocalWork.pull` [P] other than 1, by name; ConfigError if one varies."""
        values = self._by_name(pull, "pull differs within", "pulls")
        return tuple((name, factor) for name, factor in values.items() if factor != 1)

    def pulled(self, pulls: Pulls) -> Network:
        """The network, whose parameters are pulled by these factors of the proximal weight."""
        own = {name: replace(self.fields[name], pull=factor) for name, factor in pulls}
        return replace(self, fields={**self.fields, **own}) if own else self

    def _by_name(self, values: Tensor | None, mistake: str, does: str) -> dict[str, float]:
        """The one value of every parameter of those [P] in a call; empty for None."""
        known, single = None if values is None else values.cpu(), dict[str, float]()
        for name, field in self.fields.items() if known is not None else ():
            assert known is not None
            part = known[field.offset : field.offset + field.size]
            if len(part.unique()) != 1:  # type: ignore[no-untyped-call]
                raise ConfigError(
                    f"TrainCall.{mistake} the parameter {name}, engine=fused {does} whole "
                    "parameters only; use engine=vmap or loop"
                )
            single[name] = float(part[0])
        return single

    @property
    def normalises(self) -> bool:
        """Whether a layer looks at a batch as a whole."""
        return any(isinstance(layer, NORMS) for layer in self.layers)

    @property
    def widest(self) -> int:
        """Most features any layer gives for one example."""
        return max(math.prod(shape) for shape in self.shapes)

    @property
    def activations(self) -> int:
        """Features of all layers together for one example."""
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def first_dense(self) -> int | None:
        """Number of the dense layer that sees the inputs; None where another layer does."""
        numbers = [i for i, layer in enumerate(self.layers) if not isinstance(layer, nn.Flatten)]
        return numbers[0] if numbers and isinstance(self.layers[numbers[0]], nn.Linear) else None

    @property
    def first_layer(self) -> nn.Linear | None:
        """The layer `first_dense`."""
        layer = None if self.first_dense is None else self.layers[self.first_dense]
        return layer if isinstance(layer, nn.Linear) else None

    @property
    def is_dense(self) -> bool:
        """Whether the model is a single dense layer."""
        layers = [type(layer) for layer in self.layers if not isinstance(layer, nn.Flatten)]
        return layers == [nn.Linear]

    @property
    def is_regression(self) -> bool:
        """Whether it is one under a softmax: softmax regression."""
        return self.softmax and self.is_dense

    @property
    def first_flat(self) -> int:
        """Number of layers up to Flatten; 0 where that part has none for images only."""
        if not any(isinstance(layer, IMAGES_ONLY) for layer in self.layers):
            return 0
        flat, depth = False, 0
        for number, layer in enumerate(self.layers):
            flat = flat or isinstance(layer, nn.Flatten)
            depth += isinstance(layer, Split) - isinstance(layer, Join)
            if flat and not depth:  # parts stay together
                return number + 1
        return len(self.layers)
