"""How long an experiment will take, roughly, before anything is loaded or trained.

Operations of the local training and of the evaluations, from nominal sizes, over a rate: on this
machine that of a matrix product timed on the spot, times what the engine was measured to make of
it; on a GPU an assumed one. What a method does besides (choosing clusters, comparing clients) is
covered by a factor. Good to a factor of about two. Counting composes every config, which takes
Hydra most of a minute for all experiments, so the counts of the shipped ones are kept in work.csv,
written by `python -m fedclust.commands.times`.
"""

from __future__ import annotations

import csv
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import hydra
import torch
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf
from torch import nn

from fedclust.commands.names import CONF
from fedclust.config.build import register_schema, seed_list
from fedclust.engines.fused.products import bmm
from fedclust.models.flops import forward_flops, step_flops
from fedclust.models.sequence import Model

# by module: training examples, test examples, shape, classes
_DATASETS: Mapping[str, tuple[int, int, tuple[int, ...], int]] = {
    "digits": (1437, 360, (1, 8, 8), 10),
    "mnist": (60_000, 10_000, (1, 28, 28), 10),
    "fashion_mnist": (60_000, 10_000, (1, 28, 28), 10),
    "cifar10": (50_000, 10_000, (3, 32, 32), 10),
    "emnist": (697_932, 116_323, (1, 28, 28), 62),
    "synthetic": (67_800, 7_500, (60,), 10),
}
_SHARE = {
    "linear": 0.12,
    "dense": 0.9,
    "convolutions": 0.5,
}  # of a product's rate, see docs/performance.md
_GPU = {
    "linear": 1e12,
    "dense": 10e12,
    "convolutions": 10e12,
}  # operations a second, assumed, not measured
_BESIDES = 1.5  # choosing clusters, moving models, recording
_COUNTED = Path(__file__).with_name("work.csv")
_PER_JOB, _PER_ROUND = (
    3.0,
    0.01,
)  # seconds: loading the data and reporting; everything but arithmetic


@dataclass(frozen=True)
class Work:
    """What a job computes.

    Attributes:
        kind: linear, dense or convolutions.
        operations: floating-point operations of all seeds.
        rounds: of one seed; all seeds go together.
    """

    kind: str
    operations: float
    rounds: int

    def seconds(self, rates: Mapping[str, float]) -> float:
        """Time of the job where the kinds run at these rates."""
        return _PER_JOB + _PER_ROUND * self.rounds + _BESIDES * self.operations / rates[self.kind]


def rates_here() -> dict[str, float]:
    """Operations a second of every kind of model on this machine's CPU, from a product of 0.1 s or
    so.
    """
    side, out = torch.randn(1, 1536, 1536), torch.empty(1, 1536, 1536)
    bmm(side, side, out)
    began = time.perf_counter()
    for _ in range(3):
        bmm(side, side, out)
    product_rate = 3 * 2 * 1536**3 / (time.perf_counter() - began)
    return {kind: share * product_rate for kind, share in _SHARE.items()}


def gpu_rates() -> dict[str, float]:
    """The rates assumed for a large GPU."""
    return dict(_GPU)


def counted() -> dict[tuple[str, str], list[Work]]:
    """The work of every job of the shipped experiments by name and scale, as kept in the
    package.
    """
    found: dict[tuple[str, str], list[Work]] = {}
    with _COUNTED.open(newline="") as file:
        for row in csv.DictReader(file):
            work = Work(row["kind"], float(row["operations"]), int(row["rounds"]))
            found.setdefault((row["experiment"], row["scale"]), []).extend(
                [work] * int(row["jobs"])
            )
    return found


def keep(counts: Mapping[tuple[str, str], Iterable[Work]], file: Path) -> None:
    """Write what `counted` reads."""
    with file.open("w", newline="") as target:
        writer = csv.writer(target, lineterminator="\n")
        writer.writerow(["experiment", "scale", "kind", "operations", "rounds", "jobs"])
        for (experiment, scale), jobs in sorted(counts.items()):
            for work, number in Counter(jobs).items():
                writer.writerow(
                    [experiment, scale, work.kind, f"{work.operations:.4g}", work.rounds, number]
                )


