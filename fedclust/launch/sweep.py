"""What a sweep is, read from its config: how many jobs, which methods, what its sweeper looks for.

Hydra's own sweeper runs a job for every combination; others, such as hydra/sweeper=optuna, choose
the next job by what the last ones have returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from fedclust.config.schema import headline_of, objective_of
from fedclust.helpers.errors import require
from fedclust.metrics import METRICS

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

_DIRECTIONS = {"higher": "maximize", "lower": "minimize"}


def combined(
    params: Mapping[str, Any], overrides: Sequence[str], own: Path | None = None
) -> list[Override]:
    """The overrides of a sweep, the last of each key.

    Args:
        params: `hydra.sweeper.params` of an experiment.
        overrides: as typed; they take the place of the experiment's.
        own: the folder given with --config-dir.
    """
    from fedclust.launch.scales import parsed

    given = parsed((*(f"{key}={value}" for key, value in params.items()), *overrides), own)
    return list({one.get_key_element(): one for one in given}.values())


def num_jobs(
    params: Mapping[str, Any], overrides: Sequence[str] = (), own: Path | None = None
) -> int:
    """Jobs of a sweep: the product of the values per key, 1 without any; see `combined`."""
    several = (one for one in combined(params, overrides, own) if one.is_sweep_override())
    return prod(sum(1 for _ in one.sweep_iterator()) for one in several)


def jobs_of(composed: DictConfig, overrides: Sequence[str], own: Path | None = None) -> int | None:
    """How many jobs a sweep has; None where its sweeper does not say.

    Args:
        composed: with the node `hydra`.
        overrides: as typed.
        own: the folder given with --config-dir.
    """
    sweeper = composed.hydra.sweeper
    if str(sweeper["_target_"]).endswith(".BasicSweeper"):
        return num_jobs(sweeper.get("params") or {}, overrides, own)
    trials = sweeper.get("n_trials")
    return trials if isinstance(trials, int) else None


def methods(
    composed: DictConfig, overrides: Sequence[str], own: Path | None = None, *, inside: bool = True
) -> list[str]:
    """The methods of a command by name: those of a sweep, or the one; those inside a wrapper, too,
    where these are wanted.
    """
    by_key: dict[str, Iterable[Any]] = {"algorithm": [composed.hydra.runtime.choices.algorithm]}
    for one in combined(composed.hydra.sweeper.get("params") or {}, overrides, own):
        outer = one.get_key_element() == "algorithm"
        if outer or (inside and one.key_or_group == "algorithm"):
            several = one.is_sweep_override()
            by_key[one.get_key_element()] = (
                one.sweep_string_iterator() if several else [one.value()]
            )
    return [str(name) for names in by_key.values() for name in names]


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
    own, better = headline_of(composed)
    if metric in METRICS:
        better = METRICS[metric].better
    wanted = _DIRECTIONS.get(better) if metric in METRICS or metric.endswith(own) else None
    if wanted is not None and direction is not None:
        allowed = f"{wanted}, since {metric} is better the {better} it is"
        require(direction == wanted, "hydra.sweeper.direction", direction, allowed)
