"""What is typed behind a command, and what Python hands over as if it had been typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedclust.helpers.errors import ConfigError, require
from fedclust.helpers.overrides import is_list, value_text


def as_typed(
    given: Sequence[str | Mapping[str, Any]], named: Mapping[str, Any], *, many: bool
) -> list[str]:
    """Overrides from what was handed to `fedclust.run` or `fedclust.sweep`.

    Args:
        given: overrides as they are typed, or mappings of keys to values.
        named: values by key.
        many: whether a list holds the values to try, so that a value that is a list itself stands
            in a list; else a list is the value.

    Raises:
        ConfigError: for a value that no config can hold.
    """
    overrides: list[str] = []
    for one in (*given, named):
        if isinstance(one, str):
            overrides.append(one)
        elif isinstance(one, Mapping):
            overrides += [f"{key}={_choices(str(key), v, many)}" for key, v in one.items()]
        else:
            raise ConfigError(f"{one!r} is not allowed: 'KEY=VALUE' or a mapping of keys to values")
    return overrides


def _choices(key: str, value: Any, many: bool) -> str:
    """The right side of an override."""
    if many and is_list(value):
        require(len(value) > 0, key, value, "at least one value to try")
        return ",".join(value_text(key, one) for one in value)
    return value_text(key, value)


def user_dir(arguments: Sequence[str]) -> Path | None:
    """The folder given with --config-dir, None without."""
    for place, length in _config_dir(arguments):
        value = arguments[place + 1] if length == 2 else arguments[place].split("=", 1)[1]
        return Path(value).resolve()
    return None


def without_user_dir(arguments: Sequence[str]) -> list[str]:
    """The arguments but for --config-dir and its folder."""
    skipped = {place + i for place, length in _config_dir(arguments) for i in range(length)}
    return [argument for place, argument in enumerate(arguments) if place not in skipped]


def _config_dir(arguments: Sequence[str]) -> list[tuple[int, int]]:
    """Where --config-dir stands among the arguments, and over how many of them."""
    flags = ("--config-dir", "-cd")
    places = []
    for place, argument in enumerate(arguments):
        if argument in flags and place + 1 < len(arguments):
            places.append((place, 2))
        elif argument.startswith(tuple(flag + "=" for flag in flags)):
            places.append((place, 1))
    return places
