"""Numbers and choices of a part that is made in Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field, fields, is_dataclass
from importlib import import_module
from typing import Annotated, Any, ClassVar, Literal

import pytest

from fedclust.cluster_metrics.descriptor import Descriptor
from fedclust.cluster_metrics.update_distance import UpdateDistance
from fedclust.config.objects import parts
from fedclust.config.parts import PARTS
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.errors import ConfigError
from fedclust.helpers.ranges import AtLeastOne, AtLeastTwo, Fraction, Ranged, hints_of


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
        ({"count": 0}, "Part.count=0 is not allowed: an integer in [1, 1,000,000,000]"),
        ({"count": 2.5}, "Part.count=2.5 is not allowed: an integer in [1, 1,000,000,000]"),
        ({"count": None}, "Part.count=None is not allowed: an integer in [1, 1,000,000,000]"),
        ({"count": "many"}, "Part.count=many is not allowed: one of auto"),
        ({"sizes": 1}, "Part.sizes=1 is not allowed: an integer in [2, 1,000,000,000]"),
        ({"sizes": "two"}, "Part.sizes=two is not allowed: an integer in [2, 1,000,000,000]"),
        ({"label": -1}, "Part.label=-1 is not allowed: an integer in [1, 1,000,000,000]"),
    ],
)
def test_what_it_does_not_allow_is_one_line(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        Part(**wrong)
    assert str(error.value) == message


def test_what_is_set_later_is_not_looked_for() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Later(Base):
        factor: InitVar[AtLeastOne]
        twice: AtLeastOne = field(init=False)
        elsewhere: ClassVar[AtLeastOne]

        def __post_init__(self, factor: int) -> None:
            super().__post_init__()
            object.__setattr__(self, "twice", 2 * factor)

    assert Later(share=1, factor=3).twice == 6
    with pytest.raises(ConfigError, match=r"Later\.share=0 is not allowed"):
        Later(share=0, factor=3)


@pytest.mark.parametrize("group", sorted({*PARTS} - {"model", "solver"}))
def test_every_part_with_options_is_checked(group: str) -> None:
    for address in parts(group):
        module, name = address.rsplit(".", 1)
        part = getattr(import_module(module), name)
        if is_dataclass(part):
            options = {one.name for one in fields(part) if one.init} & hints_of(part).keys()
            assert issubclass(part, Ranged) or not options, address


def test_a_metric_made_in_python_refuses_what_it_does_not_have() -> None:
    with pytest.raises(ConfigError, match=r"UpdateDistance\.norm=l3 is not allowed: one of"):
        UpdateDistance(norm="l3")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"Descriptor\.directions=0 is not allowed: an integer"):
        Descriptor(directions=0)
