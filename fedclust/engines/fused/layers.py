"""R models at work: their parameters, memory and layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeGuard

import torch
from torch import Tensor, nn

from fedclust.engines.fused.branches import (
    BRANCHING,
    OVERWRITING,
    PARTING,
    AddStep,
    JoinStep,
    NextStep,
    Parts,
    SplitStep,
)
from fedclust.engines.fused.dense import (
    Chain,
    Clock,
    DenseStep,
    DropoutStep,
    LinearStep,
    ReluStep,
)
from fedclust.engines.fused.lookups import EmbeddingStep, InputStep, ShapedStep, TurnStep
from fedclust.engines.fused.native import convolution, linear, norming
from fedclust.engines.fused.native.convolution import BlockStep
from fedclust.engines.fused.native.geometry import Block
from fedclust.engines.fused.native.linear import CompiledLinearStep
from fedclust.engines.fused.native.norming import CompiledNormStep
from fedclust.engines.fused.network import WEIGHTED, Network
from fedclust.engines.fused.normal import NORMS, STATISTICS, GroupStep, LayerStep, NormStep
from fedclust.engines.fused.pointwise import ActivationStep
from fedclust.engines.fused.products import Products
from fedclust.engines.fused.rules import Rule
from fedclust.engines.fused.span import Span, SpanStep
from fedclust.engines.fused.spatial import (
    AverageStep,
    PadStep,
    PoolStep,
    ResponseNormStep,
    RowByRowStep,
    RowConvStep,
    StackedConvStep,
)
from fedclust.engines.fused.weights import Parameters, Weight
from fedclust.models.sequence import ACTIVATIONS, INPUTS, Add, Fork, Join, Shaped, Split, Turn

_SIMPLE: dict[type[nn.Module], Callable[[Any], DenseStep]] = {
    nn.MaxPool2d: PoolStep,
    nn.AvgPool2d: AverageStep,
    nn.ZeroPad2d: PadStep,
    Shaped: ShapedStep,
    nn.Flatten: ShapedStep,
    nn.ReLU: lambda _: ReluStep(),
    Turn: TurnStep,
}
Convolving = Literal["compiled", "row by row", "stacked"]


def convolving(network: Network, device: torch.device) -> Convolving:
    """How the part that sees images is computed."""
    if device.type != "cpu":
        return "stacked"
    return "compiled" if convolution.computes(network.layers, device) else "row by row"


class Buffers:
    """Memory by name, used from chunk to chunk: the system clears fresh memory page by page."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._held: dict[str, Tensor] = {}

    def __call__(self, name: str, *shape: int) -> Tensor:
        """A buffer, uninitialised; equal names share memory, whatever the shape."""
        size = math.prod(shape)
        if name not in self._held or len(self._held[name]) < size:
            self._held[name] = torch.empty(size, device=self._device)
        return self._held[name][:size].view(shape)


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The first of R models for one batch size: the same operations on the same memory in
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


