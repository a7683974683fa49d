"""Jobs that differ in their seeds alone are one arm, in which every seed counts once."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up import job, plain

from fedclust.papers.reports import contents
from fedclust.report.sweep import write_sweep


@pytest.mark.full
def test_a_seed_of_several_jobs_counts_once(tmp_path: Path) -> None:
    for place, seeds in enumerate([(0, 1), (1, 2, 3), (3, 4), (1, 2)]):
        for name in ("lcfl", "ifca"):
            given = {"config": {"seeds": list(seeds)}, "overrides": [f"seeds={list(seeds)}"]}
            job(tmp_path / f"{name}{place}", name, seeds=seeds, rounds=4, **given)
    said = contents(tmp_path)
    assert [arm.label for arm in said.arms] == ["ifca", "lcfl"]
    for arm in said.arms:
        assert arm.run.seeds == (0, 1, 2, 3, 4)
        accuracy = arm.curve("accuracy")
        assert accuracy.values.shape == (4, 5)
        for rows in (arm.run.final_clients, arm.run.all_clients()):
            assert rows["seed"].value_counts().nunique() == 1
            assert sorted(rows["seed"].unique()) == [0, 1, 2, 3, 4]
    # one federation: no ranks over several
    assert "overall" not in [table.name for table in said.tables]


def test_jobs_of_two_folders_with_a_common_seed_stay_apart(tmp_path: Path) -> None:
    for place, seeds in (("before", (0, 1)), ("after", (1, 2))):
        job(tmp_path / place / place, "lcfl", seeds=seeds, rounds=4, config={"seeds": list(seeds)})
    assert [arm.label for arm in contents(tmp_path).arms] == ["lcfl (after)", "lcfl (before)"]


def test_methods_with_other_seeds_are_in_the_same_federation(tmp_path: Path) -> None:
    for name, number in (("oracle", 2), ("ifca", 3), ("fedavg", 4)):
        plain(tmp_path / name, [[0.5] * number], overrides=[f"seeds={number}"])
    said = contents(tmp_path)
    assert [arm.setting for arm in said.arms] == ["", "", ""]
    assert [arm.run.seeds for arm in said.arms] == [(0, 1, 2, 3), (0, 1, 2), (0, 1)]


def test_seeds_that_are_jobs_keep_the_order_of_the_sweep(tmp_path: Path) -> None:
    for name in ("local", "fedavg"):
        for seed in (0, 1):
            given = {"config": {"seeds": [seed]}, "overrides": [f"seeds=[{seed}]"]}
            job(tmp_path / f"{name}{seed}", name, seeds=(seed,), rounds=4, **given)
    names = ("local0", "local1", "fedavg0", "fedavg1")
    write_sweep(tmp_path, [(place, name, "") for place, name in enumerate(names)])
    assert [(arm.label, arm.run.seeds) for arm in contents(tmp_path).arms] == [
        ("local", (0, 1)),
        ("fedavg", (0, 1)),
    ]


@pytest.mark.parametrize("finished", [True, False])
def test_a_finished_job_goes_before_one_that_is_not(finished: bool, tmp_path: Path) -> None:
    state = "done" if finished else "running"
    choices = {"algorithm": "lcfl"}
    plain(tmp_path / "a", [[0.5, 0.5]] * 4, choices=choices)
    plain(tmp_path / "b", [[0.9, 0.9, 0.9]] * 4, choices=choices, state=state)
    (arm,) = contents(tmp_path).arms
    accuracy = arm.curve("accuracy")
    assert accuracy.values[0].tolist() == ([0.9, 0.9, 0.9] if finished else [0.5, 0.5, 0.9])
    assert arm.run.status["state"] == state
