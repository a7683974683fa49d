"""The example of an algorithm of one's own runs as its README says."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.conftest import Cli, rounds_of

TINY = ("progress=false", "partition.num_clients=8", "rounds=4", "solver.epochs=1", "engine=loop")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """The example's module is imported from the folder that a test has."""
    yield
    sys.modules.pop("server_momentum", None)


@pytest.mark.slow
def test_the_example_is_written_runs_and_without_momentum_is_fedavg(
    fedclust: Cli, tmp_path: Path
) -> None:
    written = fedclust("example", "own_algorithm", "mine")
    command = "fedclust run --config-dir mine algorithm=server_momentum"
    assert command in written.out
    fedclust.refused("example", "own_algorithm", "mine", says="folder=mine is not allowed")
    runs = {
        "example": ("--config-dir", "mine", "algorithm=server_momentum"),
        "still": ("--config-dir", "mine", "algorithm=server_momentum", "algorithm.beta=0"),
        "fedavg": ("algorithm=fedavg",),
    }
    for name, arguments in runs.items():
        fedclust.done("run", *arguments, *TINY, f"hydra.run.dir={name}")
    found = {name: rounds_of(tmp_path / name, "accuracy").tolist() for name in runs}
    assert found["still"] == pytest.approx(found["fedavg"])
    assert found["example"][0] == pytest.approx(found["fedavg"][0])
    assert found["example"] != pytest.approx(found["fedavg"])


@pytest.mark.full
def test_a_wrong_value_is_one_line(fedclust: Cli, root: Path) -> None:
    example = str(root / "examples" / "own_algorithm")
    fedclust.refused(
        "run",
        "--config-dir",
        example,
        "algorithm=server_momentum",
        "algorithm.beta=1",
        *TINY,
        says="algorithm.beta=1",
    )
