"""Any method that averages, on a server that takes a step of its own along the mean: FedAvgM,
FedAdam, FedYogi, FedAdagrad and the same of every clustered method; see `fedclust.updates.servers`.

Every model has a memory of its own. It goes where the model goes: a cluster that is split gives its
memory to both halves, one without participants keeps it, and a model that is made of several
begins without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from fedclust.core.front import Clients, Layer
from fedclust.core.server import Server, ServerStep
from fedclust.core.traits import Traits, check_averages
from fedclust.core.types import Cost, Round
from fedclust.core.wrapper import Wrapper
from fedclust.helpers.errors import require


@dataclass(frozen=True)
class _Stepping(Layer):
    """Clients of another server."""

    stepping: Server  # the server

    @property
    def server(self) -> Server:
        return self.stepping


@dataclass(frozen=True, kw_only=True)
class WithServer(Wrapper):
    """A method whose means of models become steps of the server."""

    server: ServerStep  # the step

    def __post_init__(self) -> None:
        given = type(self.server).__name__.lower()
        check_averages("server", given, self.base, type(self.base).__name__)
        allowed = "mean, since the algorithm has a server of its own: algorithm.server"
        require(not super().traits.moments, "server", given, allowed)
        super().__post_init__()  # last: of two servers the line above says more

    @property
    def traits(self) -> Traits:
        """As the base, with S moments of the server."""
        return replace(super().traits, moments=len(self.server.first))

    @property
    def added(self) -> Mapping[str, type[Any]]:
        """server_memory: [A, S, P] memories; server_models: [A, 16] uint8 models' digests."""
        return {"server_memory": Tensor, "server_models": Tensor}

    def init(self, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        state, cost = self.base.init(clients, rnd)
        return self._with(state, {}, clients), cost

    def round(self, state: Any, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        """As the base, with the server's steps."""
        keys = [bytes(row.tolist()) for row in state.server_models]
        before = dict(zip(keys, state.server_memory.unbind(), strict=True))
        server = replace(
            clients.server, step=self.server, before=before, after={}, layout=clients.layout
        )
        after, cost = self.base.round(state, _Stepping(clients, server), rnd)
        width, memories = clients.layout.num_params, dict[bytes, Tensor]()
        for field in fields(self.base.State):
            value = getattr(after, field.name)
            if isinstance(value, Tensor) and value.ndim == 2 and value.shape[1] == width:
                memories |= server.memories(value)
        return self._with(after, memories, clients), cost

    def _with(self, state: Any, memories: Mapping[bytes, Tensor], clients: Clients) -> Any:
        blank = torch.zeros(0, self.traits.moments, clients.layout.num_params)
        memory = torch.stack([*memories.values()]) if memories else blank
        digests = torch.tensor([list(key) for key in memories], dtype=torch.uint8).view(-1, 16)
        return self.with_added(state, server_memory=memory, server_models=digests)
