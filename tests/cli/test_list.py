"""What `fedclust list` shows beside names, and which key an unreadable file is blamed on."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from cli.conftest import Cli, put
from rich.console import Console

from fedclust.commands.list import command
from fedclust.config.tree import choices, describe, groups
from fedclust.launch.compose import num_jobs
from fedclust.launch.typed import Typed


@pytest.mark.parametrize(
    ("params", "typed", "jobs"),
    [
        ({}, [], 1),
        ({"rounds": 3}, [], 1),
        ({"algorithm": "lcfl,ifca", "solver.lr": "0.1,0.2,0.3"}, [], 6),
        ({"algorithm": "lcfl,ifca", "solver.lr": "0.1,0.2,0.3"}, ["algorithm=local"], 3),
        ({"seeds": "[0,1],[2]"}, ["rounds=range(1,5)"], 8),
    ],
)
def test_jobs_are_the_product_of_the_values(
    params: dict[str, object], typed: list[str], jobs: int
) -> None:
    assert num_jobs(Typed(tuple(typed)).over(params)) == jobs


@pytest.mark.parametrize("given", [("--config-dir", "mine"), ("--config-dir=mine",)])
def test_a_users_own_files_are_listed(
    fedclust: Cli, tmp_path: Path, given: tuple[str, ...]
) -> None:
    text = "# every other round\n_target_: lazy.Lazy\n"
    put(tmp_path / "mine/algorithm/lazy.yaml", text)
    done = fedclust.done("list", "algorithm", *given)
    shown = {line.split()[0] for line in done.out.splitlines() if line.split()}
    assert {"lazy", "ifca"} <= shown
    assert "lazy" not in fedclust("list", "algorithm").out


def test_a_users_own_experiment_is_listed_with_its_jobs(fedclust: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "mine" / "experiment"
    sweep = "hydra: {sweeper: {params: {solver.lr: '0.1,0.2'}}}\n"
    put(folder / "tiny.yaml", "# @package _global_\n# a tiny one\nrounds: 2\n" + sweep)
    scales = "scales:\n  laptop: # 1 round\n    costs: {hours: 0.25, gigabytes: 2}\n    rounds: 1\n"
    put(folder / "small.yaml", f"# @package _global_\n# a small one\n{sweep}\n{scales}")
    done = fedclust.done("list", "experiment", "--config-dir", "mine")
    line = next(line for line in done.out.splitlines() if "a tiny one" in line)
    assert line.split() == ["tiny", "2", "a", "tiny", "one"]
    line = next(line for line in done.out.splitlines() if "a small one" in line)
    assert line.split() == ["small", "2", "0.25", "h,", "2", "GB", "a", "small", "one"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("scales", "wrong"),
    [
        ("[laptop]", "scales=['laptop'] is not allowed"),
        ("{laptop: 3}", "scales={'laptop': 3} is not allowed"),
        ("{laptop: null}", "scales={'laptop': None} is not allowed"),
        ("{laptop: {rounds: 1, costs: {hours: 1}}}", "costs={'hours': 1} is not allowed"),
        ("{laptop: {rounds: 1, costs: 1}}", "costs=1 is not allowed"),
    ],
)
def test_scales_of_a_wrong_form_are_one_line(
    fedclust: Cli, tmp_path: Path, scales: str, wrong: str
) -> None:
    text = f"# @package _global_\n# a small one\nrounds: 2\nscales: {scales}\n"
    file = put(tmp_path / "mine/experiment/small.yaml", text)
    fedclust.refused("list", "experiment", "--config-dir", "mine", says=f"{file}: {wrong}")
    if wrong.startswith("scales"):
        fedclust.refused(
            "run",
            "--config-dir",
            "mine",
            "experiment=small",
            "scale=laptop",
            says=f"{file}: {wrong}",
        )


@pytest.mark.thinned
@pytest.mark.parametrize("group", sorted(groups(None)))
def test_descriptions_are_shown_at_every_width(
    fedclust: Cli, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    """The first four words of each, whole, beside or below the name; and so in a pipe."""
    piped = fedclust("list", group).out
    files = choices(group, None)
    for width in (60, 80, 100, 120, 160, None):
        shown = piped
        if width:
            file = StringIO()
            terminal = Console(file=file, width=width, force_terminal=True, color_system=None)
            monkeypatch.setattr("fedclust.commands.list.Console", lambda one=terminal: one)
            command([group])
            shown = file.getvalue()
            assert max(map(len, shown.splitlines())) <= width
        lines = shown.splitlines()
        starts = [i for i, line in enumerate(lines) if re.match(r" {2,3}\S+( |$)", line)]
        starts = [i for i in starts if lines[i].split()[0] in files]
        assert len(starts) == len(files)
        for begin, end in zip(starts, [*starts[1:], None], strict=True):
            name, *found = " ".join(lines[begin:end]).split()
            seen = iter(found)
            words = describe(files[name]).split()[:4]
            assert all(word in seen for word in words), f"{name} at {width}: {words}"
