"""Every config file composes and builds, and every class an extension folder holds can be chosen."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

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
    import inspect

    from hydra.utils import get_object

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


@pytest.mark.parametrize(
    "group", ["algorithm", "cluster_method", "cluster_metric", "dataset", "partition", "scenario"]
)
def test_every_class_of_an_extension_folder_can_be_chosen(group: str) -> None:
    folder = Path(__file__).parent.parent / "fedclust" / f"{group}s"
    text = "".join(file.read_text() for file in (CONF / group).rglob("*.yaml"))
    inherited = {"diffnorm", "gradcos"}
    for file in folder.glob("*.py"):
        classes = [n.name for n in ast.parse(file.read_text()).body if isinstance(n, ast.ClassDef)]
        chosen = [c for c in classes if f"fedclust.{group}s.{file.stem}.{c}" in text]
        callable_classes = [c for c in classes if not c.startswith("_") and c not in ("Warmup", "State")]
        if file.stem not in inherited and any(f"{group}s.{file.stem}." in text for _ in (0,)):
            assert chosen, f"{file.name}: none of {callable_classes} is the _target_ of a config"


def test_interpolations_reach_the_algorithms() -> None:
    config = composed("num_clusters=7", "algorithm=ifca")
    assert config["algorithm"]["num_clusters"] == 7
    assert config["algorithm"]["solver"] == config["solver"]
    assert OmegaConf.create(config) is not None
