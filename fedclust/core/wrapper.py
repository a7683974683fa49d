"""A method around another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, make_dataclass
from functools import cache
from typing import Any

from fedclust.core.front import Clients
from fedclust.core.traits import Traits, traits_of
from fedclust.core.types import Cost, Round, Served
from fedclust.core.verbs import Algorithm, Method, Scenario
from fedclust.helpers.errors import require


@dataclass(frozen=True, kw_only=True)
class Wrapper(Method):
    """A method that does, and says of itself, what its base does but for what it changes."""

    base: Algorithm  # the method

    def __post_init__(self) -> None:
        """Refuse a base that is, or holds, a wrapper of the same kind."""
        super().__post_init__()
        inside: Any = self.base
        while isinstance(inside, Wrapper):
            name, allowed = type(self).__name__, "expected a method that is not in one already"
            require(type(inside) is not type(self), "algorithm.base", name, allowed)
            inside = inside.base

    @property
    def State(self) -> type[Any]:
        """That of the base, with the fields `added`, if any."""
        base: Any = self.base.State
        return _extended(base, tuple(self.added.items()))

    @property
    def added(self) -> Mapping[str, type[Any]]:
        """Names and types of what this keeps besides the base."""
        return {}

    def with_added(self, state: Any, **added: Any) -> Any:
        """The base's part of a state, with what this keeps."""
        own = {field.name: getattr(state, field.name) for field in fields(self.base.State)}
        return self.State(**own, **added)

    @property
    def traits(self) -> Traits:
        """Those of the base; a layer replaces what it changes."""
        return traits_of(self.base)

    def remark(self, rounds: int) -> str:
        return self.base.remark(rounds)

    def beside(self, scenario: Scenario, num_clients: int) -> str:
        return self.base.beside(scenario, num_clients)

    def tables(self, num_clients: int) -> Mapping[str, int]:
        return self.base.tables(num_clients)

    def init(self, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        return self.base.init(clients, rnd)

    def round(self, state: Any, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        return self.base.round(state, clients, rnd)

    def serve(self, state: Any, clients: Clients, rnd: Round) -> Served:
        return self.base.serve(state, clients, rnd)


@cache
def _extended(state: Any, more: tuple[tuple[str, type[Any]], ...]) -> type[Any]:
    """A method's state with further fields."""
    if not more:
        kept: type[Any] = state
        return kept
    return make_dataclass("State", more, bases=(state,), frozen=True, kw_only=True)
