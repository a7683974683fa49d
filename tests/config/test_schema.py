"""A top-level key is declared in one place, and everything that depends on keys follows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from fedclust.commands.run import command
from fedclust.config import schema
from fedclust.config.tree import CONF
from fedclust.helpers.errors import ConfigError
from fedclust.launch.compose import register
from fedclust.launch.typed import job_folder
from fedclust.report.arms import arms
from fedclust.report.runs import Run
from fedclust.report.settings import settings_table
from fedclust.runtime.folder import config_hash


@dataclass
class Larger(schema.RunConfig):
    """The schema with a key more."""

    patience: int = schema.key(
        3, "setting", "rounds without progress before the end", schema.between(1, 100)
    )


@pytest.fixture
def with_patience() -> Iterator[None]:
    register(Larger)
    yield
    register()


def composed(*overrides: str) -> dict[str, object]:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return schema.resolve(compose("config", overrides=list(overrides)), {})


def test_a_new_key_is_known_everywhere(
    with_patience: None, capsys: pytest.CaptureFixture[str]
) -> None:
    config = composed("patience=5")
    assert config["patience"] == 5
    command(["--cfg", "job"])
    assert "patience: 3\n" in capsys.readouterr().out
    command(["--help"])
    (line,) = (x for x in capsys.readouterr().out.splitlines() if "patience" in x)
    assert line.split() == ["patience=3", "rounds", "without", "progress", "before", "the", "end"]
    assert job_folder(["patience=5"], "lcfl") == "lcfl,patience=5"
    assert config_hash(config) != config_hash({**config, "patience": 6})
    jobs = [
        Run(Path(str(n)), {"patience": n, "overrides": [f"patience={n}"], "choices": {}}, {}, {})
        for n in (1, 2)
    ]
    assert [arm.setting for arm in arms(jobs)] == ["patience=1", "patience=2"]
    assert ("patience", "1: 1; 2: 2") in [
        (row["key"], row["value"]) for row in settings_table(arms(jobs)).records
    ]
    with pytest.raises(ConfigError, match=r"patience=0 is not allowed: a number in \[1, 100\]"):
        schema.check_keys({**config, "patience": 0})


KEYS = {  # part, whether it names a folder, whether it tells arms apart
    ("setting", True, True): "rounds precision case dataset",
    ("method", True, True): "num_clusters common.restart_fraction algorithm.migration "
    "cluster_metric@algorithm.cold_start.metric",
    ("setting", False, True): "scale dataset.root",
    ("method", False, True): "algorithm",
    ("means", False, False): "engine device threads max_rows checkpoint_seconds",
    ("beside", False, False): "progress tracker.run hydra/launcher experiment",
}


@pytest.mark.parametrize(
    ("name", "counts"), [(name, counts) for counts, some in KEYS.items() for name in some.split()]
)
def test_a_keys_part_says_where_it_counts(name: str, counts: tuple[str, bool, bool]) -> None:
    found = schema.part_of(name), schema.names_folder(name), schema.tells_arms_apart(name)
    assert found == counts


@pytest.mark.full
def test_how_a_job_is_computed_does_not_change_whose_folder_it_is() -> None:
    config = composed()
    for means in ({"engine": "loop"}, {"threads": 2}, {"max_rows": 7}, {"device": "cpu"}):
        assert config_hash({**config, **means}) == config_hash(config)
    for other in ({"precision": "bf16"}, {"common": {"restart_fraction": 0.1}}, {"rounds": 21}):
        assert config_hash({**config, **other}) != config_hash(config)


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("key", "given"),
    {
        **{"task": {"_target_": "x"}, "validation": 0.2, "server": {"rate": 0.5}},
        **{"attack": {"share": 0.25}, "privacy": {"noise": 1.5}, "weights": "a.pth"},
        **{"frozen": ["1"], "features": {"model": "x"}, "lora": {}},
    }.items(),
)
def test_a_folder_from_before_a_key_still_fits(key: str, given: object) -> None:
    config = composed()
    older = {name: value for name, value in config.items() if name != key}
    assert config_hash(older) == config_hash(config) != config_hash({**config, key: given})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeds": 10**6}, r"seeds=1000000 is not allowed"),
        ({"rounds": 10**30}, r"a number in \[1, 1,000,000,000\]"),
        ({"checkpoint_seconds": float("inf")}, r"checkpoint_seconds=inf"),
        ({"participation": float("nan")}, r"participation=nan .* a fraction in \(0, 1\]"),
        ({"num_clusters": True}, r"num_clusters=True"),
        ({"num_clusters": 10**12}, r"num_clusters=1000000000000"),
        ({"threads": 1025}, r"threads=1025 is not allowed: 1 to 1024, or null"),
    ],
)
def test_an_absurd_value_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        schema.check_keys({**composed(), **changes})


def test_a_text_with_nul_is_refused_wherever_it_stands() -> None:
    for nested in ({"path": "a\0b"}, {"files": ["a", "a\0b"]}, {"deep": {"path": "\0"}}):
        dataset = {**composed()["dataset"], **nested}
        with pytest.raises(ConfigError, match=r"dataset\..* a text without the character NUL"):
            schema.check_keys({**composed(), "dataset": dataset})


def test_means_of_computing_are_no_names_of_arms() -> None:
    jobs = []
    for name, lr in (("loop", 0.1), ("fused", 0.2)):
        given = {"overrides": [f"engine={name}", f"solver.lr={lr}"]}
        jobs.append(Run(Path(name), {**given, "choices": {"algorithm": "ifca"}}, {}, {}))
    assert [arm.name for arm in arms(jobs)] == ["ifca lr=0.1", "ifca lr=0.2"]
