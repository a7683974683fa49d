"""A workload as every simulator can read it: plain numbers, from JSON and back; needs torch
only.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

Layer = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Task:
    """Rounds of federated averaging, or of IFCA.

    Attributes:
        name: of the workload.
        shape: of one example, (channels, height, width).
        classes: Y.
        layers: the model, see `layers_of`.
        clients: participants of a round.
        population: clients there are; every round draws its participants from them.
        examples: of a client.
        epochs: passes over a client's examples.
        batch: examples of a step; None for all of a client's, unshuffled.
        lr: learning rate of plain SGD.
        models: 1 for federated averaging; K > 1 for IFCA: a client trains the one of least loss on
            its data.
    """

    name: str
    shape: tuple[int, ...]
    classes: int
    layers: tuple[Layer, ...]
    clients: int
    population: int
    examples: int
    epochs: int
    batch: int | None
    lr: float
    models: int = 1

    @property
    def client_steps(self) -> int:
        """Local steps of a client in a round."""
        return self.epochs * math.ceil(self.examples / (self.batch or self.examples))

    @property
    def round_steps(self) -> int:
        """Local steps of all participants of a round."""
        return self.clients * self.client_steps

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        """What `to_json` wrote."""
        fields = json.loads(text)
        fields["shape"] = tuple(fields["shape"])
        fields["layers"] = tuple((kind, tuple(sizes)) for kind, sizes in fields["layers"])
        return cls(**fields)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a simulator's program reports, as the last line it prints.

    Attributes:
        rate: client steps per second, median over rounds; neither set-up nor the first rounds
            count.
        rounds: that the median is over.
        processes: that train clients at the same time.
        threads: of each of them.
        version: the simulator's name and version.
    """

    rate: float
    rounds: int
    processes: int
    threads: int
    version: str

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_output(cls, output: str) -> Measured:
        """The last line of a program's output that is a JSON object.

        Raises:
            ValueError: when there is none.
        """
        for line in reversed(output.splitlines()):
            if line.startswith("{"):
                return cls(**json.loads(line))
        raise ValueError("the program printed no result")


def layers_of(model: nn.Sequential) -> tuple[Layer, ...]:
    """The model's layers by kind and sizes.

    Raises:
        ValueError: for a layer that `build` could not make.
    """
    layers: list[Layer] = []
    for layer in model:
        if isinstance(layer, nn.Linear):
            layers.append(("linear", (layer.in_features, layer.out_features)))
        elif isinstance(layer, nn.Conv2d) and layer.stride == (1, 1):
            padding = layer.padding[0]
            assert isinstance(padding, int), "zeros on every side"
            sizes = (layer.in_channels, layer.out_channels, layer.kernel_size[0], padding)
            layers.append(("conv", sizes))
        elif isinstance(layer, nn.MaxPool2d) and layer.kernel_size == layer.stride == 2:
            layers.append(("pool", ()))
        elif isinstance(layer, nn.ReLU):
            layers.append(("relu", ()))
        elif isinstance(layer, nn.Flatten):
            layers.append(("flatten", ()))
        else:
            raise ValueError(f"no description for {layer}")
    return tuple(layers)


def build(layers: tuple[Layer, ...]) -> nn.Sequential:
    """A PyTorch model, freshly initialised, from what `layers_of` says."""
    made: list[nn.Module] = []
    for kind, sizes in layers:
        if kind == "linear":
            made.append(nn.Linear(sizes[0], sizes[1]))
        elif kind == "conv":
            made.append(nn.Conv2d(sizes[0], sizes[1], sizes[2], padding=sizes[3]))
        elif kind == "pool":
            made.append(nn.MaxPool2d(2))
        elif kind == "relu":
            made.append(nn.ReLU())
        else:
            made.append(nn.Flatten())
    return nn.Sequential(*made)


def random_clients(task: Task, most: int = 10000) -> list[tuple[Tensor, Tensor]]:
    """Inputs [n, *shape] float32 and labels [n] int64 of every client of the population, in memory.

    Clients are slices of at most `most` random examples, which they share where that is too few for
    all: speed does not depend on what images show.
    """
    generator = torch.Generator().manual_seed(0)
    count = max(task.examples, min(most, task.population * task.examples))
    x = torch.rand(count, *task.shape, generator=generator)
    y = torch.randint(0, task.classes, (count,), generator=generator)
    places = count // task.examples
    starts = [i % places * task.examples for i in range(task.population)]
    return [
        (x[start : start + task.examples], y[start : start + task.examples]) for start in starts
    ]


def rounds_within(seconds: float, one: float) -> int:
    """How many rounds of `one` second to measure: as fit, at least 3 and at most 1000."""
    return max(3, min(1000, int(seconds / max(one, 1e-6))))
