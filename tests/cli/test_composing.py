"""A command composes its config once: the config that goes on is the one Hydra would compose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.hydra import Hydra
from hydra.errors import ConfigCompositionException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

import fedclust
from fedclust.config.expansion import check_expansion
from fedclust.helpers.errors import ConfigError, UserError
from fedclust.launch.compose import Command, SweepLoader, compose, in_mode, loader
from fedclust.launch.guard import check_hydra, hydra_of_its_own
from fedclust.launch.scales import search_path
from fedclust.launch.typed import Typed


def _both(overrides: list[str], mode: RunMode, own: Path | None = None) -> tuple[str, str]:
    """The config that a command goes on with, and what Hydra composes of all its overrides."""
    typed = Typed(tuple(overrides), own, many=mode is RunMode.MULTIRUN)
    with hydra_of_its_own(typed):
        composed = compose(overrides, own)
        command = Command(typed, composed)
        check_hydra(command)
        gone_on = in_mode(command)
        hydra = Hydra("fedclust", loader(own))
        anew = hydra.compose_config("config", [*overrides, f"hydra.mode={mode.name}"], mode)
        assert gone_on is composed
        assert OmegaConf.is_struct(gone_on) == OmegaConf.is_struct(anew)
        return OmegaConf.to_yaml(gone_on), OmegaConf.to_yaml(anew)


@pytest.mark.full
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
    assert f"- hydra.mode={mode.name}" in gone_on


@pytest.mark.full
def test_a_sweep_composes_each_job_once_and_starts_what_it_composed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """First to see whether the job can be, then to run it; in another process anew."""
    composing: list[list[str]] = []
    whole = ConfigLoaderImpl.load_configuration

    def counted(self: ConfigLoaderImpl, **given: Any) -> DictConfig:
        composing.append(given["overrides"])
        return whole(self, **given)

    typed = Typed(("rounds=1,2",), many=True)
    with hydra_of_its_own(typed):
        master = in_mode(Command(typed))
        monkeypatch.setattr(ConfigLoaderImpl, "load_configuration", counted)
        sweep = SweepLoader(None)
        jobs = (["rounds=1"], ["rounds=2"])
        first, second = ([sweep.load_sweep_config(master, job) for job in jobs] for _ in range(2))
        assert composing == [list(master.hydra.overrides.hydra)]  # what both share
        assert [job.rounds for job in second] == [1, 2]
        assert [OmegaConf.to_yaml(job) for job in first] == [OmegaConf.to_yaml(j) for j in second]
        master.hydra.launcher._target_ = "a.JoblibLauncher"
        for _ in range(2):
            sweep.load_sweep_config(master, jobs[0])
    assert len(composing) == 1


@pytest.mark.full
@pytest.mark.parametrize(
    "job",
    [
        ["solver.lr=0.5"],
        ["algorithm=ifca", "rounds=3", "algorithm.start=shared"],
        ["rounds=3", "algorithm=ifca"],
        ["+tags.a=3", "tags.a=4"],
        ["~tags"],
        ["model.hidden=[3,4]", "seeds=[7,8]"],
        ["experiment=quickstart", "scale=smoke", "rounds=2"],
        ["solver={lr: 0.25}"],
    ],
    ids=" ".join,
)
def test_a_job_that_shares_its_choices_is_the_one_hydra_composes(job: list[str]) -> None:
    typed = Typed(("rounds=1,2",), many=True)
    with hydra_of_its_own(typed):
        master = in_mode(Command(typed))
        hydra = ConfigLoaderImpl(config_search_path=search_path(None))
        anew = hydra.load_sweep_config(master, list(job))
        sweep = SweepLoader(None)
        for other in (["rounds=9"], job):  # the second time from what is shared
            sweep.load_sweep_config(master, list(other))
            again = SweepLoader(None)
            again._of_choices = sweep._of_choices
            found = again.load_sweep_config(master, list(job))
            assert OmegaConf.to_yaml(found) == OmegaConf.to_yaml(anew)
            assert OmegaConf.is_struct(found) == OmegaConf.is_struct(anew)


def test_a_value_that_cannot_be_is_refused_of_a_job_too() -> None:
    typed = Typed(("rounds=1,2",), many=True)
    with hydra_of_its_own(typed):
        master = in_mode(Command(typed))
        sweep = SweepLoader(None)
        for text, said in (("rounds=x", "merging override"), ("round=1", "Could not override")):
            with pytest.raises(ConfigCompositionException, match=said):
                sweep.load_sweep_config(master, [text])


def test_several_values_are_refused_of_one_job() -> None:
    with pytest.raises(ConfigCompositionException, match="Ambiguous value for argument"):
        _both(["rounds=1,2"], RunMode.RUN)


def test_a_file_of_ones_own_with_the_name_of_one_of_ours_is_refused(tmp_path: Path) -> None:
    for name in ("solver/sgd.yaml", "space/ditto.yaml"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("lr: 0.777\n")
    with pytest.raises(ConfigError, match=r"solver/sgd\.yaml is not allowed: another name"):
        search_path(tmp_path)
    (tmp_path / "solver/sgd.yaml").rename(tmp_path / "solver/mine.yaml")
    assert len(search_path(tmp_path).get_path()) == len(search_path(None).get_path()) + 1


@pytest.mark.full
def test_a_choice_that_a_sweep_leaves_open_is_asked_for_by_a_job(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "open.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /dataset: ???\n"
    )
    typed = Typed(("experiment=open",), tmp_path, many=False)
    with hydra_of_its_own(typed):
        command = Command(typed, compose(typed.texts, tmp_path))
        with pytest.raises(ConfigCompositionException, match="You must specify 'dataset'"):
            in_mode(command)


@pytest.mark.full
@pytest.mark.parametrize(
    ("file", "text", "stays"),
    [
        ("algorithm/mine.yaml", "about: {run: laptop size, look: [1, 2]}", False),
        ("algorithm/mine.yaml", "about: {runs: laptop size}", True),
        ("algorithm/mine.yaml", "about: 5", True),
        ("algorithm/mine.yaml", "about: ???", True),
        ("dataset/mine.yaml", "about: {run: laptop size}", True),
    ],
)
def test_only_what_describes_a_method_is_taken_out(
    file: str, text: str, stays: bool, tmp_path: Path
) -> None:
    group = file.partition("/")[0]
    (tmp_path / group).mkdir()
    (tmp_path / file).write_text(f"_target_: mine.Mine\n{text}\n")
    node = compose([f"{group}=mine"], tmp_path)[group]
    assert list(node) == ["_target_", *(["about"] if stays else [])]


@pytest.mark.full
def test_an_edited_file_is_read_anew(tmp_path: Path) -> None:
    """A process composes many times, as a notebook does, and keeps what it has parsed."""
    file = tmp_path / "solver" / "mine.yaml"
    file.parent.mkdir()
    found = []
    for lr in (0.25, 0.125):
        file.write_text(f"_target_: mine.Mine\nlr: {lr}\n")
        found.append(compose(["solver=mine"], tmp_path).solver)
        found[-1].lr += 1  # changes nothing of what is kept
        found.append(compose(["solver=mine"], tmp_path).solver)
    assert [node.lr for node in found] == [1.25, 0.25, 1.125, 0.125]


@pytest.mark.parametrize(
    "tags",
    [
        {f"a{i}": f"${{tags.a{i - 1}}}" * 10 for i in range(1, 7)},
        {f"a{i}": {"x": f"${{tags.a{i - 1}}}", "y": f"${{..a{i - 1}}}"} for i in range(1, 30)},
        {f"a{i}": [f"${{oc.select:tags.a{i - 1}}}"] * 9 for i in range(1, 9)},
    ],
    ids=["texts", "mappings", "selected"],
)
def test_references_that_expand_without_end_are_one_line(tags: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"tags\.a\d+\S* is not allowed: its references"):
        check_expansion(OmegaConf.create({"tags": {"a0": "x" * 10, **tags}}))


def test_references_of_our_own_configs_are_few() -> None:
    check_expansion(compose(["algorithm=lcfl"]))
    check_expansion(OmegaConf.create({"a": "${b}", "b": "${a}", "c": "${nowhere.x}"}))


@pytest.mark.full
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("tags: {a: grü}\n".encode("latin-1"), "is no text in UTF-8: save it as such"),
        (b"- 1\n", r"=\[1\] is not allowed: a mapping"),
        (b"5\n", "=5 is not allowed: a mapping"),
        (b"1: 2\n", "is not allowed: a mapping, whose keys are texts"),
    ],
)
def test_a_file_that_holds_no_keys_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "experiment").mkdir()
    file = tmp_path / "experiment" / "mine.yaml"
    file.write_bytes(b"# @package _global_\n" + content)
    with pytest.raises(UserError, match=words) as told:
        fedclust.run(experiment="mine", config_dir=tmp_path)
    assert str(file) in str(told.value)


def test_a_current_folder_that_is_gone_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(UserError, match="the current folder has been deleted"):
        fedclust.run("algorithm=fedavg", config_dir="own")
    with pytest.raises(UserError, match="the current folder has been deleted"):
        fedclust.run("algorithm=fedavg")
