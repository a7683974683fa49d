"""Arguments without effect in some settings, said where they are declared.

A part annotates such a field, as in `Annotated[float, OnlyWith("num_clusters", "auto")]`. A value
that is typed for it where it has no effect is told, see `fedclust.config.idle`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class OnlyWith:
    """Only where the argument `name` of the same part is `value`, and has an effect itself."""

    name: str
    value: str | bool | None


@dataclass(frozen=True)
class OnlyWithout:
    """Only where another argument of the same part has not this value."""

    name: str
    value: str | bool | float | None


@dataclass(frozen=True)
class OnlyIf:
    """Only where `holds` is true of the part's arguments, by name; `why` says why not."""

    holds: Callable[[Mapping[str, Any]], bool]
    why: str


@dataclass(frozen=True)
class IfTestsAreCut:
    """Only where the dataset has no test examples, so that the partition cuts them."""


@dataclass(frozen=True)
class IfDataChange:
    """Only in a scenario in which data change, or where `otherwise`, an argument, is not null."""

    otherwise: str = ""


@dataclass(frozen=True)
class IfNotOverruled:
    """Only where the job's part of another group does not decide the same by a rule of its own.

    Attributes:
        group: the other group.
        by: a static method of its class that says why the argument has no effect, in words, from
            the part's arguments; "" where it has one.
        unless: a value of the argument that has an effect all the same; "" for none.
    """

    group: str
    by: str
    unless: str = ""


@dataclass(frozen=True)
class Never:
    """Without effect on any number, and why."""

    why: str


Mark = OnlyWith | OnlyWithout | OnlyIf | IfTestsAreCut | IfDataChange | IfNotOverruled | Never
