"""The first rounds of every method: as they were, in every engine, for seeds in any company."""

from __future__ import annotations

import dataclasses
import json
from functools import partial

import pytest
import torch
from digits_jobs import (
    ALGORITHMS,
    Played,
    engine_of,
    job_of,
    play,
    played_by_loop,
)
from golden import GOLDEN, KEPT, VERSIONS, digest, lines
from states import assert_same_bits

from fedclust.config.versions import ROUNDS
from fedclust.engines.lockstep import Lockstep
from fedclust.runtime.contract import fields_of

# losses and norms, relative; machines and numbers of threads differ in the order of sums only
TOLERANCE = 1e-4
ONE_EXAMPLE = 0.003  # of about 360 test examples, one may lie on the border between two classes

# one for every way to call the engine; the others take a minute
_QUICK = ("cfl_mgd", "fedavg", "feddrift", "flexcfl", "ifca", "jgl", "lcfl", "scaffold")
AS_ALONE = [
    pytest.param(name, marks=() if name in _QUICK else pytest.mark.slow) for name in ALGORITHMS
]


@pytest.fixture(params=ALGORITHMS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.thinned
def test_first_rounds_are_as_they_were(name: str) -> None:
    golden = json.loads(GOLDEN.read_text())
    assert name in golden, "a new algorithm: run PYTHONPATH=tests python tests/algorithms/golden.py"
    assert len(golden[name]) == len(KEPT)
    for got, want in zip(lines(name), golden[name], strict=True):
        assert got["round"] == want["round"]
        assert got["label"] == want["label"]
        assert got["purity"] == want["purity"] or got["purity"] == pytest.approx(want["purity"])
        assert got["accuracy"] == pytest.approx(want["accuracy"], abs=ONE_EXAMPLE)
        for loss in ("train_loss", "test_loss"):
            assert got[loss] == pytest.approx(want[loss], rel=TOLERANCE)
        assert got["norm"] == pytest.approx(want["norm"], rel=TOLERANCE)
        assert got["mean"] == pytest.approx(want["mean"], rel=TOLERANCE, abs=1e-6)


def test_golden_rounds_are_those_of_a_version_and_of_no_algorithm_that_is_gone() -> None:
    golden, versions = json.loads(GOLDEN.read_text()), json.loads(VERSIONS.read_text())
    assert sorted(golden) == ALGORITHMS
    assert {name: digest(rows) for name, rows in golden.items()} == {
        name: of_rounds for name, (version, of_rounds) in versions.items() if version <= ROUNDS
    }


@pytest.mark.full
@pytest.mark.parametrize("engine", ["vmap", "fused"])
def test_every_engine_gives_the_same_rounds(name: str, engine: str) -> None:
    assert_alike(play(job_of(name), engine_of(engine, name)), played_by_loop(name))


def assert_alike(got: list[Played], want: list[Played]) -> None:
    """The same labels and costs, and losses, accuracies and models equal to rounding."""
    for one, other in zip(got, want, strict=True):
        assert one.label == other.label
        assert one.accuracy == pytest.approx(other.accuracy, abs=ONE_EXAMPLE)
        assert one.test_loss == pytest.approx(other.test_loss, rel=TOLERANCE)
        models = one.evaluation.served.models.cpu(), other.evaluation.served.models.cpu()
        torch.testing.assert_close(*models, rtol=TOLERANCE, atol=1e-5)
        for mine, its in zip(one.reports, other.reports, strict=True):
            assert mine.train_loss == pytest.approx(its.train_loss, rel=TOLERANCE, nan_ok=True)
            assert mine.gradient_steps == its.gradient_steps
            assert (mine.models_down, mine.models_up) == (its.models_down, its.models_up)
            assert dict(mine.notes) == pytest.approx(dict(its.notes), rel=1e-3, abs=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("name", ["fedavg", "oracle", "ifca", "cfl_mgd", "lcfl", "flexcfl"])
def test_keeping_the_rows_changes_nothing(name: str) -> None:
    job = dataclasses.replace(job_of(name), discrepancy=True)
    for kept, other in zip(play(job, engine_of("loop", name)), played_by_loop(name), strict=True):
        assert_same_bits(fields_of(kept.state), fields_of(other.state))
        assert kept.reports[-1].train_loss == other.reports[-1].train_loss
        notes = dict(kept.reports[-1].notes)
        assert notes.pop("discrepancy") >= 0  # of one participant per group it is 0
        assert notes == other.reports[-1].notes


@pytest.mark.full
@pytest.mark.parametrize("method", AS_ALONE)
def test_seeds_in_lockstep_are_the_seeds_alone(method: str) -> None:
    job = job_of(method)
    lockstep = Lockstep(engine_of("loop", method))
    together = lockstep.map({seed: partial(play, job, lockstep, seed) for seed in (0, 1)})
    for seed in (0, 1):
        for one, other in zip(together[seed].outcome, played_by_loop(method, seed), strict=True):
            assert_same_bits(fields_of(one.state), fields_of(other.state))
            assert torch.equal(one.evaluation.loss_sum, other.evaluation.loss_sum)
            assert torch.equal(one.evaluation.sums, other.evaluation.sums)
