"""What a method of one's own gets wrong is one line, before any work depends on it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from configs import composed
from digits_jobs import config_of, job_of
from torch import Tensor

from fedclust.algorithms.layers.finetune import FineTune
from fedclust.config.values import check_method
from fedclust.core.types import ClientModels, Cost, Served
from fedclust.core.verbs import Method
from fedclust.engines import sums
from fedclust.helpers.errors import ConfigError, MemoryShort
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.progress import Silent
from fedclust.runtime.run import check_memory, needs, run, short_of_disk
from fedclust.scenarios.newcomers import Newcomers

CONFIG = config_of("fedavg")


@dataclass(frozen=True)
class State:
    """What the broken methods below keep."""

    model: Tensor


@dataclass(frozen=True)
class Broken(Method):
    """A method whose first state, and what comes of a round, are given; it counts its rounds."""

    first: Callable[[Tensor], Any]
    after: Callable[[Tensor], Any]
    rounds: list[int]
    State = State

    def init(self, clients: Any, rnd: Any) -> Any:
        return self.first(clients.init(rnd.stream("init"), 1))

    def round(self, state: Any, clients: Any, rnd: Any) -> Any:
        self.rounds.append(rnd.t)
        return self.after(state.model)

    def serve(self, state: Any, clients: Any, rnd: Any) -> Served:
        return Served(models=state.model, label=torch.zeros_like(rnd.fed.group))


def fine(model: Tensor) -> tuple[State, Cost]:
    return State(model), Cost()


def refused(folder: Path, first: Callable[..., Any], after: Callable[..., Any]) -> tuple[str, int]:
    """The line about a job with such a method, and how many rounds were begun."""
    begun: list[int] = []
    job = replace(job_of("fedavg"), algorithm=Broken(first, after, begun))
    with pytest.raises(ConfigError) as error:
        run(job, RunFolder(folder, CONFIG), Silent())
    assert not folder.exists()
    assert "\n" not in str(error.value)
    return str(error.value), len(begun)


def test_a_first_state_that_cannot_be_saved_is_refused_before_round_0(tmp_path: Path) -> None:
    said, rounds = refused(tmp_path / "job", lambda model: (State([model]), Cost()), fine)  # type: ignore[arg-type]
    assert said.startswith("Broken.State.model is a list in seed 0: a State holds tensors and")
    assert rounds == 0


def test_a_state_that_cannot_be_saved_after_round_0_is_refused_then(tmp_path: Path) -> None:
    after = lambda model: (State({"a": model}), Cost())  # type: ignore[arg-type]  # noqa: E731
    said, rounds = refused(tmp_path / "job", fine, after)
    assert "Broken.State.model is a dict in seed 0" in said
    assert rounds <= 2  # of the two seeds


@pytest.mark.parametrize(
    ("returned", "named"),
    [
        (lambda model: State(model), "Broken.init returned State in seed 0"),
        (lambda model: (model, Cost()), "Broken.init returned (Tensor, Cost) in seed 0"),
        (lambda model: (State(model), None), "Broken.init returned (State, NoneType) in seed 0"),
    ],
    ids=["no cost", "a tensor", "cost None"],
)
def test_what_is_no_state_and_cost_is_named(
    tmp_path: Path, returned: Callable[..., Any], named: str
) -> None:
    said, rounds = refused(tmp_path / "job", returned, fine)
    assert said == f"{named}: expected a State and a Cost"
    assert rounds == 0


def test_a_number_that_nobody_documents_names_the_method_and_the_way_out(tmp_path: Path) -> None:
    noting = lambda model: (State(model), Cost(notes={"surprise": 1.0}))  # noqa: E731
    said, rounds = refused(tmp_path / "init", noting, fine)
    assert said == (
        "Broken.init records surprise, and nobody says what it is: call "
        'fedclust.metrics.document("surprise", …) in the file of Broken'
    )
    assert rounds == 0
    assert refused(tmp_path / "round", fine, noting)[0].startswith("Broken.round records surprise")


@pytest.mark.parametrize(
    ("served", "named"),
    [
        (lambda s: replace(s, label=s.label.float()), "label [8] of torch.float32 in seed 0"),
        (lambda s: replace(s, label=s.label[:3]), "label [3] of torch.int64 in seed 0"),
        (lambda s: replace(s, label=s.label + 3), "label 3 for client 0 in seed 0, and 1 model"),
        (lambda s: replace(s, label=s.label - 2), "label -2 for client 0 in seed 0, and 1 model"),
        (lambda s: replace(s, models=s.models[0]), "models [650] of torch.float32 in seed 0"),
    ],
    ids=["floats", "too few", "too high", "too low", "one model"],
)
def test_what_is_served_has_a_shape(
    tmp_path: Path, served: Callable[[Served], Served], named: str
) -> None:
    @dataclass(frozen=True)
    class Serving(Broken):
        def serve(self, state: Any, clients: Any, rnd: Any) -> Served:
            return served(super().serve(state, clients, rnd))

    job = replace(job_of("fedavg"), algorithm=Serving(fine, fine, []))
    with pytest.raises(ConfigError, match=re.escape(f"Serving.serve returned {named}: expected")):
        run(job, RunFolder(tmp_path / "job", CONFIG), Silent())
    assert not (tmp_path / "job").exists()


def test_clients_that_have_not_arrived_are_served_by_nobody(tmp_path: Path) -> None:
    late = Newcomers(fraction=0.25, arrive_at=[3])
    job = replace(job_of("fedavg"), algorithm=Broken(fine, fine, []), scenario=late)
    with pytest.raises(ConfigError, match="which has not arrived: expected -1 where"):
        run(job, RunFolder(tmp_path / "job", CONFIG), Silent())
    assert not (tmp_path / "job").exists()


def test_what_is_annotated_as_models_of_clients_is_that(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Kept:
        model: ClientModels

    algorithm = Broken(lambda m: (Kept(m), Cost()), fine, [])  # type: ignore[arg-type]
    object.__setattr__(algorithm, "State", Kept)
    job = replace(job_of("fedavg"), algorithm=algorithm)
    with pytest.raises(ConfigError, match="model is annotated ClientModels and holds a Tensor"):
        run(job, RunFolder(tmp_path / "job", CONFIG), Silent())

    unmarked = Broken(lambda m: (State(ClientModels.of(m)), Cost()), fine, [])  # type: ignore[arg-type]
    job = replace(job_of("fedavg"), algorithm=unmarked)
    with pytest.raises(ConfigError, match="model holds ClientModels in seed 0 and is not annotat"):
        run(job, RunFolder(tmp_path / "job", CONFIG), Silent())


def test_annotations_that_only_a_type_checker_knows_are_no_error(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Unknown:
        model: Nowhere  # type: ignore[name-defined]  # noqa: F821

    algorithm = replace(Broken(lambda m: (Unknown(m), Cost()), lambda m: (Unknown(m), Cost()), []))
    object.__setattr__(algorithm, "State", Unknown)
    run(
        replace(job_of("fedavg"), algorithm=algorithm, rounds=1),
        RunFolder(tmp_path / "job", {**CONFIG, "rounds": 1}),
        Silent(),
    )
    assert (tmp_path / "job" / "summary.csv").is_file()


MODEL = 4 * 650  # bytes of softmax regression on 8 x 8 pixels


@pytest.mark.parametrize(
    ("algorithm", "server", "kept"), [("fedavg", 1, 0), ("local", 1, 8), ("lcfl", 4, 8)]
)
def test_what_a_job_needs_is_counted(
    monkeypatch: pytest.MonkeyPatch, algorithm: str, server: int, kept: int
) -> None:
    """Eight clients, four of them in a cohort, two seeds."""
    job = job_of(algorithm)
    kept_rows = replace(job, discrepancy=True)
    sizes = list(needs(job, config_of(algorithm), 8).items())
    longest = max(int(fed.test.count.max()) for fed in job.federations.values())
    assert [size for _, size in sizes] == [
        2 * MODEL * server,
        2 * MODEL * 4,
        2 * 2 * MODEL * kept,
        2 * 16 * 8 * longest,
        *([20 * 8 * 8] if algorithm == "lcfl" else []),
    ]
    with monkeypatch.context() as patch:
        patch.setattr(sums, "_BLOCK_CPU", 3 * 650)
        cohort = [list(needs(one, config_of(algorithm), 8).values())[1] for one in (job, kept_rows)]
        assert cohort == [2 * MODEL * 3, 2 * MODEL * 4], "what is only averaged is not kept"
    noun = "model" if server == 1 else "models"
    assert sizes[0][0] == f"{server} {noun} of the server with 650 parameters each, in 2 seeds"
    assert sizes[2][0] == f"{kept} models that clients keep, before and after a round, in 2 seeds"


@pytest.mark.parametrize("algorithm", ["lcfl", "fedclust", "pacfl", "cfl_gp", "fedgwc", "finetune"])
def test_tables_of_all_pairs_of_clients_are_counted(
    monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    """Of 100,000 clients: 20 bytes for every pair are 186 GiB, whatever the model."""
    job = job_of("fedavg")
    base: Any = job_of("lcfl").algorithm
    method: Any = FineTune(base=base, solver=base.solver, epochs=1)
    job = replace(job, algorithm=method if algorithm == "finetune" else job_of(algorithm).algorithm)
    monkeypatch.setattr("fedclust.runtime.memory.available", lambda _: 100 * 2**30)
    with pytest.raises(MemoryShort, match=r"of all pairs|distances between 100000 clients") as told:
        check_memory(job, config_of("fedavg"), 100_000)
    assert (algorithm in ("lcfl", "finetune")) == ("cluster_metric.landmarks" in str(told.value))
    check_memory(job, config_of("fedavg"), 1_000)


@pytest.mark.parametrize(
    ("algorithm", "models"), [("local", 8), ("fedavg", 1), ("ifca", 4), ("lcfl", 12)]
)
def test_a_disk_too_small_for_the_checkpoints_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, algorithm: str, models: int
) -> None:
    """Eight clients, four clusters, two seeds; three checkpoints while the third is written."""
    enough = 3 * 2 * models * MODEL

    def said(free: int, first: int = 0) -> str:
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
        return short_of_disk(job_of(algorithm), config_of(algorithm), tmp_path, first)

    assert said(enough) == ""
    assert said(enough - 1).startswith("the checkpoints of this job take ")
    assert said(enough // 3, first=1) == "", "the next one alone, of a job that goes on"


FINDERS = "diffnorm, fedclust, flhc, flux, gradcos, hcfl, kmeans_models, lcfed, lcfl, ocfl, pacfl"


@pytest.mark.full
@pytest.mark.parametrize(
    ("choices", "name"),
    [
        ({"algorithm": "ifca"}, "ifca"),
        ({"algorithm": "finetune", "algorithm@algorithm.base": "ifca"}, "ifca"),
        ({"algorithm": "cfl_gp"}, "cfl_gp"),
    ],
)
def test_auto_is_refused_with_who_takes_it(choices: dict[str, str], name: str) -> None:
    given = [f"{key}={one}" for key, one in choices.items()]
    config = composed(*given, "num_clusters=auto") | {"choices": choices}
    with pytest.raises(ConfigError) as refused:
        check_method(config)
    assert str(refused.value) == (
        f"num_clusters=auto is not allowed: {name} takes an integer in [1, 1,000,000,000]; "
        f"methods that find the number are {FINDERS}"
    )


@pytest.mark.thinned
@pytest.mark.parametrize("name", FINDERS.split(", "))
def test_those_that_are_named_take_auto(name: str) -> None:
    config = composed(f"algorithm={name}", "num_clusters=auto")
    check_method(config)
    said = json.dumps(config["algorithm"])
    assert '"num_clusters": "auto"' in said or "Hdbscan" in said  # which never takes a number
