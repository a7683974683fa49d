"""Numbers and choices of a part that is made in Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest

from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.errors import ConfigError
from fedclust.helpers.ranges import AtLeastOne, AtLeastTwo, Fraction, Ranged


@dataclass(frozen=True, kw_only=True)
class Base(Ranged):
    share: Fraction | None = None
    count: Annotated[AtLeastOne | Literal["auto"], OnlyWith("share", None)] = "auto"


@dataclass(frozen=True, kw_only=True)
class Part(Base):
    sizes: AtLeastTwo | Sequence[AtLeastOne] = 2
    label: str | AtLeastOne = "any"

    def __post_init__(self) -> None:
        super().__post_init__()


@pytest.mark.parametrize(
    "right", [{"share": 1}, {"count": 3}, {"count": "auto"}, {"sizes": [1]}, {"label": "some"}]
)
def test_what_an_annotation_allows_is_taken(right: dict[str, Any]) -> None:
    assert {**vars(Part(**right))}.items() >= right.items()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"share": 0}, "Part.share=0 is not allowed: a number in (0, 1]"),
        ({"share": float("nan")}, "Part.share=nan is not allowed: a number in (0, 1]"),
        ({"count": 0}, "Part.count=0 is not allowed: a number in [1, 1,000,000,000]"),
        ({"count": "many"}, "Part.count=many is not allowed: one of auto"),
        ({"sizes": 1}, "Part.sizes=1 is not allowed: a number in [2, 1,000,000,000]"),
        ({"label": -1}, "Part.label=-1 is not allowed: a number in [1, 1,000,000,000]"),
    ],
)
def test_what_it_does_not_allow_is_one_line(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        Part(**wrong)
    assert str(error.value) == message
