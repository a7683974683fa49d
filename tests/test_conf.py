"""Every config file composes and builds, and every class an extension folder holds can be chosen."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.utils import get_object

from fedclust.commands.names import CONF
from fedclust.commands.run import job_folder  # registers the schema and the resolver as the command does
from fedclust.config import check_targets, make, resolve

GROUPS = (
    "algorithm",
    "cluster_method",
    "cluster_metric",
    "dataset",
    "model",
    "partition",
    "scenario",
    "solver",
)
CHOICES = [
    (group, str(file.relative_to(CONF / group).with_suffix("")))
    for group in GROUPS
    for file in sorted((CONF / group).rglob("*.yaml"))
]
EXPERIMENTS = sorted(
    str(f.relative_to(CONF / "experiment").with_suffix("")) for f in (CONF / "experiment").rglob("*.yaml")
)
SCALED = sorted(
    str(f.relative_to(CONF / "scaled").with_suffix("")) for f in (CONF / "scaled").rglob("*.yaml")
)


@cache
def composed(*overrides: str) -> dict[str, Any]:
    assert job_folder([], "x") == "x"
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return resolve(compose("config", overrides=list(overrides)), {})


@pytest.mark.parametrize(("group", "name"), CHOICES, ids=["/".join(choice) for choice in CHOICES])
def test_every_choice_composes_and_fits_its_class(group: str, name: str) -> None:
    config = composed(f"{group}={name}")
    check_targets(config[group], group, None)
    if group in ("algorithm", "cluster_metric", "partition", "scenario", "solver"):
        assert type(make(config[group], group, None)).__module__.startswith("fedclust.")


@pytest.mark.parametrize(("group", "name"), CHOICES, ids=["/".join(choice) for choice in CHOICES])
def test_every_choice_shows_all_defaults_and_says_what_it_is(group: str, name: str) -> None:
    text = (CONF / group / f"{name}.yaml").read_text()
    assert text.startswith("# ")
    if "defaults:" in text:
        return
    node = composed(f"{group}={name}")[group]
    runtime = {"in_shape", "num_classes"}
    assert set(inspect.signature(get_object(node["_target_"])).parameters) - runtime == set(node) - {
        "_target_"
    }


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_composes_for_every_arm(experiment: str) -> None:
    node = yaml.safe_load((CONF / "experiment" / f"{experiment}.yaml").read_text())
    assert node["hydra"]["mode"] == "MULTIRUN"
    for algorithm in node["hydra"]["sweeper"]["params"]["algorithm"].split(","):
        config = composed(f"experiment={experiment}", f"algorithm={algorithm}")
        for group in ("algorithm", "partition", "scenario"):
            make(config[group], group, None)
    assert (CONF / "experiment" / f"{experiment}.yaml").read_text().startswith("# ")


@pytest.mark.parametrize("scaled", SCALED)
def test_every_scaled_experiment_changes_sizes_only(scaled: str) -> None:
    experiment, scale = scaled.rsplit("/", 1)
    assert experiment in EXPERIMENTS
    paper = composed(f"experiment={experiment}")
    small = composed(f"experiment={experiment}", f"scale={scale}")
    assert small["name"] == f"{experiment}-{scale}"
    for group in GROUPS:
        targets = [c[group].get("_target_") for c in (paper, small)]
        assert targets[0] == targets[1]
        assert set(paper[group]) == set(small[group]), f"{scaled} adds keys to {group}"


VERB = {
    "algorithm": "serve",
    "cluster_method": "__call__",
    "cluster_metric": "__call__",
    "dataset": "load",
    "partition": "split",
    "scenario": "rounds",
}


@pytest.mark.parametrize("group", sorted(VERB))
def test_every_class_of_an_extension_folder_can_be_chosen(group: str) -> None:
    folder = Path(__file__).parent.parent / "fedclust" / f"{group}s"
    text = "".join(file.read_text() for file in (CONF / group).rglob("*.yaml"))
    for file in folder.glob("[!_]*.py"):
        for node in ast.parse(file.read_text()).body:
            if not isinstance(node, ast.ClassDef) or "Protocol" in map(ast.unparse, node.bases):
                continue
            if VERB[group] in {part.name for part in node.body if isinstance(part, ast.FunctionDef)}:
                assert f"fedclust.{group}s.{file.stem}.{node.name}" in text, f"{file.name}: {node.name}"


def test_interpolations_reach_the_algorithms() -> None:
    config = composed("num_clusters=7", "algorithm=ifca")
    assert config["algorithm"]["num_clusters"] == 7
    assert config["algorithm"]["solver"] == config["solver"]
