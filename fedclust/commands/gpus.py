"""Which GPU a job computes on, where jobs of a sweep run at once on one machine."""

from __future__ import annotations

import fcntl
import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

from fedclust.commands.sweep import noted

_VISIBLE = "CUDA_VISIBLE_DEVICES"


def note_visible() -> None:
    """Remember which GPUs this process sees, for jobs whose launcher hides them."""
    noted("visible").write_text(json.dumps(os.environ.get(_VISIBLE)))


def see_again(launcher: Mapping[str, Any]) -> None:
    """See the GPUs that the sweep saw, in a job of submitit_local that was asked for none.

    submitit_local hides every GPU from a job unless hydra.launcher.gpus_per_node says how many it
    shows, and then shows all jobs the same first ones.

    Args:
        launcher: hydra.launcher.
    """
    local = str(launcher["_target_"]).endswith(".LocalLauncher")
    if not local or launcher.get("gpus_per_node") is not None or not noted("visible").is_file():
        return
    seen = json.loads(noted("visible").read_text(encoding="utf-8"))
    if seen is None:
        os.environ.pop(_VISIBLE, None)
    else:
        os.environ[_VISIBLE] = seen


@contextmanager
def dealt(device: str) -> Iterator[str]:
    """While a job runs beside others, the device for it.

    With `auto` and several GPUs it is the one with the fewest jobs of this sweep; a lock, which the
    system gives back however the process ends, says that a job is there.

    Args:
        device: as in the config.

    Returns:
        `cuda:N`, or the device as it was given.
    """
    import torch

    gpus = torch.cuda.device_count() if device == "auto" else 0
    if gpus < 2:
        yield device
        return
    for turn, gpu in ((turn, gpu) for turn in count() for gpu in range(gpus)):
        with _lock(gpu, turn) as free:
            if free:
                yield f"cuda:{gpu}"
                return


@contextmanager
def _lock(gpu: int, turn: int) -> Iterator[bool]:
    """Whether this is the job number `turn` on a GPU of this machine; held meanwhile."""
    folder = noted("gpus")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{platform.node()}-{gpu}-{turn}").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            free = False
        else:
            free = True
        yield free
