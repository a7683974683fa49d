"""A user's module read by `torch.fx` as a sequence of layers that engines know.

What is read is tried: output and gradients on a random batch must be the module's own. So nothing
that a graph does not show, such as `torch.no_grad` in a forward pass, is taken for what it is not.
"""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple, cast
from unittest import mock

import torch
from torch import Tensor, fx, nn

from fedclust.models.exchanged import plain
from fedclust.models.known_layers import TAKEN, Place, layers_of
from fedclust.models.sequence import (
    INPUTS,
    Add,
    Fork,
    Join,
    Next,
    Reading,
    Shape,
    Shaped,
    Split,
    Swap,
    Turn,
)

_TRACED, _TRIED = 2, 3  # examples that a module is traced with, and those a reading is tried on
_CLOSE = 1e-3  # of the largest number: more is not rounding
_UNCHANGED = (*INPUTS, Shaped, Turn)  # what may become of inputs before all else
_MONOTONE = (nn.Tanh, nn.Sigmoid, nn.ReLU6, nn.LeakyReLU, nn.ELU)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class UnreadableError(Exception):
    """What keeps a module from being read, in words."""


def read(module: nn.Module, in_shape: Shape, examples: Tensor | None = None) -> Reading:
    """The layers that a module consists of, with parameters of their own, or an `UnreadableError`.

    Args:
        module: any, with one tensor as its input, whose dropout layers are exchanged.
        in_shape: shape of one example.
        examples: some of them [B, *in_shape], where numbers are looked up; None for random ones.
    """
    for name, part in module.named_modules():
        if any(getattr(part, hooks) for hooks in _HOOKS):
            raise UnreadableError(f"hooks of {_called(name, part)}")
        if plain(part) not in TAKEN and any(True for _ in part.parameters(recurse=False)):
            raise UnreadableError(_called(name, part))
    for name, value in module.named_parameters():
        if not value.requires_grad:
            raise UnreadableError(f"{name}, which is frozen")
    # on the CPU, and apart from the global generator: a module may draw, or count its calls
    with torch.random.fork_rng(devices=[]):
        drawn = _drawn(module)
        given = partial(_inputs, in_shape, examples if _looks_up(module) else None)
        reading = _read(copy.deepcopy(drawn).train(), given(_TRACED))
        tested = _read(copy.deepcopy(drawn).eval(), given(_TRACED))
        if list(map(repr, reading.layers)) != list(map(repr, tested.layers)):
            raise UnreadableError("what differs between training and test")
        _try(drawn, reading, given(_TRIED))
    return reading


def _looks_up(module: nn.Module) -> bool:
    """Whether a module takes numbers for ids, so that random ones are none."""
    return any(isinstance(part, nn.Embedding) for part in module.modules())


def _inputs(in_shape: Shape, examples: Tensor | None, number: int) -> Tensor:
    """So many examples, random where none are given."""
    if examples is None:
        return torch.randn(number, *in_shape)
    return examples.cpu()[torch.arange(number) % len(examples)]


def _called(name: str, part: nn.Module) -> str:
    """A part of a module in words."""
    kind = plain(part).__name__
    return f"{name} ({kind})" if name else kind


def _drawn(module: nn.Module) -> nn.Module:
    """A copy whose parameters are random, so that none hides another: 0 would."""
    drawn, generator = copy.deepcopy(module).cpu(), torch.Generator().manual_seed(0)
    for value in drawn.parameters():
        inputs = max(1, value[0].numel() if value.dim() > 1 else 1)
        value.data = torch.randn(value.shape, generator=generator) / math.sqrt(inputs)
        value.requires_grad_()
    return drawn


