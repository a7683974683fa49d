"""A config is data: what a file of somebody else's may not do, however it is written."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Cli, config_of, put

from fedclust.engines.fused.native import compiled
from fedclust.helpers.files import harmless
from fedclust.launch.guard import importable

Command = Callable[..., Any]
TINY = ("rounds=1", "seeds=1", "algorithm=fedavg", "partition.num_clients=8", "progress=false")
LAUNCHER = "defaults:\n  - override /hydra/launcher: joblib\nhydra: {launcher: "
LOGGING = "hydra: {job_logging: {handlers: {x: {class: logging.FileHandler}}}}"
ALIASES = [f"{b}: &{b} [{', '.join(['*' + a] * 9)}]" for a, b in pairwise("abcdefgh")]


def experiment(folder: Path, text: str) -> str:
    put(folder / "own/experiment/evil.yaml", f"# @package _global_\n# x\n{text}\n")
    return f"--config-dir={folder / 'own'}"


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("text", "named"),
    [
        (LOGGING, "hydra.job_logging"),
        ("hydra: {hydra_logging: {root: {level: INFO}}}", "hydra.hydra_logging"),
        ("hydra: {job: {chdir: true}}", "hydra.job.chdir=True"),
        ("hydra: {job: {env_copy: [HOME]}}", "hydra.job.env_"),
        ("hydra: {mode: MULTIRUN, sweep: {subdir: '${oc.decode:/tmp/x}'}}", "hydra.sweep.subdir"),
        ("hydra: {mode: MULTIRUN, sweep: {subdir: '../../x'}}", "hydra.sweep.subdir"),
        ("hydra: {run: {dir: '${oc.env:HOME}'}}", "oc.env=HOME"),
        ("tags: {a: '${oc.env:HOME}'}", "oc.env=HOME is not allowed"),
        ("tags: {b: env, a: '${oc.${tags.b}:HOME}'}", "oc.env=HOME is not allowed"),
        ("name: 'x${oc.env:HOME}'", "oc.env=HOME"),
        (LAUNCHER + '{backend: "loky\\ntouch made"}}', "hydra.launcher.backend"),
        (LAUNCHER + "{temp_folder: elsewhere}}", "hydra.launcher.temp_folder"),
    ],
)
def test_a_file_may_not(fedclust: Cli, tmp_path: Path, text: str, named: str) -> None:
    fedclust.refused("run", experiment(tmp_path, text), "experiment=evil", *TINY, says=named)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own"], "nothing is written"


@pytest.mark.full
def test_what_is_typed_may_read_the_environment(fedclust: Cli, tmp_path: Path) -> None:
    fedclust.done("run", "+tags.home=${oc.env:HOME}", *TINY)
    assert config_of(tmp_path)["tags"] == {"home": os.environ["HOME"]}


@pytest.mark.full
def test_outputs_may_be_a_link_to_another_disk(fedclust: Cli, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "outputs").symlink_to(disk)
    fedclust.done("run", *TINY)
    assert list(disk.rglob("rounds.csv"))


def test_a_users_folder_comes_last_among_those_that_are_imported(tmp_path: Path) -> None:
    with importable(tmp_path):
        assert sys.path[-1] == str(tmp_path)


@pytest.mark.full
@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "\n".join(["a: &a [x, x, x, x, x, x, x, x, x]", *ALIASES]),
        "x" * (17 << 20),
    ],
    ids=["nested", "aliases", "large"],
)
def test_a_file_that_would_take_a_reader_forever_is_one_line(
    fedclust: Cli, tmp_path: Path, text: str
) -> None:
    fedclust.refused("run", experiment(tmp_path, text), "experiment=evil", *TINY, says="evil.yaml")
    with pytest.raises(OSError, match=r"nested too deeply|is larger than 16 MB"):
        harmless(tmp_path / "own" / "experiment" / "evil.yaml")


def test_brackets_in_texts_are_no_nesting(tmp_path: Path) -> None:
    """A sweep keeps why each job was refused, such as a fraction in [0, 1)."""
    (tmp_path / "sweep.json").write_text(json.dumps([{"error": "a fraction in [0, 1)"}] * 150))
    assert harmless(tmp_path / "sweep.json") == tmp_path / "sweep.json"


def test_a_pipe_in_place_of_a_file_is_one_line(fedclust: Cli, tmp_path: Path) -> None:
    folder = experiment(tmp_path, "rounds: 1")
    (tmp_path / "own" / "experiment" / "evil.yaml").unlink()
    os.mkfifo(tmp_path / "own" / "experiment" / "evil.yaml")
    done = fedclust("run", folder, "experiment=evil", *TINY)
    assert done.status == 2
    assert done.err.count("\n") == 1, done.err


def test_what_controls_a_terminal_is_not_printed(fedclust: Cli, tmp_path: Path) -> None:
    put(tmp_path / "own/model/evil.yaml", "# \x1b]0;title\x07 red \x1b[31m\n")
    shown = fedclust("list", "model", f"--config-dir={tmp_path / 'own'}")
    assert "red" in shown.out
    assert "\x1b" not in shown.out
    assert "\x07" not in shown.out


def test_compiled_code_is_this_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what others can write is loaded, nor is a folder left open to them."""
    home = tmp_path / "home"
    (home / "fedclust").mkdir(parents=True, mode=0o777)
    (home / "fedclust").chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    compiled.library.cache_clear()
    before = os.umask(0)
    try:
        assert compiled.library("adding") is not None
    finally:
        os.umask(before)
        compiled.library.cache_clear()
    (kept,) = (home / "fedclust").glob("adding-*.so")
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    assert kept.stat().st_mode & 0o777 == 0o600
    assert compiled._is_whole(kept)
    kept.chmod(0o622)
    assert not compiled._is_whole(kept)
    kept.chmod(0o600)
    kept.parent.chmod(0o777)
    assert not compiled._is_whole(kept)


@pytest.mark.full
def test_a_report_does_not_overwrite_what_a_link_points_to(fedclust: Cli, tmp_path: Path) -> None:
    fedclust.done("run", *TINY)
    (job,) = (path.parent for path in tmp_path.rglob("rounds.csv"))
    put(tmp_path / "mine/table.md", "mine")
    (job / "report").symlink_to(tmp_path / "mine")
    fedclust.refused("report", str(job), says="report is a link to elsewhere")
    assert (tmp_path / "mine" / "table.md").read_text() == "mine"
