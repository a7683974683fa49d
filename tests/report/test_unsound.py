"""The options that a report warns of exist, are off by default, and are found in a job's config."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir

from fedclust.config import schema
from fedclust.config.objects import Objects
from fedclust.launch.compose import register
from fedclust.papers.unsound import SWITCHES, switched_on

CONF = Path(__file__).parents[2] / "conf"
# what to choose so that the options exist
CHOICES = {
    "algorithm=ifca scenario=incremental partition=femnist10": (
        *("algorithm.cluster_choice", "algorithm.start", "algorithm.aggregation"),
        *("scenario.shrink_current", "partition.sharing"),
    ),
    "algorithm=flexcfl scenario=swap_part": (
        *("algorithm.shift.distance", "algorithm.inter_group.normalize", "scenario.abort_round"),
    ),
    "algorithm=jgl scenario=swap_all": (
        *("algorithm.sign", "algorithm.loss_reduction", "scenario.single_pair"),
    ),
    "algorithm=lcfl": (
        *("algorithm.warmup.cover_all", "algorithm.divisor"),
        *("cluster_metric.data", "cluster_method.variant"),
    ),
    "algorithm=gradcos": ("algorithm.metric.gradient",),
    "algorithm=cfl_gp": ("algorithm.gradients", "algorithm.accumulation"),
}


def test_every_option_is_tried_here() -> None:
    assert set(SWITCHES) == set(chain(*CHOICES.values()))


@pytest.mark.full
@pytest.mark.parametrize("choices", CHOICES)
def test_options_exist_and_are_found(choices: str) -> None:
    options = CHOICES[choices]
    published = {option: str(value).lower() for option, (value, _) in SWITCHES.items()}
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        plain = compose("config", overrides=choices.split())
        # without a plus: Hydra refuses an option that no YAML has
        changed = compose(
            "config", overrides=[*choices.split(), *(f"{o}={published[o]}" for o in options)]
        )
    assert switched_on(schema.resolve(plain, {})) == []
    config = schema.resolve(changed, {})
    assert sorted(line.split("=")[0] for line in switched_on(config)) == sorted(options)
    for group in ("algorithm", "scenario", "partition"):
        Objects().make(config[group], group)  # refuses a value that does not exist


def test_options_of_a_method_in_a_method_are_found() -> None:
    inner = yaml.safe_load("{algorithm: {epochs: 1, base: {start: shared}}, scenario: null}")
    (line,) = switched_on(inner)
    assert line.startswith("algorithm.base.start=shared: all cluster models start as copies of one")


@pytest.mark.full
def test_nothing_shipped_has_one_on() -> None:
    for group in ("algorithm", "scenario", "partition"):
        for file in sorted((CONF / group).glob("*.yaml")):
            found = switched_on({group: yaml.safe_load(file.read_text())})
            # gradcos_batch is what was published, as its name and first line say
            assert (found == []) == (file.stem != "gradcos_batch"), file
