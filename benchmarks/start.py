"""How long commands take to start, and how many modules they import.

    python -m benchmarks.start

Every command runs in processes of their own: as installed, and with no bytecode of any package to
read, as in a container whose packages were installed without it. Runs begin anew. Machines differ,
so the time over that of `import torch`, by itself in the same call, says more than seconds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

# thirty jobs that share their data, model and engine
SWEEP = (
    *("run", "-m", "algorithm=fedavg,ifca,lcfl", "seeds=[0],[1],[2],[3],[4],[5],[6],[7],[8],[9]"),
    *("rounds=1", "model=linear", "partition.num_clients=8", "solver.epochs=1", "threads=1"),
    "progress=false",
)
COMMANDS = (
    ("--help",),
    ("run", "--help"),
    ("list",),
    ("list", "experiment"),
    ("run", "--cfg", "job"),
    ("run", "rounds=1", "progress=false"),
    ("report", "outputs/default"),
    SWEEP,
)
TORCH = "import sys, torch; print(len(sys.modules))"
# the command, then the number of modules on the last line
PROGRAM = """
import sys
from fedclust.__main__ import program
try:
    program()
finally:
    print(len(sys.modules))
"""


def measure(command: tuple[str, ...], folder: Path, bytecode: Path | None) -> tuple[float, int]:
    """Seconds of a command in a process of its own, and the modules it has at its end.

    Args:
        command: its arguments; none for `import torch` alone.
        folder: where it runs.
        bytecode: a folder to look for bytecode in, without writing any; None for the usual place.
    """
    flags = [] if bytecode is None else ["-B", "-X", f"pycache_prefix={bytecode}"]
    if command[:1] == ("run",):  # a job that is done would only be read
        shutil.rmtree(folder / "outputs", ignore_errors=True)
    # as installed: a checkout has bytecode of its own once it may be written
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *flags, "-c", PROGRAM if command else TORCH, *command],
        cwd=folder,
        env=own,
        check=True,
        capture_output=True,
        text=True,
    )
    return time.perf_counter() - began, int(done.stdout.splitlines()[-1])


def main() -> None:
    """Print the table."""
    headings = "command", "seconds", "over import torch", "without bytecode", "modules"
    table, torch = Table(*headings, box=None), 0.0
    with tempfile.TemporaryDirectory() as folder:
        nothing = Path(folder, "no-bytecode")
        for command in ((), *COMMANDS):
            measure(command, Path(folder), None)  # files and bytecode of the first run are there
            seconds, modules = measure(command, Path(folder), None)
            bare, _ = measure(command, Path(folder), nothing)
            torch = torch or seconds
            name = " ".join(command) or "import torch"
            numbers = f"{seconds:.2f}", f"{seconds / torch:.2f}", f"{bare:.2f}", str(modules)
            table.add_row(name, *numbers)
    Console().print(table)


if __name__ == "__main__":
    main()
