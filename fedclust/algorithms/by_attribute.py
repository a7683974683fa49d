"""Clusters by what is known of every client beforehand: the baseline of metadata.

Clients of one kind share a model, by the class they have most of, by how many examples they have,
or by what a table says of them, such as the country or the device. A method that clusters should do
better than the attribute that is at hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedclust.algorithms.steps import Aggregation, arrived, federated_averaging
from fedclust.core.front import Clients
from fedclust.core.solver import Solver
from fedclust.core.types import Cost, Federation, Round, Served
from fedclust.core.verbs import Method
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.errors import DataError, require
from fedclust.helpers.files import plain_file
from fedclust.helpers.ranges import AtLeastOne

Attribute = Literal["majority_class", "size", "table"]


@dataclass(frozen=True, kw_only=True)
class ByAttribute(Method):
    """One model per value of an attribute."""

    solver: Solver
    num_clusters: Annotated[AtLeastOne, OnlyWith("attribute", "size")]  # of `size`
    # the class of which a client has most training examples, the first of equals; or `size`, its
    # number of training examples in `num_clusters` parts as large as each other; or what a `table`
    # says
    attribute: Attribute = "majority_class"
    # CSV with the columns client, its number or name, and attribute
    table: Annotated[str | None, OnlyWith("attribute", "table")] = None
    aggregation: Aggregation = "by_samples"

    apart = "clusters"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """The clusters' models."""

        models: Tensor  # [K, P]
        # [K - 1] the largest number of examples in each part but the last; empty without `size`
        bounds: Tensor
        told: Tensor  # [M] int64 cluster by the table; empty without one

    def __post_init__(self) -> None:
        super().__post_init__()
        given = (self.table is not None) or self.attribute != "table"
        require(given, "algorithm.table", self.table, "a CSV file with algorithm.attribute=table")

    @property
    def unnoised(self) -> str:  # type: ignore[override]
        """A table is known beforehand."""
        return "" if self.attribute == "table" else "an attribute of data"

    @property
    def needs_classes(self) -> bool:
        """Whether it looks at classes."""
        return self.attribute == "majority_class"

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """The same fresh model for every value; `DataError` if the table lacks clients."""
        model, none = clients.init(rnd.stream("init"), 1), rnd.fed.group[:0]
        bounds, told, k = none, none, rnd.fed.pool.num_classes
        if self.attribute == "size":
            k, count = self.num_clusters, rnd.fed.train.count[rnd.present]
            require(
                k <= len(count), "num_clusters", k, f"at most the {len(count)} clients there are"
            )
            bounds = parts(count, k)
        elif self.attribute == "table":
            told = read(Path(str(self.table)), rnd.fed).to(none.device)
            k = int(told.max()) + 1
        return self.State(models=model.repeat(k, 1), bounds=bounds, told=told), Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """One round of FedAvg in every cluster."""
        label = self._label(state, rnd)[rnd.cohort]
        models, cost = federated_averaging(self, clients, state.models, label, rnd)
        return self.State(models=models, bounds=state.bounds, told=state.told), cost

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        return Served(models=state.models, label=arrived(self._label(state, rnd), rnd))

    def _label(self, state: State, rnd: Round) -> Tensor:
        """The cluster of every client by the data it has now, [M] int64."""
        fed = rnd.fed
        if self.attribute == "table":
            return state.told
        if self.attribute == "size":
            return torch.searchsorted(state.bounds, fed.train.count)
        return fed.train.classes(fed.pool.y, fed.pool.num_classes).argmax(1)


def parts(count: Tensor, k: int) -> Tensor:
    """The largest number of examples in each of k parts of the clients but the last, [K - 1] int64
    ascending; clients with equal numbers [M] stay together.
    """
    last = torch.arange(1, k, device=count.device) * len(count) // k - 1
    return count.sort().values[last.clamp(min=0)]


def read(path: Path, fed: Federation) -> Tensor:
    """The cluster of every client by the values of a table in their order, [M] int64. Raises
    `DataError` naming the file, and the first client that is missing, twice there or unknown.
    """
    import pandas as pd  # half a second, for those who have a table

    plain_file(path, "", "algorithm.table is a CSV file with the columns client and attribute")
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        rows = list(zip(table["client"], table["attribute"], strict=True))
    except Exception as error:  # pandas raises many kinds for a damaged file
        words = " ".join(str(error).split())[:200]
        raise DataError(
            f"cannot read {path} ({words}): algorithm.table is a CSV file with the columns client "
            "and attribute"
        ) from error
    numbers = {str(client): client for client in range(fed.num_clients)}
    known = numbers | {name: client for client, name in enumerate(fed.names.clients)}
    found = dict[int, str]()
    for name, value in rows:
        if name not in known:
            raise DataError(f"{path} names client {name}, whom none of the {fed.num_clients} is")
        if known[name] in found:
            raise DataError(f"{path} names client {name} twice: remove one of the rows")
        found[known[name]] = value
    if missing := sorted(set(range(fed.num_clients)) - found.keys()):
        raise DataError(f"{path} has no row of client {missing[0]} ({len(missing)} such clients)")
    values = sorted(set(found.values()))
    return torch.tensor([values.index(found[client]) for client in range(fed.num_clients)])
