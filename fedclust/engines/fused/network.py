"""A model as fields of a flat row and as steps over a chunk of rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from fedclust.engines.fused import convolution
from fedclust.engines.fused.convolution import Block, BlockStep
from fedclust.engines.fused.dense import (
    Chain,
    Clock,
    DropoutStep,
    FlattenStep,
    LinearStep,
    ReluStep,
    Step,
)
from fedclust.engines.fused.span import Span, SpanStep
from fedclust.engines.fused.spatial import (
    PadStep,
    PoolStep,
    ResponseNormStep,
    RowByRowStep,
    RowConvStep,
    StackedConvStep,
)
from fedclust.engines.fused.weights import Field, Rule, TrainingRule, Weight
from fedclust.models.sequence import KNOWN, Model

_WEIGHTED = (nn.Linear, nn.Conv2d)
_IN_PLACE = (nn.ReLU, nn.Dropout)
_IMAGES_ONLY = (nn.Conv2d, nn.MaxPool2d, nn.LocalResponseNorm, nn.ZeroPad2d)


def obstacle(model: nn.Module) -> str:
    """Why the fused engine cannot run a model, in words; empty where it can."""
    if not isinstance(model, Model):
        return (
            f"the fused engine runs fedclust.models.sequence.Model only, not {type(model).__name__}"
        )
    weighted = flat = False
    for place, layer in enumerate(model):
        name = f"layer {place} ({type(layer).__name__})"
        flat = flat or isinstance(layer, nn.Flatten)
        weighted = weighted or isinstance(layer, _WEIGHTED)
        if type(layer) not in KNOWN:
            return f"the fused engine does not know {name}"
        if isinstance(layer, _IN_PLACE) and not weighted:
            return f"the fused engine needs a layer with parameters before {name}"
        if isinstance(layer, _IMAGES_ONLY) and flat:
            return f"the fused engine cannot run {name} after Flatten"
        if isinstance(layer, nn.Linear) and not flat and len(model.shapes[place]) > 1:
            return f"the fused engine needs Flatten before {name}"
        if isinstance(layer, nn.Conv2d) and (
            layer.groups != 1 or layer.padding_mode != "zeros" or isinstance(layer.padding, str)
        ):
            return f"the fused engine needs groups=1 and padding by a number of zeros in {name}"
    return "" if weighted else "the fused engine needs a layer with parameters"


Convolving = Literal["compiled", "row by row", "stacked"]


def _convolving(network: Network, device: torch.device) -> Convolving:
    """How the part that sees images is computed."""
    if device.type != "cpu":
        return "stacked"
    return "compiled" if convolution.fits(network.layers, device) else "row by row"


@dataclass(frozen=True)
class Network:
    """The parameters of a model by place and name, e.g. "3.weight", and its layers.

    Attributes:
        layers: the layers in order.
        shapes: input shape of every layer, then the output's.
        fields: where every parameter lies in a flat row, in order.
        num_params: P.
    """

    layers: tuple[nn.Module, ...]
    shapes: tuple[tuple[int, ...], ...]
    fields: dict[str, Field]
    num_params: int

    @classmethod
    def of(cls, model: Model) -> Network:
        """The network of a model without `obstacle`."""
        fields, offset = {}, 0
        for name, value in model.named_parameters():
            fields[name] = Field(
                offset=offset, shape=tuple(value.shape), l2=model.l2.get(name, 0.0)
            )
            offset += value.numel()
        return cls(tuple(model), model.shapes, fields, offset)

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
        """Place of the dense layer that sees the inputs themselves; None where another layer
        does.
        """
        places = [i for i, layer in enumerate(self.layers) if not isinstance(layer, nn.Flatten)]
        return places[0] if places and isinstance(self.layers[places[0]], nn.Linear) else None

    @property
    def is_regression(self) -> bool:
        """Whether the model is a single dense layer: softmax regression."""
        return [type(layer) for layer in self.layers if not isinstance(layer, nn.Flatten)] == [
            nn.Linear
        ]

    @property
    def first_flat(self) -> int:
        """Place after the part that sees images, which ends with Flatten; 0 where that part has no
        layer.
        """
        if not any(isinstance(layer, _IMAGES_ONLY) for layer in self.layers):
            return 0
        places = [i for i, layer in enumerate(self.layers) if isinstance(layer, nn.Flatten)]
        return places[0] + 1 if places else len(self.layers)


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Some first rows of a stack for one batch size: the same operations on the same memory in
    every step.

    Classes come first in memory where numbers are made for every class: over few neighbouring
    numbers a softmax is several times slower on a CPU.

    Attributes:
        chain: the models.
        inputs: room for what the models see of a batch, [R, B, *shape].
        logp, change: room for log-probabilities and for the gradient of the losses, [Y, R, B].
        delta: room for the gradient of the logits, [R, B, Y].
        minus_one: [1, R, B], all -1.
    """

    chain: Chain
    inputs: Tensor
    logp: Tensor
    change: Tensor
    delta: Tensor
    minus_one: Tensor

    def log_probabilities(self, x: Tensor) -> Tensor:
        """log softmax of the logits of x [R, B, *shape], [Y, R, B] in shared memory."""
        self.change.copy_(self.chain.forward(x).permute(2, 0, 1))
        return torch.log_softmax(self.change, 0, out=self.logp)


