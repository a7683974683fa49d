"""A command composes its config once: the config that goes on is the one Hydra would compose."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra._internal.hydra import Hydra
from hydra.errors import ConfigCompositionException
from hydra.types import RunMode
from omegaconf import OmegaConf

import fedclust.commands.run  # noqa: F401 - registers the schema
from fedclust.commands.composing import compose, hydra_for
from fedclust.commands.guard import check_hydra
from fedclust.commands.surroundings import hydra_of_its_own


def _both(overrides: list[str], mode: RunMode, own: Path | None = None) -> tuple[str, str]:
    """The config that a command goes on with, and what Hydra composes of all its overrides."""
    added = [f"hydra.mode={mode.name}", "++hydra.job.env_set.FEDCLUST_SWEEP='/tmp/some where'"]
    with hydra_of_its_own(own):
        ours = hydra_for(own)
        composed = compose(ours, overrides)
        check_hydra(composed, overrides, many=mode is RunMode.MULTIRUN)
        ours.go_on_from(composed, added)
        everything = [*overrides, *added]
        gone_on = ours.compose_config("config", everything, mode)
        anew = Hydra.compose_config(ours, "config", everything, mode)
        assert gone_on is composed
        assert OmegaConf.is_readonly(gone_on.hydra) == OmegaConf.is_readonly(anew.hydra)
        assert OmegaConf.is_struct(gone_on) == OmegaConf.is_struct(anew)
        return OmegaConf.to_yaml(gone_on), OmegaConf.to_yaml(anew)


@pytest.mark.parametrize(
    ("overrides", "mode"),
    [
        (["rounds=3", "algorithm=ifca", "+tags.note=first", "hydra.verbose=false"], RunMode.RUN),
        (["experiment=quickstart", "scale=smoke"], RunMode.MULTIRUN),
        (["rounds=1,2", "hydra/launcher=joblib"], RunMode.MULTIRUN),
    ],
)
def test_a_config_with_values_added_is_the_one_hydra_composes(
    overrides: list[str], mode: RunMode
) -> None:
    gone_on, anew = _both(overrides, mode)
    assert gone_on == anew
    assert "FEDCLUST_SWEEP: /tmp/some where" in gone_on
    assert f"- hydra.mode={mode.name}" in gone_on


def test_it_is_taken_once() -> None:
    """A sweep's jobs have other overrides."""
    with hydra_of_its_own(None):
        ours = hydra_for(None)
        ours.go_on_from(compose(ours, ["rounds=3"]), [])
        first = ours.compose_config("config", ["rounds=3"], RunMode.RUN)
        second = ours.compose_config("config", ["rounds=4"], RunMode.RUN)
    assert (first.rounds, second.rounds) == (3, 4)


def test_several_values_are_refused_of_one_job() -> None:
    with pytest.raises(ConfigCompositionException, match="Ambiguous value for argument"):
        _both(["rounds=1,2"], RunMode.RUN)


def test_a_choice_that_a_sweep_leaves_open_is_asked_for_by_a_job(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "open.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /dataset: ???\n"
    )
    with hydra_of_its_own(tmp_path):
        ours = hydra_for(tmp_path)
        overrides = ["experiment=open"]
        ours.go_on_from(compose(ours, overrides), [])
        with pytest.raises(ConfigCompositionException, match="You must specify 'dataset'"):
            ours.compose_config("config", overrides, RunMode.RUN)
