"""Values of Python as Hydra's overrides: what somebody would have typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException

from fedclust.helpers.errors import ConfigError, require


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
    if many and _is_list(value):
        require(len(value) > 0, key, value, "at least one value to try")
        return ",".join(_value(key, one) for one in value)
    return _value(key, value)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _value(key: str, value: Any) -> str:
    """One value in Hydra's grammar."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        return repr(float(value))
    if isinstance(value, str | Path):
        return _text(str(value))
    if isinstance(value, Mapping):
        inside = (f"{_text(str(name))}: {_value(key, one)}" for name, one in value.items())
        return "{" + ", ".join(inside) + "}"
    if _is_list(value):
        return "[" + ", ".join(_value(key, one) for one in value) + "]"
    raise ConfigError(
        f"{key}={value!r} is not allowed: text, a number, True, False, None, or a list or "
        "mapping of them"
    )


def _text(text: str) -> str:
    """Text as it is where Hydra reads it as such, else in quotes."""
    try:
        plain = OverridesParser.create().parse_override(f"key=[{text}]").value() == [text]
    except HydraException:
        plain = False
    return text if plain else QuotedString(text, Quote.single).with_quotes()