def _read(module: nn.Module, x: Tensor) -> Reading:
    """As `read`, of a copy, from its graph for inputs x alone."""
    tracer, in_shape = _Tracer(x), tuple(x.shape[1:])
    graph, own = tracer.graph_of(module), dict(module.named_modules())
    ways: dict[fx.Node, _Way] = {}
    for node in graph.nodes:
        value = tracer.values.get(node)
        if node.op == "placeholder":
            ways[node] = _Way((node,), ())
        if node.op == "placeholder" or not isinstance(value, Tensor | None):
            continue  # sizes are asked for
        name = str(node.target).partition(".")[2] if node.op == "call_module" else ""
        part = own.get(name) if node.op == "call_module" else None
        what = str(getattr(node.target, "__name__", node.target))
        what = what if part is None else _called(name, part)
        given = [one for one in node.all_input_nodes if tracer.is_tensor(one)]
        if any(one not in ways for one in given) or not given:
            raise UnreadableError(f"{what}, which looks at parameters of the module's own")
        if node.op == "output":
            return _reading(ways[given[0]].steps, in_shape)
        assert isinstance(value, Tensor)
        if node.target in _SUMS and len(given) == 2 and not node.kwargs:
            ways[node] = _sum(node, ways, given, tuple(value.shape[1:]))
            continue
        if node.target in _CATS:
            ways[node] = _joined(node, ways, value, in_shape)
            continue
        if len(given) != 1:
            raise UnreadableError(f"{what}, which looks at more than one layer")
        way = ways[given[0]]
        now = way.steps[-1].shape if way.steps else in_shape
        first = all(isinstance(step.layer, _UNCHANGED) for step in way.steps)
        layers = layers_of(Place(node, part, tracer.values[given[0]], value, now, first))
        if layers is None:
            raise UnreadableError(what)
        ways[node] = _Way(
            (*way.nodes, node), (*way.steps, *(_Step(x, name, shape) for x, shape in layers))
        )
    raise UnreadableError("a forward pass without a result")


class _Step(NamedTuple):
    """A layer, what it is called, and the shape of its output."""

    layer: nn.Module
    owner: str
    shape: Shape


class _Way(NamedTuple):
    """How a node is reached from the input: by which nodes outside of branches, and what steps."""

    nodes: tuple[fx.Node, ...]
    steps: tuple[_Step, ...]


def _sum(node: fx.Node, ways: Mapping[fx.Node, _Way], given: list[fx.Node], shape: Shape) -> _Way:
    """The way to a sum of what two branches give, of which the second may have no layer."""
    both = [ways[one] for one in given]
    common = [a for a, b in zip(*(way.nodes for way in both), strict=False) if a is b]
    trunk = ways[common[-1]]
    first, second = (way.steps[len(trunk.steps) :] for way in both)
    _check_apart(first, second)
    first, second = (first, second) if first else (second, first)
    parted = trunk.steps[-1].shape if trunk.steps else None
    ends = [branch[-1].shape if branch else parted for branch in (first, second)]
    if not first or parted is None or ends != [shape, shape]:
        raise UnreadableError("a sum of other than two branches")
    swap = (_Step(Swap(), "", parted),) if second else ()
    steps = (_Step(Fork(), "", parted), *first, *swap, *second, _Step(Add(), "", shape))
    return _Way((*trunk.nodes, node), (*trunk.steps, *steps))


def _joined(node: fx.Node, ways: Mapping[fx.Node, _Way], value: Tensor, in_shape: Shape) -> _Way:
    """The way to what parts give, one behind the other along the first dimension of an example."""
    options = dict(zip(("tensors", "dim"), node.args, strict=False)) | dict(node.kwargs)
    parts = cast("Sequence[fx.Node]", options["tensors"])
    along = options.get("dim", options.get("axis", 0))
    own = [ways[part] for part in parts]
    common = [same[0] for same in zip(*(way.nodes for way in own), strict=False) if _one(same)]
    trunk = ways[common[-1]]
    parted = trunk.steps[-1].shape if trunk.steps else in_shape
    branches = [way.steps[len(trunk.steps) :] for way in own]
    _check_apart(*branches)
    ends = [branch[-1].shape if branch else parted for branch in branches]
    shape = (sum(end[0] for end in ends), *ends[0][1:])
    fits = len({end[1:] for end in ends}) == 1 and math.prod(shape) == value[0].numel()
    if not fits or along not in (1, 1 - value.dim()):
        raise UnreadableError("cat, along other than the first dimension of an example")
    steps = [*trunk.steps, _Step(Split(), "", parted), *branches[0]]
    for branch in branches[1:]:
        steps += [_Step(Next(), "", parted), *branch]
    return _Way((*trunk.nodes, node), (*steps, _Step(Join(), "", shape)))


