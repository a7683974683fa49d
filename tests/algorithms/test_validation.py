"""Validation examples: who gives which, how they are recorded, and that nobody else sees them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from digits_jobs import CONF, config_in, config_of
from run_folders import rounds_of as table
from run_folders import saved
from states import assert_same_bits
from test_resume_everything import check_config

from fedclust.algorithms.fedavg import FedAvg
from fedclust.config.build import build
from fedclust.config.job import Job
from fedclust.config.objects import Objects
from fedclust.config.schema import objective_of
from fedclust.core.federation import build as federate
from fedclust.core.federation import digest, summary, write_table
from fedclust.core.front import Clients
from fedclust.core.task import Classification
from fedclust.core.types import Cost, Evaluation, Federation, Pool, Round, Served, Split
from fedclust.core.validation import cut
from fedclust.datasets.digits import Digits
from fedclust.engines import make_engine
from fedclust.helpers.errors import ConfigError
from fedclust.metrics.accuracy import validation_accuracy
from fedclust.partitions.from_file import FromFile
from fedclust.partitions.iid import IID
from fedclust.partitions.power_law import PowerLaw
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.progress import Silent
from fedclust.runtime.run import run
from fedclust.scenarios.drift import Drift
from fedclust.scenarios.swap_all import SwapAll
from fedclust.scenarios.swap_part import SwapPart

OWN = ["validation_accuracy", "validation_loss"]


def rows_of(split: Split) -> list[list[int]]:
    return [split.of_client(i).tolist() for i in range(len(split.count))]


def test_every_client_gives_its_share_and_keeps_the_rest_in_order() -> None:
    train = Split.of([torch.arange(first, end) for first, end in ((0, 10), (10, 12), (12, 40))])
    kept, given = cut(train, torch.arange(40) % 2, 0.2, seed=3)
    assert given.count.tolist() == [2, 1, 6]  # 0.4 of an example becomes one, 5.6 six
    for before, after, out in zip(rows_of(train), rows_of(kept), rows_of(given), strict=True):
        assert sorted(after + out) == before
        assert after == sorted(after)
        assert out == sorted(out)
    most = cut(train, torch.arange(40) % 2, 0.99, seed=3)
    assert most[0].count.tolist() == [1, 1, 1]  # and one is kept


def test_a_smaller_share_is_part_of_a_larger_one_and_classes_are_represented() -> None:
    fed = federate(Digits().load(), IID(num_clients=4), 0)
    small, large = (cut(fed.train, fed.pool.y, share, 0)[1] for share in (0.1, 0.4))
    for few, many in zip(rows_of(small), rows_of(large), strict=True):
        assert set(few) < set(many)
    for client in range(4):
        own = fed.pool.y[fed.train.of_client(client)].bincount(minlength=10)
        given = fed.pool.y[large.of_client(client)].bincount(minlength=10)
        # a class gives its part but for less than an example, and what the others round
        assert (given - 0.4 * own).abs().max() <= 1.5


def test_what_a_client_gives_depends_on_its_rows_and_the_seed() -> None:
    y = torch.arange(100) % 3
    two = Split.of([torch.arange(20), torch.arange(50, 90)])
    one = Split.of([torch.arange(20)])
    assert rows_of(cut(two, y, 0.3, 5)[1])[0] == rows_of(cut(one, y, 0.3, 5)[1])[0]
    assert rows_of(cut(one, y, 0.3, 6)[1]) != rows_of(cut(one, y, 0.3, 5)[1])
    turned = Split.of([torch.arange(20).flip(0)])
    assert sorted(rows_of(cut(turned, y, 0.3, 5)[1])[0]) == rows_of(cut(one, y, 0.3, 5)[1])[0]


def test_a_client_with_one_example_is_one_line() -> None:
    train = Split.of([torch.arange(3), torch.arange(3, 4)])
    said = "validation=0.2 is not allowed: client 1 has 1 training example, and needs one to train"
    with pytest.raises(ConfigError, match=said):
        cut(train, torch.zeros(4, dtype=torch.int64), 0.2, 0)


def test_the_key_is_off_by_default_and_names_the_objective() -> None:
    config = config_of("fedavg")
    assert config["validation"] == 0
    assert objective_of(config) == "accuracy"
    assert objective_of({**config, "validation": 0.2}) == "validation_accuracy"
    assert objective_of({**config, "validation": 0.2, "objective": "purity"}) == "purity"
    for share in (1.0, -0.1):
        with pytest.raises(
            ConfigError, match=r"validation=.* is not allowed: a fraction in \[0, 1"
        ):
            build({**config, "validation": share})


def test_a_table_of_a_job_gives_the_same_federation_again(tmp_path: Path) -> None:
    partition = PowerLaw(num_clients=10)
    fed = federate(Digits().load(), partition, 0, validation=0.2)
    assert fed.validation is not None
    write_table(tmp_path / "table.parquet", fed)
    again = FromFile(path=str(tmp_path / "table.parquet"), base=partition)
    assert digest(federate(Digits().load(), again, 0, validation=0.2)) == digest(fed)
    whole = federate(Digits().load(), again, 0)
    assert [sorted(rows) for rows in rows_of(whole.train)] == [
        sorted(a + b) for a, b in zip(rows_of(fed.train), rows_of(fed.validation), strict=True)
    ]
    assert digest(replace(fed, validation=fed.test)) != digest(fed)
    assert summary(fed)["validation"]["total"] == len(fed.validation.index)


def federation_in(scenario: str) -> Federation:
    config = {**config_in("fedavg", scenario), "validation": 0.25, "seeds": [0]}
    return build(config).federations[0]


def test_under_swaps_the_validation_examples_go_with_the_others() -> None:
    fed = federation_in("swap_all")
    assert fed.validation is not None
    labels = [set(fed.pool.y[rows].tolist()) for rows in rows_of(fed.train)]
    last = list(islice(SwapAll(probability=1.0).rounds(fed, 0), 5))[-1].fed
    assert last.validation is not None
    assert rows_of(last.validation) != rows_of(fed.validation)
    owner = [rows_of(fed.train).index(rows) for rows in rows_of(last.train)]
    assert rows_of(last.validation) == [rows_of(fed.validation)[i] for i in owner]

    last = list(islice(SwapPart(probability=1.0).rounds(fed, 0), 4))[-1].fed
    assert last.validation is not None
    now = [set(fed.pool.y[rows].tolist()) for rows in rows_of(last.train)]
    assert now != labels
    for rows, own in zip(rows_of(last.validation), now, strict=True):
        assert set(fed.pool.y[rows].tolist()) <= own


def test_under_drift_the_validation_examples_have_the_concept_of_the_training_examples() -> None:
    fed = federation_in("drift")
    held_out = fed.validation
    assert held_out is not None
    concepts = fed.pool.concepts
    examples = [sorted(row // concepts for row in rows) for rows in rows_of(held_out)]
    rounds = list(islice(Drift(table="recurring", every=1, test="next").rounds(fed, 0), 4))
    assert len({int(rnd.fed.group[0]) for rnd in rounds}) > 1
    for rnd in rounds:
        now = rnd.fed.validation
        assert now is not None
        assert [sorted(r // concepts for r in rows) for rows in rows_of(now)] == examples
        for client, rows in enumerate(rows_of(now)):
            assert {row % concepts for row in rows} == {int(rnd.fed.group[client])}


def spoilt(job: Job) -> Job:
    """The job with noise for validation images, and the next class for validation labels."""
    pool = next(iter(job.federations.values())).pool
    rows = torch.cat([f.validation.index.long() for f in job.federations.values() if f.validation])
    every = rows.unsqueeze(1) // pool.concepts * pool.concepts + torch.arange(pool.concepts)
    others = torch.cat(
        [s.index.long() for f in job.federations.values() for s in (f.train, f.test)]
    )
    apart = every.flatten()[~torch.isin(every.flatten(), others)]
    assert len(apart) > 20
    x, y = pool.x.clone(), pool.y.clone()
    y[apart] = (y[apart] + 1) % pool.num_classes
    images = pool.images(apart)
    x[images] = torch.randint(0, 17, x[images].shape).to(x.dtype)
    return on(job, replace(pool, x=x, y=y))


def on(job: Job, changed: Pool) -> Job:
    """The job with other examples, by the loop engine."""
    pool = next(iter(job.federations.values())).pool
    federations = {seed: replace(f, pool=changed) for seed, f in job.federations.items()}
    model = Objects().make(
        config_of("fedavg")["model"], "model", in_shape=pool.shape, num_classes=pool.num_classes
    )
    engine = make_engine("loop", model, changed, None)
    return replace(job, federations=federations, engine=engine)


@pytest.mark.full
@pytest.mark.parametrize("scenario", ["static", "drift"])  # which is also tested at changes
def test_with_validation_examples_test_data_do_not_decide_whether_a_run_goes_on(
    scenario: str, tmp_path: Path
) -> None:
    small: dict[str, Any] = {"validation": 0.25, "engine": "loop", "rounds": 4}
    config = {**config_in("fedavg", scenario), **small}
    job = build(config)
    pool, x = job.federations[0].pool, job.federations[0].pool.x.float()
    for fed in job.federations.values():
        x[pool.images(fed.test.index.long())] = torch.nan
    run(on(job, replace(pool, x=x)), RunFolder(tmp_path, config), Silent())
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["seeds"] == {"0": "ok", "1": "ok"}
    found = table(tmp_path)
    assert found[found["metric"] == "validation_loss"]["value"].astype(float).notna().all()


@pytest.mark.full
@pytest.mark.parametrize(
    ("algorithm", "scenario"), [("ifca", "newcomers"), ("lcfl", "swap_part"), ("fedem", "drift")]
)
def test_validation_examples_change_validation_columns_alone(
    algorithm: str, scenario: str, tmp_path: Path
) -> None:
    config: dict[str, Any] = {
        **config_in(algorithm, scenario),
        **{"validation": 0.25, "seeds": [0], "engine": "loop"},
    }
    job = build(config)
    for name, one in (("plain", job), ("spoilt", spoilt(job))):
        run(one, RunFolder(tmp_path / name, config), Silent())
    before, after = (table(tmp_path / name) for name in ("plain", "spoilt"))
    pd.testing.assert_frame_equal(
        *(t[~t["metric"].isin(OWN)].reset_index(drop=True) for t in (before, after))
    )
    changed = before["value"] != after["value"]
    assert set(before["metric"][changed]) == set(OWN)
    assert_same_bits(*(saved(tmp_path / name, 0)["state"] for name in ("plain", "spoilt")))


@dataclass(frozen=True, kw_only=True)
class Looking(FedAvg):
    """Refuses to see validation examples, anywhere it may look."""

    def init(self, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        assert rnd.fed.validation is None
        return super().init(clients, rnd)

    def round(self, state: Any, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        assert rnd.fed.validation is None
        assert clients.rnd.fed.validation is None  # type: ignore[attr-defined]
        return super().round(state, clients, rnd)

    def serve(self, state: Any, clients: Clients, rnd: Round) -> Served:
        assert rnd.fed.validation is None
        return super().serve(state, clients, rnd)


def test_a_method_never_sees_validation_examples(tmp_path: Path) -> None:
    config = {**config_in("fedavg", "drift"), "validation": 0.25, "rounds": 3}
    job = build(config)
    looking = Looking(solver=job.algorithm.solver)  # type: ignore[attr-defined]
    run(replace(job, algorithm=looking), RunFolder(tmp_path, config), Silent())
    assert set(OWN) <= set(table(tmp_path)["metric"])


def test_only_the_evaluator_names_them() -> None:
    package = CONF.parent / "fedclust"
    users = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if ".validation" in file.read_text().replace("fedclust.core.validation", "")
    }
    assert users == {
        "core/types.py",
        "datasets/fit.py",  # moves its rows with the others to scaled copies
        "runtime/run.py",
        "runtime/simulation.py",
    }


@pytest.mark.full
def test_an_interrupted_run_and_seeds_together_give_the_same_bits(tmp_path: Path) -> None:
    config = {**config_in("ifca", "drift"), "validation": 0.25, "engine": "loop"}
    check_config(config, tmp_path, after=(1, 4))
    alone = {**config, "seeds": [1]}
    run(build(alone), RunFolder(tmp_path / "alone", alone), Silent())
    together = table(tmp_path / "whole")
    one = together[together["seed"] == "1"].reset_index(drop=True)
    pd.testing.assert_frame_equal(one, table(tmp_path / "alone"))


def test_the_numbers_are_means_over_all_validation_examples() -> None:
    evaluation = Evaluation(
        served=Served(models=torch.zeros(1, 1), label=torch.tensor([0, 0, -1])),
        loss_sum=torch.tensor([2.0, 7.0, 0.0], dtype=torch.float64),
        sums=torch.tensor([[1.0], [5.0], [0.0]]).double(),
        count=torch.tensor([2, 10, 0]),
    )
    assert validation_accuracy(evaluation, Classification()) == {
        "validation_accuracy": 0.5,
        "validation_loss": 0.75,
        "served": pytest.approx(2 / 3),
    }
    nobody = Evaluation(
        served=replace(evaluation.served, label=torch.full((3,), -1)),
        loss_sum=torch.zeros(3, dtype=torch.float64),
        sums=torch.zeros(3, 1),
        count=torch.zeros(3, dtype=torch.int64),
    )
    assert validation_accuracy(nobody, Classification()) == {"served": 0.0}
