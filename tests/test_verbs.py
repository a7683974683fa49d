"""What `fedclust.verbs` shows, and what it promises of every part."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest
from configs import composed

from fedclust.config.objects import Objects
from fedclust.core import verbs
from fedclust.core.verbs import Method

CONF = Path(__file__).parents[1] / "conf"


def test_the_toy_prints_what_it_says() -> None:
    result = doctest.testmod(verbs)
    assert result.attempted == 18
    assert result.failed == 0


def test_a_method_has_nothing_to_remark() -> None:
    assert Method().remark(3) == ""


PARTS = [
    (group, file.stem)
    for group in ("cluster_metric", "cluster_method")
    for file in sorted((CONF / group).glob("*.yaml"))
    if file.stem != "kmedoids_sklearn_extra"  # its package is not installed everywhere
]


@pytest.mark.thinned
@pytest.mark.parametrize(("group", "name"), PARTS)
def test_parts_say_what_they_need_and_send(group: str, name: str) -> None:
    part = Objects().make(composed(f"{group}={name}", "num_clusters=3")[group], group)
    if group == "cluster_method":
        assert part.num_clusters == (None if name in ("hdbscan", "optics") else 3)
        return
    assert part.num_components == (3 if name == "edc" else None)
    down, up, numbers = part.transfers(10, 10)
    # every client sends a model or an update, but for descriptions of its data
    assert up == (0 if name in ("descriptor", "psi") else 10)
    assert down in (0, 10, 90)
    assert numbers in (0, 90, 100, 10 * 220)
