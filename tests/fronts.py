"""The clients of one seed before it is said in which round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedclust.core.attack import Attack, Attacked
from fedclust.core.server import Aggregation, Server
from fedclust.core.types import Round
from fedclust.core.verbs import Engine
from fedclust.engines.clients import SeedClients
from fedclust.helpers.rng import Stream
from fedclust.models.params import Layout


class AllTrained:
    """Clients of a model without statistics."""

    layout = Layout(names=(), shapes=())


@dataclass
class Front:
    """What tests of several rounds hold; `at` gives the clients of one."""

    engine: Engine
    discrepancy: bool = False
    aggregation: Aggregation | None = None
    attack: Attack | None = None

    @property
    def layout(self) -> Layout:
        return self.engine.layout

    def at(self, rnd: Round) -> Any:
        server = Server(self.aggregation)
        clients = SeedClients(self.engine, rnd, self.discrepancy, server=server)
        return clients if self.attack is None else Attacked(clients, self.attack)

    def init(self, stream: Stream, k: int) -> Tensor:
        return torch.stack([self.engine.init(stream.fold(j)) for j in range(k)])
