"""The values a number of a config may have, stated where the number is declared.

A part annotates its numeric fields with a type below, or as in `Annotated[float, Range(0, 2)]`.
`fedclust.config.objects` refuses anything else before a part is made, a `Ranged` one always.
Every range is bounded: an infinite or absurd number is a slip of the hand.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, lru_cache
from typing import Annotated, Any, ClassVar

from fedclust.helpers.errors import require

MOST = 1e9  # of numbers that have no upper bound of their own


@dataclass(frozen=True)
class Range:
    """Numbers between two bounds, each left out where it is open."""

    low: float
    high: float = MOST
    open_low: bool = False
    open_high: bool = False

    def holds(self, value: float) -> bool:
        """Whether the number is in the range; NaN never is."""
        above = value > self.low if self.open_low else value >= self.low
        return above and (value < self.high if self.open_high else value <= self.high)

    @property
    def words(self) -> str:
        """The range as a message says it."""
        left, right = "(" if self.open_low else "[", ")" if self.open_high else "]"
        return f"in {left}{_written(self.low)}, {_written(self.high)}{right}"


class Ranged:
    """A dataclass whose numbers and choices are checked against their annotations when it is made.

    A class with a `__post_init__` of its own begins it with `super().__post_init__()`.
    """

    config_key: ClassVar[str] = ""  # before a field's name in a message; "" for the class

    def __post_init__(self) -> None:
        """Raise `ConfigError` for the first number or choice that its annotation does not allow."""
        for name, allowed in _allowed(type(self)).items():  # type: ignore[arg-type]
            value = getattr(self, name)
            if not allowed.holds(value):
                key = f"{self.config_key or type(self).__name__}.{name}"
                require(False, key, value, allowed.words(value))


@lru_cache(maxsize=256)  # a job asks for those of its parts thirty times
def hints_of(part: Any) -> Mapping[str, Any]:
    """The annotations of a part's arguments, with their ranges."""
    holder = part.__init__ if inspect.isclass(part) and not is_dataclass(part) else part
    try:
        return typing.get_type_hints(holder, include_extras=True)
    except Exception:  # a user's annotation may name what is imported for a type checker only
        return {}


@dataclass(frozen=True)
class _Allowed:
    """What an argument may be: the range of a number, the choices of a text, the types."""

    numbers: Range | None
    choices: tuple[str, ...]
    kinds: tuple[Any, ...]

    @property
    def _whole(self) -> bool:
        return int in self.kinds and float not in self.kinds

    def holds(self, value: Any) -> bool:
        """Whether it may be this value."""
        if isinstance(value, str):
            if self.choices:
                return value in self.choices
            return self.numbers is None or str in self.kinds
        if self.numbers is None:
            return True
        if isinstance(value, int | float):
            return self.numbers.holds(value) and not (self._whole and isinstance(value, float))
        return value is not None or type(None) in self.kinds

    def words(self, value: Any) -> str:
        """What is allowed in place of a value, as a message says it."""
        if isinstance(value, str) and self.choices:
            return f"one of {', '.join(self.choices)}"
        assert self.numbers is not None
        return f"{'an integer' if self._whole else 'a number'} {self.numbers.words}"


@cache
def _allowed(part: type) -> dict[str, _Allowed]:
    """What every argument may be that is a number, or one of some texts."""
    allowed = {}
    given = {one.name for one in fields(part) if one.init}  # what else it has may be set later
    for name, hint in hints_of(part).items():
        inside = list(_inside(hint))
        numbers = next((one for one in inside if isinstance(one, Range)), None)
        choices = () if str in inside else tuple(one for one in inside if isinstance(one, str))
        if name in given and (numbers or choices):
            kinds = tuple(one for one in inside if inspect.isclass(one))
            allowed[name] = _Allowed(numbers, choices, kinds)
    return allowed


def _inside(hint: Any) -> Iterator[Any]:
    """The types, choices and ranges in an annotation; none of a list's entries."""
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        yield from typing.get_args(hint)
    elif origin is None:
        yield hint
    elif not (inspect.isclass(origin) and issubclass(origin, Sequence)):
        yield from getattr(hint, "__metadata__", ())
        for one in typing.get_args(hint):
            yield from _inside(one)


def _written(bound: float) -> str:
    return f"{bound:,.0f}" if abs(bound) >= 1000 else f"{bound:g}"


AtLeastOne = Annotated[int, Range(1)]
AtLeastTwo = Annotated[int, Range(2)]
AtLeastThree = Annotated[int, Range(3)]
AtLeastZero = Annotated[int, Range(0)]
Clients = Annotated[int, Range(1, 1e7)]
Side = Annotated[int, Range(1, 4096)]  # pixels
Width = Annotated[int, Range(1, 1e6)]  # channels or units of a layer
Starts = Annotated[int, Range(1, 10_000)]  # each of them costs time
Seed = Annotated[int, Range(0, 2**32 - 1)]  # what NumPy's published generators take
Positive = Annotated[float, Range(0, open_low=True)]
NonNegative = Annotated[float, Range(0)]
Fraction = Annotated[float, Range(0, 1, open_low=True)]
InnerFraction = Annotated[float, Range(0, 1, open_low=True, open_high=True)]
Probability = Annotated[float, Range(0, 1)]
BelowOne = Annotated[float, Range(0, 1, open_high=True)]
Silhouette = Annotated[float, Range(-1, 1)]
