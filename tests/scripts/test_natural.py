"""The page of natural federations: its intervals, and that it shows every method."""

from __future__ import annotations

import re

import numpy as np
import pytest
import yaml

from fedclust.config.tree import CONF
from scripts.docs.natural import PAGE, _gain


def test_a_gain_has_the_interval_of_student() -> None:
    told = _gain(np.array([1.0, 2.0, 3.0]), 0.0, 2)
    assert told == "+2.00 [-0.48, +4.48]"  # t of 2 degrees: 4.303


@pytest.mark.parametrize("name", sorted(f.stem for f in (CONF / "experiment/natural").iterdir()))
def test_every_method_of_an_experiment_is_in_its_table(name: str) -> None:
    text = PAGE.read_text()
    table = re.findall(rf"<!-- table of {name} -->(.*?)<!-- end", text, re.S)[0]
    experiment = yaml.safe_load((CONF / "experiment" / "natural" / f"{name}.yaml").read_text())
    arms = re.findall(r"^\| (\w[\w ]*) \|", table, re.M)
    assert arms == ["method", *experiment["report"]["order"], "no inputs"]
    assert (PAGE.parent / "images" / f"natural_{name}.svg").is_file()
    assert experiment["seeds"] == 10
