"""Every engine on every shipped model: a GPU against the plain engine of the CPU.

The worst row counts; where factors are rounded the middle one, since in batches of five examples a
unit that turns is a large part of a step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from benchmarks.check_gpu.agree import LIMITS, apart
from benchmarks.check_gpu.paths import taken, without
from fedclust.config.tree import CONF
from fedclust.core.calls import AlignCall, GradCall, LossCall, Shards, TestCall, TrainCall
from fedclust.core.verbs import Engine
from fedclust.engines import make_engine
from fedclust.engines.fused import FusedEngine
from fedclust.models.foreign import adopt

MODELS = tuple(sorted(path.stem for path in (CONF / "model").glob("*.yaml")))
# engine, precision, fast paths that are left out
WAYS = {
    "loop": ("loop", "highest", ()),
    "vmap": ("vmap", "highest", ()),
    "fused": ("fused", "highest", ()),
    "fused, PyTorch alone": ("fused", "highest", ("graphs", "gather", "softmax")),
    "fused, high": ("fused", "high", ()),
    "fused, bf16": ("fused", "bf16", ()),
}
_EQUAL = (8, 8, 8, 8)  # examples of clients whose steps become a graph


def check(name: str, device: torch.device, tell: Callable[[dict[str, Any]], None]) -> None:
    """Compare all engines on the model `name`, with small shards, most of them ragged."""
    from engine_toys import RAGGED, RESNETS, residual, shape_of, shipped, toy_pool

    pool, model = toy_pool(shape_of(name)), residual if name in RESNETS else shipped
    expected = [
        _everything(make_engine("loop", model(name), pool), torch.device("cpu"), sizes)
        for sizes in (RAGGED, _EQUAL)
    ]
    for way, (engine, precision, left_out) in WAYS.items():
        if engine == "fused" and FusedEngine.obstacle(adopt(model(name), pool.shape), device.type):
            continue
        with without(left_out):
            made = make_engine(engine, model(name), pool.to(device), precision=precision)
            both = zip((RAGGED, _EQUAL), expected, strict=True)
            exact = precision == "highest"
            worst = [_compared(made, device, sizes, there, exact=exact) for sizes, there in both]
            paths = sorted(taken(made))
        found = {part: max(one[part] for one in worst) for part in worst[0]}
        make_engine(engine, model(name), pool)  # PyTorch's own precision as it was
        right = max(found.values()) <= LIMITS[precision]
        tell(
            {"way": way, "apart": max(found.values()), "parts": found, "right": right}
            | {"paths": paths}
        )


def _compared(
    engine: Engine,
    device: torch.device,
    sizes: tuple[int, ...],
    expected: dict[str, Any],
    *,
    exact: bool,
) -> dict[str, float]:
    """How far every kind of call is from what it should give; the worst of three times where there
    may be graphs.
    """
    times = 3 if isinstance(engine, FusedEngine) and device.type == "cuda" else 1
    worst = dict.fromkeys(expected["results"], 0.0)
    for _ in range(times):
        found = _everything(engine, device, sizes)["results"]
        for part, result in found.items():
            starts = expected["starts"] if part.startswith("train") else None
            rows = apart(result, expected["results"][part], starts)
            far = float(rows.max() if exact else rows.median())
            worst[part] = max(worst[part], far)
    return worst


def _everything(engine: Engine, device: torch.device, sizes: tuple[int, ...]) -> dict[str, Any]:
    """One call of every kind."""
    from engine_toys import SOLVERS, labels, ragged_shards, starts, terms

    shards, models = ragged_shards(sizes), starts(engine)
    more = {key: x.to(device) for key, x in terms(engine, shards).items()}
    shards = _on(shards, device)
    label = labels(len(shards)).to(device)
    sgd, everything = SOLVERS["sgd"], SOLVERS["everything"]
    given = models.to(device), label
    train = TrainCall(*given, shards, sgd, sgd.lr)
    momenta = 0.1 * given[0]
    results = {
        "train": engine.answer(train),
        "train with all terms": engine.answer(
            TrainCall(*given, shards, everything, everything.lr, slots=momenta, **more)
        ),
        "loss": engine.answer(LossCall(given[0], shards)),
        "gradient": engine.answer(GradCall(*given, shards)),
        "alignment": engine.answer(AlignCall(given[0], given[0].flip(0), shards)),
        "test": engine.answer(TestCall(*given, shards)),
    }
    return {"starts": models, "results": results}


def _on(shards: Shards, device: torch.device) -> Shards:
    moved = {name: getattr(shards, name).to(device) for name in ("index", "count", "key")}
    return replace(shards, **moved)
