"""Small jobs on handwritten digits, from the shipped config, for every method and scenario."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from itertools import islice
from typing import Any

from configs import composed
from fronts import Front

from fedclust.config import schema
from fedclust.config.about import about
from fedclust.config.build import build
from fedclust.config.job import Job
from fedclust.config.objects import Objects
from fedclust.config.tree import CONF
from fedclust.core.types import Cost, Evaluation, Round
from fedclust.core.verbs import Engine
from fedclust.engines import make_engine

ALGORITHMS = sorted(file.stem for file in (CONF / "algorithm").glob("*.yaml"))
# where the defaults would leave the interesting part out of so small a job
SETTINGS = {name: about(name).get("small", []) for name in ALGORITHMS}
SCENARIOS = sorted(file.stem for file in (CONF / "scenario").glob("*.yaml"))
# eight clients in four groups that own different classes, half of them at a time
SMALL = [
    "partition=class_subsets",
    "partition.num_clients=8",
    "partition.examples_per_client=24",
    "participation=0.5",
    "model=linear",
    "solver.lr=0.2",
    "solver.batch_size=10",
    "solver.epochs=2",
    "seeds=2",
    "rounds=7",  # the one-shot methods cluster after five
    "device=cpu",
    "checkpoint_seconds=3600",
]

# so that things happen within seven rounds; other scenarios do with their defaults
EVENTFUL = {
    "drift": ["scenario.every=2"],
    "incremental": ["scenario.every=2"],
    "newcomers": ["scenario.fraction=0.4", "scenario.arrive_at=[2,6]"],
    "periods": ["scenario.column=20", "scenario.every=2", "scenario.train=all"],
    "swap_all": ["scenario.probability=0.5"],
    "swap_part": ["scenario.probability=0.5"],
    "unavailable": ["scenario.dropout=0.3", "scenario.stragglers=0.5"],
}


@functools.cache
def config_of(algorithm: str, *overrides: str) -> Mapping[str, Any]:
    """The resolved config of a small job."""
    given = [f"algorithm={algorithm}", *SMALL, *SETTINGS[algorithm], *overrides]
    config = composed(*given)
    return {**config, "seeds": schema.seed_list(config["seeds"])}


@functools.cache
def config_in(algorithm: str, scenario: str) -> Mapping[str, Any]:
    """The config of a small job in a scenario that has something happen in its few rounds."""
    other = config_of("fedavg", f"scenario={scenario}", *EVENTFUL.get(scenario, []))
    config = {**config_of(algorithm), "scenario": other["scenario"]}
    if scenario == "drift":  # which moves clients between concepts
        target = "fedclust.partitions.label_map.LabelMap"
        config["partition"] = {"_target_": target, "base": config["partition"]}
    return config


@functools.cache
def job_of(algorithm: str) -> Job:
    """A small job; its parts hold no state."""
    return build(config_of(algorithm))


@dataclasses.dataclass(frozen=True)
class Played:
    """One round of one seed: what it left and what it cost."""

    rnd: Round
    state: Any
    reports: list[Cost]
    evaluation: Evaluation

    @property
    def label(self) -> list[int]:
        """The label of every client."""
        labels: list[int] = self.evaluation.served.label.tolist()
        return labels

    @property
    def accuracy(self) -> float:
        """Correct test examples of all clients / their number."""
        return int(self.evaluation.sums.sum()) / int(self.evaluation.count.sum())

    @property
    def test_loss(self) -> float:
        """Mean test loss over all test examples, nats per example."""
        return float(self.evaluation.loss_sum.sum()) / int(self.evaluation.count.sum())


def play(job: Job, engine: Engine, seed: int = 0) -> list[Played]:
    """Every round of one seed of a job on an engine, without files."""
    clients = Front(engine, job.discrepancy, job.aggregation, job.attack)
    source = job.scenario.rounds(job.federations[seed], seed)
    state, played = None, list[Played]()
    for rnd in islice(source, job.rounds):
        reports = list[Cost]()
        if rnd.t == 0:
            state, report = job.algorithm.init(clients.at(rnd), rnd)
            reports.append(report)
        state, report = job.algorithm.round(state, clients.at(rnd), rnd)
        reports.append(report)
        served = job.algorithm.serve(state, clients.at(rnd), rnd)
        played.append(Played(rnd, state, reports, clients.at(rnd).evaluate(served)))
    return played


def engine_of(engine: str, algorithm: str) -> Engine:
    """An engine on the data and the model of a small job."""
    pool = job_of(algorithm).federations[0].pool
    model = Objects().make(
        config_of(algorithm)["model"], "model", in_shape=pool.shape, num_classes=pool.num_classes
    )
    return make_engine(engine, model, pool, None)


@functools.cache
def played_by_loop(algorithm: str, seed: int = 0) -> list[Played]:
    """A small job on the reference engine."""
    return play(job_of(algorithm), engine_of("loop", algorithm), seed)
