"""What `fedclust list` shows beside names, and which key an unreadable file is blamed on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import fedclust.commands.list as list_module
from fedclust.commands.list import choices, num_jobs
from fedclust.commands.times import counted, keep, scales, works


@pytest.mark.parametrize(
    ("params", "jobs"),
    [("{}", 1), ("{rounds: 3}", 1), ("{algorithm: 'lcfl,ifca', solver.lr: '0.1,0.2,0.3'}", 6)],
)
def test_jobs_are_the_product_of_the_values(tmp_path: Path, params: str, jobs: int) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"hydra: {{sweeper: {{params: {params}}}}}\n")
    assert num_jobs(file) == jobs


def test_a_list_of_seeds_is_one_value(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("hydra: {sweeper: {params: {seeds: '[0,1],[2]'}}}\n")
    assert num_jobs(file) == 2


@pytest.mark.parametrize("given", [("--config-dir", "mine"), ("--config-dir=mine",)])
def test_a_users_own_files_are_listed(
    fedclust: Callable[..., object], tmp_path: Path, given: tuple[str, ...]
) -> None:
    folder = tmp_path / "mine" / "algorithm"
    folder.mkdir(parents=True)
    (folder / "lazy.yaml").write_text("# every other round\n_target_: lazy.Lazy\n")
    done = fedclust("list", "algorithm", *given)
    assert done.status == 0, done.err  # type: ignore[attr-defined]
    shown = {line.split()[0] for line in done.out.splitlines() if line.split()}  # type: ignore[attr-defined]
    assert {"lazy", "ifca"} <= shown
    assert "lazy" not in fedclust("list", "algorithm").out  # type: ignore[attr-defined]


def test_a_missing_folder_is_one_line(fedclust: Callable[..., object]) -> None:
    done = fedclust("list", "--config-dir", "nowhere")
    assert done.status == 2  # type: ignore[attr-defined]
    assert "--config-dir=" in done.err  # type: ignore[attr-defined]


def test_a_truncated_npz_names_its_own_key(fedclust: Callable[..., object], tmp_path: Path) -> None:
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04 and no more")
    done = fedclust("run", "dataset=npz", "dataset.path=cut.npz", "progress=false")
    assert done.status == 2  # type: ignore[attr-defined]
    assert "change dataset.path" in done.err  # type: ignore[attr-defined]
    assert "data.root" not in done.err  # type: ignore[attr-defined]


def test_an_experiments_time_counts_its_arithmetic() -> None:
    """The quickstart: 3 seeds, 30 rounds, 40 clients of 1437 * 4 / 40 images, 5 epochs of
    64-128-128-10.
    """
    jobs = works("quickstart", "paper")
    assert len(jobs) == 5
    first, second = 2 * 64 * 128, 2 * 128 * (128 + 10)
    met = 3 * 30 * 4 * 1437 * 5
    expected = met * (2 * first + 3 * second) + 3 * 30 * 4 * 360 * (first + second)
    assert jobs[0].operations == pytest.approx(expected)
    assert jobs[0].seconds({"dense": expected}) == pytest.approx(3.0 + 0.3 + 1.5)


def test_scales_and_settings_change_the_time() -> None:
    whole, small = (counted()["flexcfl/table4", scale] for scale in ("paper", "laptop"))
    assert len(whole) == len(small) == 144
    assert sum(w.operations for w in whole) > 100 * sum(w.operations for w in small)
    assert {w.kind for w in whole} == {"linear", "dense", "convolutions"}


@pytest.mark.parametrize("name", ["quickstart", "jgl/fig2"])
def test_kept_counts_are_those_of_the_configs(name: str, tmp_path: Path) -> None:
    _compare([name], tmp_path)


@pytest.mark.slow
def test_kept_counts_of_every_experiment_are_those_of_the_configs(tmp_path: Path) -> None:
    """After a change of conf: `python -m fedclust.commands.times`."""
    assert {name for name, _ in counted()} == set(choices("experiment"))
    _compare(list(choices("experiment")), tmp_path)


def _compare(names: list[str], folder: Path) -> None:
    keep(
        {(name, scale): works(name, scale) for name in names for scale in scales(name)},
        folder / "now.csv",
    )
    lines = (Path(list_module.__file__).parent / "work.csv").read_text().splitlines()
    kept = [line for line in lines if line.split(",")[0] in ("experiment", *names)]
    assert kept == (folder / "now.csv").read_text().splitlines()


def test_a_users_own_experiment_is_counted(fedclust: Callable[..., object], tmp_path: Path) -> None:
    folder = tmp_path / "mine" / "experiment"
    folder.mkdir(parents=True)
    (folder / "tiny.yaml").write_text("# @package _global_\n# a tiny one\nrounds: 2\nseeds: 1\n")
    done = fedclust("list", "experiment", "--config-dir", "mine")
    assert done.status == 0, done.err  # type: ignore[attr-defined]
    line = next(line for line in done.out.splitlines() if "a tiny one" in line)  # type: ignore[attr-defined]
    assert line.split()[:2] == ["tiny", "1"]
    assert " s" in line