class Stack:
    """Room for R models, and their steps for every batch size met; used again from chunk to chunk.

    Fresh memory is expensive: the system clears it page by page when it is first written.

    Args:
        network: the architecture.
        rows: R.
        device: where to compute.
        rule: what becomes of gradients; None for a stack that only looks forward.
        frozen: names of the parameters that stay as they are.

    Attributes:
        clock: where the training is.
        span: the first layer, where it is trained in the span of the examples, see `use_span`.
    """

    def __init__(
        self,
        network: Network,
        rows: int,
        device: torch.device,
        rule: Rule | None,
        frozen: frozenset[str] = frozenset(),
    ) -> None:
        self.network, self.rule, self.convolving = network, rule, _convolving(network, device)
        self.clock = Clock()
        self.span: Span | None = None
        self.key = torch.zeros(rows, dtype=torch.int64, device=device)
        self.weights = {
            name: Weight(value=field.empty(rows, device))
            if rule is None
            else replace(rule.weight(field, rows, device), frozen=name in frozen)
            for name, field in network.fields.items()
        }
        self._moving = [
            any(f"{place}.{part}" in network.fields.keys() - frozen for part in ("weight", "bias"))
            for place in range(len(network.layers))
        ]
        self._frames: dict[tuple[int, int], Frame] = {}
        self._rooms: dict[str, Tensor] = {}

    def load(
        self,
        models: Tensor,
        label: Tensor,
        slots: Tensor | None = None,
        anchor: Tensor | None = None,
    ) -> None:
        """Take parameters, and what the rule keeps beside them.

        Args:
            models: [K, P].
            label: [R] int64 model of every row.
            slots: [K, P] likewise; None for zeros.
            anchor: [R, P] see `Weight.anchor`; None for the models themselves.
        """
        own = torch.arange(len(label), device=label.device)
        for name, field in self.network.fields.items():
            weight = self.weights[name]
            field.load(models, label, weight.value)
            if weight.anchor is not None and anchor is not None:
                field.load(anchor, own, weight.anchor)
            elif weight.anchor is not None:
                weight.anchor.copy_(weight.value)
            if weight.slot is not None and slots is not None:
                field.load(slots, label, weight.slot)
            elif weight.slot is not None:
                weight.slot.zero_()

    def store(self, rows: Tensor, params: Tensor | None, slots: Tensor | None) -> None:
        """Write parameters and slots into the rows `rows` [R] of flat tensors [C, P]."""
        for name, field in self.network.fields.items():
            weight = self.weights[name]
            if params is not None:
                field.store(weight.value, params, rows)
            if slots is not None:
                assert weight.slot is not None
                field.store(weight.slot, slots, rows)

    def trained(self) -> list[Tensor]:
        """All that local steps change."""
        changed = [] if self.span is None else [self.span.coefficients]
        changed += self.weights.values()
        return [x for weight in changed for x in (weight.value, weight.slot) if x is not None]

    def use_span(self, rule: TrainingRule, examples: int, *, own_anchor: bool) -> None:
        """Train the first layer in the span of up to `examples` examples of every row."""
        if self.span is not None and self.span.kind == (examples, own_anchor):
            return
        place = self.network.first_dense
        assert place is not None
        layer = self.weights[f"{place}.weight"]
        self._frames.clear()
        self.span = Span(layer, rule, self.room, examples, own_anchor=own_anchor)

    def frame(self, rows: int, batch: int) -> Frame:
        """The first `rows` models for batches of `batch` examples; made once per pair."""
        if (rows, batch) not in self._frames:
            classes = self.network.shapes[-1][0]
            seen = self.network.shapes[0] if self.span is None else (self.span.examples,)
            self._frames[rows, batch] = Frame(
                chain=self._build(rows, batch),
                inputs=self.room("inputs", rows, batch, *seen),
                logp=self.room("logp", classes, rows, batch),
                change=self.room("change", classes, rows, batch),
                delta=self.room("delta", rows, batch, classes),
                minus_one=torch.full((1, 1, 1), -1.0, device=self.key.device).expand(
                    1, rows, batch
                ),
            )
        return self._frames[rows, batch]

    def room(self, name: str, *shape: int) -> Tensor:
        """A buffer, uninitialised; equal names share memory, whatever the batch size."""
        size = math.prod(shape)
        if name not in self._rooms or len(self._rooms[name]) < size:
            self._rooms[name] = torch.empty(size, device=self.key.device)
        return self._rooms[name][:size].view(shape)

    def _build(self, rows: int, batch: int) -> Chain:
        split, total = self.network.first_flat, len(self.network.layers)
        if self.span is not None:
            place = self.network.first_dense
            assert place is not None
            return self._part(range(place, total), 0, rows, batch)
        if not split or self.convolving != "row by row":
            return self._part(range(total), 0, rows, batch)
        images = RowByRowStep([self._part(range(split), i, i + 1, batch) for i in range(rows)])
        rest = self._part(range(split, total), 0, rows, batch)
        return Chain([images, *rest.steps], 0 if any(self._moving[:split]) else rest.first + 1)

    def _part(self, places: range, low: int, high: int, batch: int) -> Chain:
        """Some layers for the rows [low, high)."""
        steps = list(self._steps(places, low, high, batch))
        moving = [i for i, (_, moves) in enumerate(steps) if moves]
        return Chain([step for step, _ in steps], moving[0] if moving else len(steps))

    def _steps(self, places: range, low: int, high: int, batch: int) -> Iterator[tuple[Step, bool]]:
        """The steps of some layers, and whether they have parameters that move."""
        place = places.start
        while place < places.stop:
            block = Block.at(self.network.layers, place) if self.convolving == "compiled" else None
            if block is None:
                yield self._step(place, low, high, batch), self._moving[place]
                place += 1
            else:
                yield self._block_step(block, place, low, high, batch), self._moving[block.place]
                place = block.end

    def _step(self, place: int, low: int, high: int, batch: int) -> Step:
        layer = self.network.layers[place]
        if isinstance(layer, _WEIGHTED):
            return self._weighted_step(place, layer, low, high, batch)
        if isinstance(layer, nn.MaxPool2d):
            return PoolStep(layer)
        if isinstance(layer, nn.LocalResponseNorm):
            return ResponseNormStep(layer, self.network.shapes[place][0], self.key.device)
        if isinstance(layer, nn.ZeroPad2d):
            return PadStep(layer)
        if isinstance(layer, nn.Dropout):
            return DropoutStep(self.key[low:high], self.clock, place, layer.p)
        return ReluStep() if isinstance(layer, nn.ReLU) else FlattenStep()

    def _parameters(
        self, place: int, layer: nn.Linear | nn.Conv2d, low: int, high: int
    ) -> tuple[Weight, Weight | None, bool]:
        """Weight and bias of a layer, and whether one before it needs the gradient of its input."""
        weight = self.weights[f"{place}.weight"].rows(low, high)
        bias = self.weights[f"{place}.bias"].rows(low, high) if layer.bias is not None else None
        return weight, bias, any(self._moving[:place])

    def _block_step(self, block: Block, place: int, low: int, high: int, batch: int) -> Step:
        weight, bias, need = self._parameters(block.place, block.conv, low, high)
        shapes, layers = self.network.shapes, self.network.layers
        return BlockStep(
            block,
            (shapes[place], shapes[block.end]),
            weight,
            bias,
            self.rule,
            batch,
            partial(self._block_room, place),
            need=need and self.rule is not None,
            last=block.end < len(layers) and not isinstance(layers[block.end], nn.Flatten),
        )

    def _block_room(self, place: int, name: str, *shape: int) -> Tensor:
        """A buffer of a block, or of all where it keeps nothing for later."""
        return self.room(name if name == "scratch" else f"{place}.{name}", *shape)

    def _weighted_step(
        self, place: int, layer: nn.Linear | nn.Conv2d, low: int, high: int, batch: int
    ) -> Step:
        weight, bias, need = self._parameters(place, layer, low, high)
        if isinstance(layer, nn.Conv2d):
            conv = StackedConvStep if self.convolving == "stacked" else RowConvStep
            return conv(layer, weight, bias, self.rule, need)
        out, back = self.room(f"{place}.out", high - low, batch, layer.out_features), None
        if self.span is not None and place == self.network.first_dense:
            return SpanStep(
                self.span, bias, self.clock, out, self.room(f"{place}.spare", *out.shape)
            )
        if need and self.rule is not None:
            back = self.room(f"{place}.back", high - low, batch, layer.in_features)
        return LinearStep(weight, bias, self.rule, out, back)
