"""The example of an algorithm of one's own runs as its README says."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest

TINY = ("progress=false", "partition.num_clients=8", "rounds=4", "solver.epochs=1", "engine=loop")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """The example's module is imported from the folder that a test has."""
    yield
    sys.modules.pop("server_momentum", None)


def accuracies(folder: Path) -> list[float]:
    rounds = pd.read_csv(folder / "rounds.csv")
    found: list[float] = (
        rounds[rounds["metric"] == "accuracy"].sort_values("round")["value"].tolist()
    )
    return found


@pytest.mark.slow
def test_the_example_is_written_runs_and_without_momentum_is_fedavg(
    fedclust: Callable[..., object], tmp_path: Path
) -> None:
    written = fedclust("example", "own_algorithm", "mine")
    command = "fedclust run --config-dir mine algorithm=server_momentum"
    assert command in written.out  # type: ignore[attr-defined]
    again = fedclust("example", "own_algorithm", "mine")
    assert again.status == 2  # type: ignore[attr-defined]
    assert "folder=mine is not allowed" in again.err  # type: ignore[attr-defined]
    runs = {
        "example": ("--config-dir", "mine", "algorithm=server_momentum"),
        "still": ("--config-dir", "mine", "algorithm=server_momentum", "algorithm.beta=0"),
        "fedavg": ("algorithm=fedavg",),
    }
    for name, arguments in runs.items():
        done = fedclust("run", *arguments, *TINY, f"hydra.run.dir={name}")
        assert done.status == 0, done.err  # type: ignore[attr-defined]
    found = {name: accuracies(tmp_path / name) for name in runs}
    assert found["still"] == pytest.approx(found["fedavg"])
    assert found["example"][0] == pytest.approx(found["fedavg"][0])
    assert found["example"] != pytest.approx(found["fedavg"])


def test_a_wrong_value_is_one_line(fedclust: Callable[..., object], root: Path) -> None:
    example = str(root / "examples" / "own_algorithm")
    done = fedclust(
        "run", "--config-dir", example, "algorithm=server_momentum", "algorithm.beta=1", *TINY
    )
    assert done.status == 2  # type: ignore[attr-defined]
    assert "algorithm.beta=1" in done.err  # type: ignore[attr-defined]
    assert len(done.err.strip().splitlines()) == 1  # type: ignore[attr-defined]
