"""Says whether the paths meant for a GPU are right and fast on this machine.

    python -m benchmarks.check_gpu               on the GPU, ten minutes at most
    python -m benchmarks.check_gpu --device cpu  the same on small sizes, only to see that it runs

Needs PyTorch and NumPy; what else is missing (Hydra, scikit-learn, …) is named, and what needs it
is left out. `make carried` puts small packages into .carried, for a machine without a network.
Every check is done in a process that may fail without the others. Prints tables in Markdown, which
also stand in check-gpu.md, and everything measured in check-gpu.json; status 1 where something is
wrong.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.check_gpu import ROOT, worker
from benchmarks.check_gpu.report import Report
from fedclust.engines.fused.cuda.measured import FASTER, SLOWER, WRONG, keep

Check = tuple[str, str]
PROGRAM = (sys.executable, "-m", "benchmarks.check_gpu")
# seconds that one check may take; what was told by then counts
LONGEST = {
    "machine": 60,
    "kernel": 90,
    "workloads": 90,
    "engines": 60,
    "table2": 100,
    "algorithms": 40,
}
# that a processor would take long for, and models like others
_LIKE = ("cnn", "flex_femnist_cnn", "flex_fmnist_cnn", "flex_mnist_cnn", "jgl_cnn", "tf_cifar")
SLOW = [("table2", "local"), ("table2", "ifca"), *(("engines", name) for name in _LIKE)]


def all_checks() -> list[Check]:
    """Kind and name of every check, the most important first."""
    from benchmarks.workloads import WORKLOADS
    from fedclust.config.tree import CONF
    from fedclust.engines.fused.cuda.measured import KERNELS

    def names(group: str) -> list[str]:
        return sorted(path.stem for path in (CONF / group).glob("*.yaml"))

    return [
        ("machine", "machine"),
        *(("kernel", name) for name in KERNELS),
        *(("workloads", workload.name) for workload in WORKLOADS),
        *(("engines", name) for name in names("model")),
        *(("table2", name) for name in ("lcfl", "fedavg", "ifca", "local")),
        *(("algorithms", name) for name in names("algorithm")),
    ]


def rows_of(checks: Sequence[Check], device: str, seconds: float) -> Iterator[dict[str, Any]]:
    """What is told of the checks, by processes that begin anew after one that ended early."""
    left, until = deque(checks), time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        for number in range(len(checks)):
            if not left or time.monotonic() > until:
                break
            told = Path(folder, f"{number}.jsonl")
            yield from _watched(left, device, told, until)
    for kind, name in left:
        yield {"kind": kind, "name": name, "state": "no time"}


def _watched(left: deque[Check], device: str, told: Path, until: float) -> Iterator[dict[str, Any]]:
    """The lines of one process; `left` loses what it has begun."""
    words = [f"{kind}/{name}" for kind, name in left]
    command = [*PROGRAM, "--device", device]
    told.touch()  # also where the process does not even begin
    with told.open() as file, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [*command, "--inside", str(told), *words], cwd=ROOT, stdout=errors, stderr=errors
        )
        current, since, text, why = None, time.monotonic(), "", ""
        try:
            while True:
                ended = process.poll() is not None
                text += file.read()
                *lines, text = text.split("\n")
                for line in lines:
                    row = json.loads(line)
                    yield row
                    if row.get("state") == "begun":
                        current, since = left.popleft(), time.monotonic()
                    elif "state" in row:
                        current = None
                if ended:
                    break
                now, limit = time.monotonic(), LONGEST[current[0]] if current else 120
                limit = limit if device == "cuda" else until
                if now > until or now - since > limit:
                    why = f"took longer than {now - since:.0f} s"
                    break
                time.sleep(0.05)
        finally:
            process.kill()
            process.wait()
        errors.seek(0)
        last = ([line for line in errors.read().splitlines() if line.strip()] or [""])[-1]
    if current is None and left and process.returncode:
        current = left.popleft()  # it did not even begin
    if current is not None:
        why = why or f"the process ended with {process.returncode}: {last}"
        yield {"kind": current[0], "name": current[1], "state": "failed", "error": why}


def main() -> int:
    """Do all checks and print what they say."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check_gpu", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--minutes", type=float, default=9.5, help="at most; default 9.5")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "outputs" / "check-gpu", help="folder of the two files"
    )
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("check", nargs="*", help="such as workloads/W1 or algorithms; default all")
    asked = parser.parse_args()
    if asked.device == "cuda" and not torch.cuda.is_available():
        parser.error("PyTorch sees no GPU here; --device cpu shows that everything runs")
    known = all_checks() if asked.device == "cuda" else [c for c in all_checks() if c not in SLOW]
    chosen = [one for one in known if not asked.check or _is_asked(one, asked.check)]
    if not chosen:
        parser.error(f"no check is called {asked.check[0]}")
    worker.prepare()
    if asked.inside is not None:
        device = torch.device("cuda:0" if asked.device == "cuda" else "cpu")
        worker.work(chosen, device, asked.inside)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the process inside ends too
    asked.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    try:
        for row in rows_of(chosen, asked.device, 60 * asked.minutes):
            rows.append(row)
            if "took" in row or row.get("state") in ("failed", "no time"):
                print(_progress(row), file=sys.stderr, flush=True)
    finally:
        report = Report(rows, on_gpu=asked.device == "cuda")
        (asked.out / "check-gpu.json").write_text(json.dumps(rows, indent=1) + "\n")
        (asked.out / "check-gpu.md").write_text(report.text())
    if asked.device == "cuda":  # what decides from now on which paths this card takes
        found = {path: verdict for path, _, _, verdict in report.verdicts()}
        told = {path: said for path, said in found.items() if said in (FASTER, SLOWER, WRONG)}
        keep(torch.device("cuda:0"), told)
    print(report.text())
    return 1 if report.wrong() else 0


def _is_asked(check: Check, words: Sequence[str]) -> bool:
    return check[0] in words or "/".join(check) in words


def _progress(row: dict[str, Any]) -> str:
    took = f", {row['took']:.1f} s" if "took" in row else ""
    return f"{row['kind']} {row['name']}: {row['state']}{took} {row.get('error', '')}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
