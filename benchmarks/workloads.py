"""The workloads: models, sizes, and what one unit of work costs in floating-point operations.

Longer than other files because every workload is one declaration beside the others: what differs
between two of them is seen at a glance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor, nn

from benchmarks import plain
from benchmarks.against.networks import layers_of
from benchmarks.against.task import Task
from benchmarks.machine import cache_bytes
from fedclust.core.calls import LossCall, Shards, SumCall, TrainCall
from fedclust.core.types import Pool
from fedclust.core.verbs import Engine
from fedclust.engines import make_engine
from fedclust.helpers.ops import mean_of
from fedclust.helpers.rng import Stream
from fedclust.models.cnn import cnn
from fedclust.models.flops import forward_flops, step_flops
from fedclust.models.initial import named_init
from fedclust.models.mlp import mlp
from fedclust.models.sequence import Model, Stack
from fedclust.solver import Solver

_MNIST, _CIFAR, _CLASSES = (1, 28, 28), (3, 32, 32), 10


@dataclass(frozen=True, kw_only=True)
class Case:
    """A workload ready to run.

    Attributes:
        fast: one call of the engine.
        plain: the same kind of work in the plain loop, possibly on fewer clients.
        fast_units, plain_units: units of work of one call.
        flops: floating-point operations of one unit, its steps taken one after the other as
            written.
        memory: bytes that one unit must move to and from memory, see `step_bytes`; None where not
            counted.
        engine: the engine, for its padding.
        starts: [K, P] models that rows may begin with; None where nothing is trained.
        single: one seed of a workload with several, or None.
    """

    fast: Callable[[], object]
    plain: Callable[[], object]
    fast_units: int
    plain_units: int
    flops: float
    engine: Engine
    memory: float | None = None
    starts: Tensor | None = None
    single: Callable[[], object] | None = None


class Prepare(Protocol):
    """Builds a case."""

    def __call__(self, engine: str, device: torch.device, precision: str = "highest") -> Case:
        """The case of an engine, by its name."""
        ...


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is measured.

    Attributes:
        name: W1, W2, …
        title: the workload in words, and how much of it one call does.
        unit: what is counted per second.
        prepare: builds the case for an engine's name, a device, and a precision.
        total: units of the whole workload, where a call is a part of it that is worth projecting.
        rounds: the same work as rounds that other simulators can run too; see `Rounds`.
    """

    name: str
    title: str
    unit: str
    prepare: Prepare
    total: int | None = None
    rounds: Rounds | None = None


@lru_cache(maxsize=2)
def synthetic_pool(num_examples: int, shape: tuple[int, ...], device: torch.device) -> Pool:
    """Random bytes of a data set's shape; speed does not depend on what they show.

    Engines that are measured in turn share them.
    """
    generator = torch.Generator().manual_seed(0)
    return Pool(
        x=torch.randint(0, 256, (num_examples, *shape), generator=generator, dtype=torch.uint8).to(
            device
        ),
        y=torch.randint(0, _CLASSES, (num_examples,), generator=generator).to(device),
        scale=torch.tensor(1 / 255, device=device),
        shift=torch.tensor(0.0, device=device),
        num_classes=_CLASSES,
    )


def shards(rows: int, count: int, num_examples: int, device: torch.device) -> Shards:
    """`rows` clients with `count` random examples each."""
    generator = torch.Generator().manual_seed(1)
    return Shards(
        index=torch.randint(0, num_examples, (rows, count), generator=generator).to(device),
        count=torch.full((rows,), count, device=device),
        key=Stream.of(0, "train", 0).keys(torch.arange(rows)).to(device),
    )


def step_bytes(model: Model, count: int, steps: int, together: int, device: torch.device) -> float:
    """Bytes that a local step must move to and from memory, at the least.

    Counted: a client's examples, one byte per number, read once; its trained parameters, float32,
    written once; both shared out over its steps. Where the parameters of the models that are
    trained at the same time are larger than the last cache, they are read and written in every step
    as well. Not counted: the models that clients start from, gradients, activations, and whatever
    an engine moves beyond that.

    Args:
        model: what is trained.
        count: examples of a client.
        steps: local steps of a client.
        together: models that are trained at the same time.
        device: whose cache.
    """
    params = 4 * sum(value.numel() for value in model.parameters())
    moved = (count * math.prod(model.shapes[0]) + params) / steps
    return moved + (2 * params if params * together > cache_bytes(device) else 0)


def _loaded(model: Model, flat: Tensor) -> Model:
    """The model with the flat parameters [P]."""
    nn.utils.vector_to_parameters(flat.clone(), model.parameters())
    return model


