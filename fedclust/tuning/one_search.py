"""One search: a method on a federation, and the configs of its trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from fedclust.config import schema
from fedclust.config.parts import is_null
from fedclust.config.references import entries
from fedclust.helpers.errors import require
from fedclust.tuning.record import Trial
from fedclust.tuning.search import Proposal
from fedclust.tuning.space import Dimension, Value, default_of, written
from fedclust.tuning.tuned import with_values

_TRIALS = {"laptop": 8, "smoke": 4}  # where none are given, by scale; else
_FULL = 24
# options by which a method looks at test examples
_LOOKS = {"cluster_choice": "test_loss", "data": "train_and_test"}


@dataclass(frozen=True, kw_only=True)
class Search:
    """One method on one federation.

    Attributes:
        config: as composed, without Hydra's part, with the tuning seeds and validation examples.
        choices: of every group.
        overrides: of every trial.
        space: what is searched, by key.
        metric: what is best.
        rounds: of a complete trial.
        folder: where it goes.
        own: the folder given with --config-dir.
    """

    config: DictConfig
    choices: Mapping[str, str]
    overrides: Sequence[str]
    space: Mapping[str, Dimension]
    metric: str
    rounds: int
    folder: Path
    own: Path | None

    @property
    def title(self) -> str:
        """The search in a word: its method."""
        return self.choices["algorithm"]

    @property
    def higher(self) -> bool:
        """Whether more of the metric is better."""
        name, better = schema.headline_of(self.resolved())
        if self.metric == f"validation_{name}":
            return better == "higher"
        if self.metric == "validation_loss":
            return False
        from fedclust.metrics.scores import MEASURES

        return MEASURES[self.metric.removeprefix("validation_")].about.better == "higher"

    @property
    def budget(self) -> int:
        """Complete trials where none are asked for."""
        return _TRIALS.get(self.choices["scale"], _FULL)

    @property
    def default(self) -> dict[str, Value]:
        """The values of the first trial."""
        return {key: default_of(self.config, key) for key in self.space}

    def with_values(self, values: Mapping[str, Value]) -> DictConfig:
        """The config of a trial, interpolations as they are written."""
        return with_values(self.config, values)

    def resolved(self, values: Mapping[str, Value] | None = None) -> dict[str, Any]:
        """The config of a trial, ConfigError for bad values; without values what all share."""
        from fedclust.runtime.other_ranks import NO_TRACKER

        given = [f"{key}={written(value)}" for key, value in (values or {}).items()]
        resolved = schema.resolve(
            with_values(self.config, values or {}),
            {"choices": dict(self.choices), "overrides": [*self.overrides, *given]},
        )
        for key, value in entries(resolved["algorithm"], "algorithm"):
            looks = _LOOKS.get(key.rpartition(".")[2])
            require(looks is None or value != looks, key, value, "tuning looks at no test examples")
        return {**resolved, "tracker": NO_TRACKER, "report": None}

    def about(self) -> dict[str, Any]:
        """What the search is; a folder is of one search."""
        from fedclust.runtime.folder import config_hash

        resolved = self.resolved()
        return {
            "choices": {group: choice for group, choice in self.choices.items() if choice},
            "metric": self.metric,
            "seeds": list(resolved["seeds"]),
            "validation": resolved["validation"],
            "rounds": self.rounds,
            "space": {key: one.words() for key, one in self.space.items()},
            "default": {key: written(value) for key, value in self.default.items()},
            "config": config_hash(resolved),
        }

    def propose(self, trials: Sequence[Trial], number: int) -> list[Proposal]:
        """The next batch of so many trials, from those before it."""
        batch: list[Proposal] = []
        for _ in range(number):
            before = [one.values for one in batch]
            how: dict[str, Any] = {"higher": self.higher, "rounds": self.rounds}
            batch.append(Proposal(self.space, self.default, trials, before, **how))
        return batch


def compared_by(resolved: Mapping[str, Any], own: Path | None) -> tuple[str, dict[str, Any]]:
    """What trials are compared by, and the values of the config that record it."""
    if not is_null(resolved, "task"):
        from fedclust.config.objects import Objects

        Objects(own).check(resolved["task"], "task")  # which imports a user's own
    metric = schema.objective_of(resolved)
    score, _ = schema.headline_of(resolved)
    of_task = (f"validation_{score}", "validation_loss")
    if metric in of_task:
        return metric, {}
    from fedclust.metrics.scores import NAMES

    bare, allowed = metric.removeprefix("validation_"), ", ".join((*of_task, *NAMES))
    require(bare in NAMES, "objective", metric, f"one of {allowed}")
    metric = f"validation_{bare}"
    return metric, {"objective": metric, "score_every": resolved["eval_every"]}
