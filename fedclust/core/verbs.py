"""What the exchangeable parts promise: partitions, scenarios, engines, algorithms, clusterings and
metrics.

The symbols of the shape comments are those of `fedclust.types`.

A complete algorithm: every participant joins the cluster whose model fits its data best, and each
cluster counts the training examples it has seen. Nothing is trained.

>>> from dataclasses import dataclass
>>> import torch
>>> from fedclust.core.types import Cost, Served
>>> @dataclass(frozen=True, kw_only=True)
... class Counting(Method):
...     num_clusters: int  # hyper-parameters are the keys of the algorithm's YAML
...
...     @dataclass(frozen=True, kw_only=True)
...     class State:
...         models: torch.Tensor  # [K, P]
...         count: torch.Tensor  # [K] int64
...         label: torch.Tensor  # [M] int64, -1 before a client's first round
...
...     def init(self, clients, rnd):
...         models = clients.init(rnd.stream("init"), self.num_clusters)
...         count = torch.zeros(self.num_clusters, dtype=torch.int64)
...         label = torch.full_like(rnd.fed.group, -1)
...         return self.State(models=models, count=count, label=label), Cost()
...
...     def round(self, state, clients, rnd):
...         label = clients.loss(state.models, rnd.cohort).argmin(1)  # [C]
...         count = state.count.index_add(0, label, rnd.fed.train.count[rnd.cohort])
...         label = state.label.index_copy(0, rnd.cohort, label)
...         state = self.State(models=state.models, count=count, label=label)
...         sent = self.num_clusters * len(rnd.cohort)
...         return state, Cost(models_down=sent, scalars_up=len(rnd.cohort), train_loss=0.0)
...
...     def serve(self, state, clients, rnd):
...         return Served(models=state.models, label=state.label.where(rnd.present, -1))

Six clients with 1 to 6 examples, of the class 0 or 1 in turn; all of them in two rounds:

>>> from itertools import islice
>>> from fedclust.engines.clients import SeedClients
>>> from fedclust.engines.loop import LoopEngine
>>> from fedclust.models.mlp import mlp
>>> from fedclust.scenarios.static import Static
>>> from fedclust.core.types import Federation, Pool, Split
>>> rows = torch.arange(21).split([1, 2, 3, 4, 5, 6])
>>> y = torch.cat([torch.full_like(mine, i % 2) for i, mine in enumerate(rows)])
>>> one = torch.ones(1)
>>> pool = Pool(x=torch.zeros(21, 1), y=y, scale=one, shift=0 * one, num_classes=2)
>>> split = Split.of(list(rows))
>>> fed = Federation(pool=pool, train=split, test=split, group=torch.arange(6) % 2)
>>> engine, counting = LoopEngine(mlp((1,), 2, hidden=[]), pool), Counting(num_clusters=2)
>>> for rnd in islice(Static(participation=1.0).rounds(fed, seed=0), 2):
...     clients = SeedClients(engine, rnd)
...     if rnd.t == 0:
...         state, cost = counting.init(clients, rnd)
...     state, cost = counting.round(state, clients, rnd)
...     served = counting.serve(state, clients, rnd)
...     print(state.count.tolist(), served.label.tolist(), cost.models_down)
[9, 12] [0, 1, 0, 1, 0, 1] 12
[18, 24] [0, 1, 0, 1, 0, 1] 12
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Protocol

from torch import Tensor

from fedclust.core.calls import Answers
from fedclust.core.front import Clients
from fedclust.core.traits import Traits
from fedclust.core.types import (
    Cost,
    Dataset,
    Federation,
    Pool,
    Round,
    Served,
    Split,
)
from fedclust.helpers.ranges import Ranged
from fedclust.helpers.rng import Stream
from fedclust.models.params import Layout


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
    state. One in which nobody's data ever change says so by `shifts = False`.
    """

    def rounds(self, fed: Federation, seed: int) -> Iterator[Round]:
        """Rounds 0, 1, 2, … without end."""
        ...

    def arrived(self, fed: Federation, seed: int, rounds: int) -> Tensor | None:
        """Who has arrived when a run of `rounds` rounds ends, [M] bool; None for everybody."""
        ...

    def remark(self, rounds: int) -> str:
        """What a user should know about a run of `rounds` rounds before it starts, or empty."""
        ...


