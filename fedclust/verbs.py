"""What the exchangeable parts promise: partitions, scenarios, engines, algorithms, clusterings and
metrics.

The symbols of the shape comments are those of `fedclust.types`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from torch import Tensor

from fedclust.rng import Stream
from fedclust.solver import Solver
from fedclust.types import (
    Cost,
    Dataset,
    Evaluation,
    Federation,
    LocalResult,
    Pool,
    Round,
    Served,
    Shards,
    Split,
)


class Partition(Protocol):
    """Arrays to clients, in two steps so that all seeds share one pool."""

    def pool(self, dataset: Dataset) -> Pool:
        """The examples, the same for every seed."""
        ...

    def split(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split, Tensor]:
        """Train split, test split and group [M] of one seed, as rows of `pool(dataset)`."""
        ...


class Scenario(Protocol):
    """Who joins, who is sampled and what shifts, round by round; never looks at an algorithm's
    state.
    """

    def rounds(self, fed: Federation, seed: int) -> Iterator[Round]:
        """Rounds 0, 1, 2, … without end."""
        ...


class Engine(Protocol):
    """Batched computation on explicit rows: `loop`, `vmap` or `fused`.

    Clients law: row i of a result depends on (row i's data, its key, the model row it starts from)
    only, not on who else is in the call, nor on how the rows are cut into chunks.
    """

    @property
    def name(self) -> str:
        """The engine's name."""
        ...

    @property
    def num_params(self) -> int:
        """P."""
        ...

    def init(self, stream: Stream) -> Tensor:
        """Freshly initialised parameters, [P]."""
        ...

    def train(
        self,
        models: Tensor,
        label: Tensor,
        shards: Shards,
        solver: Solver,
        lr: float,
        slots: Tensor | None = None,
        anchor: Tensor | None = None,
    ) -> LocalResult:
        """Local training of C rows; row i starts at models[label[i]] [K, P], slots[label[i]]
        likewise.

        The solver's proximal term pulls row i to its start, or to anchor[i] where an anchor [C, P]
        is given.
        """
        ...

    def loss(self, models: Tensor, shards: Shards) -> Tensor:
        """Mean loss of every model [K, P] on every shard, [C, K] nats per example."""
        ...

    def grad(self, models: Tensor, label: Tensor, shards: Shards) -> Tensor:
        """Full-batch gradient of the mean loss of models[label[i]] on shard i, [C, P]."""
        ...

    def evaluate(self, models: Tensor, label: Tensor, shards: Shards) -> tuple[Tensor, Tensor]:
        """Summed loss [C] float64 and correct predictions [C] int64 of models[label[i]] on shard
        i.
        """
        ...


class Clients(Protocol):
    """The verbs an algorithm computes with, over client ids of one seed."""

    @property
    def num_params(self) -> int:
        """P."""
        ...

    def init(self, stream: Stream, k: int) -> Tensor:
        """k independent initial models, [k, P]; model j depends on (stream, j) only."""
        ...

    def train(
        self,
        models: Tensor,
        label: Tensor,
        clients: Tensor,
        solver: Solver,
        rnd: Round,
        slots: Tensor | None = None,
        purpose: str = "train",
        anchor: Tensor | None = None,
    ) -> LocalResult:
        """Local training of `clients` [C], client i from models[label[i]]; see `Engine.train`."""
        ...

    def loss(
        self, models: Tensor, clients: Tensor, rnd: Round, batch_size: int | None = None
    ) -> Tensor:
        """Mean training loss of every model [K, P] for every client, [C, K] nats per example.

        With a `batch_size`, of one batch of min(batch_size, count) random examples of the client;
        it is a function of (seed, round, client), so the same one for every model and for `grad`.
        """
        ...

    def grad(
        self,
        models: Tensor,
        label: Tensor,
        clients: Tensor,
        rnd: Round,
        batch_size: int | None = None,
    ) -> Tensor:
        """Gradient [C, P] of the mean training loss of models[label[i]] for client i; see
        `loss`.
        """
        ...

    def evaluate(self, served: Served, rnd: Round) -> Evaluation:
        """Test results of what is served."""
        ...


class Algorithm(Protocol):
    """A method: hyper-parameters only; all that changes lives in its State, a frozen dataclass of
    tensors.
    """

    @property
    def State(self) -> type[Any]:
        """The dataclass of what changes."""
        ...

    def init(self, engine: Clients, rnd: Round) -> tuple[Any, Cost]:
        """State before round 0, and what preparing it cost."""
        ...

    def round(self, state: Any, engine: Clients, rnd: Round) -> tuple[Any, Cost]:
        """State after round t; the given state is left as it was."""
        ...

    def serve(self, state: Any, engine: Clients, rnd: Round) -> Served:
        """The model of every client now; reads training data of present clients only."""
        ...


class ClusterMetric(Protocol):
    """Dissimilarity of clients from their warm-up models."""

    def __call__(
        self, engine: Clients, models: Tensor, common: Tensor, clients: Tensor, rnd: Round
    ) -> Tensor:
        """[C, C] float32, symmetric, zero diagonal; client i trained models[i], the server common
        [1, P].
        """
        ...


class ClusterMethod(Protocol):
    """Dissimilarities to labels."""

    def __call__(self, distance: Tensor, stream: Stream) -> Tensor:
        """[C] int64 labels in [0, K), every label used, from distance [C, C]."""
        ...
