"""One seed of a job: its rounds, its algorithm, and a state that a checkpoint can hold."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedclust.config.job import Job
from fedclust.core.attack import Attack, Attacked
from fedclust.core.front import Clients
from fedclust.core.server import Aggregation, Privacy, Server, as_drawn
from fedclust.core.traits import traits_of
from fedclust.core.types import (
    ClientModels,
    Cost,
    Evaluation,
    Federation,
    Predictions,
    Round,
    Served,
    Split,
)
from fedclust.core.verbs import Algorithm
from fedclust.engines.clients import LastLosses, SeedClients
from fedclust.engines.lockstep import Lockstep
from fedclust.helpers.errors import ConfigError, counted, require
from fedclust.metrics import METRICS


@dataclass(frozen=True)
class SeedRound:
    """One round of one seed.

    Attributes:
        evaluation: the test results after it; None where it is not evaluated, or not tested.
        validation: likewise those on validation examples; None where there are none.
        said: what is said of every test example; None where nobody asks.
        said_held_out: likewise of validation examples.
        untrained: the test results of what is served before it trains, on the data of the round;
            None unless the round is a change, and tested.
        served: what every client has at its end; None where the round is not evaluated.
    """

    rnd: Round
    costs: list[Cost]
    evaluation: Evaluation | None
    validation: Evaluation | None
    untrained: Evaluation | None
    said: Predictions | None = None
    said_held_out: Predictions | None = None
    served: Served | None = None


@dataclass
class Simulation:
    """One seed: its rounds, algorithm and state; `private` counts private rounds by their kind."""

    seed: int
    algorithm: Algorithm
    engine: Lockstep
    rounds: Iterator[Round]
    discrepancy: bool = False
    aggregation: Aggregation | None = None
    attack: Attack | None = None
    privacy: Privacy | None = None
    tested: bool = True
    state: Any = None
    losses: LastLosses = field(default_factory=LastLosses)
    private: Counter[tuple[float, int]] = field(default_factory=Counter)
    _before: Round | None = None  # the last one before this process

    @classmethod
    def of(cls, seed: int, job: Job, fed: Federation, engine: Lockstep) -> Simulation:
        """The simulation of one seed before round 0."""
        rounds = job.scenario.rounds(fed, seed)
        how = job.discrepancy, job.aggregation, job.attack, job.privacy, job.tested
        return cls(seed, job.algorithm, engine, rounds, *how)

    def resume(
        self, t: int, state: dict[str, Any], private: Mapping[tuple[float, int], int] | None
    ) -> None:
        """Continue after round t; data shifts are replayed, they cost no training.

        Without `private`, which older checkpoints lack, rounds count as those of several models.
        """
        for _ in range(t + 1):
            self._before = next(self.rounds)
            self.private[self._before.share, 2] += 1
        if private is not None:
            self.private = Counter(private)
        self.state = restored(self.algorithm.State, state)

    def recall_losses(self) -> None:
        """Compute again, by serving, the losses asked for last: checkpoints do not hold them.

        Else the calls of seeds would meet others than in an uninterrupted run, and round otherwise.
        """
        assert self._before is not None
        rnd, _ = _without_validation(self._before)
        self._served(self._front(self._clients(rnd)), rnd)

    def _clients(self, rnd: Round, *, nobody: bool = False) -> SeedClients:
        """The clients in a round, in which `nobody` may have been drawn."""
        server = Server(self.aggregation, layout=self.engine.layout)
        if self.privacy is not None:
            drawn, draw = rnd.share * rnd.fed.num_clients, rnd.stream("privacy").numpy()
            server = replace(
                server, privacy=self.privacy, num_drawn=drawn, nobody=nobody, draw=draw
            )
        clients = SeedClients(self.engine, rnd, self.discrepancy, losses=self.losses)
        return replace(clients, server=server)

    def _front(self, clients: SeedClients) -> Clients:
        """What the algorithm computes with."""
        return clients if self.attack is None else Attacked(clients, self.attack)

    def step(self, evaluated: bool, predicted: bool = False) -> SeedRound:
        """One round: its cost, its results where `evaluated`, every example's where `predicted`."""
        (rnd, held_out), costs = _without_validation(next(self.rounds)), list[Cost]()
        rnd, nobody = as_drawn(rnd) if self.privacy is not None else (rnd, False)
        clients = self._clients(rnd, nobody=nobody)
        front = self._front(clients)
        untrained = None
        # with validation examples, they alone decide what becomes of a run
        decides = held_out is None
        if rnd.is_change and self.tested:
            # passes apart: the test of a change is no cost of the method
            before = SeedClients(self.engine, rnd)
            untrained = before.evaluate(self._served(before, rnd), must_be_finite=decides)
        if rnd.t == 0:
            self.state, cost = self._checked("init", self.algorithm.init(front, rnd))
            costs.append(cost)
        self.state, cost = self._checked("round", self.algorithm.round(self.state, front, rnd))
        # what serving needs besides belongs to the test
        counted = clients.passes
        passes = Cost(forward_passes=counted.forward, backward_passes=counted.backward)
        costs += [cost, passes]
        if self.privacy is not None:
            self.private[rnd.share, max(clients.server.released, default=1)] += 1
            if evaluated:
                costs.append(Cost(notes={"epsilon": self.privacy.epsilon(self.private)}))
        if self.aggregation is not None and self.aggregation.is_short(1):
            costs.append(Cost(notes={"median_instead": float(sum(clients.server.short))}))
        if not evaluated:
            return SeedRound(rnd, costs, None, None, untrained)
        served = self._served(front, rnd)
        result = validation = said = said_held_out = None
        if self.tested:
            result = clients.evaluate(served, must_be_finite=decides)
            said = clients.predict(served) if predicted else None
        if held_out is not None:
            there = clients.at(replace(rnd, fed=replace(rnd.fed, test=held_out)))
            validation = there.evaluate(served)
            said_held_out = there.predict(served) if predicted else None
        return SeedRound(rnd, costs, result, validation, untrained, said, said_held_out, served)

    def _served(self, clients: Clients, rnd: Round) -> Served:
        """What the algorithm serves; ConfigError unless models [K, P] float32, labels [M] int64."""
        served = self.algorithm.serve(self.state, clients, rnd)
        kind, params = type(self.algorithm).__qualname__, clients.layout.num_params
        if not isinstance(served, Served):
            raise ConfigError(f"{kind}.serve returned {_described(served)}: expected a Served")
        given = {"models": served.models, "label": served.label}
        wanted = {
            "models": ((len(served.models), params), torch.float32),
            "label": ((rnd.fed.num_clients,), torch.int64),
        }
        for name, tensor in given.items():
            shape, dtype = wanted[name]
            if (tuple(tensor.shape), tensor.dtype) != (shape, dtype):
                raise ConfigError(
                    f"{kind}.serve returned {name} {list(tensor.shape)} of {tensor.dtype} in seed "
                    f"{self.seed}: expected {list(shape)} of {dtype}"
                )
        models, label = len(served.models), served.label
        early = ~rnd.present & (label >= 0)
        wrong = ((label < -1) | (label >= models) | early).nonzero()
        if len(wrong):
            client = int(wrong[0])
            if bool(early[client]):
                raise ConfigError(
                    f"{kind}.serve returned label {int(label[client])} for client {client} in seed "
                    f"{self.seed}, which has not arrived: expected -1 where rnd.present is False, "
                    "or it is scored on other clients than other methods; "
                    "fedclust.algorithms.steps.arrived(label, rnd) does it"
                )
            raise ConfigError(
                f"{kind}.serve returned label {int(label[client])} for client {client} in seed "
                f"{self.seed}, and {counted(models, 'model')}: expected 0 to {models - 1}, or -1 "
                "where nobody serves the client yet"
            )
        return served

    def _checked(self, verb: str, returned: Any) -> tuple[Any, Cost]:
        """What a verb returned; ConfigError unless a checkpoint can hold it and costs are known."""
        kind = type(self.algorithm).__qualname__
        pair = isinstance(returned, tuple) and len(returned) == 2
        if not (pair and dataclasses.is_dataclass(returned[0]) and isinstance(returned[1], Cost)):
            raise ConfigError(
                f"{kind}.{verb} returned {_described(returned)} in seed {self.seed}: expected a "
                "State and a Cost"
            )
        state, cost = returned
        of_clients = _of_clients(self.algorithm.State)
        for name in (f.name for f in dataclasses.fields(state)):
            value = getattr(state, name)
            if isinstance(value, ClientModels):
                if name not in of_clients:
                    raise ConfigError(
                        f"{kind}.State.{name} holds ClientModels in seed {self.seed} and is not "
                        f"annotated so: write {name}: ClientModels, by which a checkpoint knows it"
                    )
            elif name in of_clients and value is not None:
                raise ConfigError(
                    f"{kind}.State.{name} is annotated ClientModels and holds a "
                    f"{type(value).__name__} in seed {self.seed}: write ClientModels.of(rows) or "
                    "ClientModels.alike(row, num_clients)"
                )
            elif value is not None and not isinstance(value, Tensor | int | float | str):
                raise ConfigError(
                    f"{kind}.State.{name} is a {type(value).__name__} in seed {self.seed}: a State "
                    "holds tensors and numbers only, since a checkpoint can hold nothing else"
                )
        for name in cost.notes:
            if name not in METRICS:
                raise ConfigError(
                    f"{kind}.{verb} records {name}, and nobody says what it is: call "
                    f'fedclust.metrics.document("{name}", …) in the file of {kind}'
                )
        return state, cost


