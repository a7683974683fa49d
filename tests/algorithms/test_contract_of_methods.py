"""What a method of one's own must leave alone, and what its shares and costs must be."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from digits_jobs import config_of, job_of

from fedclust.algorithms.fedavg import FedAvg
from fedclust.core.types import Cost, Served
from fedclust.helpers.errors import ConfigError
from fedclust.metrics.summary import objective
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.progress import Silent
from fedclust.runtime.run import run

Verb = Callable[..., Any]
CONFIG = config_of("fedavg")


def run_with(folder: Path, **verbs: Verb) -> None:
    """Run FedAvg with functions around its own: each gets the method's and its arguments."""

    def around(name: str, given: Verb) -> Verb:
        own = getattr(FedAvg, name)
        return lambda self, *args: given(lambda: own(self, *args), *args)

    kind = type("Mine", (FedAvg,), {name: around(name, one) for name, one in verbs.items()})
    given = job_of("fedavg")
    values = {name: getattr(given.algorithm, name) for name in given.algorithm.__dataclass_fields__}
    run(replace(given, algorithm=kind(**values)), RunFolder(folder, CONFIG), Silent())


def refused(folder: Path, says: str, **verbs: Verb) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)) as error:
        run_with(folder, **verbs)
    assert "\n" not in str(error.value)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("rnd.fed.pool.y", lambda rnd: rnd.fed.pool.y),
        ("rnd.fed.pool.x", lambda rnd: rnd.fed.pool.x.view(-1)),
        ("rnd.fed.train.index", lambda rnd: rnd.fed.train.index),
        ("rnd.fed.test.index", lambda rnd: rnd.fed.test.index),
        ("rnd.fed.group", lambda rnd: rnd.fed.group),
        ("rnd.cohort", lambda rnd: rnd.cohort),
        ("rnd.present", lambda rnd: rnd.present),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_data_may_not_be_changed(tmp_path: Path, name: str, part: Callable[[Any], Any]) -> None:
    def writing(own: Verb, _state: Any, _clients: Any, rnd: Any) -> Any:
        tensor = part(rnd)
        tensor.copy_(tensor.clone())  # what is there, since other tests meet these data too
        return own()

    says = f"Mine.round changes {name} in place in seed 0, round 0"
    refused(tmp_path / "job", says, round=writing)


@pytest.mark.parametrize("verb", ["round", "serve"])
def test_a_state_may_not_be_changed(tmp_path: Path, verb: str) -> None:
    def halved(own: Verb, state: Any, *_: Any) -> Any:
        state.model.mul_(0.5)
        return own()

    says = f"Mine.{verb} changes State.model in place in seed 0, round 0"
    refused(tmp_path / "job", says, **{verb: halved})


@pytest.mark.parametrize("verb", ["init", "round", "serve"])
@pytest.mark.parametrize(
    ("whose", "draw"),
    [
        ("PyTorch", lambda: torch.rand(1)),
        ("NumPy", lambda: np.random.rand()),
        ("Python", random.random),
    ],
    ids=["torch", "numpy", "random"],
)
def test_global_random_numbers_may_not_be_drawn(
    tmp_path: Path, verb: str, whose: str, draw: Callable[[], Any]
) -> None:
    def drawing(own: Verb, *_: Any) -> Any:
        draw()
        return own()

    says = f"Mine.{verb} uses the global random numbers of {whose} in seed 0, round 0"
    refused(tmp_path / "job", says, **{verb: drawing})


def test_a_librarys_thread_may_draw_from_pythons_generator(tmp_path: Path) -> None:
    """A tracker's, for instance, waits for a random time before it connects again."""
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()

    def meanwhile(own: Verb, *_: Any) -> Any:
        random.random()  # stands for a draw of the thread
        return own()

    try:
        run_with(tmp_path / "job", round=meanwhile)
    finally:
        ended.set()
        thread.join()
    assert (tmp_path / "job" / "summary.csv").is_file()


