"""What a command does not use, it does not import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli.conftest import Cli

HEAVY = ("torch", "sklearn", "scipy", "pandas", "matplotlib", "pyarrow", "numpy", "torchvision")
RUN = ["run", "rounds=1", "seeds=1", "algorithm=fedavg"]
PROGRAM = """
import sys
from fedclust.__main__ import main
for command in (["--help"], ["run", "--help"], ["list"], ["list", "experiment"],
                ["run", "--cfg", "job", "algorithm=flexcfl"], ["data"],
                ["completion", "--line", "fedclust run algorithm=flexcfl algorithm."]):
    main(command)
    print("imported:", *sorted(set(sys.argv_heavy) & set(sys.modules)))
"""


@pytest.mark.full
def test_what_only_shows_imports_nothing_heavy() -> None:
    program = PROGRAM.replace("sys.argv_heavy", repr(HEAVY))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    told = [line for line in done.stdout.splitlines() if line.startswith("imported:")]
    assert told == ["imported:"] * 7


@pytest.mark.full
def test_a_short_run_imports_no_library_it_does_not_use_and_needs_no_stream_for_errors(
    tmp_path: Path,
) -> None:
    heavy = (
        "sklearn",
        "scipy",
        "pandas",
        "matplotlib",
        "sympy",
        "torch._dynamo",
        "mlflow",
        "pyarrow.compute",
    )
    program = f"""
import sys
from fedclust.__main__ import main
main(["run", "rounds=1", "algorithm=ifca", "progress=false",
      "+report.metric=accuracy"])  # the report is checked, and not made
print("imported:", *sorted(set({heavy!r}) & set(sys.modules)))
"""
    done = subprocess.run(
        ["bash", "-c", '"$0" -c "$1" 2>&-', sys.executable, program],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.splitlines()[-1] == "imported:"
    assert len(list(tmp_path.rglob("clients.parquet"))) == 1


@pytest.mark.full
def test_a_report_is_made_without_pytorch(fedclust: Cli, tmp_path: Path) -> None:
    fedclust.done(*RUN)
    program = """
import sys
from fedclust.__main__ import main
main(["report", "outputs/default"])
print("torch" in sys.modules)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "False"
    assert (tmp_path / "outputs" / "default" / "report" / "report.html").is_file()


@pytest.mark.full
@pytest.mark.parametrize(
    ("surroundings", "commands"),
    [
        ({"LC_ALL": "C", "PYTHONUTF8": "0"}, [["list"], RUN]),
        ({"PYTHONIOENCODING": "ascii"}, [["list"]]),  # files are as before
    ],
    ids=["C locale", "ascii streams"],
)
def test_a_stream_that_cannot_say_everything_gets_it_escaped(
    tmp_path: Path, surroundings: dict[str, str], commands: list[list[str]]
) -> None:
    """`fedclust list` prints names of authors and dashes; a job reads and writes them."""
    program = "from fedclust.__main__ import main\nfor one in %r: main(one)"
    done = subprocess.run(
        [sys.executable, "-c", program % (commands,)],
        env={**os.environ, **surroundings},
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.rglob("clients.parquet"))) == commands.count(RUN)
