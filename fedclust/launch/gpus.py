"""Which GPU a job computes on, where jobs of a sweep run at once on one machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from fedclust.helpers.locks import lock

_VISIBLE = "CUDA_VISIBLE_DEVICES"


def visible() -> str | None:
    """Which GPUs this process may see, for jobs whose launcher hides them; None: all."""
    return os.environ.get(_VISIBLE)


def see_again(launcher: Mapping[str, Any], seen: str | None) -> None:
    """See the GPUs that the sweep saw, in a job of submitit_local that was asked for none.

    submitit_local hides every GPU from a job unless hydra.launcher.gpus_per_node says how many it
    shows, and then shows all jobs the same first ones.

    Args:
        launcher: hydra.launcher.
        seen: what `visible` said in the sweep's process.
    """
    local = str(launcher["_target_"]).endswith(".LocalLauncher")
    if not local or launcher.get("gpus_per_node") is not None:
        return
    if seen is None:
        os.environ.pop(_VISIBLE, None)
    else:
        os.environ[_VISIBLE] = seen


@contextmanager
def dealt(device: str, locks: Path) -> Iterator[str]:
    """While a job runs beside others, the device for it.

    With `auto` and several GPUs it is the one with the fewest jobs of this sweep; a lock, which the
    system gives back however the process ends, says that a job is there.

    Args:
        device: as in the config.
        locks: a folder of the sweep's.

    Returns:
        `cuda:N`, or the device as it was given.
    """
    import torch

    gpus = torch.cuda.device_count() if device == "auto" else 0
    if gpus < 2:
        yield device
        return
    for turn, gpu in ((turn, gpu) for turn in count() for gpu in range(gpus)):
        with _lock(locks / f"{platform.node()}-{gpu}-{turn}") as free:
            if free:
                yield f"cuda:{gpu}"
                return


@contextmanager
def _lock(path: Path) -> Iterator[bool]:
    """Whether nobody else has the lock; it is held meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            lock(file)
        except BlockingIOError:
            free = False
        else:
            free = True
        yield free
