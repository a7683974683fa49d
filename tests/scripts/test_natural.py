"""The page of natural federations: its guess without inputs, and that it shows every method."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
import yaml

from fedclust.config.tree import CONF
from fedclust.core.types import Federation, Pool, Split
from scripts.docs.natural import PAGE, _gain, trivial


def test_the_guess_without_inputs_is_each_clients_own() -> None:
    y = torch.tensor([0, 0, 1, 2, 2, 1, 0, 0, 1])
    one = torch.ones(1)
    pool = Pool(x=y.float().unsqueeze(1), y=y, scale=one, shift=one * 0, num_classes=3)
    fed = Federation(
        pool=pool,
        train=Split.of([torch.tensor([0, 1, 2]), torch.tensor([3, 4])]),
        test=Split.of([torch.tensor([6, 7, 8, 3]), torch.tensor([4])]),
        group=torch.tensor([-1, -1]),
    )
    assert trivial(fed) == pytest.approx(3 / 5)  # 0, 0 of four, and 2


def test_a_gain_has_the_interval_of_student() -> None:
    assert _gain(np.array([1.0, 2.0, 3.0]), 2) == "+2.00 [-0.48, +4.48]"  # t of 2 degrees: 4.303


@pytest.mark.parametrize("name", sorted(f.stem for f in (CONF / "experiment/natural").iterdir()))
def test_every_method_of_an_experiment_is_in_its_table(name: str) -> None:
    text = PAGE.read_text()
    table = re.findall(rf"<!-- table of {name} -->(.*?)<!-- end", text, re.S)[0]
    experiment = yaml.safe_load((CONF / "experiment" / "natural" / f"{name}.yaml").read_text())
    arms = re.findall(r"^\| (\w[\w ]*) \|", table, re.M)
    assert arms == ["method", *experiment["report"]["order"], "no inputs"]
    assert (PAGE.parent / "images" / f"natural_{name}.svg").is_file()
    assert experiment["seeds"] == 10
