"""What computes a result: packages, commit, machine and engine."""

from __future__ import annotations

import platform
import re
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from fedclust.engines import describe
from fedclust.helpers.distributed import here

ROUNDS = 1  # of what a round computes: a commit that changes a method's golden rounds raises it
_PACKAGES = (
    "fedclust",
    "torch",
    "torchvision",
    "numpy",
    "scikit-learn",
    "hydra-core",
    "omegaconf",
)


def versions(device: torch.device, engine: str, max_rows: int | None) -> dict[str, Any]:
    """The content of versions.json; results of equal contents are equal to the bit."""
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "packages": {name: _version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "commit": _commit(),
        "rounds": ROUNDS,
        "device": gpu or f"{processor()}, {torch.get_num_threads()} threads",
        "max_rows": max_rows,
        **describe(engine, device),
        "ranks": here().size,
    }


@cache
def processor() -> str:
    """The processor's name."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(encoding="utf-8") if cpuinfo.is_file() else ""
    named = re.search(r"model name\s*: (.*)", text)
    return named[1] if named else platform.processor() or platform.machine()


@cache  # as the commit; each is the text of a file
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@cache  # the code that a process has loaded stays; git takes 20 ms or more
def _commit() -> str | None:
    """The git commit of the package's own checkout, None for an installed package."""
    root = Path(__file__).parent.parent.parent
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=root, capture_output=True, text=True
        )
    except OSError:
        return None
    return done.stdout.strip() or None