@cache
def works(experiment: str, scale: str, own: Path | None = None) -> list[Work]:
    """The work of every job of an experiment at a scale; jobs that differ in the method alone count
    alike.

    Args:
        experiment: its name.
        scale: paper, laptop or smoke.
        own: a user's config folder, or None.

    Raises:
        hydra.errors.HydraException: if the experiment cannot be composed.
        KeyError: for a dataset of unknown size.
    """
    register_schema()
    GlobalHydra.instance().clear()
    with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
        base = [f"experiment={experiment}", f"scale={scale}"]
        if own is not None:
            base.append(f"hydra.searchpath=[file://{own.resolve()}]")
        params = OmegaConf.to_container(_compose(base).hydra.sweeper.params or DictConfig({}))
        assert isinstance(params, dict)
        jobs, methods, first = list(_federations(params)), _methods(params), _first_method(params)
        return [work for job in jobs for work in [_work(_compose([*base, *first, *job]))] * methods]


def _compose(overrides: Sequence[str]) -> DictConfig:
    return compose("config", overrides=list(overrides), return_hydra_config=True)


def _values(params: Mapping[Any, Any]) -> dict[str, list[str]]:
    """The values that a sweep gives each of its keys, as they are typed."""
    parse = OverridesParser.create().parse_override
    found = {}
    for key, value in params.items():
        override = parse(f"{key}={value}")
        found[str(key)] = (
            list(override.sweep_string_iterator()) if override.is_sweep_override() else [str(value)]
        )
    return found


def _is_method(key: str) -> bool:
    return key.partition(".")[0].partition("@")[0] in (
        "algorithm",
        "cluster_metric",
        "cluster_method",
    )


def _federations(params: Mapping[Any, Any]) -> Iterator[list[str]]:
    """The sweep's combinations of all that changes how much is computed."""
    given = {key: values for key, values in _values(params).items() if not _is_method(key)}
    for chosen in product(*given.values()):
        yield [f"{key}={value}" for key, value in zip(given, chosen, strict=True)]


def _first_method(params: Mapping[Any, Any]) -> list[str]:
    """The first of the methods that the sweep compares."""
    return [f"{key}={values[0]}" for key, values in _values(params).items() if _is_method(key)]


def _methods(params: Mapping[Any, Any]) -> int:
    """How many methods the sweep runs on each."""
    number = 1
    for key, values in _values(params).items():
        number *= len(values) if _is_method(key) else 1
    return number


def _work(config: DictConfig) -> Work:
    """The nominal work of one job."""
    train, test, shape, classes = _DATASETS[config.dataset._target_.split(".")[-2]]
    partition = config.partition
    copies = int(partition.get("num_rotations") or 1)
    clients = int(partition.get("num_clients") or config.dataset.get("num_devices") or 100)
    if partition.get("total"):
        train = int(partition.total)
    if partition.get("max_per_class"):
        train = min(train, classes * int(partition.max_per_class))
    each = copies * train / clients
    if partition.get("examples_per_client"):
        each = min(each, float(partition.examples_per_client))
    model = hydra.utils.instantiate(
        config.model, in_shape=shape, num_classes=classes, _convert_="all"
    )
    assert isinstance(model, Model)
    cohort = config.clients_per_round or config.participation * clients
    seeds, solver = len(seed_list(config.seeds)), config.solver
    batch = min(each, float(solver.batch_size or each))
    met = (
        solver.epochs * each if solver.epochs else solver.steps * batch
    )  # examples of a client and round
    if config.algorithm.get("local") == "step":
        met = batch * (
            1 + config.algorithm.num_clusters
        )  # the step, and the gradients that clusters are chosen by
    tests = -(-config.rounds // config.eval_every) * copies * test
    operations = config.rounds * cohort * met * step_flops(model) + tests * sum(
        forward_flops(model)
    )
    return Work(_kind(model), seeds * operations, config.rounds)


def _kind(model: Model) -> str:
    if any(isinstance(layer, nn.Conv2d) for layer in model):
        return "convolutions"
    return "dense" if sum(isinstance(layer, nn.Linear) for layer in model) > 1 else "linear"


def in_words(seconds: float) -> str:
    """A rough time, as a person says it."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3600)} h" if seconds < 48 * 3600 else f"{round(seconds / 86400)} d"


def scales(experiment: str) -> list[str]:
    """paper, and the smaller sizes that an experiment defines."""
    return ["paper", *sorted(file.stem for file in (CONF / "scaled" / experiment).glob("*.yaml"))]


if __name__ == "__main__":
    from fedclust.commands.list import choices

    names = choices("experiment")
    keep({(name, scale): works(name, scale) for name in names for scale in scales(name)}, _COUNTED)