class Layers:
    """The layers of R models, for every batch size met, the first perhaps in its `span`."""

    def __init__(self, models: StackedModels, span: Span | None = None) -> None:
        self.network, self.parameters, self.rule = models.network, models.parameters, models.rule
        self.key, self.clock, self.span = models.key, models.clock, span
        self._buffers, self._products = models.buffers, models.products
        self._convolving = convolving(self.network, self.key.device)
        self._moves = [self.parameters.moves(at) for at in range(len(self.network.layers))]
        self._frames: dict[tuple[int, int], Frame] = {}

    def frame(self, rows: int, batch: int) -> Frame:
        """The first `rows` models for batches of `batch` examples; made once per pair."""
        if (rows, batch) not in self._frames:
            classes = self.network.shapes[-1][0]
            seen = self.network.shapes[0] if self.span is None else (self.span.examples,)
            self._frames[rows, batch] = Frame(
                chain=self._build(rows, batch),
                inputs=self._buffers("inputs", rows, batch, *seen),
                logp=self._buffers("logp", classes, rows, batch),
                change=self._buffers("change", classes, rows, batch),
                delta=self._buffers("delta", rows, batch, classes),
                minus_one=torch.full((1, 1, 1), -1.0, device=self.key.device).expand(
                    1, rows, batch
                ),
            )
        return self._frames[rows, batch]

    def _build(self, rows: int, batch: int) -> Chain:
        split, total, every = (
            self.network.first_flat,
            len(self.network.layers),
            _Some(0, rows, batch),
        )
        if self.span is not None:
            first = self.network.first_dense
            assert first is not None
            return self._part(range(first, total), every)
        if not split or self._convolving != "row by row":
            return self._part(range(total), every)
        each = [self._part(range(split), _Some(i, i + 1, batch)) for i in range(rows)]
        rest = self._part(range(split, total), every)
        first_moving = 0 if any(self._moves[:split]) else rest.first + 1
        return Chain([RowByRowStep(each), *rest.steps], first_moving)

    def _part(self, layers: range, some: _Some) -> Chain:
        """Some layers for some rows."""
        steps = list(self._steps(layers, some))
        moving = [i for i, (_, moves) in enumerate(steps) if moves]
        return Chain([step for step, _ in steps], moving[0] if moving else len(steps))

    def _steps(self, layers: range, some: _Some) -> Iterator[tuple[DenseStep, bool]]:
        """The steps of some layers, and whether they have parameters that move."""
        at, parted = layers.start, list[Parts]()
        while at < layers.stop:
            block = self._block(at)
            if isinstance(self.network.layers[at], (*BRANCHING, *PARTING)):
                yield self._parting_step(at, some, parted), False
                at += 1
            elif block is None:
                yield self._step(at, some), self._moves[at]
                at += 1 + self._takes_relu(at)
            else:
                yield self._block_step(block, at, some), self._moves[block.layer]
                at = block.end

    def _block(self, at: int) -> Block | None:
        """What begins with a layer and is compiled code."""
        if self._convolving != "compiled":
            return None
        block = Block.at(self.network.layers, at)
        if block is None or convolution.is_large(block.conv, self._products):
            return None
        return block

    def _step(self, at: int, some: _Some) -> DenseStep:
        layer = self.network.layers[at]
        if isinstance(layer, WEIGHTED):
            return self._weighted_step(at, layer, some)
        if type(layer) in _SIMPLE:
            return _SIMPLE[type(layer)](layer)
        following = self.network.layers[at + 1] if at + 1 < len(self.network.layers) else None
        if isinstance(layer, ACTIVATIONS):
            return ActivationStep(layer, overwritten=isinstance(following, OVERWRITING))
        if isinstance(layer, INPUTS):
            return InputStep(layer, following)
        if isinstance(layer, nn.Embedding):
            return EmbeddingStep(layer, self._weights(at, some)["weight"], self.rule)
        if isinstance(layer, NORMS) or self._normalises(layer):
            return self._norm_step(at, layer, some)
        if isinstance(layer, nn.GroupNorm | nn.LayerNorm):
            step = GroupStep if isinstance(layer, nn.GroupNorm) else LayerStep
            return step(layer, self._weights(at, some), self.rule)
        if isinstance(layer, nn.LocalResponseNorm):
            return ResponseNormStep(layer, self.network.shapes[at][0], self.key.device)
        assert isinstance(layer, nn.Dropout)
        key = self.key[some.low : some.high]
        return DropoutStep(key, self.clock, self.network.places[at], layer.p)

    def _weights(self, at: int, some: _Some) -> dict[str, Weight]:
        """The parameters and statistics of a layer by name, of those that there are."""
        known, names = self.parameters.weights, ("weight", "bias", *STATISTICS)
        there = [name for name in names if f"{at}.{name}" in known]
        return {name: known[f"{at}.{name}"].rows(some.low, some.high) for name in there}

    def _block_step(self, block: Block, at: int, some: _Some) -> DenseStep:
        weights, shapes = self._weights(block.layer, some), self.network.shapes
        return BlockStep(
            block,
            (shapes[at], shapes[block.end]),
            weights["weight"],
            weights.get("bias"),
            self.rule,
            self._products,
            some.batch,
            partial(self._block_room, at),
            need=any(self._moves[: block.layer]) and self.rule is not None,
            last=self._lies_last(block.end),
        )

    def _lies_last(self, at: int) -> bool:
        """Whether images for a layer are better channels last: neither numbers in a row nor masks
        of dropout, which lie as these, follow with nothing but activations between.
        """
        for layer in self.network.layers[at:]:
            if isinstance(layer, nn.Flatten | nn.Dropout):
                return False
            if not isinstance(layer, (nn.ReLU, *ACTIVATIONS)):
                return True
        return False

    def _block_room(self, at: int, name: str, *shape: int) -> Tensor:
        """A buffer of a block, or of all where it keeps nothing for later."""
        return self._buffers(name if name == "scratch" else f"{at}.{name}", *shape)

    def _parting_step(self, at: int, some: _Some, parted: list[Parts]) -> DenseStep:
        """A step of what parts and meets again; the last of `parted` are those that it is of."""
        layer = self.network.layers[at]
        if isinstance(layer, Join):
            return JoinStep(parted.pop())
        if isinstance(layer, Add):
            out, spare = (self._room(f"{at}.{name}", at, some) for name in "oc")
            return AddStep(parted.pop(), out, spare)
        begins = isinstance(layer, Fork | Split)
        if begins:
            parted.append(Parts(need=any(self._moves[:at]), summed=isinstance(layer, Fork)))
        return (SplitStep if begins else NextStep)(parted[-1], self.network.layers[at + 1])

    def _room(self, name: str, at: int, some: _Some) -> Tensor:
        """Room for a layer's input, channels last; the rows' own where they take turns."""
        channels, *sides = self.network.shapes[at]
        rows = some.high - some.low
        return self._buffers(f"{name}.{some.low}", rows, some.batch, *sides, channels).movedim(
            -1, 2
        )

    def _norm_step(
        self, at: int, layer: nn.BatchNorm1d | nn.BatchNorm2d | nn.GroupNorm, some: _Some
    ) -> DenseStep:
        weights, native = self._weights(at, some), self._normalises(layer)
        step = partial(CompiledNormStep, relu=self._takes_relu(at)) if native else NormStep
        return step(
            layer,
            weights,
            frozenset(name for name in weights if f"{at}.{name}" in self.parameters.still),
            self.rule,
            self.clock,
            some.low,
            self._room(f"{at}.out", at, some),
            self._room(f"{at}.back", at, some),
        )

    def _normalises(self, layer: nn.Module) -> TypeGuard[nn.BatchNorm1d | nn.GroupNorm]:
        """Whether compiled code normalises for a layer."""
        known = isinstance(layer, (*NORMS, nn.GroupNorm)) and self.key.is_cpu
        return known and norming.compiled() is not None

    def _takes_relu(self, at: int) -> bool:
        """Whether the step of a layer computes the ReLU behind it as well."""
        some = self.network.layers[at : at + 2]
        return len(some) == 2 and self._normalises(some[0]) and isinstance(some[1], nn.ReLU)

    def _weighted_step(self, at: int, layer: nn.Linear | nn.Conv2d, some: _Some) -> DenseStep:
        weights = self._weights(at, some)
        weight, bias, need = weights["weight"], weights.get("bias"), any(self._moves[:at])
        if isinstance(layer, nn.Conv2d):
            conv = StackedConvStep if self._convolving == "stacked" else RowConvStep
            return conv(layer, weight, bias, self.rule, need, self._products)
        examples = some.high - some.low, some.batch
        out, back = self._buffers(f"{at}.out", *examples, layer.out_features), None
        if self.span is not None and at == self.network.first_dense:
            spare = self._buffers(f"{at}.spare", *out.shape)
            return SpanStep(self.span, bias, self.clock, out, spare)
        if need and self.rule is not None:
            back = self._buffers(f"{at}.back", *examples, layer.in_features)
        pays = linear.pays(weight, self.rule, some.batch, self._products)
        step = CompiledLinearStep if pays else LinearStep
        return step(weight, bias, self.rule, out, back, self._products)


class _Some(NamedTuple):
    """The rows [low, high) of a chunk, with `batch` examples each."""

    low: int
    high: int
    batch: int


class StackedModels:
    """R models that look at examples, used again from chunk to chunk.

    Args:
        rule: what becomes of gradients; None for models that only look forward.
        frozen: names of the parameters that stay as they are.

    Attributes:
        parameters: of the R models.
        key: [R] int64 randomness of the rows.
    """

    def __init__(
        self,
        network: Network,
        rows: int,
        device: torch.device,
        products: Products,
        rule: Rule | None = None,
        frozen: frozenset[str] = frozenset(),
    ) -> None:
        self.network, self.products, self.rule = network, products, rule
        weights = {
            name: Weight(value=field.empty(rows, device))
            if rule is None
            else replace(rule.weight(field, rows, device), frozen=name in frozen or not field.moves)
            for name, field in network.fields.items()
        }
        self.parameters = Parameters(network.fields, weights, frozen)
        self.buffers = Buffers(device)
        self.key = torch.zeros(rows, dtype=torch.int64, device=device)
        self.clock = Clock()
        self.layers = Layers(self)
