"""One seed of a job: its rounds, its algorithm, and a state that a checkpoint can hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

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
from fedclust.runtime.contract import Verb, fields_of_clients


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
            costs.append(self._moved("init", front, rnd))
        cost = self._moved("round", front, rnd)
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
        """What the algorithm serves, see `Verb.served`."""
        verb = Verb(self.algorithm, "serve", self.seed)
        return verb.served(verb(self.state, clients, rnd), rnd, clients.layout.num_params)

    def _moved(self, name: str, clients: Clients, rnd: Round) -> Cost:
        """Take over the state that `init` or `round` returns; what it cost."""
        verb = Verb(self.algorithm, name, self.seed)
        self.state, cost = verb.state_and_cost(verb(self.state, clients, rnd))
        return cost


def _without_validation(rnd: Round) -> tuple[Round, Split | None]:
    """The round as an algorithm may see it, and the validation examples apart."""
    held_out = rnd.fed.validation
    if held_out is None:
        return rnd, None
    return replace(rnd, fed=replace(rnd.fed, validation=None)), held_out


def models_per_client(algorithm: Algorithm) -> int:
    """How many models of every client the algorithm's State declares to keep, as `ClientModels`."""
    return len(fields_of_clients(algorithm.State)) + max(0, traits_of(algorithm).slots - 1)


def restored(state: Any, saved: Mapping[str, Any]) -> Any:
    """The State, of the class `state`, whose fields a checkpoint holds."""
    rows = {name: saved[name] for name in fields_of_clients(state) if saved[name] is not None}
    return state(**{**saved, **{n: ClientModels.restored(**kept) for n, kept in rows.items()}})