def _without_validation(rnd: Round) -> tuple[Round, Split | None]:
    """The round as an algorithm may see it, and the validation examples apart."""
    held_out = rnd.fed.validation
    if held_out is None:
        return rnd, None
    return replace(rnd, fed=replace(rnd.fed, validation=None)), held_out


def check_state(algorithm: Algorithm) -> None:
    """Refuse an algorithm whose State declares what no checkpoint can hold; names the field."""
    state = algorithm.State
    for name, hint in _hints(state).items():
        held = (ClientModels, Tensor, int, float, bool, str, type(None))
        fits = all(kind in held for kind in _options(hint) or (hint,))
        where = f"{type(algorithm).__qualname__}.State.{name}"
        require(fits, where, hint, "a State holds tensors and numbers, since checkpoints do")


def models_per_client(algorithm: Algorithm) -> int:
    """How many models of every client the algorithm's State declares to keep, as `ClientModels`."""
    return len(_of_clients(algorithm.State)) + max(0, traits_of(algorithm).slots - 1)


def _of_clients(state: Any) -> frozenset[str]:
    """The fields of a State that are annotated `ClientModels`, or that or None."""
    hints = _hints(state).items()
    return frozenset(name for name, hint in hints if ClientModels in (_options(hint) or (hint,)))


def _options(hint: Any) -> tuple[Any, ...]:
    """What a union allows; nothing for any other annotation."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if union else ()


def _hints(state: Any) -> dict[str, Any]:
    """The annotations of a State; none where a user's file names what is not there to run."""
    try:
        return typing.get_type_hints(state)
    except NameError:
        return {}


def fields_of(state: Any) -> dict[str, Any]:
    """The fields of a state dataclass; nothing is copied."""
    return {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}


def restored(state: Any, saved: Mapping[str, Any]) -> Any:
    """The State, of the class `state`, whose fields a checkpoint holds."""
    rows = {name: saved[name] for name in _of_clients(state) if saved[name] is not None}
    return state(**{**saved, **{n: ClientModels.restored(**kept) for n, kept in rows.items()}})


def _described(value: Any) -> str:
    """A value's type in words, of a tuple those of its entries."""
    if isinstance(value, tuple):
        return f"({', '.join(type(entry).__name__ for entry in value)})"
    return type(value).__name__
