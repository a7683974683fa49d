"""The first rounds of LCFL Table II at its full size, and how long the whole would take."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.growth import Watch
from fedclust.config import schema
from fedclust.config.build import build
from fedclust.config.tree import CONF
from fedclust.launch.compose import register
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.run import run

ROUNDS = {"lcfl": 7, "ifca": 2, "fedavg": 2, "local": 2}  # LCFL clusters after its fifth


class Enough(Exception):
    """The time for one arm is over."""


class _Rounds(Watch):
    """Tells every round, and ends the job after some time."""

    def __init__(self, tell: Callable[[dict[str, Any]], None], arm: str, until: float) -> None:
        super().__init__()
        self._tell, self._arm, self._until = tell, arm, until

    def round(self, t: int, values: Mapping[str, float]) -> None:
        """See `Progress.round`."""
        super().round(t, values)
        self._tell({"way": self._arm, "round": t + 1, "seconds": self.times[-1]})
        if time.perf_counter() > self._until:
            raise Enough


def check(name: str, device: torch.device, tell: Callable[[dict[str, Any]], None]) -> None:
    """Run the first rounds of the arm `name`, five seeds in lockstep, with tests and files."""
    from hydra import compose, initialize_config_dir

    dry = device.type == "cpu"
    register()
    with (
        tempfile.TemporaryDirectory() as folder,
        initialize_config_dir(str(CONF), version_base="1.3"),
    ):
        given = [
            "experiment=lcfl/table2",
            "algorithm=last_local",
            f"algorithm@algorithm.base={name}",
            f"device={device}",
            *(_DRY if dry else (f"rounds={ROUNDS[name]}",)),
            *_data(Path(folder), tell),
        ]
        config = schema.resolve(compose("config", overrides=given), {})
        config = {**config, "seeds": schema.seed_list(config["seeds"])}
        began = time.perf_counter()
        job = build(config)
        tell(
            {
                "way": name,
                "setup": time.perf_counter() - began,
                "parameters": job.engine.layout.num_params,
            }
        )
        if not dry:
            torch.cuda.reset_peak_memory_stats(device)
        watch = _Rounds(tell, name, time.perf_counter() + (2 if dry else 60))
        try:
            run(job, RunFolder(Path(folder, "job"), config), watch)
        except Enough:
            tell({"way": name, "ended": True})
        peak = 0.0 if dry else torch.cuda.max_memory_allocated(device) / 2**20
        tell({"way": name, "peak_mib": peak})


# as large as a processor computes in seconds
_DRY = ("rounds=2", "seeds=1", "partition.num_clients=8", "solver.epochs=1", "eval_every=2")


def _data(folder: Path, tell: Callable[[dict[str, Any]], None]) -> list[str]:
    """MNIST, or where there is none, random bytes of its size: speed does not depend on them."""
    root = Path(os.environ.get("FEDCLUST_DATA", "data"))
    if (root / "MNIST" / "raw").is_dir():
        return [f"data.root={root}"]
    tell({"way": "data", "note": "no MNIST (FEDCLUST_DATA): random bytes of its size"})
    draw = np.random.default_rng(0)
    arrays = {
        f"{kind}_{part}": draw.integers(0, high, size, dtype=np.uint8)
        for part, count in (("train", 60000), ("test", 10000))
        for kind, high, size in (("x", 256, (count, 28, 28)), ("y", 10, (count,)))
    }
    np.savez(folder / "random.npz", **arrays)
    return ["dataset=npz", f"dataset.path={folder}/random.npz"]