class Engine(Answers, Protocol):
    """Batched computation on explicit rows: `loop`, `vmap` or `fused`.

    Engine law: row i of a result depends on (row i's data, its key, the model row it starts from,
    what the call gives row i) only, not on who else is in the call, nor on how the rows are cut
    into chunks.
    """

    @property
    def name(self) -> str:
        """The engine's name."""
        ...

    @property
    def exact(self) -> bool:
        """Whether a row has the same bits in any company, not only the same value to rounding."""
        ...

    @property
    def remark(self) -> str:
        """Why a faster engine does not compute the model, in words; empty where there is none."""
        ...

    @property
    def layout(self) -> Layout:
        """Names and shapes of the parameters of a row [P]."""
        ...

    def init(self, stream: Stream) -> Tensor:
        """Freshly initialised parameters, [P]."""
        ...


class Algorithm(Protocol):
    """A method: hyper-parameters only; all that changes lives in its State, a frozen dataclass of
    tensors. Derive it from `Method`.
    """

    @property
    def State(self) -> type[Any]:
        """The dataclass of what changes."""
        ...

    def remark(self, rounds: int) -> str:
        """What a user should know about a run of `rounds` rounds before it starts, or empty."""
        ...

    def beside(self, scenario: Scenario, num_clients: int) -> str:
        """What a user should know about the method in this scenario, or empty."""
        ...

    def tables(self, num_clients: int) -> Mapping[str, int]:
        """Bytes of what it needs at least besides models, by what needs them: a table of all pairs
        of clients can be larger than their models.
        """
        ...

    def init(self, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        """State before round 0, and what preparing it cost."""
        ...

    def round(self, state: Any, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        """State after round t; the given state is left as it was."""
        ...

    def serve(self, state: Any, clients: Clients, rnd: Round) -> Served:
        """The model of every client now; reads training data of present clients only."""
        ...


class Method(Ranged):
    """Base of every algorithm, which has nothing to remark and no large tables.

    What it says of itself is in `fedclust.core.traits.Traits`. It checks the numbers of a method
    against their annotations; a `__post_init__` begins with `super().__post_init__()`.
    """

    # what differs from `Traits` a method states under the same name
    unnoised: ClassVar[str] = Traits.unnoised
    steps_by_gradients: ClassVar[str] = ""
    whole: ClassVar[str] = ""

    @property
    def averages(self) -> bool:
        """Whether it has an option by which participants are weighted."""
        return hasattr(self, "aggregation")

    @property
    def unused(self) -> Mapping[str, str]:
        why = f"{self.steps_by_gradients} takes one gradient step per round"
        return (
            dict.fromkeys(("solver.epochs", "solver.steps"), why) if self.steps_by_gradients else {}
        )

    def remark(self, rounds: int) -> str:  # noqa: ARG002
        return ""

    def beside(self, scenario: Scenario, num_clients: int) -> str:  # noqa: ARG002
        return ""

    def tables(self, num_clients: int) -> Mapping[str, int]:  # noqa: ARG002
        return {}


class ClusterMetric(Protocol):
    """Dissimilarity of clients from their warm-up models.

    One that does not read the models of all of them says so by a method `reads(ids, rnd)`, which
    returns those of `ids` whose model it reads: the others need not train for it.
    """

    @property
    def num_components(self) -> int | None:
        """Directions it needs, at most one per client to cluster; None if it needs none."""
        ...

    def __call__(
        self, clients: Clients, models: Tensor, common: Tensor, ids: Tensor, rnd: Round
    ) -> Tensor:
        """[C, C] float32, symmetric, zero diagonal; client ids[i] trained models[i], the server
        common [1, P].
        """
        ...

    def transfers(self, num_clients: int, num_classes: int) -> tuple[int, int, int]:
        """What it sends for `num_clients` clients whose data have `num_classes` classes: models to
        them and from them, and numbers from them: losses beside models, else a description of the
        data.
        """
        ...


class ClusterMethod(Protocol):
    """Dissimilarities to labels."""

    @property
    def num_clusters(self) -> int | str | None:
        """How many clusters it was asked for; auto or None if it finds their number."""
        ...

    def __call__(self, distance: Tensor, stream: Stream) -> Tensor:
        """[C] int64 labels in [0, K), every label used, from distance [C, C]."""
        ...