def shared(share: list[float], label: int) -> Verb:
    """`serve` of two copies of the model, in these shares for every client."""

    def serve(own: Verb, *_: Any) -> Served:
        one: Served = own()
        weight = torch.tensor([share]).repeat(len(one.label), 1)
        both = one.models.repeat(2, 1)
        return Served(models=both, label=torch.full_like(one.label, label), weight=weight)

    return serve


@pytest.mark.parametrize(
    ("share", "label", "says"),
    [
        ([1.0, 1.0], 0, "shares for client 0 in seed 0 whose sum is 2 and whose least is 1: "),
        ([1.5, -0.5], 0, "shares for client 0 in seed 0 whose sum is 1 and whose least is -0.5"),
        ([float("nan")] * 2, 0, "shares for client 0 in seed 0 whose sum is nan"),
        ([0.3, 0.7], 0, "label 0 for client 0 in seed 0, whose largest share is that of model 1"),
        ([0.3, 0.3, 0.4], 0, "weight [8, 3] of torch.float32 in seed 0: expected [8, 2] of"),
    ],
    ids=["twice", "negative", "nan", "another label", "three of two"],
)
def test_shares_are_shares(tmp_path: Path, share: list[float], label: int, says: str) -> None:
    refused(tmp_path / "job", f"Mine.serve returned {says}", serve=shared(share, label))


def test_shares_that_are_right_change_nothing(tmp_path: Path) -> None:
    run_with(tmp_path / "one")
    run_with(tmp_path / "both", serve=shared([0.25, 0.75], 1))
    one, both = (objective(tmp_path / name, "test_loss") for name in ("one", "both"))
    assert both == pytest.approx(one, rel=1e-6)


@pytest.mark.parametrize(
    ("cost", "says"),
    [
        (Cost(models_down=-1), "returned models_down=-1 in its Cost in seed 0: expected a whole"),
        (Cost(models_up=1.5), "returned models_up=1.5 in its Cost in seed 0"),  # type: ignore[arg-type]
        (Cost(notes={"bytes": 7.0}), "records bytes in the notes of its Cost, which every run"),
        (Cost(notes={"accuracy": 1.0}), "records accuracy in the notes"),
        (Cost(notes={"accuracy_client_mean": 1.0}), "records accuracy_client_mean in the notes"),
        (Cost(notes={"auroc": 1.0}), "records auroc, and nobody says what it is"),
    ],
    ids=["below 0", "in part", "bytes", "accuracy", "client mean", "unknown"],
)
def test_costs_are_counts_and_notes_the_methods_own(tmp_path: Path, cost: Cost, says: str) -> None:
    def costing(own: Verb, *_: Any) -> Any:
        return own()[0], cost

    refused(tmp_path / "job", f"Mine.round {says}", round=costing)


def test_labels_in_a_list_are_one_line(tmp_path: Path) -> None:
    def serve(own: Verb, *_: Any) -> Served:
        return replace(own(), label=[0] * 8)

    says = "Mine.serve returned label a list in seed 0: expected [8] of torch.int64"
    refused(tmp_path / "job", says, serve=serve)


def test_a_method_that_serves_nobody_is_told_so(tmp_path: Path) -> None:
    def serve(own: Verb, *_: Any) -> Served:
        one: Served = own()
        return replace(one, label=torch.full_like(one.label, -1))

    run_with(tmp_path / "job", serve=serve)
    with pytest.raises(ConfigError, match="has tested nobody: the method gives no client a model"):
        objective(tmp_path / "job", None)


@dataclass(frozen=True)
class Late:
    """Draws from PyTorch's generator in one round alone."""

    at: int

    def __call__(self, own: Verb, _state: Any, _clients: Any, rnd: Any) -> Any:
        if rnd.t == self.at:
            torch.rand(1)
        return own()


def test_generators_are_looked_at_again_later(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="random numbers of PyTorch in seed 0, round 1"):
        run_with(tmp_path / "job", round=Late(1))