def _check_apart(*branches: Sequence[_Step]) -> None:
    """Refuse a layer with parameters in two branches, as in DenseNet: the ways would double with
    every sum.
    """
    steps = [step for branch in branches for step in branch]
    layers = [id(step.layer) for step in steps if any(True for _ in step.layer.parameters())]
    if len(set(layers)) < len(layers):
        raise UnreadableError("branches that share a layer")


def _one(nodes: Sequence[fx.Node]) -> bool:
    """Whether all are the same."""
    return all(node is nodes[0] for node in nodes)


def _reading(steps: Sequence[_Step], in_shape: Shape) -> Reading:
    """What steps are as a reading."""
    layers, owners = [step.layer for step in steps], [step.owner for step in steps]
    shapes = [in_shape, *(step.shape for step in steps)]
    for at in range(len(layers) - 1):
        if isinstance(layers[at], nn.MaxPool2d) and isinstance(layers[at + 1], nn.ReLU):
            # the same numbers in either order, and compiled code knows this one
            layers[at : at + 2] = reversed(layers[at : at + 2])
            shapes[at + 1] = shapes[at]
        elif isinstance(layers[at + 1], nn.MaxPool2d) and _is_monotone(layers[at]):
            layers[at : at + 2] = reversed(layers[at : at + 2])  # of fewer numbers
            shapes[at + 1] = shapes[at + 2]
    logs = [isinstance(layer, nn.LogSoftmax) for layer in layers]
    if any(logs[:-1]):
        raise UnreadableError("a log-softmax before the last layer")
    if any(logs):
        layers, owners, shapes = layers[:-1], owners[:-1], shapes[:-1]
    dropout = [at for at, layer in enumerate(layers) if isinstance(layer, nn.Dropout)]
    places = {at: place for place, at in enumerate(dropout)}
    return Reading(tuple(layers), tuple(shapes), tuple(owners), places, any(logs))


def _is_monotone(layer: nn.Module) -> bool:
    """Whether more becomes more, or the same."""
    falls = isinstance(layer, nn.LeakyReLU) and layer.negative_slope < 0
    falls = falls or (isinstance(layer, nn.ELU) and layer.alpha < 0)
    return isinstance(layer, _MONOTONE) and not falls


_SUMS = (operator.add, operator.iadd, torch.add, "add", "add_")
_CATS = (torch.cat, torch.concat, torch.concatenate)


class _Seen(fx.Proxy):
    """What a traced module computes with: only the number of examples is left open."""

    tracer: _Tracer

    def size(self, dim: int | None = None) -> Any:
        """The size, or one of it, of which the first is known when the graph runs."""
        batch = self.tracer.create_proxy("call_method", "size", (self, 0), {})
        whole = (batch, *self.tracer.values[self.node].shape[1:])
        return whole if dim is None else whole[dim]

    def dim(self) -> int:
        """Number of dimensions."""
        return int(self.tracer.values[self.node].dim())

    shape = property(size)
    ndim = property(dim)


