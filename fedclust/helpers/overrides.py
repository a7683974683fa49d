"""Values of Python in the grammar of Hydra's overrides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from fedclust.helpers.errors import ConfigError, can_be_key, key_text, require


def is_list(value: Any) -> bool:
    """Whether it is a list of whatever kind, and no text."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def value_text(key: str, value: Any) -> str:
    """One value in Hydra's grammar; ConfigError for a value that no config can hold."""
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
        for name, one in value.items():
            allowed = "in a config file alone, as no override can spell this key of a mapping"
            require(can_be_key(str(name)), f"{key}.{name}", one, allowed)
        inside = (f"{key_text(str(name))}: {value_text(key, one)}" for name, one in value.items())
        return "{" + ", ".join(inside) + "}"
    if is_list(value):
        return "[" + ", ".join(value_text(key, one) for one in value) + "]"
    raise ConfigError(
        f"{key}={value!r} is not allowed: text, a number, True, False, None, or a list or "
        "mapping of them"
    )


def _text(text: str) -> str:
    """Text as it is where Hydra reads it as such, else in quotes."""
    # Python's callers have Hydra; `fedclust list` does without
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import Quote, QuotedString
    from hydra.errors import HydraException

    try:
        plain = OverridesParser.create().parse_override(f"key=[{text}]").value() == [text]
    except HydraException:
        plain = False
    return text if plain else QuotedString(text, Quote.single).with_quotes()
