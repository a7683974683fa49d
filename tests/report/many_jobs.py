"""Many small finished jobs that were never run, to see how a report grows with its arms.

As a command: `PYTHONPATH=tests/report python tests/report/many_jobs.py FOLDER JOBS`.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from made_up import job
from omegaconf import OmegaConf

METHODS = ("lcfl", "ifca", "fedavg", "local")


def many_jobs(folder: Path, number: int, *, settings: bool = False) -> Path:
    """Write `number` jobs: four methods, each with learning rates of its own.

    Args:
        folder: where to.
        number: how many.
        settings: whether the rates are those of federations, so that every rate is a setting.
    """
    key = "dataset.alpha" if settings else "algorithm.lr"
    first = {
        name: job(folder / f"algorithm={name}", name, rounds=6, clients=12) for name in METHODS
    }
    configs = {name: OmegaConf.load(one / "config.yaml") for name, one in first.items()}
    for i in range(number):
        name, value = METHODS[i % len(METHODS)], 0.001 * (1 + i // len(METHODS))
        target = folder / f"algorithm={name},{key}={value:g}"
        shutil.copytree(first[name], target)
        config = configs[name].copy()
        config["overrides"] = [f"algorithm={name}", f"{key}={value:g}"]
        OmegaConf.update(config, key, value)
        (target / "config.yaml").write_text(OmegaConf.to_yaml(config))
    for one in first.values():
        shutil.rmtree(one)
    return folder


if __name__ == "__main__":
    many_jobs(Path(sys.argv[1]), int(sys.argv[2]), settings="settings" in sys.argv[3:])