class _Tracer(fx.Tracer):
    """Computes what it traces for a batch of inputs x, so that shapes are known."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.values: dict[fx.Node, Any] = {}
        self._input, self._computing = x, False

    def graph_of(self, module: nn.Module) -> fx.Graph:
        """The graph of a module, whose arguments but the first keep their defaults."""
        try:
            with torch.no_grad(), _open_length(module):
                return self.trace(nn.Sequential(module))
        except Exception as error:  # whatever the user's code makes of a proxy
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise UnreadableError(
                f"its forward pass, which torch.fx cannot follow: {first}"
            ) from error

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """A proxy of a node, which is computed."""
        self._computing = True
        self.values[node] = self._value(node)
        self._computing = False
        return _Seen(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module is one layer."""
        return plain(m) in TAKEN or super().is_leaf_module(m, module_qualified_name)

    def call_module(
        self, m: nn.Module, forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """What a module makes of values, or of proxies."""
        if self._computing:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """A module's attribute as values meet it, or as proxies do."""
        if self._computing:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)

    def is_tensor(self, node: fx.Node) -> bool:
        """Whether a node computes a tensor."""
        return isinstance(self.values.get(node), Tensor)

    def _value(self, node: fx.Node) -> Any:
        if node.op == "placeholder":
            return self._input
        if node.op == "output":
            return None
        args: tuple[Any, ...] = fx.node.map_arg(node.args, self.values.__getitem__)
        kwargs: dict[str, Any] = fx.node.map_arg(dict(node.kwargs), self.values.__getitem__)
        match node.op:
            case "call_module":
                return self.root.get_submodule(str(node.target))(*args, **kwargs)
            case "call_method":
                return getattr(args[0], str(node.target))(*args[1:], **kwargs)
            case "get_attr":
                return operator.attrgetter(str(node.target))(self.root)
        assert callable(node.target)
        return node.target(*args, **kwargs)


def _length(x: Any) -> Any:
    """`len`, which Python allows to be a number only."""
    return x.size(0) if isinstance(x, _Seen) else len(x)


@contextmanager
def _open_length(module: nn.Module) -> Iterator[None]:
    """`len` as `_length` in the files of a module's classes."""
    with ExitStack() as stack:
        for kind in {type(part) for part in module.modules()}:
            names = getattr(kind.forward, "__globals__", {})
            if not str(names.get("__name__")).startswith("torch.") and "len" not in names:
                stack.enter_context(mock.patch.dict(names, {"len": _length}))
        yield


def _parameters(reading: Reading) -> dict[str, nn.Parameter]:
    """The parameters of the layers by their names in the model."""
    named: dict[str, nn.Parameter] = {}
    for owner, layer in zip(reading.owners, reading.layers, strict=True):
        for name, value in layer.named_parameters():
            if any(value is other for other in named.values()) or f"{owner}.{name}" in named:
                raise UnreadableError(f"{owner}.{name}, which is used twice")
            named[f"{owner}.{name}"] = value
    return named


def _try(module: nn.Module, reading: Reading, x: Tensor) -> None:
    """See that what was read computes, for a batch x, what the module computes."""
    owned = _parameters(reading)
    named = dict(module.named_parameters())
    if left := sorted(set(named) - set(owned)):
        raise UnreadableError(f"the parameter {left[0]}, which no layer has")
    weight, found = None, []
    for forward, parameters in ((module, named), (reading.forward, owned)):
        out = forward(x)
        weight = torch.randn(out.shape) if weight is None else weight
        total = (out * weight).sum()
        wanted = [parameters[name] for name in named]
        found.append((out, *torch.autograd.grad(total, wanted, allow_unused=True)))
    for own, other in zip(*found, strict=True):
        if own is None or other is None or not _close(own, other):
            raise UnreadableError("its forward pass, which does more than its layers")


def _close(own: Tensor, other: Tensor) -> bool:
    """Whether numbers differ by rounding only; a dimension of one number makes no difference."""
    own, other = own.squeeze(), other.squeeze()
    return own.shape == other.shape and bool((own - other).abs().max() <= _CLOSE * own.abs().max())
