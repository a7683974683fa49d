"""The frozen versions of the benchmark: their configs, data and rounds are as they were."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.conftest import Cli
from configs import composed

from fedclust.benchmark.frozen import VERSIONS, frozen, setting_of
from fedclust.config.schema import seed_list
from fedclust.config.versions import ROUNDS

NAMES = sorted(file.stem for file in VERSIONS.glob("*.json"))


def test_there_is_a_benchmark_with_a_natural_block_and_a_first_look() -> None:
    assert NAMES == ["v1", "v1_natural", "v1_quick"]


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_the_settings_are_those_of_the_configs_and_every_job_names_the_digest(name: str) -> None:
    bench = frozen(name)
    assert bench.rounds == ROUNDS
    for case, facts in bench.federations.items():
        config = composed(f"experiment=benchmark/{name}", f"case={case}", "algorithm=fedavg")
        now = setting_of(config) | {"seeds": seed_list(config["seeds"])}
        assert json.loads(json.dumps(now)) == facts["setting"], case
        assert config["report"]["frozen"] == f"{name} {bench.digest}"


@pytest.mark.full
@pytest.mark.parametrize("case", frozen("v1_quick").federations)
def test_a_job_on_data_that_everybody_has_is_one_of_the_first_look(
    fedclust: Cli, tmp_path: Path, case: str
) -> None:
    told = ("experiment=benchmark/v1_quick", f"case={case}", "algorithm=fedavg")
    fedclust.done("run", *told)
    (job,) = (tmp_path / "outputs" / "benchmark" / "v1_quick").glob("fedavg*")
    assert frozen("v1_quick").difference(job) is None
