"""A workload as every simulator can read it: plain numbers, from JSON and back; needs no torch."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

Layer = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Task:
    """Rounds of federated averaging, or of IFCA.

    Attributes:
        name: of the workload.
        shape: of one example, (channels, height, width).
        classes: Y.
        layers: the model, see `benchmarks.against.networks`.
        clients: participants of a round.
        population: clients there are; every round draws its participants from them.
        examples: of a client.
        epochs: passes over a client's examples.
        batch: examples of a step; None for all of a client's, unshuffled.
        lr: learning rate.
        models: 1 for federated averaging; K > 1 for IFCA: a client trains the one of least loss on
            its data.
        optimizer: sgd without momentum, or adam, both with PyTorch's other settings; begins anew in
            every round.
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
    optimizer: str = "sgd"

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


def rounds_within(seconds: float, one: float) -> int:
    """How many rounds of `one` second to measure: as fit, at least 3 and at most 1000."""
    return max(3, min(1000, int(seconds / max(one, 1e-6))))
