"""What a shell is told, and that real shells complete with it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from cli.conftest import Cli

from fedclust.commands.completion import alternatives, candidates


def words(line: str) -> list[str]:
    return [word for word, _ in candidates(line)]


def test_commands_and_their_arguments() -> None:
    assert words("fedclust re") == ["report"]
    assert words("fedclust list cluster_me") == ["cluster_method", "cluster_metric"]
    assert "mnist" in words("fedclust data ")
    assert "digits" not in words("fedclust data ")  # nothing to download
    assert words("fedclust completion f") == ["fish"]
    assert words("fedclust run --co") == ["--config-dir"]


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("algorithm=flhc", ["algorithm=flhc"]),
        ("algorithm=fesem", ["algorithm=fesem", "algorithm=fesem_mig"]),
        ("dataset=emn", ["dataset=emnist", "dataset=emnist_bymerge", "dataset=emnist_letters"]),
        ("algorithm=lcfl,ifca_fl", ["algorithm=lcfl,ifca_flex"]),
        ("experiment=lcfl/t", ["experiment=lcfl/table2", "experiment=lcfl/table3"]),
        ("rou", ["rounds="]),
        ("algori", ["algorithm.", "algorithm="]),
        ("solver.l", ["solver.length=", "solver.lr="]),
        # options of the algorithm that the line has chosen
        ("algorithm.sta", []),
        ("algorithm=ifca algorithm.sta", ["algorithm.start="]),
        ("algorithm=lcfl algorithm.warmup.ro", ["algorithm.warmup.rounds="]),
        # values: of a switch, of a top-level key, of an option, of what several read
        ("progress=", ["progress=false", "progress=true"]),
        ("engine=v", ["engine=vmap"]),
        ("device=", ["device=auto", "device=cpu", "device=cuda"]),
        ("algorithm=ifca algorithm.start=k", ["algorithm.start=kmeans++"]),
        ("common.aggregation=b", ["common.aggregation=by_samples"]),
        ("rounds=", []),
        ("--cfg j", ["job"]),
        ("solver.nothing.", []),
        ("algorithm=nothing solver.", []),  # a line that is wrong already
    ],
)
def test_words_of_a_run(line: str, expected: list[str]) -> None:
    assert words(f"fedclust run {line}") == expected


def test_launchers_and_a_users_own_choices(tmp_path: Path) -> None:
    assert "hydra/launcher=joblib" in words("fedclust run hydra/launcher=")
    (tmp_path / "algorithm").mkdir()
    (tmp_path / "algorithm" / "lazy.yaml").write_text("# every other round\n_target_: lazy.Lazy\n")
    found = candidates(f"fedclust run --config-dir {tmp_path} algorithm=la")
    assert ("algorithm=lazy", "every other round") in found


@pytest.mark.parametrize(
    ("comment", "found"),
    [
        ("random, shared, kmeans++: initial models", ["random", "shared", "kmeans++"]),
        ("of fedavg: uniform, by_samples (weights)", ["uniform", "by_samples"]),
        ("auto | cpu | cuda | cuda:N", ["auto", "cpu", "cuda"]),
        ("at least 1, or auto", []),
        ("in (0, 1], factor on the learning rate", []),
        ("global rounds", []),
    ],
)
def test_a_comment_offers_its_words(comment: str, found: list[str]) -> None:
    assert alternatives(comment) == found


@pytest.mark.parametrize("given", [[], ["bsh"]])
def test_another_shell_is_one_line(fedclust: Cli, given: list[str]) -> None:
    fedclust.refused("completion", *given, says="bash")


SHELLS = {
    "bash": (["--norc", "--noprofile", "-i"], 'eval "$(fedclust completion bash)"'),
    "zsh": (["-f", "-i"], 'autoload -U compinit; compinit -u; eval "$(fedclust completion zsh)"'),
    "fish": (["--no-config", "-i"], "fedclust completion fish | source"),
}
TYPED = {
    "fedclust run algorithm=ifca_fl": "fedclust run algorithm=ifca_flex",
    "fedclust run algorithm=lcfl solver.mome": "fedclust run algorithm=lcfl solver.momentum=",
    "fedclust run experiment=quick": "fedclust run experiment=quickstart",
    "fedclust doc": "fedclust doctor",
}


class Terminal:
    """A shell in a terminal of its own."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self._side, other = pty.openpty()
        self.process = subprocess.Popen(
            command,
            stdin=other,
            stdout=other,
            stderr=other,
            env=env,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(other)
        self.shown = b""

    def type(self, text: str) -> None:
        os.write(self._side, text.encode())

    def wait_for(self, text: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while text not in re.sub(r"\x1b\[[\d;?]*[a-zA-Z]|\x08", "", self.shown.decode()):
            assert time.monotonic() < end, self.shown.decode(errors="replace")
            if select.select([self._side], [], [], 0.2)[0]:
                self.shown += os.read(self._side, 4096)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._side)


@pytest.mark.slow
@pytest.mark.parametrize("shell", [name for name in SHELLS if shutil.which(name)])
def test_a_real_shell_completes(tmp_path: Path, root: Path, shell: str) -> None:
    program = tmp_path / "fedclust"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fedclust "$@"\n')
    program.chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": str(root),
        "HOME": str(tmp_path),
        "TERM": "xterm",
    }
    flags, load = SHELLS[shell]
    terminal = Terminal([shutil.which(shell) or shell, *flags], env)
    try:
        terminal.type(f"{load}; echo rea''dy\n")
        terminal.wait_for("ready")
        for typed, completed in TYPED.items():
            terminal.type(f"{typed}\t")
            terminal.wait_for(completed)
            terminal.type("\x15")  # an empty line again
    finally:
        terminal.close()