@dataclass(frozen=True, kw_only=True)
class Training:
    """Local training of `rows` clients per call from one model, and the sum of what they make of
    it, as a round asks for it; `seeds` > 1 merges that many cohorts.
    """

    model: Callable[[], Model]
    rows: int
    count: int
    epochs: int
    batch: int | None
    plain_rows: int
    seeds: int = 1

    def __call__(self, engine: str, device: torch.device, precision: str = "highest") -> Case:
        """The case."""
        model = self.model()
        pool = synthetic_pool(60000, model.shapes[0], device)
        engine = make_engine(engine, model, pool, precision=precision)
        solver = Solver(lr=0.01, batch_size=self.batch, epochs=self.epochs)
        start = torch.stack([engine.init(Stream.of(seed, "init")) for seed in range(self.seeds)])
        data = shards(self.rows * self.seeds, self.count, 60000, device)
        label = torch.arange(self.seeds, device=device).repeat_interleave(self.rows)
        one = replace(data, **{k: getattr(data, k)[: self.rows] for k in ("index", "count", "key")})
        steps = math.ceil(self.count / (self.batch or self.count)) * self.epochs
        examples = self.count * self.epochs / steps
        local = _loaded(self.model().to(device), start[0])
        few = data.index[: self.plain_rows]
        return Case(
            fast=lambda: engine.answer(SumCall(TrainCall(start, label, data, solver, solver.lr))),
            plain=lambda: plain.train(local, pool, few, self.epochs, self.batch, solver.lr),
            fast_units=self.rows * self.seeds * steps,
            plain_units=self.plain_rows * steps,
            flops=examples * step_flops(model),
            engine=engine,
            starts=start,
            memory=step_bytes(
                model, self.count, steps, 1 if device.type == "cpu" else len(label), device
            ),
            single=None
            if self.seeds == 1
            else (
                lambda: engine.answer(
                    SumCall(TrainCall(start, label[: self.rows], one, solver, solver.lr))
                )
            ),
        )


def _ifca(engine: str, device: torch.device, precision: str = "highest", rows: int = 240) -> Case:
    """W4: every client takes the best of four models, then ten full-batch steps from it."""
    count, clusters, steps, plain_rows = 100, 4, 10, min(24, rows)
    pool, model = synthetic_pool(60000, _MNIST, device), _mlp200()
    engine = make_engine(engine, model, pool, precision=precision)
    solver = Solver(lr=0.1, batch_size=None, epochs=steps)
    models = torch.stack([engine.init(Stream.of(j, "init")) for j in range(clusters)])
    data = shards(rows, count, 60000, device)
    local = [_loaded(_mlp200().to(device), flat) for flat in models]

    def fast() -> object:
        best = engine.answer(LossCall(models, data)).argmin(1)
        return engine.answer(SumCall(TrainCall(models, best, data, solver, solver.lr)))

    def slow() -> object:
        few = data.index[:plain_rows]
        best = plain.losses(list(local), pool, few).argmin(1).tolist()
        return [
            plain.train(local[k], pool, few[i : i + 1], steps, None, solver.lr)
            for i, k in enumerate(best)
        ]

    flops = count * (step_flops(model) + clusters * sum(forward_flops(model)) / steps)
    return Case(
        fast=fast,
        plain=slow,
        fast_units=rows * steps,
        plain_units=plain_rows * steps,
        flops=flops,
        engine=engine,
        starts=models,
        memory=step_bytes(model, count, steps, 1 if device.type == "cpu" else rows, device),
    )


