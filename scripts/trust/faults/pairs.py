"""Two capabilities at a time: engines agree, a killed job goes on with the same bits, neutral
settings are the plain job, and what does not go together is refused in one line.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from hydra.errors import HydraException

from faults.case import Case, Ended, called, forked
from faults.jobs import composed, die_after, played, signature
from faults.sweeps import ranks
from fedclust.config.build import build
from fedclust.helpers.errors import UserError
from fedclust.models.mlp import mlp
from fedclust.runtime.folder import RunFolder

METHODS = ("fedavg", "ifca", "lcfl")
BASE = (
    *("partition=rotated", "partition.num_clients=8", "partition.examples_per_client=20"),
    *("participation=1", "seeds=1", "rounds=3", "model=mlp", "model.hidden=[8]"),
)
_OF_METHOD = {"lcfl": ("algorithm.warmup.rounds=1",)}
# {weights}, {backbone} and {root} are files and a folder that are made for the job
USES: Mapping[str, tuple[str, ...]] = {
    "weights": ("weights={weights}",),
    "norm": (
        *("model=resnet9", "~model.hidden", "model.norm_layer=batch", "norm=fedbn"),
        *("model.channels=[4,4,4,4]", "model.groups=1"),
        "solver.lr=0.01",  # batches of few examples amplify rounding
    ),
    "server": ("server=adam",),
    "attack": ("attack=sign_flip",),
    "aggregation": ("aggregation=median",),
    "privacy": ("privacy=client", "privacy.delta=0.001", "common.aggregation=uniform"),
    "compression": ("compression=random_k", "compression.share=0.5"),
    "clock": ("clock=devices", "clock.on_share=0.5"),
    "keep": ("solver=adam", "solver.keep=client"),
    "newcomers": ("scenario=newcomers", "scenario.arrive_at=[1]"),
    "drift": ("scenario=swap_all", "scenario.probability=0.5"),
    "tune": ("tune",),
    "ranks": ("ranks",),
    "features": (
        "features={{model: {{_target_: fedclust.models.mlp.mlp, hidden: [16]}}, "
        "weights: {backbone}}}",
        "data.root={root}",
    ),
    "LoRA": ("lora={{rank: 2}}",),
}
NEUTRAL: Mapping[str, tuple[str, ...]] = {
    "clock": ("clock=devices",),
    "compression": ("compression=top_k", "compression.share=1"),
    "server": ("server=sgd", "server.momentum=0"),
    "aggregation": ("aggregation=trimmed_mean", "aggregation.trim=0"),
    "drift": ("scenario=swap_all", "scenario.probability=0"),
    "privacy": ("privacy=client", "privacy.delta=0.001", "privacy.noise=1e-12", "privacy.clip=1e3"),
}
# with privacy a sum is divided by the clients that a model has on average: the mean for one model
_PLAIN = {"privacy": ("common.aggregation=uniform", "num_clusters=1")}
_COMMANDS = ("tune", "ranks")  # ways to run, no settings
_COMPARED = ("accuracy", "test_loss", "train_loss")
_ENGINES = ("loop", "vmap")  # others than the fastest
_APART, _ACCURACY = 2e-3, 0.04  # of losses; accuracies of 160 examples, where one may tip


@cache
def made() -> Path:
    """Where files of all cases are."""
    return Path(tempfile.mkdtemp(prefix="fedclust-faults-"))


@cache
def backbone() -> Path:
    """A file with the weights of the network before the features."""
    torch.manual_seed(0)
    file = made() / "backbone.pth"
    torch.save(mlp((3, 8, 8), 10, hidden=(16,)).state_dict(), file)
    return file


@cache
def weights(overrides: tuple[str, ...]) -> Path:
    """A file of weights that differ, for the network of a job; without the last layer for IFCA,
    whose models must not begin alike.
    """
    layout = build(composed(*overrides)).engine.layout
    head = layout.parameters[-1].rpartition(".")[0] if "algorithm=ifca" in overrides else None
    draw = torch.Generator().manual_seed(0)
    state = {
        name: 0.1 * torch.randn(shape, generator=draw)
        for name, shape in zip(layout.names, layout.shapes, strict=True)
        if name.rpartition(".")[0] != head
    }
    kinds = {name: torch.int64 if name in layout.counts else None for name in layout.buffers}
    state |= {name: torch.ones_like(state[name], dtype=kind) for name, kind in kinds.items()}
    file = made() / f"{len(list(made().iterdir()))}.pth"
    torch.save(state, file)
    return file


def settings(method: str, *uses: tuple[str, ...]) -> list[str]:
    """The overrides of a job, the later ones for the earlier ones where a key is in several."""
    given: dict[str, str] = {}
    for text in (*BASE, f"algorithm={method}", *_OF_METHOD.get(method, ()), *sum(uses, ())):
        if text.startswith("~"):
            given.pop(text[1:], None)
        else:
            given[text.partition("=")[0]] = text
    for key in given.keys() & {"features", "data.root"}:
        given[key] = given[key].format(backbone=backbone(), root=made())
    if "weights" in given:
        others = {k: v for k, v in given.items() if k not in ("weights", "lora", "privacy")}
        others = {k: v for k, v in others.items() if not k.startswith("privacy.")}
        given["weights"] = f"weights={weights(tuple(others.values()))}"
    if "lora" in given:
        given["lora"] = given["lora"].format()
    return list(given.values())


def job(
    overrides: Sequence[str], folder: Path, last: int | None = None, engine: str = "auto"
) -> Ended:
    """Run a job in a process of its own, killed after a round if so asked."""
    try:
        config = composed(*overrides, f"engine={engine}")
    except (UserError, HydraException) as error:
        return Ended("refused" if isinstance(error, UserError) else "crashed", str(error))
    after = None if last is None else die_after(last)
    return forked(lambda: played(lambda: build(config), RunFolder(folder, config), after), 120)


@cache
def warm() -> None:
    """Import here what jobs import when they need it, once for all processes."""
    for engine in ("auto", *_ENGINES):
        config = composed(*settings("ifca", USES["norm"]), "rounds=1", f"engine={engine}")
        played(partial(build, config), RunFolder(made() / engine, config))


def compared(folder: Path) -> pd.Series[Any]:
    """The recorded numbers that engines may change by rounding alone."""
    rounds = pd.read_csv(folder / "rounds.csv")
    some = rounds[rounds["metric"].isin(_COMPARED)]
    return some.set_index(["seed", "round", "metric"])["value"]


def apart(one: Path, other: Path, most: float = _APART) -> str:
    """What differs between two jobs by more than rounding; "" where nothing does.

    Args:
        one, other: their folders.
        most: what is rounding of a loss.
    """
    both = pd.concat([compared(one), compared(other)], axis=1, join="inner").dropna()
    for (_, t, metric), (a, b) in zip(both.index, both.to_numpy(), strict=True):
        if abs(a - b) > (_ACCURACY if metric == "accuracy" else most * max(1, abs(a))):
            return f"{metric} of round {t}: {a:.6g} and {b:.6g}"
    return "" if len(both) else "nothing in common is recorded"


def whole(ended: Ended) -> tuple[str, str] | None:
    """How a case ends where a job did not run through."""
    if ended.kind == "refused" and "\n" not in ended.said:
        return "refused", ended.said
    return None if ended.kind == "done" else ("crashed", f"{ended.kind}: {ended.said[-500:]}")


def pair(method: str, first: str, second: str, folder: Path) -> tuple[str, str]:
    """Two capabilities: once, killed and continued, and by the reference engine."""
    warm()
    uses = [USES[one] for one in (first, second) if one not in _COMMANDS]
    overrides = settings(method, *uses)
    if end := whole(job(overrides, folder / "whole")):
        return end
    if (dead := job(overrides, folder / "killed", last=1)).kind != "killed":
        return "crashed", f"not killed: {dead}"
    if end := whole(job(overrides, folder / "killed")):
        return "crashed", f"continued: {end[1]}"
    if signature(folder / "whole") != signature(folder / "killed"):
        return "wrong", "other bits when it is continued"
    cannot = []
    for engine in _ENGINES:
        other = job(overrides, folder / engine, engine=engine)
        if other.kind != "done":
            cannot.append(f"engine={engine}: {other.said[:200]}")
            if other.kind != "refused":
                return "crashed", cannot[-1]
        elif words := apart(folder / "whole", folder / engine):
            return "wrong", f"engine={engine}: {words}"
    for command in {first, second} & {*_COMMANDS}:
        if end := by_command(command, overrides, folder):
            return end
    return "survived", "; ".join(cannot)


def by_command(command: str, overrides: list[str], folder: Path) -> tuple[str, str] | None:
    """A search, or two ranks that must compute what one process does."""
    more = ["threads=1", "device=cpu", "progress=false"]
    if command == "tune":
        fixed = ("seeds=", "solver.lr=")  # tune has seeds of its own and searches the rate
        given = [one for one in overrides if not one.startswith(fixed)]
        done = called(["tune", *given, *more, "trials=2", "tuning_seeds=[7]"], folder)
        if done.status == 0:
            return None
        return ("refused", done.line) if done.line else ("crashed", done.end)
    ended = [
        one.wait() for one in ranks(["run", *overrides, *more, "hydra.run.dir=ranks"], folder, 2)
    ]
    if any(one.status for one in ended):
        line = next((one.line for one in ended if one.line), "")
        return ("refused", line) if line else ("crashed", ended[0].end)
    done = called(["run", *overrides, *more, "hydra.run.dir=alone"], folder)
    words = apart(folder / "ranks", folder / "alone") if done.status == 0 else done.end
    return ("wrong", f"ranks: {words}") if words else None


@cache
def plain_run(method: str, common: tuple[str, ...]) -> tuple[Path, Ended]:
    """The job that neutral settings are compared with."""
    folder = Path(tempfile.mkdtemp(dir=made())) / "plain"
    return folder, job(settings(method, common), folder)


def neutral(method: str, first: str, second: str, folder: Path) -> tuple[str, str]:
    """Two capabilities that are set to do nothing."""
    warm()
    common = next((_PLAIN[one] for one in (first, second) if one in _PLAIN), ())
    plain, ended = plain_run(method, common)
    overrides = settings(method, common, NEUTRAL[first], NEUTRAL[second])
    if end := whole(ended) or whole(job(overrides, folder / "neutral")):
        return end
    words = apart(plain, folder / "neutral", 1e-5)
    return ("wrong", words) if words else ("survived", "")


def cases(quick: bool) -> Iterator[Case]:
    """All pairs of all methods; one method where it is to be quick."""
    for method in METHODS[1:2] if quick else METHODS:
        for first, second in combinations(NEUTRAL, 2):
            work = partial(neutral, method, first, second)
            yield Case("neutral pairs", f"{method}: {first}, {second}", work)
        for first, second in combinations(USES, 2):
            if (first, second) == ("newcomers", "drift"):
                continue  # both are choices of the scenario
            work = partial(pair, method, first, second)
            yield Case("pairs", f"{method}: {first}, {second}", work)
