"""Where the time of whole jobs goes, files and tests included.

    python -m benchmarks.jobs                 every job of the list
    python -m benchmarks.jobs jgl fedavg      those whose names hold one of these words

Every job runs in a process of its own and an empty folder. Seconds: `start` until the first round,
`work` what the engine computes for the method (training, losses and gradients), `tests`, `method`
what the method computes itself and everything between the parts, `records` numbers and tables, and
`files` checkpoints and the end. The last column is all of the rounds over `work`.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

import fedclust

_FLEX = "clients_per_round=20 solver.epochs=10 seeds=5"
_METHODS = (
    *("fedavg", "fedprox", "ifca_flex", "fesem"),
    *("flexcfl_rcc", "flexcfl_rac", "flexcfl", "flexcfl_inter"),
)
JOBS = {
    "digits lcfl": "experiment=quickstart hydra.mode=RUN algorithm=lcfl",
    "digits ifca": "experiment=quickstart hydra.mode=RUN algorithm=ifca",
    **{f"mclr {m}": f"case=flexcfl/mnist_mclr rounds=60 {_FLEX} algorithm={m}" for m in _METHODS},
    **{f"mlp {m}": f"case=flexcfl/mnist_mlp rounds=20 {_FLEX} algorithm={m}" for m in _METHODS},
    "LCFL Table II": "experiment=lcfl/table2 scale=laptop hydra.mode=RUN algorithm=lcfl rounds=10",
    "JGL Figure 4": "case=jgl/mnist_mlp algorithm=jgl participation=1.0 seeds=5 rounds=60",
    "CFL-MGD": "case=cfl_mgd/mnist algorithm=cfl_mgd seeds=1 rounds=4",
}
# what is timed: a module, a class or nothing, a function, and the part it belongs to
_PARTS = (
    ("fedclust.engines.lockstep", "Lockstep", "map", "method"),
    ("fedclust.runtime.recorder", "Recorder", "cost", "records"),
    ("fedclust.runtime.recorder", "Recorder", "evaluate", "records"),
    ("fedclust.runtime.run", "_Seeds", "save", "files"),
    ("fedclust.runtime.recorder", "Recorder", "finish", "files"),
)
COLUMNS = ("start", "work", "tests", "method", "records", "files")


class Clock:
    """Seconds by part; a part inside another counts for itself only."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(COLUMNS, 0.0)
        self._inside: list[float] = []

    def around(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        """The function, whose time counts for `part`."""

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            self._inside.append(0.0)
            try:
                return function(*args, **kwargs)
            finally:
                took, within = time.perf_counter() - began, self._inside.pop()
                self.seconds[part] += took - within
                if self._inside:
                    self._inside[-1] += took

        return timed


def run(overrides: list[str]) -> dict[str, float]:
    """Seconds by part of one job, run in this process and folder."""
    began, clock = time.perf_counter(), Clock()
    from importlib import import_module

    from fedclust.core.calls import TestCall
    from fedclust.engines.fused import FusedEngine

    first: list[float] = []
    for module, name, function, part in _PARTS:
        owner = getattr(import_module(module), name)
        plain = getattr(owner, function)
        if function == "map":

            def noting(*args: Any, plain: Any = plain, **kwargs: Any) -> Any:
                first.append(time.perf_counter() - began)
                return plain(*args, **kwargs)

            setattr(owner, function, clock.around(noting, part))
        else:
            setattr(owner, function, clock.around(plain, part))
    FusedEngine.answers = {
        kind: clock.around(answer, "tests" if kind is TestCall else "work")
        for kind, answer in FusedEngine.answers.items()
    }
    fedclust.run(*overrides, progress=False)
    return {**clock.seconds, "start": first[0], "all": time.perf_counter() - began}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="jobs whose names hold one of these")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        print(json.dumps(run(asked.inside.split())))
        return
    table = Table("job", "all", *COLUMNS, "rounds / work", box=None)
    for name, overrides in JOBS.items():
        if asked.words and not any(word in name for word in asked.words):
            continue
        command = [sys.executable, "-m", "benchmarks.jobs", "--inside"]
        with tempfile.TemporaryDirectory() as folder:
            line = f"{overrides} threads={asked.threads} hydra.run.dir={folder}/job"
            done = subprocess.run([*command, line], check=False, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{name}: {done.stderr.strip().splitlines()[-1]}")
        seconds = json.loads(done.stdout.splitlines()[-1])
        rounds = sum(seconds[part] for part in COLUMNS[1:])
        values = [f"{seconds[part]:.2f}" for part in ("all", *COLUMNS)]
        table.add_row(name, *values, f"{rounds / seconds['work']:.2f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
