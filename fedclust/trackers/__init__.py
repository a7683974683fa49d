"""What takes a run's numbers besides its own files: one file for each library."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from statistics import fmean
from typing import Any

from fedclust.helpers.errors import ConfigError
from fedclust.helpers.extras import install


def optional(module: str, extra: str) -> Any:
    """The optional module, imported now; ConfigError with the command that installs its extra."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"tracker={extra} is not allowed here: {module} cannot be imported ({error}), "
            f"{install(extra)} or take tracker=none"
        ) from error


def curves(values: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    """A round's points by curve: `accuracy`, the mean over seeds; `seed=0/accuracy` for each."""
    each = {f"seed={s}/{name}": v for s, of_seed in values.items() for name, v in of_seed.items()}
    return mean(values) | each


def mean(values: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    """By metric, the mean over the seeds that have a value."""
    names = dict.fromkeys(name for of_seed in values.values() for name in of_seed)
    return {
        name: fmean(of_seed[name] for of_seed in values.values() if name in of_seed)
        for name in names
    }
