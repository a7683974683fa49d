"""How long commands take to start, and how many modules they import.

    python -m benchmarks.start

Every command runs in processes of their own: as installed, and with no bytecode of any package to
read, as in a container whose packages were installed without it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

COMMANDS = (
    ("--help",),
    ("run", "--help"),
    ("list",),
    ("list", "experiment"),
    ("run", "--cfg", "job"),
    ("run", "rounds=1", "progress=false"),
    ("report", "outputs/default"),
)
# the command, then the number of modules on the last line
PROGRAM = """
import sys
from fedclust.__main__ import main
try:
    main(sys.argv[1:])
finally:
    print(len(sys.modules))
"""


def measure(command: tuple[str, ...], folder: Path, bytecode: Path | None) -> tuple[float, int]:
    """Seconds of a command in a process of its own, and the modules it has at its end.

    Args:
        command: its arguments.
        folder: where it runs.
        bytecode: a folder to look for bytecode in, without writing any; None for the usual place.
    """
    flags = [] if bytecode is None else ["-B", "-X", f"pycache_prefix={bytecode}"]
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *flags, "-c", PROGRAM, *command],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return time.perf_counter() - began, int(done.stdout.splitlines()[-1])


def main() -> None:
    """Print the table."""
    table = Table("command", "seconds", "without bytecode", "modules", box=None)
    with tempfile.TemporaryDirectory() as folder:
        nothing = Path(folder, "no-bytecode")
        for command in COMMANDS:
            measure(command, Path(folder), None)  # files and bytecode of the first run are there
            seconds, modules = measure(command, Path(folder), None)
            bare, _ = measure(command, Path(folder), nothing)
            table.add_row(" ".join(command), f"{seconds:.2f}", f"{bare:.2f}", str(modules))
    Console().print(table)


if __name__ == "__main__":
    main()
