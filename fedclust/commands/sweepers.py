"""What a sweep must know of its sweeper: how many jobs come, and what it does with their objective.

Hydra's own sweeper runs a job for every combination; others, such as hydra/sweeper=optuna, choose
the next job by what the last ones have returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from fedclust.commands.sweep import num_jobs
from fedclust.config.schema import objective_of
from fedclust.helpers.errors import require
from fedclust.metrics import METRICS

_DIRECTIONS = {"higher": "maximize", "lower": "minimize"}


def jobs_of(composed: DictConfig, overrides: Sequence[str]) -> int | None:
    """How many jobs a sweep has; None where its sweeper does not say.

    Args:
        composed: with the node `hydra`.
        overrides: as typed.
    """
    sweeper: Any = OmegaConf.to_container(composed.hydra.sweeper)
    if str(sweeper["_target_"]).endswith(".BasicSweeper"):
        return num_jobs(sweeper.get("params") or {}, overrides)
    trials = sweeper.get("n_trials")
    return trials if isinstance(trials, int) else None


def check_direction(composed: DictConfig) -> None:
    """Refuse a sweeper that would look for the worst value of the objective.

    Args:
        composed: with the node `hydra`.

    Raises:
        ConfigError: naming the direction that is better.
    """
    sweeper: Any = OmegaConf.to_container(composed.hydra.sweeper, enum_to_str=True)
    direction = sweeper.get("direction")
    metric = objective_of(composed)
    wanted = _DIRECTIONS.get(METRICS[metric].better) if metric in METRICS else None
    if wanted is not None and direction is not None:
        allowed = f"{wanted}, since {metric} is better the {METRICS[metric].better} it is"
        require(direction == wanted, "hydra.sweeper.direction", direction, allowed)
