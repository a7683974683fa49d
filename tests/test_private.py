"""What Hydra and OmegaConf do not promise, under two versions of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from omegaconf import OmegaConf

from fedclust.config.read import read_config
from fedclust.config.tree import CONF
from fedclust.helpers import private
from fedclust.launch.checks import choices_of
from fedclust.launch.compose import compose


def test_every_name_is_somewhere() -> None:
    assert sorted(private._WHERE) == private.__all__
    assert all(callable(getattr(private, name)) for name in private.__all__)


def test_a_name_is_looked_for_in_the_modules_of_all_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modules = ("omegaconf.nowhere", "omegaconf.errors", "omegaconf.omegaconf")
    monkeypatch.setitem(private._WHERE, "OmegaConf", modules)
    assert private.OmegaConf is OmegaConf
    for module in ("omegaconf.nowhere", "omegaconf.errors"):
        monkeypatch.setitem(private._WHERE, "OmegaConf", (module,))
        with pytest.raises(AttributeError, match="has no OmegaConf: this version of Hydra"):
            _ = private.OmegaConf


@pytest.mark.parametrize("new", [False, True])
def test_resolvers_are_registered_without_a_warning(
    new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both versions have both functions, and one of them warns."""
    asked: list[tuple[str, bool]] = []

    def registers(name: str, resolver: Callable[..., Any], *, replace: bool) -> None:
        asked.append((name, replace))

    def warns(name: str, resolver: Callable[..., Any]) -> None:
        raise AssertionError

    order = (registers, warns) if new else (warns, registers)
    for name, function in zip(("register_resolver", "register_new_resolver"), order, strict=True):
        monkeypatch.setattr(OmegaConf, name, staticmethod(function))
    private.register_resolver("x", str)
    assert asked == [("x", True)]


@pytest.mark.full
def test_without_an_experiment_nothing_is_chosen_and_set() -> None:
    """Whether it is left out or typed: Hydra 1.4 wants a text where there is none."""
    configs = [compose(list(typed)) for typed in ((), ("experiment=none", "case=none"))]
    assert configs[0].name == configs[1].name
    for config in configs:
        choices = choices_of(config.hydra)
        assert (choices["experiment"], choices["case"], choices["scale"]) == (None, None, "paper")
        assert not [group for group in choices if group.startswith(("scaled/", "hydra"))]


@pytest.mark.full
def test_a_scale_is_that_of_the_experiment() -> None:
    config = compose(["experiment=lcfl/table2", "scale=smoke"])
    assert choices_of(config.hydra)["experiment"] == "lcfl/table2"
    block = read_config(CONF / "experiment" / "lcfl" / "table2.yaml")["scales"]["smoke"]
    assert config.rounds == block["rounds"]


@pytest.mark.full
def test_composing_quickly_gives_the_same() -> None:
    commands = [
        ["experiment=lcfl/table2", "scale=laptop", "algorithm=ifca"],  # choices that name choices
        ["algorithm=newcomers", "algorithm@algorithm.base=lcfl", "solver.lr=0.3"],
    ]
    plain = [compose(one) for one in commands]
    for command, config in zip(commands, plain, strict=True):
        with private.composed_quickly():
            quick = compose(command)
            resolved = OmegaConf.to_yaml(quick.algorithm, resolve=True)
        assert OmegaConf.to_yaml(quick) == OmegaConf.to_yaml(config)
        assert resolved == OmegaConf.to_yaml(config.algorithm, resolve=True)
