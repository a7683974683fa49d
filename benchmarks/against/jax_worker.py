"""Plays rounds in JAX, in its environment.

python -m benchmarks.against.jax_worker FOLDER jax_jit|jax_vmap

jax_jit: as FedJAX's `for_each_client` does it on one device: one compiled local step, called by
    Python for one batch of one client after the other; batches come from NumPy.
jax_vmap: all participants at once by `vmap`, all examples on the device. Of dense networks the
    whole round is one compiled function, with a `scan` over the local steps; of convolutions, which
    are ten times slower in a loop of XLA's on a CPU, one local step of all.

Chosen: images with the channels last and weights to suit, converted before and after; pooling by
`reduce_window`; batch normalisation renews its running statistics, as PyTorch's does. Compiled
ahead of the first round, which is timed.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from numpy.typing import NDArray

from benchmarks.against.task import Layer, Task
from benchmarks.against.turns import Given, Program, serve

_EPS, _PACE = 1e-5, 0.1  # of PyTorch's batch normalisation
_BETA1, _BETA2, _ADAM_EPS = 0.9, 0.999, 1e-8
Params = list[Array]
Moments = list[tuple[Array, Array]]  # mean and variance of every normalisation


class State(NamedTuple):
    """What a client's steps move.

    Attributes:
        params: trained.
        slots: of Adam, the means of gradients and of their squares; none for plain SGD.
        steps: taken.
        running: the statistics of every normalisation.
    """

    params: Params
    slots: tuple[Params, ...]
    steps: Array
    running: Moments


class Leaf(NamedTuple):
    """A parameter in PyTorch's layout and in ours.

    Attributes:
        shape: PyTorch's.
        spread: of a dense layer behind images, their (channels, height, width).
    """

    shape: tuple[int, ...]
    spread: tuple[int, ...] = ()

    def ours(self, value: NDArray[np.float32]) -> NDArray[np.float32]:
        """Outputs last, and the channels of images behind their places."""
        whole = value.reshape(self.shape[0], *(self.spread or self.shape[1:]))
        if whole.ndim == 4:
            whole = whole.transpose(2, 3, 1, 0)
            return whole.reshape(-1, self.shape[0]) if self.spread else whole
        return whole.T

    def theirs(self, value: NDArray[np.float32]) -> NDArray[np.float32]:
        """What `ours` was made from."""
        if self.spread:
            channels, height, width = self.spread
            value = value.reshape(height, width, channels, self.shape[0])
        value = value.transpose(3, 2, 0, 1) if value.ndim == 4 else value.T
        return value.reshape(self.shape)


def leaves_of(task: Task) -> tuple[list[Leaf], list[int]]:
    """The parameters in PyTorch's order, and the channels of every normalisation."""
    leaves: list[Leaf] = []
    norms: list[int] = []
    shape, spread = task.shape, ()

    def conv(inside: int, outside: int, side: int) -> None:
        leaves.append(Leaf((outside, inside, side, side)))

    def norm(width: int) -> None:
        leaves.extend([Leaf((width,)), Leaf((width,))])
        norms.append(width)

    for kind, sizes in task.layers:
        if kind in {"conv", "bare_conv"}:
            inside, outside, side, pad = sizes
            conv(inside, outside, side)
            if kind == "conv":
                leaves.append(Leaf((outside,)))
            shape = (outside, *(length + 2 * pad - side + 1 for length in shape[1:]))
        elif kind == "pool":
            shape = (shape[0], *(length // 2 for length in shape[1:]))
        elif kind == "norm":
            norm(sizes[0])
        elif kind == "block":
            inside, outside, stride = sizes
            conv(inside, outside, 3)
            norm(outside)
            conv(outside, outside, 3)
            norm(outside)
            if stride != 1 or inside != outside:
                conv(inside, outside, 1)
                norm(outside)
        elif kind == "flatten":
            spread = shape
        elif kind == "linear":
            leaves.append(Leaf((sizes[1], sizes[0]), spread))
            leaves.append(Leaf((sizes[1],)))
            spread = ()
    return leaves, norms


def convert(flat: NDArray[np.float32], leaves: Sequence[Leaf]) -> list[NDArray[np.float32]]:
    """Parameters in our layout from a flat vector [P] in PyTorch's."""
    ends = np.cumsum([math.prod(leaf.shape) for leaf in leaves])[:-1]
    parts = zip(leaves, np.split(flat, ends), strict=True)
    return [np.ascontiguousarray(leaf.ours(part)) for leaf, part in parts]


def _conv(x: Array, weight: Array, stride: int, pad: int) -> Array:
    return lax.conv_general_dilated(
        x,
        weight,
        (stride, stride),
        ((pad, pad), (pad, pad)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def _norm(x: Array, values: Iterator[Array], seen: Moments) -> Array:
    scale, shift = next(values), next(values)
    mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
    count = math.prod(x.shape[:3])
    seen.append((mean, var * (count / max(1, count - 1))))
    return (x - mean) * (lax.rsqrt(var + _EPS) * scale) + shift


def _block(x: Array, values: Iterator[Array], seen: Moments, sizes: tuple[int, ...]) -> Array:
    inside, outside, stride = sizes
    y = jax.nn.relu(_norm(_conv(x, next(values), stride, 1), values, seen))
    y = _norm(_conv(y, next(values), 1, 1), values, seen)
    if stride != 1 or inside != outside:
        x = _norm(_conv(x, next(values), stride, 0), values, seen)
    return jax.nn.relu(x + y)


def forward(layers: Sequence[Layer], params: Params, x: Array) -> tuple[Array, Moments]:
    """Logits [B, Y] of x [B, H, W, C], and what every normalisation saw."""
    values, seen = iter(params), list[tuple[Array, Array]]()
    for kind, sizes in layers:
        if kind == "conv":
            x = _conv(x, next(values), 1, sizes[3]) + next(values)
        elif kind == "bare_conv":
            x = _conv(x, next(values), 1, sizes[3])
        elif kind == "pool":
            window = (1, 2, 2, 1)
            x = lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")
        elif kind == "relu":
            x = jax.nn.relu(x)
        elif kind == "norm":
            x = _norm(x, values, seen)
        elif kind == "block":
            x = _block(x, values, seen, sizes)
        elif kind == "mean":
            x = x.mean((1, 2))
        elif kind == "flatten":
            x = x.reshape(len(x), -1)
        else:
            x = x @ next(values) + next(values)
    return x, seen


def loss(layers: Sequence[Layer], params: Params, x: Array, y: Array) -> tuple[Array, Moments]:
    """Mean cross-entropy, nats, and what every normalisation saw."""
    logits, seen = forward(layers, params, x)
    picked = jnp.take_along_axis(logits, y[:, None], 1)[:, 0]
    return (jax.nn.logsumexp(logits, 1) - picked).mean(), seen


def begin(task: Task, norms: Sequence[int], params: Params) -> State:
    """Before a client's first step."""
    slots = [[jnp.zeros_like(value) for value in params] for _ in range(2)]
    running = [(jnp.zeros(width), jnp.ones(width)) for width in norms]
    adam = task.optimizer == "adam"
    return State(params, tuple(slots) if adam else (), jnp.zeros((), jnp.int32), running)


def step(task: Task, state: State, x: Array, y: Array) -> State:
    """One local step on a batch."""
    (_, seen), grads = jax.value_and_grad(partial(loss, task.layers), has_aux=True)(
        state.params, x, y
    )
    steps, slots, moves = state.steps + 1, state.slots, grads
    if slots:
        means = [_BETA1 * m + (1 - _BETA1) * g for m, g in zip(slots[0], grads, strict=True)]
        squares = [_BETA2 * v + (1 - _BETA2) * g * g for v, g in zip(slots[1], grads, strict=True)]
        taken = steps.astype(jnp.float32)
        whole, rooted = 1 - _BETA1**taken, jnp.sqrt(1 - _BETA2**taken)
        moves = [
            m / whole / (jnp.sqrt(v) / rooted + _ADAM_EPS)
            for m, v in zip(means, squares, strict=True)
        ]
        slots = means, squares
    params = [value - task.lr * move for value, move in zip(state.params, moves, strict=True)]
    running = [
        tuple(old + _PACE * (new - old) for old, new in zip(kept, now, strict=True))
        for kept, now in zip(state.running, seen, strict=True)
    ]
    return State(params, slots, steps, running)


class Compiled(NamedTuple):
    """A round ready to play.

    Attributes:
        play: the averaged parameters of every model.
        seconds: of compiling.
    """

    play: Callable[[], list[Params]]
    seconds: float


def _compile(function: Callable[..., Any], *arguments: Any) -> Any:
    return jax.jit(function).lower(*arguments).compile()


def one_by_one(given: Given, x: NDArray[np.float32], norms: list[int], starts: Any) -> Compiled:
    """A compiled step, called for one batch after the other."""
    task, y = given.task, given.y.astype(np.int32)
    batches = np.take_along_axis(given.clients[:, None], given.order, 2)  # [C, S, B] rows
    began = time.perf_counter()
    starts = [[jnp.asarray(value) for value in start] for start in starts]
    fresh = _compile(partial(begin, task, norms), starts[0])
    state, first = fresh(starts[0]), batches[0, 0]
    move = _compile(partial(step, task), state, x[first], y[first])
    add = _compile(partial(jax.tree.map, jnp.add), starts[0], starts[0])
    divide = jax.jit(lambda total, count: [value / count for value in total])
    whole = given.clients[0]
    score = None
    if task.models > 1:
        value = partial(loss, task.layers)
        score = _compile(lambda params, x, y: value(params, x, y)[0], starts[0], x[whole], y[whole])
    jax.block_until_ready(divide(starts[0], 1.0))
    seconds = time.perf_counter() - began

    def play() -> list[Params]:
        sums: list[Params | None] = [None] * task.models
        counts = [0] * task.models
        for rows, steps in zip(given.clients, batches, strict=True):
            best = 0
            if score is not None:
                losses = [score(start, x[rows], y[rows]) for start in starts]
                best = int(np.argmin(losses))
            state = fresh(starts[best])
            for batch in steps:
                state = move(state, x[batch], y[batch])
            total = sums[best]
            sums[best] = state.params if total is None else add(total, state.params)
            counts[best] += 1
        return jax.block_until_ready(
            [
                start if total is None else divide(total, float(count))
                for start, total, count in zip(starts, sums, counts, strict=True)
            ]
        )

    return Compiled(play, seconds)


def all_at_once(given: Given, x: NDArray[np.float32], norms: list[int], starts: Any) -> Compiled:
    """All participants in one compiled step; dense networks' steps in one compiled round."""
    task = given.task
    models = [jnp.asarray(np.stack(values)) for values in zip(*starts, strict=True)]  # [K, …]
    data = jnp.asarray(x), jnp.asarray(given.y.astype(np.int32))
    clients = jnp.asarray(given.clients)
    batches = np.take_along_axis(given.clients[:, None], given.order, 2)
    steps = jnp.asarray(np.ascontiguousarray(batches.transpose(1, 0, 2)))  # [S, C, B] rows
    score = jax.vmap(lambda params, x, y: loss(task.layers, params, x, y)[0], (0, None, None))

    def enter(models: Params, x: Array, y: Array, clients: Array) -> tuple[Array, State]:
        """The model that every participant takes [C], and its state before the first step."""
        best = jnp.zeros(len(clients), jnp.int32)
        if task.models > 1:
            best = jax.vmap(lambda rows: score(models, x[rows], y[rows]).argmin())(clients)
        return best, jax.vmap(partial(begin, task, norms))([values[best] for values in models])

    def move(state: State, x: Array, y: Array, rows: Array) -> State:
        return jax.vmap(partial(step, task))(state, x[rows], y[rows])

    def leave(models: Params, best: Array, state: State) -> tuple[Params, Moments]:
        """Means of the participants of every model, and of all statistics."""
        member = jax.nn.one_hot(best, task.models, axis=0)  # [K, C]
        count = member.sum(1)
        means = []
        for start, trained in zip(models, state.params, strict=True):
            size = count.reshape(-1, *[1] * (start.ndim - 1))
            total = jnp.tensordot(member, trained, 1)
            means.append(jnp.where(size > 0, total / jnp.maximum(size, 1), start))
        return means, jax.tree.map(lambda value: value.mean(0), state.running)

    def whole(models: Params, x: Array, y: Array, clients: Array, steps: Array) -> Any:
        best, state = enter(models, x, y, clients)
        state, _ = lax.scan(lambda now, rows: (move(now, x, y, rows), None), state, steps)
        return leave(models, best, state)

    began = time.perf_counter()
    if any(len(leaf.shape) == 4 for leaf in leaves_of(task)[0]):
        # inside a loop XLA computes convolutions without the library that it has for a CPU
        first = _compile(enter, models, *data, clients)
        best, state = first(models, *data, clients)
        between = _compile(move, state, *data, steps[0])
        last = _compile(leave, models, best, state)

        def play() -> Any:
            best, state = first(models, *data, clients)
            for rows in steps:
                state = between(state, *data, rows)
            return last(models, best, state)

    else:
        play = partial(
            _compile(whole, models, *data, clients, steps), models, *data, clients, steps
        )
    seconds = time.perf_counter() - began

    def played() -> list[Params]:
        means, _ = jax.block_until_ready(play())
        return [[values[k] for values in means] for k in range(task.models)]

    return Compiled(played, seconds)


WAYS = {"jax_jit": one_by_one, "jax_vmap": all_at_once}


def program(given: Given, name: str) -> Program:
    """A way's rounds of federated averaging, or of IFCA where there are several models."""
    leaves, norms = leaves_of(given.task)
    starts = [convert(flat, leaves) for flat in given.start]
    images = np.ascontiguousarray(given.inputs().transpose(0, 2, 3, 1))
    ready = WAYS[name](given, images, norms, starts)

    def averaged(models: list[Params]) -> NDArray[np.float32]:
        return np.stack(
            [
                np.concatenate(
                    [
                        leaf.theirs(np.asarray(value)).ravel()
                        for leaf, value in zip(leaves, model, strict=True)
                    ]
                )
                for model in models
            ]
        )

    return Program(
        play=ready.play,
        averaged=averaged,
        version=f"jax {jax.__version__}",
        compiling=lambda: ready.seconds,
    )


if __name__ == "__main__":
    folder, name = Path(sys.argv[1]), sys.argv[2]
    serve(program(Given.read(folder), name), folder, name)
