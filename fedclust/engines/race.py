"""Which general engine is fastest for a model: measured once on a machine, and kept.

A few steps are taken of several rows at once (`vmap`), row by row on every thread (`threads`), and
row by row (`loop`). What is found is kept in the user's cache folder, beside compiled code, by all
that the rates depend on.
"""

from __future__ import annotations

import hashlib
import math
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress

import torch
from torch import Tensor

from fedclust import __version__
from fedclust.core.calls import Shards, TrainCall
from fedclust.core.optimizers import SGD
from fedclust.engines.base import Computing
from fedclust.engines.fused.native.compiled import folder, processor
from fedclust.helpers.distributed import here
from fedclust.helpers.files import atomic_write, opened_json, sealed_json
from fedclust.helpers.rng import Stream
from fedclust.models.foreign import Runnable

_BATCH, _ROWS, _TURNS = 20, 8, 3  # examples of a step, most rows, and how often both take them
_FEW, _LONG = 4, 0.1  # examples of a step where so few of them take seconds so long
_SECONDS = 0.1  # that the rows of a turn may take, if two of them do not take longer
_CLOSE, _LONGER = 1.3, 3  # a race so close takes up to so many times the turns
_AHEAD = 1.05  # by less nothing is faster than `loop`: others have a row's bits in its company only
Rates = Mapping[str, float]


def rates(engines: Mapping[str, Computing[Runnable]], max_rows: int | None) -> Rates:
    """Local steps per second of engines with one model and pool, by name, as rank 0 measured."""
    return here().agree(lambda: _kept(engines, max_rows))


def fastest(speeds: Rates) -> str:
    """The engine to take."""
    most = max(speeds, key=lambda name: speeds[name])
    return most if speeds[most] > _AHEAD * speeds["loop"] else "loop"


def _kept(engines: Mapping[str, Computing[Runnable]], max_rows: int | None) -> Rates:
    """The rates, measured where nobody has."""
    model, pool = engines["loop"].model, engines["loop"].pool
    device, threads = pool.x.device, torch.get_num_threads()
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    look = repr((sorted(engines), model, pool.shape, pool.x.dtype, pool.width, max_rows))
    means = repr((card, threads, torch.__version__, __version__, _BATCH, _ROWS, _TURNS, _LONGER))
    file = folder() / f"rates-{hashlib.sha256((look + means).encode()).hexdigest()[:16]}.json"
    with suppress(OSError):
        if speeds := opened_json(file.read_bytes(), *engines):
            return speeds
    with warnings.catch_warnings():  # of operations that vmap does row by row
        warnings.simplefilter("ignore")
        speeds = _measured(engines)
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic_write(file, sealed_json(speeds))
    return speeds


def _measured(engines: Mapping[str, Computing[Runnable]]) -> dict[str, float]:
    """The rates of a step with a batch for each of a few rows, at best of several turns."""
    one = engines["loop"]
    start = one.init(Stream.of(0, "init")).unsqueeze(0)
    batch, turns = _BATCH, _TURNS
    if _seconds(one, start, 1, _FEW) > _LONG:  # the first call is slower: a second look
        batch, turns = (_FEW, 1) if _seconds(one, start, 1, _FEW) > _LONG else (batch, turns)
    alone = min(_seconds(one, start, 1, batch) for _ in range(2))
    rows = max(2, min(_ROWS, int(_SECONDS / max(alone, 1e-9))))
    threads = min(_ROWS, torch.get_num_threads())
    rows = -(-rows // threads) * threads  # as many for each, as with a cohort of many clients
    best = dict.fromkeys(engines, math.inf)
    for turn in range(_LONGER * turns + 1):
        if turn > turns and not _close(best):
            break
        for name, engine in engines.items():
            seconds = _seconds(engine, start, rows, batch)
            best[name] = min(best[name], seconds) if turn else math.inf
    return {name: rows / seconds for name, seconds in best.items()}


def _close(seconds: Rates) -> bool:
    """Whether other programs on the machine could have decided between the loop and the best."""
    others = min(value for name, value in seconds.items() if name != "loop")
    return 1 / _CLOSE < others / seconds["loop"] < _CLOSE


def _seconds(engine: Computing[Runnable], start: Tensor, rows: int, examples: int) -> float:
    """Time of one local step of some rows, each with so many examples."""
    pool = engine.pool
    batch, device = min(examples, len(pool.y)), pool.x.device
    index = torch.arange(rows * batch, device=device).remainder(len(pool.y)).view(rows, batch)
    count = torch.full((rows,), batch, device=device)
    shards = Shards(index=index, count=count, key=Stream.of(0, "train").keys(count))
    label = torch.zeros_like(count)
    began = time.perf_counter()
    result = engine.answer(TrainCall(start, label, shards, SGD(lr=1e-3, batch_size=batch), 1e-3))
    result.loss.sum().item()  # waits for a GPU
    return time.perf_counter() - began
