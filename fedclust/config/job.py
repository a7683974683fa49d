"""A job: the parts of one run, built and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fedclust.core.attack import Attack
from fedclust.core.clock import Devices
from fedclust.core.server import Aggregation, Privacy
from fedclust.core.tracker import Tracker
from fedclust.core.types import Federation
from fedclust.core.verbs import Algorithm, Engine, Scenario
from fedclust.metrics.scores import Measure


@dataclass(frozen=True, kw_only=True)
class Job:
    """Everything one job needs.

    Attributes:
        algorithm, scenario, tracker: as configured.
        engine: the engine on the pool of examples.
        federations: the data of every seed, on the engine's device.
        rounds, eval_every: how long, and how often to test.
        tested: whether on test examples, or on those of `validation` alone.
        hours: simulated ones after which the job ends at the next test; None for all rounds.
        devices: those of every seed; none without a clock.
        discrepancy: whether it is recorded how far participants' models lie from their mean.
        scores: of predictions, at the end and every `score_every` rounds.
        aggregation: the mean of updates; None for the plain one.
        privacy: noise of the means; None without.
        attack: what hostile clients do; None without them.
        predictions: whether those of the end are kept.
        checkpoint_seconds: least time between two checkpoints; 0 saves every round.
        choices: the file that each group was chosen by, where that is known.
        versions: what computed this, for versions.json.
    """

    algorithm: Algorithm
    scenario: Scenario
    tracker: Tracker
    engine: Engine
    federations: Mapping[int, Federation]
    rounds: int
    eval_every: int
    checkpoint_seconds: float
    versions: Mapping[str, Any]
    hours: float | None = None
    devices: Mapping[int, Devices] = field(default_factory=dict)
    discrepancy: bool = False
    scores: Sequence[Measure] = ()
    score_every: int | None = None
    predictions: bool = False
    aggregation: Aggregation | None = None
    attack: Attack | None = None
    privacy: Privacy | None = None
    tested: bool = True
    choices: Mapping[str, str] = field(default_factory=dict)

    @property
    def seeds(self) -> list[int]:
        """The seeds, in order."""
        return list(self.federations)

    @property
    def device(self) -> torch.device:
        """Where the data lie."""
        return next(iter(self.federations.values())).group.device

    def is_evaluated(self, t: int) -> bool:
        """Whether round t is tested."""
        return (t + 1) % self.eval_every == 0 or t == self.rounds - 1

    def is_predicted(self, t: int) -> bool:
        """Whether it is asked after round t what is said of every test example."""
        # with hours, nobody knows before which round is the last one
        if t == self.rounds - 1 or (self.hours is not None and self.is_evaluated(t)):
            return bool(self.scores) or self.predictions
        return bool(self.scores and self.score_every) and (t + 1) % (self.score_every or 1) == 0