def _table(engine: str, device: torch.device, precision: str = "highest", rows: int = 120) -> Case:
    """W5: the loss of every client's model on every client's data."""
    count, columns, plain_rows = 200, 48, min(12, rows)
    pool, model = synthetic_pool(60000, _MNIST, device), _mlp200()
    engine = make_engine(engine, model, pool, precision=precision)
    models = torch.stack([engine.init(Stream.of(j, "init")) for j in range(columns)])
    data = shards(rows, count, 60000, device)
    local: list[nn.Module] = [_loaded(_mlp200().to(device), flat) for flat in models]
    return Case(
        fast=lambda: engine.answer(LossCall(models, data)),
        plain=lambda: plain.losses(local, pool, data.index[:plain_rows]),
        fast_units=rows * columns,
        plain_units=plain_rows * columns,
        flops=count * sum(forward_flops(model)),
        engine=engine,
    )


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """Whole rounds: all participants choose (IFCA), train and are averaged, as other simulators do
    it too.

    Attributes:
        model: makes the model.
        clients, examples, epochs, batch, models, lr: see `Task`.
        population: clients there are; None for as many as take part.
    """

    model: Callable[[], Model]
    clients: int
    examples: int
    epochs: int
    batch: int | None
    population: int | None = None
    models: int = 1
    lr: float = 0.01

    def task(self, name: str) -> Task:
        """The description for other simulators."""
        model = self.model()
        return Task(
            name=name,
            shape=model.shapes[0],
            classes=_CLASSES,
            layers=layers_of(model),
            clients=self.clients,
            population=self.population or self.clients,
            examples=self.examples,
            epochs=self.epochs,
            batch=self.batch,
            lr=self.lr,
            models=self.models,
        )

    def __call__(self, engine: str, device: torch.device) -> Callable[[], Tensor]:
        """One round of fedclust: the verbs of `FedAvg.round` or `IFCA.round`, always from the same
        models.
        """
        model = self.model()
        engine = make_engine(engine, model, synthetic_pool(60000, model.shapes[0], device))
        solver = Solver(lr=self.lr, batch_size=self.batch, epochs=self.epochs)
        models = torch.stack([engine.init(Stream.of(k, "init")) for k in range(self.models)])
        data = shards(self.clients, self.examples, 60000, device)
        common = torch.zeros(self.clients, dtype=torch.int64, device=device)

        def play() -> Tensor:
            label = common if self.models == 1 else engine.answer(LossCall(models, data)).argmin(1)
            sums = engine.answer(SumCall(TrainCall(models, label, data, solver, solver.lr)))
            return mean_of(sums.params, label, empty=models)

        return play


def _linear() -> Model:
    return mlp(_MNIST, _CLASSES, hidden=[])


def _mlp200() -> Model:
    return mlp(_MNIST, _CLASSES, hidden=[200])


def _cnn() -> Model:
    return cnn(_MNIST, _CLASSES, channels=[32, 64], kernel=5, padding=2, hidden=[512])


def _cifar_cnn() -> Model:
    """`simple_cnn` of pfl-research's CIFAR-10 benchmark, without its dropout."""
    stack = Stack(_CIFAR, named_init("torch")).conv(32, 3).relu().conv(64, 3).relu().pool(2, 2)
    return stack.linear(128).relu().linear(_CLASSES).model()


WORKLOADS: Sequence[Workload] = (
    Workload(
        name="W1",
        title="784-10, 20 clients x 60, 10 epochs, B=10",
        unit="steps",
        prepare=Training(model=_linear, rows=20, count=60, epochs=10, batch=10, plain_rows=5),
        rounds=Rounds(model=_linear, clients=20, examples=60, epochs=10, batch=10),
    ),
    Workload(
        name="W2",
        title="784-200-10, 120 clients x 200, 10 epochs, B=20",
        unit="steps",
        prepare=Training(model=_mlp200, rows=120, count=200, epochs=10, batch=20, plain_rows=5),
        rounds=Rounds(model=_mlp200, clients=120, examples=200, epochs=10, batch=20),
    ),
    Workload(
        name="W3",
        title="conv 32, conv 64, fc 512, 4 of 20 clients x 100, 5 epochs, B=20",
        unit="steps",
        prepare=Training(model=_cnn, rows=4, count=100, epochs=5, batch=20, plain_rows=1),
        rounds=Rounds(model=_cnn, clients=20, examples=100, epochs=5, batch=20),
    ),
    Workload(
        name="W4",
        title="IFCA 784-200-10, 240 of 2400 clients x 100, k=4, 10 full batches",
        unit="steps",
        prepare=_ifca,
        rounds=Rounds(
            model=_mlp200, clients=240, examples=100, epochs=10, batch=None, models=4, lr=0.1
        ),
    ),
    Workload(
        name="W5",
        title="loss table 784-200-10, 120 of 1200 clients x 200, 48 of 1200 models",
        unit="losses",
        prepare=_table,
    ),
    Workload(
        name="W6",
        title="W1 with 5 seeds in one call",
        unit="steps",
        prepare=Training(
            model=_linear, rows=20, count=60, epochs=10, batch=10, plain_rows=5, seeds=5
        ),
    ),
    Workload(
        name="W7",
        title="CIFAR-10 cnn, 50 clients x 50, 1 epoch, B=10; of 1500 rounds",
        unit="steps",
        prepare=Training(model=_cifar_cnn, rows=50, count=50, epochs=1, batch=10, plain_rows=4),
        total=1500 * 50 * 5,
        rounds=Rounds(
            model=_cifar_cnn, clients=50, examples=50, epochs=1, batch=10, population=1000
        ),
    ),
)
